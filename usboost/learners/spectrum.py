"""Ridge regression from an eigendecomposition: every penalty, and every leave-one-out error, at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy.sparse import csr_array, hstack

from usboost.files.arrays import parts
from usboost.shards.collective import world

WIDE = 2_000
"""Indicators above which the rows are a sparse matrix: in a column of categories each has a single one."""

MOST_LEVELS = 1_000
"""Levels, the most frequent ones, that have a coefficient of their own where a dense matrix is needed."""

Matrix: TypeAlias = np.ndarray | csr_array
"""float32 (n, p)."""


def with_indicators(
    numbers: np.ndarray, codes: np.ndarray, cardinalities: Sequence[int], first: int = 0, sparse: bool = True
) -> Matrix:
    """Return numbers, float32 (n, m), then the indicators of codes, int (n, c), below the cardinalities.

    `first` is the code whose indicator is a column's first; rows of lower codes have only zeros. If `sparse`,
    rows of more than `WIDE` indicators are a sparse matrix.
    """
    starts = np.cumsum([numbers.shape[1], *(count - first for count in cardinalities)])
    n, m = numbers.shape
    if not sparse or starts[-1] - m <= WIDE:
        matrix = np.zeros((n, starts[-1]), dtype=np.float32)
        matrix[:, :m] = numbers
        for start, column in zip(starts, codes.T):
            known = np.flatnonzero(column >= first)
            matrix[known, start + column[known] - first] = 1.0
        return matrix
    rows, columns = np.nonzero(codes >= first)
    places = starts[columns] + codes[rows, columns] - first - m
    ones = csr_array((np.ones(len(rows), np.float32), (rows, places)), shape=(n, starts[-1] - m))
    return csr_array(hstack([csr_array(numbers.astype(np.float32)), ones], format="csr"))


def frequent(rows: csr_array) -> np.ndarray:
    """Return the columns of sparse rows to read, int (k,), ascending: numbers, and `MOST_LEVELS` levels.

    Levels' values are all 1; the others' coefficients are 0, as those of levels never seen.
    """
    filled = world().sum(np.bincount(rows.indices, minlength=rows.shape[1]))
    number = world().sum(np.bincount(rows.indices[rows.data != 1], minlength=rows.shape[1])) > 0
    order = np.argsort(np.where(number, -world().sum(rows.shape[0]) - 1, -filled), kind="stable")
    return np.sort(order[: int(number.sum()) + MOST_LEVELS])


BLOCK = 4096
"""Rows at a time where something larger than the table would be made."""

SMALL = 2**20
"""Numbers in a table below which all is done in float64, which then costs nothing."""

LOWEST = 1e-10
"""Directions in which the table varies less, as a share of the first one's variance, are left out."""

GRID = np.concatenate(([np.inf], np.logspace(5, -4, 19)))
"""Penalties to choose from, as multiples of the table's mean eigenvalue; infinity is the mean alone."""


@dataclass(frozen=True)
class Solution:
    """A ridge regression of n rows, its coefficients, (p, D), intercept, (D,), and penalty, and `left_out`.

    These are the leave-one-out predictions, float64 (n, D). With an infinite penalty all are the mean.
    """

    coefficients: np.ndarray
    intercept: np.ndarray
    alpha: float
    left_out: np.ndarray


class Spectrum:
    """The eigenbasis of a table's centred rows, from which ridge regressions on it are read off.

    They minimise Σ_i w_i ‖y_i − b − x_i W‖² + α ‖W‖², the weights scaled to a mean of 1. With the centred
    rows √w_i (x_i − x̄) = U S Vᵀ, a row's leave-one-out residual is e_i / (1 − h_i), where
    e = y − ŷ and h_i = w_i/Σw + Σ_j u_ij² s_j²/(s_j² + α): no regression is fitted again. A row that stands
    for c_i rows is left out as a whole: of equal rows the others would tell it, and no penalty seem needed.

    Parameters
    ----------
    rows : float32 (n, p); of sparse ones the columns that `frequent` names, the others are taken for 0
    weights : float (n,), all positive, or None for equal ones
    counts : float (n,), all positive, or None for 1: c, by which w is multiplied; w then has the mean 1 over
        all rows that the n stand for

    Attributes
    ----------
    eigenvalues : float64 (r,), s_j²; mean : float64 (p,), x̄
    scale : the mean eigenvalue of the table's columns; 1 for a table that says nothing
    directions : (p, r), V; basis : (n, r), U; float64, or float32 for large tables
    """

    def __init__(
        self, rows: Matrix, weights: np.ndarray | None = None, counts: np.ndarray | None = None
    ) -> None:
        width, read = rows.shape[1], None
        if isinstance(rows, csr_array):
            read = frequent(rows)
            rows = rows[:, read].toarray()
        n, p = rows.shape
        total = world().sum(n)
        self.weights = np.ones(n) if weights is None else weights / weights.mean()
        if counts is not None:
            self.weights = (
                counts if weights is None else counts * weights / np.average(weights, weights=counts)
            )
        self.share = self.weights / world().sum(self.weights.sum())
        self.root = np.sqrt(self.weights)[:, None]
        rows = rows.astype(np.float64) if total * p < SMALL else rows
        own = sum((self.share[at] @ rows[at].astype(np.float64) for at in parts(n, BLOCK)), np.zeros(p))
        self.mean = world().sum(own)
        centred = (rows - self.mean.astype(rows.dtype)) * self.root.astype(rows.dtype)
        self.eigenvalues, self.directions, self.basis = _decomposed(centred)
        if read is not None:
            for name in ("mean", "directions"):  # zeros for the columns that are not read
                own = getattr(self, name)
                whole = np.zeros((width, *own.shape[1:]), dtype=own.dtype)
                whole[read] = own
                setattr(self, name, whole)
        self.scale = float(self.eigenvalues.sum() / max(1, len(self.mean))) or 1.0
        self.full = len(self.eigenvalues) >= total - 1  # the rows can follow any target
        self._squares = np.square(self.basis)

    def solve(self, values: np.ndarray, alphas: np.ndarray | None) -> Solution:
        """Return the regression of the penalty of least weighted leave-one-out error; the first of equals.

        Parameters
        ----------
        values : float (n, D)
        alphas : (A,) penalties, positive, infinity among them if it is to be tried; by default `GRID` times
            the scale
        """
        alphas = GRID * self.scale if alphas is None else alphas
        mean = world().sum(self.share @ values)
        target = (values - mean) * self.root
        along = self.along(target)
        # what no direction of the table reaches; every penalty leaves it
        across = np.zeros_like(target) if self.full else target - self.spread(along)
        errors = np.zeros(len(alphas))
        for at in parts(len(values), BLOCK):
            errors += np.square(self._residuals(along, across, alphas, at)).sum(axis=(0, 2))
        # of equals the first, which is the strongest penalty where they are given from the top
        best = alphas[[np.argmin(world().sum(errors))]]
        residuals = np.concatenate(
            # one part at least, of a shard without rows too
            [self._residuals(along, across, best, at)[:, 0] for at in parts(max(len(values), 1), BLOCK)]
        )
        alpha = float(best[0])
        shrunk = along * (np.sqrt(self.eigenvalues) / (self.eigenvalues + alpha))[:, None]
        coefficients = self.directions @ shrunk
        left_out = values - residuals / self.root
        if np.isinf(alpha):
            # the other rows' mean is the mean less the row's own part: a direction against its target, along
            # which a step would be found for what is next to nothing
            left_out[:] = mean
        return Solution(coefficients, mean - self.mean @ coefficients, alpha, left_out)

    def path(self, values: np.ndarray, alphas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the regressions of values (n,) by every penalty: coefficients (p, A) and intercepts (A,)."""
        mean = float(world().sum(self.share @ values))
        along = self.along(((values - mean) * self.root[:, 0])[:, None])
        shrunk = along * np.sqrt(self.eigenvalues)[:, None] / (self.eigenvalues[:, None] + alphas)
        coefficients = self.directions @ shrunk
        return coefficients, mean - self.mean @ coefficients

    def along(self, target: np.ndarray) -> np.ndarray:
        """Return Uᵀ target: float64 (r, D)."""
        own = (self.basis.T @ target.astype(self.basis.dtype)).astype(np.float64)
        return np.asarray(world().sum(own))

    def spread(self, along: np.ndarray) -> np.ndarray:
        """Return U along: float64 (n, D)."""
        return (self.basis @ along.astype(self.basis.dtype)).astype(np.float64)

    def _residuals(self, along: np.ndarray, across: np.ndarray, alphas: np.ndarray, at: slice) -> np.ndarray:
        """Return √w times the leave-one-out residuals of some rows: float64 (k, A, D).

        From what a penalty takes away, α/(s² + α), not from what it leaves: no digits are lost where the
        regression nearly follows its targets.
        """
        kind, (r, d) = self.basis.dtype, along.shape
        taken = 1.0 / (1.0 + self.eigenvalues[:, None] / alphas)
        lost = (taken[:, :, None] * along[:, None, :]).reshape(r, len(alphas) * d).astype(kind)
        residuals = across[at, None, :] + (self.basis[at] @ lost).reshape(-1, len(alphas), d)
        squares = self._squares[at]
        # 1 − h_i as the sum of two parts that are not negative: what the basis does not reach, and what the
        # penalty keeps back; where the rows can follow any target the first is rounding alone
        free = 1.0 - self.share[at] - squares.sum(axis=1, dtype=np.float64)
        free = np.zeros_like(free) if self.full else np.maximum(free, 0.0)
        remainder = free[:, None] + squares @ taken.astype(kind)
        return residuals / np.maximum(remainder, 1e-9)[:, :, None]


def _decomposed(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return S², V and U of rows (n, p) = U S Vᵀ, from the smaller of the two Gram matrices, in float64."""
    n, p = rows.shape
    wide = p > n and world().count == 1
    gram = np.zeros((n if wide else p,) * 2)
    for at in parts(p if wide else n, BLOCK):
        part = (rows[:, at].T if wide else rows[at]).astype(np.float64)
        gram += part.T @ part
    gram = world().sum(gram)
    values, vectors = world().once(lambda: np.linalg.eigh(gram))
    # a Gram matrix squares singular values: below some 1e-16 of the first they are rounding
    large = values > LOWEST * values[-1] if len(values) else np.zeros(0, dtype=bool)
    values, vectors = values[large], vectors[:, large]
    other = (vectors / np.sqrt(values)).astype(rows.dtype)
    if wide:
        return values, rows.T @ other, vectors.astype(rows.dtype)
    return values, vectors.astype(rows.dtype), rows @ other

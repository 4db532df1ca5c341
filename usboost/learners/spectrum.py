"""Ridge regression from an eigendecomposition: every penalty, and every leave-one-out error, at once.

On several shards of a fit n are this shard's rows, and the regression is that of all shards' rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from usboost.learners.indicators import Rows, frequent
from usboost.shards.here import here

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
    """A ridge regression of n rows, and what it gives each row when it is fitted without it.

    Attributes
    ----------
    coefficients : float64 (p, D); intercept : float64 (D,)
    alpha : the penalty, infinite where the mean is the best there is
    left_out : float64 (n, D), the leave-one-out predictions; with the mean alone that of all rows
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
    directions : (p, r), V; basis : (n, r), U; float64, or float32 for large tables
    """

    def __init__(
        self, rows: Rows, weights: np.ndarray | None = None, counts: np.ndarray | None = None
    ) -> None:
        width, read = rows.shape[1], None
        if isinstance(rows, csr_array):
            read = frequent(rows)
            rows = rows[:, read].toarray()
        n, p = rows.shape
        total = here().sum(n)
        self.weights = np.ones(n) if weights is None else weights / weights.mean()
        if counts is not None:
            self.weights = (
                counts if weights is None else counts * weights / np.average(weights, weights=counts)
            )
        self.share = self.weights / here().sum(self.weights.sum())
        self.root = np.sqrt(self.weights)[:, None]
        rows = rows.astype(np.float64) if total * p < SMALL else rows
        own = sum((self.share[at] @ rows[at].astype(np.float64) for at in _blocks(n)), np.zeros(p))
        self.mean = here().sum(own)
        centred = (rows - self.mean.astype(rows.dtype)) * self.root.astype(rows.dtype)
        self.eigenvalues, self.directions, self.basis = _decomposed(centred)
        if read is not None:
            self.mean, self.directions = (_spread(each, read, width) for each in (self.mean, self.directions))
        self.full = len(self.eigenvalues) >= total - 1  # the rows can follow any target
        self._squares = np.square(self.basis)

    @property
    def scale(self) -> float:
        """The mean eigenvalue of the table's columns; 1 for a table that says nothing."""
        return float(self.eigenvalues.sum() / max(1, len(self.mean))) or 1.0

    def solve(self, values: np.ndarray, alphas: np.ndarray) -> Solution:
        """The regression of the penalty with the least weighted leave-one-out error; the first of equals.

        Parameters
        ----------
        values : float (n, D)
        alphas : (A,) penalties, positive, infinity among them if it is to be tried
        """
        mean = here().sum(self.share @ values)
        target = (values - mean) * self.root
        along = self.along(target)
        # what no direction of the table reaches; every penalty leaves it
        across = np.zeros_like(target) if self.full else target - self.spread(along)
        errors = np.zeros(len(alphas))
        for at in _blocks(len(values)):
            errors += np.square(self._residuals(along, across, alphas, at)).sum(axis=(0, 2))
        # of equals the first, which is the strongest penalty where they are given from the top
        best = alphas[[np.argmin(here().sum(errors))]]
        residuals = np.concatenate(
            [self._residuals(along, across, best, at)[:, 0] for at in _blocks(len(values))]
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
        """The regressions of values (n,) by every penalty: coefficients (p, A), intercepts (A,), float64."""
        mean = float(here().sum(self.share @ values))
        along = self.along(((values - mean) * self.root[:, 0])[:, None])
        shrunk = along * np.sqrt(self.eigenvalues)[:, None] / (self.eigenvalues[:, None] + alphas)
        coefficients = self.directions @ shrunk
        return coefficients, mean - self.mean @ coefficients

    def along(self, target: np.ndarray) -> np.ndarray:
        """Uᵀ target: float64 (r, D)."""
        found: np.ndarray = here().sum((self.basis.T @ target.astype(self.basis.dtype)).astype(np.float64))
        return found

    def spread(self, along: np.ndarray) -> np.ndarray:
        """U along: float64 (n, D)."""
        return (self.basis @ along.astype(self.basis.dtype)).astype(np.float64)

    def _residuals(self, along: np.ndarray, across: np.ndarray, alphas: np.ndarray, at: slice) -> np.ndarray:
        """√w times the leave-one-out residuals of some rows: float64 (k, A, D).

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
        kept = free[:, None] + squares @ taken.astype(kind)
        return residuals / np.maximum(kept, 1e-9)[:, :, None]


def _decomposed(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """S², V and U of rows (n, p) = U S Vᵀ, from the smaller of the two Gram matrices, in float64."""
    n, p = rows.shape
    wide = p > n and here().count == 1
    gram = np.zeros((n if wide else p,) * 2)
    for at in _blocks(p if wide else n):
        part = (rows[:, at].T if wide else rows[at]).astype(np.float64)
        gram += part.T @ part
    gram = here().sum(gram)
    values, vectors = here().once(lambda: np.linalg.eigh(gram))
    # a Gram matrix squares singular values: below some 1e-16 of the first they are rounding
    kept = values > LOWEST * values[-1] if len(values) else np.zeros(0, dtype=bool)
    values, vectors = values[kept], vectors[:, kept]
    other = (vectors / np.sqrt(values)).astype(rows.dtype)
    if wide:
        return values, rows.T @ other, vectors.astype(rows.dtype)
    return values, vectors.astype(rows.dtype), rows @ other


def _spread(values: np.ndarray, at: np.ndarray, width: int) -> np.ndarray:
    """Values (k, …) at their places among `width`, with zeros between them."""
    found = np.zeros((width, *values.shape[1:]), dtype=values.dtype)
    found[at] = values
    return found


def _blocks(n: int) -> Iterator[slice]:
    return (slice(start, min(start + BLOCK, n)) for start in range(0, max(n, 1), BLOCK))

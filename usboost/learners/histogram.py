"""Histograms: a table's columns in bins, and sums over the rows in them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from usboost.data.table import code_type
from usboost.files.arrays import parts, room
from usboost.shards.collective import world

BLOCK_ENTRIES = 1 << 17
"""Rows times columns that are summed in one go; fixed, so that the number of threads changes no sum."""


@dataclass(frozen=True)
class Bins:
    """A matrix, float32 (n, p), in bins. Bins of all columns follow one another, those of numbers first.

    Attributes
    ----------
    codes : uint8, int16 or int32 (n, p), bins from 0 in each column; in a file if the matrix is
    columns : int (p,), position in `matrix` of each column here: `n_numeric` numbers come first
    start : int (p + 1,), first bin of each column
    lowest, highest : float64 (bins,), least and largest value in a bin; of a category both are its code
    """

    matrix: np.ndarray
    codes: np.ndarray
    columns: np.ndarray
    n_numeric: int
    start: np.ndarray
    lowest: np.ndarray
    highest: np.ndarray

    @classmethod
    def of(
        cls, matrix: np.ndarray, categorical: Sequence[int], max_bin: int, counts: np.ndarray | None = None
    ) -> "Bins":
        """Put the columns in at most `max_bin` bins, or one for each category; a row is `counts` rows."""
        numeric = [j for j in range(matrix.shape[1]) if j not in categorical]
        columns = np.asarray([*numeric, *categorical], dtype=int)
        if world().count == 1:
            of_numbers = [numeric_bins(matrix[:, j], max_bin, counts) for j in numeric]
        else:  # of a sample of all shards' rows
            chosen = world().sample(len(matrix))
            rows = np.concatenate(world().gather(np.ascontiguousarray(matrix[chosen][:, numeric])))
            own = None if counts is None else np.concatenate(world().gather(counts[chosen]))
            of_numbers = world().once(lambda: [numeric_bins(column, max_bin, own) for column in rows.T])
        largest = world().highest(np.array([matrix[:, j].max(initial=0) for j in columns[len(numeric) :]]))
        categories = [np.arange(int(each) + 1, dtype=np.float64) for each in largest]
        ends = [*of_numbers, *zip(categories, categories)]
        start = np.cumsum([0, *(len(low) for low, _ in ends)])
        codes = room(matrix, matrix.shape, code_type(int(np.diff(start).max(initial=0))))
        for part in parts(len(matrix)):
            for k, column in enumerate(matrix[part, j] for j in columns):
                code = column
                if k < len(numeric):
                    # the first bin that does not end below it; the last one for what no sample has shown
                    code = np.minimum(np.searchsorted(ends[k][1], column), len(ends[k][1]) - 1)
                codes[part, k] = code
        lowest, highest = (np.concatenate([np.empty(0), *end]) for end in (zip(*ends) if ends else ((), ())))
        if world().count > 1:
            # bins of numbers came of a sample: their ends are those of all shards' rows, so that a threshold
            # between two bins parts the same rows in every shard
            numbers = slice(int(start[len(numeric)]))
            lowest[numbers], highest[numbers] = np.inf, -np.inf
            for part in parts(len(matrix)):
                for k, j in enumerate(numeric):
                    places = codes[part, k] + start[k]
                    np.minimum.at(lowest, places, matrix[part, j])
                    np.maximum.at(highest, places, matrix[part, j])
            lowest[numbers] = -world().highest(-lowest[numbers])
            highest[numbers] = world().highest(highest[numbers])
        return cls(matrix, codes, columns, len(numeric), start, lowest, highest)

    def __len__(self) -> int:
        return int(self.start[-1])

    @cached_property
    def pattern(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the ones of a block of rows as a sparse matrix, and where each row's begin."""
        size, p = max(1, BLOCK_ENTRIES // self.codes.shape[1]), self.codes.shape[1]
        return np.ones(size * p), np.arange(size + 1, dtype=np.int32) * p

    @property
    def first_category(self) -> int:
        """Return the first bin that is a category."""
        return int(self.start[self.n_numeric])


def numeric_bins(
    column: np.ndarray, max_bin: int, counts: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return least and largest value in each bin of a column (n,): float64 (bins,) each, at most `max_bin`.

    Every value has its own bin if there are few enough. Otherwise bins hold about as many rows each, and
    values that have as many rows alone share theirs with none. A row is `counts` rows, (n,), by default 1.
    """
    if counts is None:
        values, rows = np.unique(column, return_counts=True)
    else:
        values, place = np.unique(column, return_inverse=True)
        rows = np.bincount(place, counts)
    values = values.astype(np.float64)
    if len(values) <= max_bin:
        return values, values
    ends, total = np.cumsum(rows), len(column) if counts is None else rows.sum()
    # values with a bin's worth of rows alone, and an end that is never reached
    heavy = np.append(np.flatnonzero(rows * max_bin > total), len(values))
    first = [0]
    while first[-1] < len(values):
        at, room = first[-1], max_bin - len(first) + 1
        rows_before = ends[at] - rows[at]
        # where this bin ends if all that are left hold alike; it has one value at least, and no heavy one
        share = rows_before + (total - rows_before) / room
        after = max(at, int(np.searchsorted(ends, share, side="right")) - 1) + 1
        next_heavy = int(heavy[np.searchsorted(heavy, at)])
        first.append(len(values) if room == 1 else at + 1 if next_heavy == at else min(after, next_heavy))
    return values[first[:-1]], values[np.asarray(first[1:]) - 1]


TIE = 1e-12
"""Gains that differ by less, as a share of the squared length of the target, are equal."""

RIDGE = 1e-12
"""Added to a leaf's metric, as a share of the root's: a singular one then has an inverse."""


@dataclass(frozen=True)
class Moments:
    """Sums over rows, and the values and gains of leaves that follow from them.

    A row's C channels are weight·metric·value (D numbers; their sum is G), weight·metric (their sum is H:
    one number where it is a multiple of the identity, D of a diagonal one, else the D(D + 1)/2 of its lower
    triangle), and how many rows it is. Sums have the channels on their first axis.

    Attributes
    ----------
    channels : float64 (n, C); d : D, the number of outputs
    total : float64 (C,), the sums over all rows
    identity, ridge : float64 (C − D − 1,), the identity, and what is added to H when splits are compared
    tie : gains that differ by less are equal
    """

    channels: np.ndarray
    d: int
    total: np.ndarray
    identity: np.ndarray
    ridge: np.ndarray
    tie: float

    @classmethod
    def of(
        cls,
        values: np.ndarray,
        weights: np.ndarray | None,
        metric: np.ndarray | None,
        counts: np.ndarray | None = None,
    ) -> "Moments":
        n, d = values.shape
        places = [(0, 0)] if metric is None else lower_triangle(d)
        if weights is not None and weights.ndim == 2:  # diagonal metrics
            metric, weights, places = weights, np.asarray(weights.any(axis=1)), [(i, i) for i in range(d)]
        channels = np.empty((n, d + len(places) + 1))
        if metric is None:
            channels[:, :d], channels[:, d] = values, 1.0
        elif metric.ndim == 2:
            channels[:, :d], channels[:, d:-1] = metric * values, metric
        else:
            channels[:, :d] = np.einsum("nij,nj->ni", metric, values)
            channels[:, d:-1] = metric.reshape(n, d * d).take([i * d + j for i, j in places], axis=1)
        channels[:, -1] = 1.0
        if weights is not None:
            channels[:, :-1] *= weights[:, None]
            channels[:, -1] = weights > 0
        if counts is not None:
            # in whole numbers of a unit that all together stay below 2⁵²: float64 adds them without rounding,
            # and an empty bin holds 0, not what rounding left
            unit = 2.0 ** (np.ceil(np.log2(world().sum(counts.sum()))) - 51)
            channels[:, -1] *= np.maximum(np.round(counts / unit), 1.0) * unit
        squares = world().sum(float(np.einsum("nd,nd->", values, channels[:, :d])))
        total = world().sum(np.ones(n) @ channels)
        identity = np.asarray([float(i == j) for i, j in places])
        scale = float(total[d:-1] @ identity) or 1.0
        return cls(channels, d, total, identity, RIDGE * scale * identity, TIE * squares)

    def value(self, sums: np.ndarray, penalty: np.ndarray) -> np.ndarray:
        """Return a leaf's value (H + penalty)⁻¹ G, float64 (D,), from its sums (C,)."""
        scale = float(sums[self.d : -1] @ self.identity) or 1.0
        ridge = penalty + RIDGE * scale * self.identity
        if 1 < len(ridge) == self.d:
            return sums[: self.d] / (sums[self.d : -1] + ridge)
        return np.linalg.solve(self.matrix(sums, ridge), sums[: self.d])

    def matrix(self, sums: np.ndarray, penalty: np.ndarray) -> np.ndarray:
        """Return H + penalty: (C,) to (D, D)."""
        packed = sums[self.d : -1] + penalty
        if len(packed) == 1:
            return packed * np.eye(self.d)
        out = np.empty((self.d, self.d))
        for number, (i, j) in zip(packed, lower_triangle(self.d)):
            out[i, j] = out[j, i] = number
        return out

    def residuals(self, sums: np.ndarray, total: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what B parts of L leaves have left of their target at the leaf's value, and their masses.

        From sums (C, L, B) and totals (C, L) to (L, D, B) and (L, B). Both are measured by the leaf's metric:
        what is left is its root's inverse times G − H · value, the mass the trace of its inverse times H, up
        to a factor.
        """
        gradient, packed = sums[: self.d].swapaxes(0, 1), sums[self.d : -1]
        if len(packed) == 1:
            value = (total[: self.d] / (total[self.d] + self.ridge)).T
            return gradient - packed[0][:, None] * value[:, :, None], packed[0]
        if len(packed) == self.d:
            own = total[self.d : -1] + self.ridge[:, None]
            own[own <= 0] = np.inf  # by rounding alone
            left = gradient - (packed * (total[: self.d] / own)[:, :, None]).swapaxes(0, 1)
            return left / np.sqrt(own).T[:, :, None], (packed / own[:, :, None]).sum(axis=0)
        places = lower_triangle(self.d)
        root, ridge = None, self.ridge
        while root is None:
            try:
                root = np.linalg.inv(np.linalg.cholesky([self.matrix(each, ridge) for each in total.T]))
            except np.linalg.LinAlgError:
                # of rows that are all but certain H is rounding errors, which may have no root
                ridge = 1000 * ridge
        inverse = root.swapaxes(1, 2) @ root
        value = (inverse @ total[: self.d].T[:, :, None])[..., 0]
        left = gradient.copy()
        for numbers, (i, j) in zip(packed, places):
            left[:, i] -= numbers * value[:, j, None]
            if i != j:
                left[:, j] -= numbers * value[:, i, None]
        # tr(H_total⁻¹ H_part) from lower triangles: off the diagonal each number is there twice
        factors = np.stack([(1 + (i != j)) * inverse[:, i, j] for i, j in places])
        return root @ left, np.einsum("tlb,tl->lb", packed, factors)


def lower_triangle(d: int) -> list[tuple[int, int]]:
    """Return row and column of each number of a lower triangle, as they are packed."""
    return [(i, j) for i in range(d) for j in range(i + 1)]


BLOCK_NUMBERS = 1 << 17
"""Numbers of metrics that are eliminated in one go: they stay in a core's cache."""


def score(gradient: np.ndarray, metric: np.ndarray) -> np.ndarray:
    """Return Gᵀ H⁻¹ G, by which a leaf lowers the error: (D, N), H as `Moments` has it, to (N,); overwritten.

    By elimination in step for many leaves, which is many times faster than a solver's call each.
    """
    if len(metric) == 1:
        return np.einsum("dn,dn->n", gradient, gradient) / metric[0]
    if len(metric) == len(gradient):
        return (np.square(gradient) / np.where(metric > 0, metric, np.inf)).sum(axis=0)
    size = max(1, BLOCK_NUMBERS // len(metric))
    blocks = [slice(start, start + size) for start in range(0, metric.shape[1], size)]
    return np.concatenate([np.empty(0), *(_eliminated(gradient[:, b], metric[:, b]) for b in blocks)])


def _eliminated(gradient: np.ndarray, metric: np.ndarray) -> np.ndarray:
    """Return Σ_j z_j² / D_j, where H = L D Lᵀ and L z = G, a column of L at a time."""
    d = len(gradient)
    row = [i * (i + 1) // 2 for i in range(d)]  # where each row of the triangle begins
    total = np.zeros_like(gradient[0])
    for j in range(d):
        pivot = metric[row[j] + j]
        pivot[pivot <= 0] = np.inf  # by rounding alone, where there is nothing to gain
        total += np.square(gradient[j]) / pivot
        column = metric[[row[i] + j for i in range(j + 1, d)]]
        factors = column / pivot
        gradient[j + 1 :] -= factors * gradient[j]
        for i in range(j + 1, d):
            metric[row[i] + j + 1 : row[i] + i + 1] -= factors[i - j - 1] * column[: i - j]
    return total

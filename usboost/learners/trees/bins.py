"""A table's columns in bins: quantiles of numbers, categories as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from usboost.data.table import code_type
from usboost.files.arrays import parts, room
from usboost.shards.here import here

BLOCK_ENTRIES = 1 << 17
"""Rows times columns that are summed in one go; fixed, so that the number of threads changes no sum."""


@dataclass(frozen=True)
class Bins:
    """A matrix in bins. Bins of all columns follow one another, those of numbers first.

    Attributes
    ----------
    matrix : float32 (n, p)
    codes : uint8, int16 or int32 (n, p)
        The bin of each row in each column, from 0 in each; in a file if the matrix is.
    columns : int (p,)
        Position in `matrix` of each column here: numbers come first.
    n_numeric : int
    start : int (p + 1,)
        First bin of each column.
    lowest, highest : float64 (bins,)
        Least and largest value in a bin; both are the code where it is a category.
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
    ) -> Bins:
        """The columns in at most `max_bin` bins, or one for each category.

        Parameters
        ----------
        counts : float64 (n,), how many rows each row stands for; 1 by default
        """
        numeric = [j for j in range(matrix.shape[1]) if j not in categorical]
        columns = np.asarray([*numeric, *categorical], dtype=int)
        of_numbers = _numeric_bins(matrix, numeric, max_bin, counts)
        largest = here().highest(np.array([matrix[:, j].max(initial=0) for j in columns[len(numeric) :]]))
        categories = [np.arange(int(each) + 1, dtype=np.float64) for each in largest]
        ends = [*of_numbers, *zip(categories, categories)]
        start = np.cumsum([0, *(len(low) for low, _ in ends)])
        codes = room(matrix, matrix.shape, code_type(int(np.diff(start).max(initial=0))))
        for part in parts(len(matrix)):
            for k, column in enumerate(matrix[part, j] for j in columns):
                found = column
                if k < len(numeric):
                    # the first bin that does not end below it; the last one for what no sample has shown
                    found = np.minimum(np.searchsorted(ends[k][1], column), len(ends[k][1]) - 1)
                codes[part, k] = found
        lowest, highest = (
            np.concatenate([np.empty(0), *each]) for each in (zip(*ends) if ends else ((), ()))
        )
        made = cls(matrix, codes, columns, len(numeric), start, lowest, highest)
        return made if here().count == 1 else made._with_all_ends()

    def _with_all_ends(self) -> Bins:
        """With the least and largest value in each bin of numbers of all shards' rows, not of a sample."""
        least, largest = self.lowest.copy(), self.highest.copy()
        numbers = slice(self.first_category)
        least[numbers], largest[numbers] = np.inf, -np.inf
        for part in parts(len(self.matrix)):
            for k in range(self.n_numeric):
                column, places = self.matrix[part, self.columns[k]], self.codes[part, k] + self.start[k]
                np.minimum.at(least, places, column)
                np.maximum.at(largest, places, column)
        least[numbers] = -here().highest(-least[numbers])
        largest[numbers] = here().highest(largest[numbers])
        return replace(self, lowest=least, highest=largest)

    def __len__(self) -> int:
        return int(self.start[-1])

    @cached_property
    def pattern(self) -> tuple[np.ndarray, np.ndarray]:
        """The ones of a block of rows as a sparse matrix, and where each row's begin."""
        size, p = max(1, BLOCK_ENTRIES // self.codes.shape[1]), self.codes.shape[1]
        return np.ones(size * p), np.arange(size + 1, dtype=np.int32) * p

    @cached_property
    def category_start(self) -> np.ndarray:
        """First category of each column of categories, counted from 0."""
        return self.start[self.n_numeric : -1] - self.first_category

    @cached_property
    def category_column(self) -> np.ndarray:
        """The column of each category, counted from 0."""
        return np.repeat(np.arange(len(self.columns) - self.n_numeric), np.diff(self.start[self.n_numeric :]))

    def places(self, rows: np.ndarray) -> np.ndarray:
        """The bins of some rows, among those of all columns: int32 (m, p)."""
        return self.codes.take(rows, axis=0) + self.start[:-1].astype(np.int32)

    @property
    def first_category(self) -> int:
        """The first bin that is a category."""
        return int(self.start[self.n_numeric])


def _numeric_bins(
    matrix: np.ndarray, numeric: Sequence[int], max_bin: int, counts: np.ndarray | None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The bins of some columns, by `numeric_bins` of all rows; of a sample of the rows of several shards."""
    if here().count == 1:
        return [numeric_bins(matrix[:, j], max_bin, counts) for j in numeric]
    chosen = here().sample(len(matrix))
    rows = np.concatenate(here().gather(np.ascontiguousarray(matrix[chosen][:, numeric])))
    held = None if counts is None else np.concatenate(here().gather(counts[chosen]))
    return here().once(lambda: [numeric_bins(column, max_bin, held) for column in rows.T])


def numeric_bins(
    column: np.ndarray, max_bin: int, counts: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Least and largest value in each bin of a column (n,): float64 (bins,) each, at most `max_bin`.

    Every value has its own bin if there are few enough. Otherwise bins hold about as many rows each, and
    values that have as many rows alone share theirs with none. A row is `counts` rows, (n,), by default 1.
    """
    if counts is None:
        values, held = np.unique(column, return_counts=True)
    else:
        values, place = np.unique(column, return_inverse=True)
        held = np.bincount(place, counts)
    values = values.astype(np.float64)
    if len(values) <= max_bin:
        return values, values
    ends, total = np.cumsum(held), len(column) if counts is None else held.sum()
    # values with a bin's worth of rows alone, and an end that is never reached
    heavy = np.append(np.flatnonzero(held * max_bin > total), len(values))
    first = [0]
    while first[-1] < len(values):
        here, room = first[-1], max_bin - len(first) + 1
        rows_before = ends[here] - held[here]
        # where this bin ends if all that are left hold alike; it has one value at least, and no heavy one
        share = rows_before + (total - rows_before) / room
        after = max(here, int(np.searchsorted(ends, share, side="right")) - 1) + 1
        next_heavy = int(heavy[np.searchsorted(heavy, here)])
        first.append(len(values) if room == 1 else here + 1 if next_heavy == here else min(after, next_heavy))
    return values[first[:-1]], values[np.asarray(first[1:]) - 1]

"""Numbers beside the indicators of categories, as linear models read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from scipy.sparse import csr_array, hstack

from usboost.shards.here import here

WIDE = 2_000
"""Indicators above which the rows are a sparse matrix: in a column of categories each has a single one."""

MOST_LEVELS = 1_000
"""Levels, the most frequent ones, that have a coefficient of their own where a dense matrix is needed."""

Rows: TypeAlias = np.ndarray | csr_array
"""float32 (n, p)."""


def with_indicators(
    numbers: np.ndarray, codes: np.ndarray, cardinalities: Sequence[int], first: int = 0, sparse: bool = True
) -> Rows:
    """Numbers, then the indicators of each column of categories.

    Parameters
    ----------
    numbers : float32 (n, m)
    codes : int (n, c), below the cardinalities
    first : the code whose indicator is a column's first; rows of lower codes have only zeros
    sparse : whether rows of more than `WIDE` indicators are a sparse matrix
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
    """The columns that a dense matrix of sparse rows has, int (k,), ascending: numbers, and `MOST_LEVELS` of
    the levels, whose values are all 1; the others' coefficients are 0, as those of levels never seen."""
    filled = here().sum(np.bincount(rows.indices, minlength=rows.shape[1]))
    number = here().sum(np.bincount(rows.indices[rows.data != 1], minlength=rows.shape[1])) > 0
    order = np.argsort(np.where(number, -here().sum(rows.shape[0]) - 1, -filled), kind="stable")
    return np.sort(order[: int(number.sum()) + MOST_LEVELS])

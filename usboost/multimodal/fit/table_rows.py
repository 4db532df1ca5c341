"""The rows of a table that count, and what decides how they may be divided."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from usboost.data.related import Related
from usboost.datasets.user.user_table import UserTable
from usboost.multimodal.fit.splits import Rows


@dataclass(frozen=True)
class Part:
    """Rows of a table that are on one side of a split.

    Attributes
    ----------
    rows : their positions, int64 (n,).
    weights : the table's, float64 (n,), or None: of calibration, threshold, margin and scores.
    in_fit : these times the weights of their classes, likewise: of the fit and of early stopping.
    """

    rows: np.ndarray
    weights: np.ndarray | None
    in_fit: np.ndarray | None

    def __len__(self) -> int:
        return len(self.rows)


def counted_rows(table: UserTable) -> np.ndarray:
    """The positions of the rows that count: all but those of weight 0."""
    return np.arange(len(table)) if table.weights is None else np.flatnonzero(table.weights)


def weights_of(table: UserTable, rows: np.ndarray) -> np.ndarray | None:
    """The weights of some rows, float64, or None."""
    return None if table.weights is None else table.weights[rows]


def rows_of(table: UserTable) -> Rows:
    """What decides how a table's rows may be divided."""
    codes = table.labels if table.classes else None
    return Rows(len(table), codes, table.groups, table.times, table.split)


def related_of(table: UserTable, rows: np.ndarray) -> Related | None:
    """How some rows are related, for splits inside a fit; None: in no way."""
    return rows_of(table)[rows].related


def arrays_of(related: Related | None) -> tuple[np.ndarray, ...]:
    """For the digest of what is fitted to."""
    return () if related is None else related.arrays

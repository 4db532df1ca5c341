"""Scores of a comparison by the groups of a column."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock

import numpy as np

from usboost.evaluation.task import TASKS, Slice, score_slices
from usboost.multimodal.fit.splits import Fold, weights_of
from usboost.table.columns.slices import read_slices
from usboost.table.user_table import UserTable


class Sliced:
    """What models predict for the test rows of the first repeat, in which each row is in one fold at most.

    Raises UsboostError if the table has no such column.

    Parameters
    ----------
    column : of the table, read by models or not.
    """

    def __init__(self, table: UserTable, column: str) -> None:
        kind, form = table.kinds.get(column), table.formats.get(column)
        self._slices = read_slices(
            table.file, column, table.rows, missing=table.spec.missing, kind=kind, form=form
        )
        self._table, self._lock = table, Lock()
        self._predicted: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}

    def add(self, model: str, fold: Fold, predicted: np.ndarray) -> None:
        """What a model predicts for a fold's test rows."""
        if fold.repeat == 1:
            with self._lock:
                self._predicted.setdefault(model, []).append((fold.test, predicted))

    def scores(self, models: Iterable[str]) -> dict[str, list[Slice]]:
        """The scores of all rows and of each group, by model; of models that predicted all folds."""
        found = {}
        for model in models:
            rows, predicted = map(np.concatenate, zip(*self._predicted[model], strict=True))
            order = np.argsort(rows)  # folds end in any order
            rows = rows[order]
            found[model] = score_slices(
                TASKS[self._table.task],
                self._table.labels[rows],
                predicted[order],
                self._slices.names,
                self._slices.codes[rows],
                weights_of(self._table, rows),
            )
        return found

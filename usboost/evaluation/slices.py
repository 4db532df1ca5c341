"""A model's scores on each group of rows, with their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from usboost.evaluation.intervals import Interval
from usboost.evaluation.names import metric_name, number
from usboost.evaluation.task import Task

FEW = 30
"""Rows below which a group's scores say little, and its interval may be too narrow."""

ALL = "all rows"


@dataclass(frozen=True)
class Slice:
    """A group of rows: its name, how many there are, and each score with its interval of 95 %."""

    name: str
    rows: int
    scores: dict[str, Interval]

    @property
    def few(self) -> bool:
        return self.rows < FEW


def score_slices(
    task: Task,
    labels: np.ndarray,
    predicted: np.ndarray,
    names: Sequence[str],
    codes: np.ndarray,
    weight: np.ndarray | None = None,
) -> list[Slice]:
    """The scores of all rows, and of each group alone that has rows.

    Of three classes and more F1 is left out: its mean counts a class that a group does not have as 0.

    Parameters
    ----------
    labels, predicted, weight : of n rows, as `Task.intervals` takes them.
    names : of the groups; codes : the group of each row, int64 (n,).
    """
    left_out = {"f1"} if predicted.ndim == 2 and predicted.shape[1] > 2 else set()
    found = []
    for name, rows in [(ALL, codes >= 0), *((each, codes == k) for k, each in enumerate(names))]:
        if rows.any():
            own = None if weight is None else weight[rows]
            scores = task.intervals(labels[rows], predicted[rows], own)
            kept = {key: each for key, each in scores.items() if key not in left_out}
            found.append(Slice(name, int(rows.sum()), kept))
    return found


def table_of(slices: Sequence[Slice]) -> dict[str, Any]:
    """The scores of one model as a table to print.

    Returns
    -------
    ``columns``, titles by name, and ``rows``, each a name and its cells by column: a value, and what stands
    small beside it.
    """
    columns = {_ROWS: _ROWS, **{key: metric_name(key) for key in slices[0].scores}}
    rows = [
        {"name": each.name, "cells": {_ROWS: _rows(each), **{key: _cell(each, key) for key in each.scores}}}
        for each in slices
    ]
    return {"columns": columns, "rows": rows}


def table_of_models(slices: Mapping[str, Sequence[Slice]], score: str) -> dict[str, Any]:
    """One score of several models on the same rows, as `table_of`; a column for each model."""
    rows = [
        {
            "name": each[0].name,
            "cells": {_ROWS: _rows(each[0]), **{name: _cell(of, score) for name, of in zip(slices, each)}},
        }
        for each in zip(*slices.values(), strict=True)
    ]
    return {"columns": {_ROWS: _ROWS, **{name: name for name in slices}}, "rows": rows}


_ROWS = "rows"


def _rows(each: Slice) -> tuple[str, str]:
    return f"{each.rows:,}", "few" if each.few else ""


def _cell(each: Slice, score: str) -> tuple[str, str]:
    value, low, high = each.scores[score]
    if not np.isfinite(value):
        return "–", ""
    return number(value), f"{number(low)} to {number(high)}" if low < high else ""

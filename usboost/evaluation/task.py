"""Classification and regression, each with its scores; scores of groups of rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from usboost.evaluation.intervals import Interval, intervals
from usboost.evaluation.metrics import (
    accuracy,
    extra_metrics,
    extra_regression_metrics,
    f1,
    mae,
    r2,
    rmse,
    score,
    score_regression,
)
from usboost.evaluation.ranking import METRICS_OF, metric_name, number

Gain = Callable[[np.ndarray, np.ndarray], float]
"""A score of labels and answers, (n,) each, of which more is better."""


@dataclass(frozen=True)
class Task:
    """A task: what a model answers, and how that is scored.

    Attributes
    ----------
    name : of `models.entry.TASKS`.
    first : the score that `usboost compare` ranks models by; chooses : that by which the pipeline chooses
        among fits, on validation rows.
    shuffled : the scores that tell what a view or column is worth when it is shuffled.
    predict : probabilities float64 (n, M), or numbers float64 (n,), of a model for `Views`.
    score, further : the scores of `metrics`, and the others of `ranking.RANKING`, of labels, what was
        predicted and, if there are any, weights (n,).
    answers : what is answered, (n,): the codes of the most probable classes, or the numbers.
    gain : a score of labels and `answers`, turned where lower is better, by its name (f1 or accuracy, or one
        of a regression's) and what any model has predicted, which knows how many classes there are.
    constant : the best that one answer for all rows can be: the answer in words, a metric and its value.
    """

    name: str
    first: str
    chooses: str
    shuffled: tuple[str, ...]
    predict: Callable[[Any, Any], np.ndarray]
    score: Callable[..., dict[str, float]]
    further: Callable[..., dict[str, float]]
    answers: Callable[[np.ndarray], np.ndarray]
    gain: Callable[[str, np.ndarray], Gain]
    constant: Callable[[np.ndarray], tuple[str, str, float]]

    @property
    def metrics(self) -> tuple[str, ...]:
        """List what `score` gives, in the order of a table."""
        return METRICS_OF[self.name]

    def ranked(
        self, labels: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None = None
    ) -> dict[str, float]:
        """Return the scores of `ranking.RANKING`."""
        return {**self.score(labels, predicted, weight), **self.further(labels, predicted, weight)}


TASKS = {
    "classification": Task(
        "classification",
        first="accuracy",
        chooses="f1",
        shuffled=("f1", "accuracy", "log_loss"),
        predict=lambda model, views: model.predict_proba(views),
        score=score,
        further=extra_metrics,
        answers=lambda predicted: predicted.argmax(axis=1),
        gain=lambda metric, predicted: (
            accuracy if metric == "accuracy" else lambda y, answers: f1(y, answers, predicted.shape[1])
        ),
        constant=lambda y: ("the most frequent class", "accuracy", float(np.bincount(y).max() / len(y))),
    ),
    "regression": Task(
        "regression",
        first="rmse",
        chooses="rmse",
        shuffled=("rmse", "r2"),
        predict=lambda model, views: model.predict(views),
        score=score_regression,
        further=extra_regression_metrics,
        answers=lambda predicted: predicted,
        gain=lambda metric, predicted: (
            r2 if metric == "r2" else lambda y, answers: -{"rmse": rmse, "mae": mae}[metric](y, answers)
        ),
        constant=lambda y: ("these rows’ mean", "rmse", rmse(y, np.full(len(y), y.mean()))),
    ),
}
"""By name."""

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
    labels: np.ndarray,
    predicted: np.ndarray,
    names: Sequence[str],
    codes: np.ndarray,
    weight: np.ndarray | None = None,
) -> list[Slice]:
    """Score all rows, and each group alone that has rows.

    Of three classes and more F1 is left out: its mean counts a class that a group does not have as 0. Codes,
    int64 (n,), say which of the names is a row's group.
    """
    left_out = {"f1"} if predicted.ndim == 2 and predicted.shape[1] > 2 else set()
    slices = []
    for name, rows in [(ALL, codes >= 0), *((each, codes == k) for k, each in enumerate(names))]:
        if rows.any():
            own = None if weight is None else weight[rows]
            scores = intervals(labels[rows], predicted[rows], own)
            if "f1" in scores and not (labels[rows] == 1).any():  # of which there is nothing to find
                scores["f1"] = (np.nan, np.nan, np.nan)
            shown = {key: each for key, each in scores.items() if key not in left_out}
            slices.append(Slice(name, int(rows.sum()), shown))
    return slices


def table_of(slices: Sequence[Slice]) -> dict[str, Any]:
    """Return the scores of one model as a table to print.

    Returns
    -------
    ``columns``, titles by name, and ``rows``, each a name and its cells by column: a value, and what stands
    small next to it.
    """
    names = {key: metric_name(key) for key in slices[0].scores}
    rows = [_line(each, {key: each.scores[key] for key in names}) for each in slices]
    return {"columns": {"rows": "rows", **names}, "rows": rows}


def table_of_models(slices: Mapping[str, Sequence[Slice]], score: str) -> dict[str, Any]:
    """Return one score of several models on the same rows, as `table_of`; a column for each model."""
    rows = [
        _line(each[0], {name: own.scores[score] for name, own in zip(slices, each)})
        for each in zip(*slices.values(), strict=True)
    ]
    return {"columns": {"rows": "rows", **{name: name for name in slices}}, "rows": rows}


def _line(group: Slice, scores: Mapping[str, Interval]) -> dict[str, Any]:
    cells = {"rows": (f"{group.rows:,}", "few" if group.few else "")}
    for name, (value, low, high) in scores.items():
        spread = f"{number(low)} to {number(high)}" if low < high else ""
        cells[name] = (number(value), spread) if np.isfinite(value) else ("–", "")
    return {"name": group.name, "cells": cells}

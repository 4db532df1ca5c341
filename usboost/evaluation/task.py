"""What differs between predicting classes and predicting a number, in one place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from usboost.evaluation.intervals import Interval, intervals, regression_intervals
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
from usboost.evaluation.names import METRICS_OF

Gain = Callable[[np.ndarray, np.ndarray], float]
"""A score of labels and answers, (n,) each, of which more is better."""


class Task(Protocol):
    """A task: what a model answers, and how that is scored.

    Attributes
    ----------
    name : of `models.entry.TASKS`.
    metrics : what `score` gives, in the order of a table.
    first : the score that `usboost compare` ranks models by; chooses : that by which the pipeline chooses
        among fits, on validation rows.
    shuffled : the scores that tell what a view or column is worth when it is shuffled.
    """

    name: str
    metrics: tuple[str, ...]
    first: str
    chooses: str
    shuffled: tuple[str, ...]

    def predict(self, model: Any, views: Any) -> np.ndarray:
        """Probabilities float64 (n, M), or numbers float64 (n,), of a model for `Views`."""
        ...

    def score(
        self, labels: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None = None
    ) -> dict[str, float]:
        """The scores of `metrics`, with rows weighted if there are weights (n,)."""
        ...

    def ranked(
        self, labels: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None = None
    ) -> dict[str, float]:
        """The scores of `names.RANKING`, likewise."""
        ...

    def intervals(
        self, labels: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None = None
    ) -> dict[str, Interval]:
        """Each of `score`'s with its bootstrap interval of 95 %."""
        ...

    def answers(self, predicted: np.ndarray) -> np.ndarray:
        """What is answered, (n,): the codes of the most probable classes, or the numbers."""
        ...

    def gain(self, metric: str, predicted: np.ndarray) -> Gain:
        """A score of labels and `answers`, turned where lower is better.

        Parameters
        ----------
        metric : f1 or accuracy, or one of a regression's.
        predicted : by any model, which knows how many classes there are.
        """
        ...

    def constant(self, labels: np.ndarray) -> tuple[str, str, float]:
        """The best that one answer for all rows can be: the answer in words, a metric and its value."""
        ...


class Classification:
    """Classes, whose codes are the labels."""

    name = "classification"
    metrics = METRICS_OF["classification"]
    first = "accuracy"
    chooses = "f1"
    shuffled: tuple[str, ...] = ("f1", "accuracy", "log_loss")

    def predict(self, model: Any, views: Any) -> np.ndarray:
        found: np.ndarray = model.predict_proba(views)
        return found

    def score(
        self, labels: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None = None
    ) -> dict[str, float]:
        return score(labels, predicted, weight)

    def ranked(
        self, labels: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None = None
    ) -> dict[str, float]:
        return {**score(labels, predicted, weight), **extra_metrics(labels, predicted, weight)}

    def intervals(
        self, labels: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None = None
    ) -> dict[str, Interval]:
        return intervals(labels, predicted, weight)

    def answers(self, predicted: np.ndarray) -> np.ndarray:
        return predicted.argmax(axis=1)

    def gain(self, metric: str, predicted: np.ndarray) -> Gain:
        if metric == "accuracy":
            return accuracy
        return lambda labels, answers: f1(labels, answers, predicted.shape[1])

    def constant(self, labels: np.ndarray) -> tuple[str, str, float]:
        return "the most frequent class", "accuracy", float(np.bincount(labels).max() / len(labels))


class Regression:
    """A number."""

    name = "regression"
    metrics = METRICS_OF["regression"]
    first = "rmse"
    chooses = "rmse"
    shuffled: tuple[str, ...] = ("rmse", "r2")

    def predict(self, model: Any, views: Any) -> np.ndarray:
        found: np.ndarray = model.predict(views)
        return found

    def score(
        self, labels: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None = None
    ) -> dict[str, float]:
        return score_regression(labels, predicted, weight)

    def ranked(
        self, labels: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None = None
    ) -> dict[str, float]:
        first = score_regression(labels, predicted, weight)
        return {**first, **extra_regression_metrics(labels, predicted, weight)}

    def intervals(
        self, labels: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None = None
    ) -> dict[str, Interval]:
        return regression_intervals(labels, predicted, weight)

    def answers(self, predicted: np.ndarray) -> np.ndarray:
        return predicted

    def gain(self, metric: str, predicted: np.ndarray) -> Gain:
        found: dict[str, Gain] = {
            "rmse": lambda labels, answers: -rmse(labels, answers),
            "mae": lambda labels, answers: -mae(labels, answers),
            "r2": r2,
        }
        return found[metric]

    def constant(self, labels: np.ndarray) -> tuple[str, str, float]:
        return "these rows’ mean", "rmse", rmse(labels, np.full(len(labels), labels.mean()))


TASKS: dict[str, Task] = {"classification": Classification(), "regression": Regression()}
"""By name."""

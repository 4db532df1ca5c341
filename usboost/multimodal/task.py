"""What differs between predicting classes and predicting a number, in one place."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from usboost.data.views import Views
from usboost.evaluation.further import further, further_regression
from usboost.evaluation.intervals import Interval, intervals, regression_intervals
from usboost.evaluation.metrics import score, score_regression
from usboost.evaluation.names import METRICS_OF


class Task(Protocol):
    """A task: what a model answers, and how that is scored."""

    metrics: tuple[str, ...]
    first: str

    def predict(self, model: Any, views: Views) -> np.ndarray:
        """Probabilities float64 (n, M), or numbers float64 (n,)."""
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


class Classification:
    """Classes, whose codes are the labels."""

    metrics = METRICS_OF["classification"]
    first = "accuracy"

    def predict(self, model: Any, views: Views) -> np.ndarray:
        found: np.ndarray = model.predict_proba(views)
        return found

    def score(
        self, labels: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None = None
    ) -> dict[str, float]:
        return score(labels, predicted, weight)

    def ranked(
        self, labels: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None = None
    ) -> dict[str, float]:
        return {**score(labels, predicted, weight), **further(labels, predicted, weight)}

    def intervals(
        self, labels: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None = None
    ) -> dict[str, Interval]:
        return intervals(labels, predicted, weight)


class Regression:
    """A number."""

    metrics = METRICS_OF["regression"]
    first = "rmse"

    def predict(self, model: Any, views: Views) -> np.ndarray:
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
        return {**first, **further_regression(labels, predicted, weight)}

    def intervals(
        self, labels: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None = None
    ) -> dict[str, Interval]:
        return regression_intervals(labels, predicted, weight)


TASKS: dict[str, Task] = {"classification": Classification(), "regression": Regression()}

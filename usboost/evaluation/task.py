"""What differs between predicting classes and predicting a number, in one place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
    score, further : the scores of `metrics`, and the others of `names.RANKING`, of labels, what was predicted
        and, if there are any, weights (n,).
    intervals : likewise each of `score`'s with its bootstrap interval of 95 %.
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
    intervals: Callable[..., dict[str, Interval]]
    answers: Callable[[np.ndarray], np.ndarray]
    gain: Callable[[str, np.ndarray], Gain]
    constant: Callable[[np.ndarray], tuple[str, str, float]]

    @property
    def metrics(self) -> tuple[str, ...]:
        """What `score` gives, in the order of a table."""
        return METRICS_OF[self.name]

    def ranked(
        self, labels: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None = None
    ) -> dict[str, float]:
        """The scores of `names.RANKING`."""
        return {**self.score(labels, predicted, weight), **self.further(labels, predicted, weight)}


def _probabilities(model: Any, views: Any) -> np.ndarray:
    found: np.ndarray = model.predict_proba(views)
    return found


def _numbers(model: Any, views: Any) -> np.ndarray:
    found: np.ndarray = model.predict(views)
    return found


def _most_probable(predicted: np.ndarray) -> np.ndarray:
    return predicted.argmax(axis=1)


def _as_predicted(predicted: np.ndarray) -> np.ndarray:
    return predicted


def _gain_of_classes(metric: str, predicted: np.ndarray) -> Gain:
    if metric == "accuracy":
        return accuracy
    return lambda labels, answers: f1(labels, answers, predicted.shape[1])


def _gain_of_numbers(metric: str, predicted: np.ndarray) -> Gain:
    found: dict[str, Gain] = {
        "rmse": lambda labels, answers: -rmse(labels, answers),
        "mae": lambda labels, answers: -mae(labels, answers),
        "r2": r2,
    }
    return found[metric]


def _most_frequent(labels: np.ndarray) -> tuple[str, str, float]:
    return "the most frequent class", "accuracy", float(np.bincount(labels).max() / len(labels))


def _mean(labels: np.ndarray) -> tuple[str, str, float]:
    return "these rows’ mean", "rmse", rmse(labels, np.full(len(labels), labels.mean()))


_CLASSES = Task(
    "classification",
    first="accuracy",
    chooses="f1",
    shuffled=("f1", "accuracy", "log_loss"),
    predict=_probabilities,
    score=score,
    further=extra_metrics,
    intervals=intervals,
    answers=_most_probable,
    gain=_gain_of_classes,
    constant=_most_frequent,
)
_NUMBER = Task(
    "regression",
    first="rmse",
    chooses="rmse",
    shuffled=("rmse", "r2"),
    predict=_numbers,
    score=score_regression,
    further=extra_regression_metrics,
    intervals=regression_intervals,
    answers=_as_predicted,
    gain=_gain_of_numbers,
    constant=_mean,
)

TASKS = {each.name: each for each in (_CLASSES, _NUMBER)}
"""By name."""

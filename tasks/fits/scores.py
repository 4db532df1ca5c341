"""Score a fitted model on the splits that it was not fitted to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from tasks.settings import Settings
from usboost.data.views import Views
from usboost.evaluation import metrics
from usboost.evaluation.task import Task
from usboost.models.methods.early_trigger import EarlyTrigger
from usboost.models.methods.earlyboost import EarlyBoostClassifier

Scores = dict[str, dict[str, float]]


def predict(task: Task, estimator: Any, splits: Mapping[str, tuple[Views, np.ndarray]]) -> dict[str, Any]:
    """Predict: labels (n,) and probabilities (n, M), or numbers (n,), of each split but train."""
    return {
        name: (y, task.predict(estimator, views)) for name, (views, y) in splits.items() if name != "train"
    }


def test_rows(predicted: Mapping[str, tuple[np.ndarray, np.ndarray]], seed: int) -> pd.DataFrame:
    """Return the test rows' labels and probabilities: columns ``seed``, ``label``, ``p_0`` to ``p_<M−1>``.

    Of a predicted number ``prediction``, float64, stands in place of the probabilities.
    """
    y, probabilities = predicted["test"]
    if probabilities.ndim == 1:
        return pd.DataFrame({"seed": seed, "label": y, "prediction": probabilities})
    columns = {f"p_{k}": column.astype(np.float32) for k, column in enumerate(probabilities.T)}
    return pd.DataFrame({"seed": seed, "label": y, **columns})


def score(task: Task, predicted: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Scores:
    """Return the metrics of each split; of two classes also F1 at the best threshold on validation."""
    scores = {split: task.score(y, found) for split, (y, found) in predicted.items()}
    y, probabilities = predicted["val"]
    if probabilities.ndim == 2 and probabilities.shape[1] == 2:
        threshold = metrics.best_threshold(y, probabilities[:, 1])
        for split, (y, probabilities) in predicted.items():
            tuned = (probabilities[:, 1] >= threshold).astype(int)
            scores[split]["f1_tuned"] = metrics.f1(y, tuned, 2)
    return scores


def add_early(
    estimator: EarlyBoostClassifier, settings: Settings, splits: dict[str, Any], scores: dict[str, Any]
) -> None:
    """Add the trigger's figures to the scores, and each split's accuracy at every t to the history.

    "earliness" is the mean share of a sequence read before deciding, "early_accuracy" the accuracy of
    those decisions, "harmonic_mean" that of the accuracy and 1 − earliness.
    """
    chosen = settings.earlyboost
    trigger = EarlyTrigger(threshold=chosen.threshold, by=chosen.trigger).use(estimator)
    for split in scores:
        views, y = splits[split]
        mean, accuracy, earliness = trigger.figures(views, estimator.classes_[y])
        scores[split] |= {"harmonic_mean": mean, "early_accuracy": accuracy, "earliness": earliness}
        for row, predicted in zip(estimator.history_, estimator.staged_predict(views), strict=True):
            row[f"accuracy_{split}"] = float(np.mean(predicted == estimator.classes_[y]))

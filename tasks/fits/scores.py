"""Score a fitted model on the splits that it was not fitted to."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from usboost.data.views import Views
from usboost.evaluation import metrics
from usboost.evaluation.task import Task

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

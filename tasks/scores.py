"""How a fitted model is scored on the splits that it was not fitted to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from usboost.data.views import Views
from usboost.evaluation import metrics

Scores = dict[str, dict[str, float]]


def predict(estimator: Any, splits: Mapping[str, tuple[Views, np.ndarray]]) -> dict[str, Any]:
    """Codes (n,) and probabilities (n, M) of each split but train."""
    return {
        name: (y, estimator.predict_proba(views)) for name, (views, y) in splits.items() if name != "train"
    }


def test_rows(predicted: Mapping[str, tuple[np.ndarray, np.ndarray]], seed: int) -> pd.DataFrame:
    """The test rows' labels and probabilities: columns ``seed``, ``label``, ``p_0`` to ``p_<M−1>``."""
    y, probabilities = predicted["test"]
    columns = {f"p_{k}": column.astype(np.float32) for k, column in enumerate(probabilities.T)}
    return pd.DataFrame({"seed": seed, "label": y, **columns})


def score(predicted: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Scores:
    """The metrics of each split; of two classes also F1 at the threshold that is best on validation."""
    scores = {split: metrics.score(y, probabilities) for split, (y, probabilities) in predicted.items()}
    y, probabilities = predicted["val"]
    if probabilities.shape[1] == 2:
        threshold = metrics.best_threshold(y, probabilities[:, 1])
        for split, (y, probabilities) in predicted.items():
            tuned = (probabilities[:, 1] >= threshold).astype(int)
            scores[split]["f1_tuned"] = metrics.f1(y, tuned, 2)
    return scores

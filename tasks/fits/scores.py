"""Score a fitted model on the splits that it was not fitted to, or of a small table on k folds."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.model_selection import KFold, StratifiedKFold

from usboost.data.encoding import TableEncoder
from usboost.data.views import Views
from usboost.datasets import store
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
    scores = {split: task.score(y, predictions) for split, (y, predictions) in predicted.items()}
    y, probabilities = predicted["val"]
    if probabilities.ndim == 2 and probabilities.shape[1] == 2:
        threshold = metrics.best_threshold(y, probabilities[:, 1])
        for split, (y, probabilities) in predicted.items():
            tuned = (probabilities[:, 1] >= threshold).astype(int)
            scores[split]["f1_tuned"] = metrics.f1(y, tuned, 2)
    return scores


def fit_folds(
    task: Task, estimator: Any, folder: Path, seed: int
) -> tuple[list[dict[str, float]], list[list[dict[str, float]]], float]:
    """Fit and score a model on every fold of a prepared table, stratified if there are classes.

    Returns each fold's scores, and its rounds, and the seconds of all fits. A seed is one repetition.
    Encoders are fitted on each fold's training rows only.
    """
    card, frame = store.read_card(folder), store.read_frame(folder, "train")
    y = frame[store.LABEL].to_numpy()
    folds = StratifiedKFold if card["classes"] else KFold
    scored, history, seconds = [], [], 0.0
    for train, test in folds(card["folds"], shuffle=True, random_state=seed).split(y, y):
        fitted = frame.iloc[train]
        encoders = {view: TableEncoder.fit(fitted, names) for view, names in card["views"].items()}
        views, views_test = (
            Views({view: encoder.transform(rows) for view, encoder in encoders.items()})
            for rows in (fitted, frame.iloc[test])
        )
        model, started = clone(estimator), time.perf_counter()
        model.fit(views, y[train])
        seconds += time.perf_counter() - started
        scored.append(task.score(y[test], task.predict(model, views_test)))
        history.append(model.history_)
    return scored, history, seconds

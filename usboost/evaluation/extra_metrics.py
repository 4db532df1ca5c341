"""Scores that are asked for by name, beside those of `metrics.score` that every table shows."""

from __future__ import annotations

import numpy as np

from usboost.evaluation.metrics import average_precision, confusion, per_class
from usboost.evaluation.weighted import mean


def extra_metrics(
    y: np.ndarray, probabilities: np.ndarray, weight: np.ndarray | None = None
) -> dict[str, float]:
    """Further scores of class probabilities, as scikit-learn defines them.

    Parameters
    ----------
    y : int array of shape (n,), classes 0..M−1
    probabilities : float array of shape (n, M), rows of which sum to 1
    weight : float array of shape (n,), positive; by default 1

    Returns
    -------
    dict with the keys of `names.EXTRA_METRICS`
        "precision" and "recall" are those of class 1 of two, the mean over the classes of more, and "pr_auc"
        likewise; where nothing is predicted, or there is nothing, they are 0. "balanced_accuracy" is the mean
        recall of the classes that are there, "brier" the mean of Σ_k (p_k − y_k)², half of it for two
        classes. "pr_auc" is NaN where a class is missing.
    """
    n_classes = probabilities.shape[1]
    p = probabilities.astype(np.float64)
    counts = confusion(y, p.argmax(axis=1), n_classes, weight)
    parts = {name: np.nan_to_num(each) for name, each in per_class(counts).items()}
    support = parts.pop("support")
    present = support > 0
    asked = [1] if n_classes == 2 else range(n_classes)
    squares = np.square(p - np.eye(n_classes)[y]).sum(axis=1) / (2 if n_classes == 2 else 1)
    averaged = {f"{name}_macro": float(each.mean()) for name, each in parts.items()}
    weighted = {f"{name}_weighted": float(np.average(each, weights=support)) for name, each in parts.items()}
    shown = {
        name: float(parts[name][1]) if n_classes == 2 else averaged[f"{name}_macro"]
        for name in ("precision", "recall")
    }
    return {
        "balanced_accuracy": float(parts["recall"][present].mean()),
        "pr_auc": float(np.mean([average_precision(y == k, p[:, k], weight) for k in asked])),
        **shown,
        **averaged,
        **weighted,
        "mcc": _correlation(counts.astype(float)),
        "brier": mean(squares, weight),
    }


def _correlation(counts: np.ndarray) -> float:
    """Matthews' correlation of classes, whose `confusion` is (M, M); 0 where one is constant."""
    total, true, predicted = counts.sum(), counts.sum(axis=1), counts.sum(axis=0)
    shared = np.trace(counts) * total - true @ predicted
    spread = (total**2 - predicted @ predicted) * (total**2 - true @ true)
    return float(shared / np.sqrt(spread)) if spread > 0 else 0.0


def extra_regression_metrics(
    y: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None = None
) -> dict[str, float]:
    """Further scores of predictions, as scikit-learn defines them.

    Parameters
    ----------
    y, predicted : float arrays of shape (n,), in the same units
    weight : float array of shape (n,), positive; by default 1

    Returns
    -------
    dict with the keys of `names.EXTRA_REGRESSION_METRICS`
        "mse" is in squared units; "mape" is a share of |y|, huge where some y is 0; "explained_variance" is
        NaN where all of y are equal.
    """
    missed = y - predicted
    errors, eps = np.abs(missed), np.finfo(np.float64).eps
    variances = [mean(np.square(each - mean(each, weight)), weight) for each in (missed, y)]
    return {
        "mse": mean(np.square(missed), weight),
        "median_ae": _median(errors, weight),
        "mape": mean(errors / np.maximum(np.abs(y), eps), weight),
        "max_error": float(errors.max()),
        "explained_variance": 1 - variances[0] / variances[1] if np.ptp(y) > 0 else float("nan"),
    }


def _median(values: np.ndarray, weight: np.ndarray | None) -> float:
    """The value with half of the weight on either side; the mean of two where the half lies between them."""
    if weight is None:
        return float(np.median(values))
    order = np.argsort(values, kind="stable")
    ends = np.cumsum(weight[order]) / weight.sum()
    sides = np.searchsorted(ends, [0.5 - 1e-12, 0.5 + 1e-12])
    return float(values[order[np.minimum(sides, len(values) - 1)]].mean())

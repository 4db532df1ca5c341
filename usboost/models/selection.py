"""Greedy selection of models for an ensemble (Caruana et al., 2004)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from usboost.evaluation.weighted import error_of_mean, mean

PICKS = 50
"""Models picked, with replacement; a weight is a share of the picks."""


def losses(predicted: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of each row, float64 (n,): log-loss in nats of probabilities (n, M), squared error of numbers (n,)."""
    if predicted.ndim == 1:
        return np.square(predicted - y)
    own = predicted[np.arange(len(y)), y]
    return np.asarray(-np.log(np.maximum(own, 1e-12)))


def greedy_weights(
    predicted: Mapping[str, np.ndarray],
    y: np.ndarray,
    weights: np.ndarray | None = None,
    picks: int = PICKS,
) -> dict[str, float]:
    """Weights of models, each a whole number of `picks`, that sum to 1; models without one are left out.

    The best model is picked first, then again and again the one that makes the mean of all picks best. The
    mean of the lowest loss on the way is taken; of equal losses, the one of fewer picks.

    Parameters
    ----------
    predicted : by model, of n rows that it was not fitted to: probabilities (n, M) or numbers (n,)
    y : int (n,), classes 0..M−1, or float (n,)
    weights : float (n,), how many rows each stands for; by default 1
    """
    names = list(predicted)
    total = np.zeros_like(predicted[names[0]], dtype=np.float64)
    chosen: list[str] = []
    best, kept = np.inf, 0
    for count in range(1, picks + 1):
        risks = [mean(losses((total + predicted[name]) / count, y), weights) for name in names]
        k = int(np.argmin(risks))
        chosen.append(names[k])
        total = total + predicted[names[k]]
        if risks[k] < best:
            best, kept = risks[k], count
    found = chosen[:kept]
    return {name: found.count(name) / kept for name in names if name in found}


def blended(predicted: Mapping[str, np.ndarray], weights: Mapping[str, float]) -> np.ndarray:
    """The weighted mean of predictions."""
    return np.asarray(sum(weight * predicted[name] for name, weight in weights.items()))


def better_than_noise(
    blend: np.ndarray, single: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None
) -> bool:
    """Whether a blend loses less than a single model, by more than the standard error of the difference."""
    gains = losses(single, y) - losses(blend, y)
    return bool(mean(gains, weights) > error_of_mean(gains, weights))

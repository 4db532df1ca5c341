"""Greedy selection of models for an ensemble (Caruana et al., 2004)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from usboost.evaluation.metrics import row_losses
from usboost.evaluation.weighted import error_of_mean, mean

PICKS = 50
"""Models picked, with replacement; a weight is a share of the picks."""


def greedy_weights(
    predicted: Mapping[str, np.ndarray], y: np.ndarray, weights: np.ndarray | None = None, picks: int = PICKS
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
    # of probabilities the loss reads those of the rows' own classes only
    own = {name: each if each.ndim == 1 else each[np.arange(len(y)), y] for name, each in predicted.items()}
    classes = predicted[names[0]].ndim > 1
    codes = np.zeros(len(y), dtype=np.intp) if classes else y

    def risk(told: np.ndarray) -> float:
        return mean(row_losses(codes, told[:, None] if classes else told), weights)

    total = np.zeros(len(y))
    chosen: list[str] = []
    best, kept = np.inf, 0
    for count in range(1, picks + 1):
        risks = [risk((total + own[name]) / count) for name in names]
        k = int(np.argmin(risks))
        chosen.append(names[k])
        total = total + own[names[k]]
        if risks[k] < best:
            best, kept = risks[k], count
    found = chosen[:kept]
    return {name: found.count(name) / kept for name in names if name in found}


def blended(predicted: Mapping[str, np.ndarray], weights: Mapping[str, float]) -> np.ndarray:
    """The weighted mean of predictions."""
    return np.asarray(sum(weight * predicted[name] for name, weight in weights.items()))


def without_each(
    predicted: Mapping[str, np.ndarray],
    y: np.ndarray,
    kept: Mapping[str, float],
    weights: np.ndarray | None = None,
) -> dict[str, float]:
    """The loss of the blend that would be found without each of the models kept; none where it is all alone.

    Parameters
    ----------
    predicted, y, weights : as of `greedy_weights`; kept : what it found.
    """
    found = {}
    for left_out in kept:
        others = {name: each for name, each in predicted.items() if name != left_out}
        if others:
            blend = blended(others, greedy_weights(others, y, weights))
            found[left_out] = mean(row_losses(y, blend), weights)
    return found


def better_than_noise(
    blend: np.ndarray, single: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None
) -> bool:
    """Whether a blend loses less than a single model, by more than the standard error of the difference."""
    gains = row_losses(y, single) - row_losses(y, blend)
    return bool(mean(gains, weights) > error_of_mean(gains, weights))

"""Greedy selection of models for an ensemble (Caruana et al., 2004)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from usboost.evaluation.metrics import row_losses
from usboost.evaluation.weighted import error_of_mean, mean

PICKS = 50
"""Models picked, with replacement; a weight is a share of the picks."""


@dataclass(frozen=True)
class Unseen:
    """n rows that no model was fitted to, by which models are judged.

    In all methods `predicted` holds what each model says of these rows, by its name: probabilities (n, M) or
    numbers (n,).

    Attributes
    ----------
    y : int (n,), classes 0..M−1, or float (n,)
    weights : float (n,), how many rows each stands for; by default 1
    """

    y: np.ndarray
    weights: np.ndarray | None = None

    def loss(self, predicted: np.ndarray) -> float:
        """The mean loss of one model's predictions, or of a blend's."""
        return mean(row_losses(self.y, predicted), self.weights)

    def greedy_weights(self, predicted: Mapping[str, np.ndarray], picks: int = PICKS) -> dict[str, float]:
        """Weights of models, each a whole number of `picks`, that sum to 1; models without one are left out.

        The best model is picked first, then again and again the one that makes the mean of all picks best.
        The mean of the lowest loss on the way is taken; of equal losses, the one of fewer picks.
        """
        names, n = list(predicted), len(self.y)
        own, codes = dict(predicted), self.y
        if predicted[names[0]].ndim > 1:
            # of probabilities the loss reads those of the rows' own classes only
            own = {name: each[np.arange(n), self.y][:, None] for name, each in predicted.items()}
            codes = np.zeros(n, dtype=np.intp)
        rows = Unseen(codes, self.weights)
        total = np.zeros_like(own[names[0]], dtype=np.float64)
        chosen: list[str] = []
        best, kept = np.inf, 0
        for count in range(1, picks + 1):
            risks = [rows.loss((total + own[name]) / count) for name in names]
            k = int(np.argmin(risks))
            chosen.append(names[k])
            total = total + own[names[k]]
            if risks[k] < best:
                best, kept = risks[k], count
        found = chosen[:kept]
        return {name: found.count(name) / kept for name in names if name in found}

    def without_each(
        self, predicted: Mapping[str, np.ndarray], kept: Mapping[str, float]
    ) -> dict[str, float]:
        """The loss of the blend that would be found without each model kept; none where it is all alone.

        Parameters
        ----------
        kept : what `greedy_weights` found.
        """
        found = {}
        for left_out in kept:
            others = {name: each for name, each in predicted.items() if name != left_out}
            if others:
                found[left_out] = self.loss(blended(others, self.greedy_weights(others)))
        return found

    def better_than_noise(self, one: np.ndarray, other: np.ndarray, errors: float = 1.0) -> bool:
        """Whether one model, or a blend, loses less than another, by more than so many standard errors of the
        gain."""
        gains = row_losses(self.y, other) - row_losses(self.y, one)
        return bool(mean(gains, self.weights) > errors * error_of_mean(gains, self.weights))


def blended(predicted: Mapping[str, np.ndarray], weights: Mapping[str, float]) -> np.ndarray:
    """The weighted mean of predictions."""
    return np.asarray(sum(weight * predicted[name] for name, weight in weights.items()))

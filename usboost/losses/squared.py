"""The squared loss: of Boosted Neural Networks (BNN), and of regression by weak learners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from usboost.losses.base import Expansion, mean, refuse_zero, relative
from usboost.shards.here import here


@dataclass(frozen=True)
class Squared:
    """L(y, f) = ‖y − f‖² with targets y of shape (n, m) (BNN); the risk is its mean.

    Parameters
    ----------
    n_outputs : m
    zero_steps : whether a learner whose outputs are all zero is taken, with step 0, or refused
    """

    n_outputs: int
    zero_steps: bool = False
    refits_leaves: ClassVar[bool] = False  # a tree's leaves hold means as it is

    def risk(self, f: np.ndarray, y: np.ndarray, counts: np.ndarray | None = None) -> float:
        return mean(np.square(y - f).sum(axis=1), counts)

    def newton_target(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        """−(∇²L)⁻¹∇L = y − f."""
        return y - f

    def pseudo_residual(self, residual: np.ndarray) -> np.ndarray:
        """The residual itself."""
        return residual

    def constants(
        self, residual: np.ndarray, groups: np.ndarray, n_groups: int, counts: np.ndarray | None = None
    ) -> np.ndarray:
        """The mean of each group, float64 (n_groups,), from residuals (n,) and groups 0, 1, … (n,)."""
        held = np.bincount(groups, counts, n_groups)
        sums = np.bincount(groups, residual if counts is None else counts * residual, n_groups)
        held, sums = here().sum(held.astype(np.float64)), here().sum(sums)
        return np.asarray(sums / np.where(held > 0, held, 1))

    def curvature(self, target: np.ndarray, f: np.ndarray, y: np.ndarray) -> None:
        """The same everywhere: None."""

    def line(
        self, f: np.ndarray, y: np.ndarray, directions: list[np.ndarray], counts: np.ndarray | None = None
    ) -> _QuadraticLine:
        if counts is None:
            return _QuadraticLine(y - f, directions, self.zero_steps)
        root = np.sqrt(relative(counts))[:, None]
        return _QuadraticLine(root * (y - f), [root * each for each in directions], self.zero_steps)

    def scores(self, f: np.ndarray) -> np.ndarray:
        """f itself: with one-hot targets the prediction is the arg max."""
        return f

    def probabilities(self, f: np.ndarray) -> np.ndarray:
        """With one-hot targets f estimates the class probabilities; the nearest point that is one, (n, m).

        The Euclidean projection on the simplex: every row loses the same amount from each entry and
        is cut at 0, so the order of the classes stays.
        """
        # what is taken from each entry is (Σ_{j≤k} falling_j − 1)/k for the largest k whose entry is above it
        falling = -np.sort(-f, axis=1)
        excess = (np.cumsum(falling, axis=1) - 1) / np.arange(1, f.shape[1] + 1)
        kept = (falling > excess).sum(axis=1, keepdims=True)
        return np.maximum(f - np.take_along_axis(excess, kept - 1, axis=1), 0.0)


class _QuadraticLine:
    """mean_i ‖r_i − Σ_v step_v d_vi‖²: one Newton step from anywhere is the exact minimum."""

    def __init__(self, residual: np.ndarray, directions: list[np.ndarray], zero_steps: bool = False) -> None:
        self._residual, self._n, self._zero_steps = residual.ravel(), len(residual), zero_steps
        self._directions = np.stack([d.ravel() for d in directions])
        self._linear = self._directions @ self._residual / self._n
        self._quadratic = self._directions @ self._directions.T / self._n

    def risk(self, steps: np.ndarray) -> float:
        # the expanded square would cancel to noise, even below 0, where the fit is nearly exact
        return float(np.square(self._residual - steps @ self._directions).sum()) / self._n

    def expand(self, steps: np.ndarray) -> Expansion:
        gradient = 2 * (self._quadratic @ steps - self._linear)
        return self.risk(steps), gradient, 2 * self._quadratic

    def minimiser(self) -> np.ndarray:
        """γ = Σ_i ⟨r_i, h_i⟩ / Σ_i ‖h_i‖² (BNN equation 3); the normal equations for more directions."""
        if self._zero_steps:
            return np.linalg.pinv(self._quadratic, hermitian=True) @ self._linear
        refuse_zero(np.diag(self._quadratic))
        # the pseudo-inverse would raise on infinity; so the round can say that its risk is not finite
        if len(self._linear) == 1 or not np.isfinite(self._quadratic).all():
            return self._linear / np.diag(self._quadratic)
        return np.linalg.pinv(self._quadratic, hermitian=True) @ self._linear

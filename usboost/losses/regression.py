"""The losses of regression by name, and that of Huber."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from usboost.errors import UsboostError
from usboost.losses.base import Expansion, RegressionLoss, mean, relative
from usboost.losses.piecewise_linear import PiecewiseLinear
from usboost.losses.squared import Squared
from usboost.shards.here import here

_STEPS = 100


@dataclass(frozen=True)
class Huber:
    """L(y, f) = ½ r² for |r| ≤ δ, else δ(|r| − ½ δ), with r = y − f of shape (n, 1) (Huber 1964).

    Parameters
    ----------
    delta : δ, positive, in the units of y; float64 (n,) if each residual has its own
    """

    delta: float | np.ndarray
    n_outputs: ClassVar[int] = 1
    refits_leaves: ClassVar[bool] = True

    def of(self, residual: np.ndarray) -> np.ndarray:
        """The loss of each residual, of its shape."""
        # half of what is cut off, times what is left twice: no difference of large numbers
        cut = self.pseudo_residual(residual)
        return cut * (residual - 0.5 * cut)

    def risk(self, f: np.ndarray, y: np.ndarray, counts: np.ndarray | None = None) -> float:
        return mean(self.of(y - f).ravel(), counts)

    def pseudo_residual(self, residual: np.ndarray) -> np.ndarray:
        """−∂L/∂f: the residual, cut to [−δ, δ]."""
        return np.clip(residual, -self.delta, self.delta)

    def w(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The negative gradient per sample, (n, 1)."""
        return self.pseudo_residual(y - f)

    def constants(
        self, residual: np.ndarray, groups: np.ndarray, n_groups: int, counts: np.ndarray | None = None
    ) -> np.ndarray:
        """Huber's location of each group, float64 (n_groups,): Newton steps within a shrinking bracket."""
        own = 1.0 if counts is None else counts
        held = here().sum(np.bincount(groups, counts, n_groups))
        low, high = np.full(n_groups, np.inf), np.full(n_groups, -np.inf)
        np.minimum.at(low, groups, residual)
        np.maximum.at(high, groups, residual)
        low, high = -here().highest(-low), here().highest(high)
        low[held == 0] = high[held == 0] = 0.0
        at = here().sum(np.bincount(groups, own * residual, n_groups)) / np.where(held > 0, held, 1)
        for _ in range(_STEPS):
            away = residual - at[groups]
            # minus the derivative in c, which falls: its sign says on which side of c the location is
            slope = here().sum(np.bincount(groups, own * self.pseudo_residual(away), n_groups))
            near = here().sum(np.bincount(groups, own * (np.abs(away) <= self.delta), n_groups))
            low, high = np.where(slope >= 0, at, low), np.where(slope <= 0, at, high)
            # Newton's step; where it leaves the bracket, or no residual is near, the middle of that
            moved = at + slope / np.where(near > 0, near, 1)
            moved = np.where((moved >= low) & (moved <= high) & (near > 0), moved, (low + high) / 2)
            if np.array_equal(moved, at):
                break
            at = moved
        return at

    def line(
        self, f: np.ndarray, y: np.ndarray, directions: list[np.ndarray], counts: np.ndarray | None = None
    ) -> _HuberLine:
        residual, along = (y - f).ravel(), np.stack([d.ravel() for d in directions])
        if counts is None:
            return _HuberLine(self, residual, along)
        # w L_δ(r) = L_{√w δ}(√w r)
        root = np.sqrt(relative(counts))
        return _HuberLine(Huber(self.delta * root), root * residual, root * along)


class _HuberLine:
    """mean_i L(r_i − Σ_v step_v d_vi): convex, and quadratic in pieces."""

    def __init__(self, loss: Huber, residual: np.ndarray, directions: np.ndarray) -> None:
        self._loss, self._residual, self._directions = loss, residual, directions

    def risk(self, steps: np.ndarray) -> float:
        return float(self._loss.of(self._residual - steps @ self._directions).mean())

    def expand(self, steps: np.ndarray) -> Expansion:
        left = self._residual - steps @ self._directions
        near = (np.abs(left) <= self._loss.delta).astype(np.float64)
        gradient = -self._directions @ self._loss.pseudo_residual(left) / len(left)
        return float(self._loss.of(left).mean()), gradient, self._gram(near)

    def _gram(self, weights: np.ndarray) -> np.ndarray:
        return (self._directions * weights) @ self._directions.T / len(weights)

    def minimiser(self) -> np.ndarray:
        """The exact minimum: where the right piece is known, one Newton step ends there.

        Until then reweighted least squares, weights min(1, δ/|r|), lowers the risk in every step: its
        quadratic lies above the risk and touches it.
        """
        steps = np.zeros(len(self._directions))
        risk = self.risk(steps)
        for _ in range(_STEPS):
            left = self._residual - steps @ self._directions
            size = np.maximum(np.abs(left), np.finfo(float).tiny)
            slope = self._directions @ self._loss.pseudo_residual(left) / len(left)
            found = risk, steps
            for weights in (np.minimum(1.0, self._loss.delta / size), size <= self._loss.delta):
                moved = steps + np.linalg.pinv(self._gram(weights), rcond=1e-12, hermitian=True) @ slope
                found = min(found, (self.risk(moved), moved), key=lambda each: each[0])
            # a gain by rounding alone is none
            if not found[0] < risk * (1 - 1e-15):
                break
            risk, steps = found
        return steps


REGRESSION_LOSSES = ("squared", "absolute", "huber", "quantile")


def check_loss_name(name: str) -> None:
    """Refuse a name that is none of `REGRESSION_LOSSES`.

    Raises
    ------
    UsboostError
        Listing them.
    """
    if name not in REGRESSION_LOSSES:
        raise UsboostError(f"unknown loss {name!r}; choose one of {', '.join(REGRESSION_LOSSES)}")


def regression_loss(name: str, *, quantile: float = 0.5, delta: float = 1.0) -> RegressionLoss:
    """The loss called `name`.

    Parameters
    ----------
    quantile : the level of "quantile"
    delta : where "huber" goes over from squared to absolute, in the units of y

    Raises
    ------
    UsboostError
        If there is no such loss, or its parameter is out of range.
    """
    check_loss_name(name)
    if name == "absolute":
        return PiecewiseLinear.absolute()
    if name == "quantile":
        return PiecewiseLinear.quantile(quantile)
    if name == "huber":
        if not delta > 0:
            raise UsboostError(f"delta of the Huber loss is positive, not {delta}")
        return Huber(float(delta))
    return Squared(1, zero_steps=True)


def best_constant(loss: RegressionLoss, y: np.ndarray, counts: np.ndarray | None = None) -> float:
    """f⁰, the constant of the lowest risk on targets (n,): mean, median, quantile or Huber's location."""
    return float(loss.constants(y, np.zeros(len(y), dtype=np.int64), 1, counts)[0])

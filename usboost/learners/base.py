"""What the stagewise loop asks of a weak learner, of any kind.

A `Learner` holds settings only. It prepares a view once (bins it, moves it to the device), a
`Trainer` then fits one weak learner a round on the prepared rows, and what comes out predicts on
anything prepared the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from usboost.data.views import View


@dataclass(frozen=True)
class Target:
    """What a round's learner is fitted to, by weighted mean squared error.

    Attributes
    ----------
    values : float array of shape (n, D)
    weights : float array of shape (n,) or (n, D), or None for equal weights
    left_out : bool array of the weights' shape, or (n,), or None
        Samples that the learner does not see in this round.
    """

    values: np.ndarray
    weights: np.ndarray | None = None
    left_out: np.ndarray | None = None

    @property
    def fit_weights(self) -> np.ndarray | None:
        """The weights that a learner fits with: 0 for those left out."""
        if self.left_out is None:
            return self.weights
        if self.weights is None:
            return np.where(self.left_out, 0.0, 1.0)
        left_out = self.left_out
        if left_out.ndim < self.weights.ndim:
            left_out = left_out[:, None]
        return np.where(left_out, 0.0, self.weights)

    def without(self, rows: np.ndarray | None) -> Target:
        """The same with more samples left out: bool (n,), or None for none."""
        if rows is None:
            return self
        if self.left_out is not None:
            rows = self.left_out | (rows if self.left_out.ndim == 1 else rows[:, None])
        return Target(self.values, self.weights, rows)


@runtime_checkable
class FittedLearner(Protocol):
    """One weak learner after fitting."""

    kind: str

    def predict(self, prepared: Any) -> np.ndarray:
        """float32 (n, D) on a view prepared by its learner."""
        ...

    def to_arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays for safetensors, and what else `from_arrays` needs, as JSON."""
        ...


class Trainer(Protocol):
    def fit(self, target: Target, *, seed: int, start: FittedLearner | None) -> FittedLearner: ...


class Learner(Protocol):
    """Settings of a weak learner; stateless, so one object serves every round and fit."""

    def prepare(self, view: View) -> Any: ...

    def trainer(self, prepared: Any, n_outputs: int) -> Trainer: ...


def sum_one_by_one(learners: Sequence[Any], steps: Sequence[float], prepared: Any) -> np.ndarray:
    """Σ_k step_k · learner_k(x), float64 (n, D)."""
    total: np.ndarray | None = None
    for learner, step in zip(learners, steps):
        # a plain float would leave the product of a float32 output in float32
        part = np.float64(step) * learner.predict(prepared)
        total = part if total is None else np.add(total, part, out=total)
    if total is None:
        raise ValueError("no learner to sum")
    return total


def weighted_sum(learners: Sequence[FittedLearner], steps: Sequence[float], prepared: Any) -> np.ndarray:
    """The same, by the learners' own way of doing many at once where they have one."""
    kinds = {type(learner) for learner in learners}
    together = getattr(next(iter(kinds)), "weighted_sum", None) if len(kinds) == 1 else None
    return (together or sum_one_by_one)(learners, steps, prepared)

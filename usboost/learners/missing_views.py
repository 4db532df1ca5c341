"""Learners as the loop uses them: of a view that some rows lack they are fitted to the other rows only.

A view says by its attribute `absent`, bool (n,) or None, which rows lack it. To these its learner adds
exactly 0, in training, validation and prediction; whatever the view holds there is never looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from usboost.data.views import View
from usboost.errors import UsboostError
from usboost.learners import base
from usboost.learners.base import FittedLearner, Learner, Target
from usboost.shards.here import here


@dataclass(frozen=True)
class PresentRows:
    """The prepared rows of a view that others of its n rows lack.

    Attributes
    ----------
    prepared : by the learner, of the k rows that have the view; None where k is 0
    rows : int (k,), their positions
    n : int
    """

    prepared: Any
    rows: np.ndarray
    n: int

    def spread(self, outputs: np.ndarray) -> np.ndarray:
        """Outputs (k, D) as (n, D): 0 for the rows that lack the view."""
        out = np.zeros((self.n, outputs.shape[1]), dtype=outputs.dtype)
        out[self.rows] = outputs
        return out


def prepare(learner: Learner, view: View) -> Any:
    """The view as its learner prepares it; the rows that have it, where some lack it."""
    absent = getattr(view, "absent", None)
    if absent is None or not absent.any():
        return learner.prepare(view)
    rows = np.flatnonzero(~absent)
    # other shards may have rows that this one is asked for sums with
    empty = not len(rows) and here().count == 1
    return PresentRows(None if empty else learner.prepare(view[rows]), rows, len(view))


def predict(fitted: FittedLearner, prepared: Any, n_outputs: int) -> np.ndarray:
    """float32 (n, D): the learner's outputs, and 0 for rows that lack the view."""
    if not isinstance(prepared, PresentRows):
        return fitted.predict(prepared)
    if prepared.prepared is None:
        return np.zeros((prepared.n, n_outputs), dtype=np.float32)
    return prepared.spread(fitted.predict(prepared.prepared))


def weighted_sum(
    learners: Sequence[FittedLearner], steps: Sequence[float], prepared: Any, n_outputs: int
) -> np.ndarray:
    """Σ_k step_k · learner_k(x), float64 (n, D), 0 for rows that lack the view."""
    if not isinstance(prepared, PresentRows):
        return base.weighted_sum(learners, steps, prepared)
    if prepared.prepared is None:
        return np.zeros((prepared.n, n_outputs))
    return prepared.spread(base.weighted_sum(learners, steps, prepared.prepared))


def trainer(learner: Learner, prepared: Any, n_outputs: int) -> PresentTrainer:
    """What fits the learner to the rows that have its view. Raises `UsboostError` if no row has it."""
    if not here().highest(not isinstance(prepared, PresentRows) or len(prepared.rows) > 0):
        raise UsboostError(
            "no training row has its view (all are marked as absent); leave this learner out, or give it rows"
        )
    return PresentTrainer(learner, prepared, n_outputs)


class PresentTrainer:
    """A learner's trainer for the rows that have its view."""

    def __init__(self, learner: Learner, prepared: Any, n_outputs: int) -> None:
        self._some = prepared if isinstance(prepared, PresentRows) else None
        self._prepared = prepared.prepared if isinstance(prepared, PresentRows) else prepared
        self._trainer = learner.trainer(self._prepared, n_outputs)
        self.leave_one_out = base.is_leave_one_out(learner)

    @property
    def takes_metric(self) -> bool:
        return getattr(self._trainer, "takes_metric", False)

    def fit(self, target: Target, *, seed: int, start: FittedLearner | None) -> FittedLearner:
        """The learner fitted to the target (of n rows) on the rows that have its view."""
        if self._some is not None:
            target = target.of(self._some.rows)
        weights = None if target.left_out is None else target.fit_weights
        # all that have it may be to sit this round out
        if weights is not None and not here().highest(bool(weights.any())):
            target = replace(target, left_out=None)
        return self._trainer.fit(target, seed=seed, start=start)

    def predict(self, fitted: FittedLearner) -> np.ndarray:
        """What a learner gives the n training rows: float32 (n, D)."""
        return self._spread(fitted.predict(self._prepared))

    def outputs(self, fitted: FittedLearner) -> np.ndarray:
        """What a leave-one-out learner, fitted last, gives them unseen: float32 (n, D)."""
        return self._spread(cast(base.LeaveOneOutTrainer, self._trainer).outputs(fitted))

    def _spread(self, outputs: np.ndarray) -> np.ndarray:
        return outputs if self._some is None else self._some.spread(outputs)

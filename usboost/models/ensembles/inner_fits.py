"""Fits inside a fit: those of an ensemble's members, kept so that a killed fit goes on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from usboost.boosting.callbacks import Callback, resume, tell
from usboost.boosting.checkpoint import Checkpoint
from usboost.boosting.rounds import Round
from usboost.files.arrays import Store
from usboost.models.estimator import Samples


@dataclass(frozen=True)
class InnerFits:
    """Fits inside a fit, by the name of each.

    A model with a `checkpoint` keeps its rounds below the outer fit's; of others the finished fit is kept.

    Attributes
    ----------
    checkpoint, callbacks : of the outer fit
    """

    checkpoint: Checkpoint | None
    callbacks: Sequence[Callback]

    def fit_or_load(self, model: Any, name: str, train: Samples, stop: Samples | None) -> Any:
        """`model`, unfitted, fitted with the outer fit's callbacks, or as an earlier run saved it.

        One that was saved has no ``history_``.

        Parameters
        ----------
        stop : samples to stop on; None for a model that knows how far to go
        """
        from usboost.models import persistence

        if self.checkpoint is None or _keeps_rounds(model):
            return self._fit(model, name, train, stop, self.callbacks)
        store = Store(self.checkpoint.folder)
        if (kept := store.get(name, persistence.load)) is not None:
            return kept
        asked = StopRecorder(self.callbacks)
        fitted = self._fit(model, name, train, stop, [asked])
        if not asked.stopped:  # else it is not what the same command would give
            store.put(name, partial(persistence.save, fitted))
        return fitted

    def _fit(
        self, model: Any, name: str, train: Samples, stop: Samples | None, callbacks: Sequence[Callback]
    ) -> Any:
        model.set_params(callbacks=list(callbacks))
        if self.checkpoint is not None and _keeps_rounds(model):
            model.set_params(checkpoint=self.checkpoint.folder / name)
        validation = None
        if stop is not None:
            held_weights = () if stop.weights is None else (stop.weights,)
            validation = (stop.views, stop.y, *held_weights)
        more = {} if train.related is None else train.related.arguments
        if train.weights is not None:
            more["sample_weight"] = train.weights
        return model.fit(train.views, train.y, validation, **more)


def _keeps_rounds(model: Any) -> bool:
    return "checkpoint" in model.get_params(deep=False)


class StopRecorder(Callback):
    """Several callbacks as one, which knows whether any of them asked the fit to stop before its end."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._callbacks = callbacks
        self._last = 0
        self.stopped = False

    def on_fit_begin(self, fit: Any) -> None:
        self._last = fit.n_rounds
        for callback in self._callbacks:
            callback.on_fit_begin(fit)

    def on_resume(self, rounds: Sequence[Round]) -> bool:
        stop = resume(self._callbacks, rounds)
        self.stopped = self.stopped or (stop and rounds[-1].index < self._last)
        return stop

    def on_round(self, round_: Round) -> bool:
        stop = tell(self._callbacks, round_)
        self.stopped = self.stopped or (stop and round_.index < self._last)
        return stop

    def on_fit_end(self) -> None:
        for callback in self._callbacks:
            callback.on_fit_end()

    def time_left(self) -> float:
        return min((callback.time_left() for callback in self._callbacks), default=math.inf)

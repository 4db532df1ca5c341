"""The context of a fit: validation data, weights, callbacks and checkpoint; and its history."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from usboost.boosting.callbacks import Callback, EarlyStopping, History, Patience
from usboost.boosting.checkpoint import Checkpoint
from usboost.data.views import Views
from usboost.evaluation.folds import Related
from usboost.shards.collective import world


@dataclass(frozen=True)
class FitContext:
    """Everything that a fit is given besides its samples.

    Attributes
    ----------
    validation : views and encoded labels of samples that are scored and never fitted to, or None
    callbacks : a user's own
    checkpoint : opened for this fit, or None
    weights, val_weights : float64, positive: how many rows each training and each validation sample stands
        for; None for 1
    related : how the training samples are related, for those who divide them; None: in no way
    """

    validation: tuple[Views, np.ndarray] | None = None
    callbacks: Sequence[Callback] = ()
    checkpoint: Checkpoint | None = None
    weights: np.ndarray | None = None
    val_weights: np.ndarray | None = None
    related: Related | None = None

    @property
    def apart(self) -> Related | None:
        """Return how they are related, for who divides them; None where they may be divided by chance."""
        return self.related if self.related is not None and self.related.several else None

    def watch(
        self,
        monitor: str | None = None,
        patience: Patience = None,
        least: float = 0.0,
        before: Mapping[str, float] | None = None,
    ) -> "Watch":
        """Watch the fit: its history, early stopping on `monitor` with validation data, callbacks.

        `least` is the gain that counts, of all validation samples together; `before` are the validation
        metrics before the first round, where that may be the best one.
        """
        stopping = None
        if monitor is not None and self.validation is not None:
            rows = world().sum(len(self.validation[0]))
            stopping = EarlyStopping(monitor, patience, least / rows, before)
        return Watch(stopping, self.callbacks)


class Watch:
    """The callbacks of a fit, in the order in which they are called, and what they have seen of it."""

    def __init__(self, stopping: EarlyStopping | None, more: Sequence[Callback]) -> None:
        self._history, self._stopping = History(), stopping
        self.callbacks: list[Callback] = [self._history, *([stopping] if stopping else []), *more]

    @property
    def history(self) -> list[dict[str, float]]:
        """Return every round's metrics."""
        return self._history.rounds

    @property
    def best_round(self) -> int:
        """Return the round with the best monitored metric; the last one if none is monitored."""
        return self._stopping.best_round if self._stopping else len(self._history.rounds)

"""The fits of an ensemble's members to folds: which there is time for, and how models are selected by them.

The selection is greedy (Caruana et al., 2004)."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone

from usboost.boosting.callbacks import Callback, TimeLimit, notify, notify_resumed
from usboost.boosting.checkpoint import Checkpoint, described
from usboost.boosting.rounds import Round
from usboost.data.views import Views
from usboost.errors import Unsuited, UsboostError
from usboost.evaluation.folds import Split
from usboost.evaluation.metrics import row_losses
from usboost.evaluation.statistics import error_of_mean, mean
from usboost.files.arrays import Store, key_of
from usboost.models import persistence
from usboost.models.estimator import Samples
from usboost.models.tuned_images import fit_weighted


@dataclass(frozen=True)
class InnerFits:
    """Fits inside a fit, by the name of each.

    A model with a `checkpoint` keeps its rounds below the outer fit's; of others the finished fit is stored.

    Attributes
    ----------
    checkpoint, callbacks : of the outer fit
    """

    checkpoint: Checkpoint | None
    callbacks: Sequence[Callback]

    def fit_or_load(self, model: Any, name: str, train: Samples, stop: Samples | None) -> Any:
        """Fit `model` with the outer fit's callbacks, or load it as an earlier run saved it.

        One that was saved has no rounds in its ``history_``.

        Parameters
        ----------
        stop : samples to stop on; None for a model that knows how far to go
        """
        store, recorder = None, StopRecorder(self.callbacks)
        if self.checkpoint is not None and "checkpoint" in model.get_params(deep=False):
            model.set_params(checkpoint=self.checkpoint.folder / name)
        elif self.checkpoint is not None:
            store = Store(self.checkpoint.folder)
            if (saved := store.get(name, persistence.load)) is not None:
                saved.history_ = []
                return saved
        model.set_params(callbacks=list(self.callbacks) if store is None else [recorder])
        fit_weighted(model, train.weighted, None if stop is None else stop.weighted, train.related)
        if store is not None and not recorder.stopped:  # else it is not what the same command would give
            store.put(name, partial(persistence.save, model))
        return model


class StopRecorder(Callback):
    """Several callbacks as one, which records if any of them stops the fit before its end."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._callbacks = callbacks
        self._last = 0
        self.stopped = False

    def on_fit_begin(self, fit: Any) -> None:
        self._last = fit.n_rounds
        for callback in self._callbacks:
            callback.on_fit_begin(fit)

    def on_resume(self, rounds: Sequence[Round]) -> bool:
        stop = notify_resumed(self._callbacks, rounds)
        self.stopped = self.stopped or (stop and rounds[-1].index < self._last)
        return stop

    def on_round(self, round_: Round) -> bool:
        stop = notify(self._callbacks, round_)
        self.stopped = self.stopped or (stop and round_.index < self._last)
        return stop

    def on_fit_end(self) -> None:
        for callback in self._callbacks:
            callback.on_fit_end()

    def time_left(self) -> float:
        return min((callback.time_left() for callback in self._callbacks), default=math.inf)


ROWS = 1000
"""Rows that a time of predicting is given for."""
BETWEEN_SEEDS = 1000
"""Difference of the seeds of one member's fits to all rows."""


@dataclass
class FoldFits:
    """A member's fits so far.

    Attributes
    ----------
    member : unfitted; predict : what a fit of it says of views
    seen : what `predict` says of all rows, each by the fit whose fold holds it; no meaning before that fit
    fits : the models, fold by fold; full_refits : those fitted to all rows, each with a seed of its own
    rows : that each fit to a fold was fitted to, how many
    seconds : of each fit and its predictions
    predicting : seconds that one row takes, through all fits
    cut : whether time has stopped one of the fits
    left_out : why it is not fitted, or not any more; "" if it is
    settled : whether there is to be no further fit to all rows
    """

    member: Any
    predict: Callable[[Any, Views], np.ndarray]
    seen: np.ndarray
    fits: list[Any] = field(default_factory=list)
    full_refits: list[Any] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    predicting: float = 0.0
    cut: bool = False
    left_out: str = ""
    settled: bool = False

    def grow(self, samples: Samples, split: Split, inner: InnerFits, place: str, seconds: float) -> None:
        """Fit once more, to the first rows of the split, for so many seconds at most; predict the others."""
        limits = [] if math.isinf(seconds) else [TimeLimit(seconds)]
        train, val = (samples[rows] for rows in split)
        began = time.perf_counter()
        limited = replace(inner, callbacks=[*inner.callbacks, *limits])
        model = limited.fit_or_load(clone(self.member), place, train, val)
        fitted = time.perf_counter()
        self.seen[split[1]] = self.predict(model, val.views)
        ended = time.perf_counter()
        self.fits.append(model)
        self.rows.append(len(train.y))
        self.seconds.append(ended - began)
        self.predicting += (ended - fitted) / len(val.y)
        self.cut = self.cut or any(limit.reached for limit in limits)

    def takes_whole(self, rows: int) -> float:
        """Estimate the seconds of a fit to so many rows: all, and perhaps others with them."""
        if self.full_refits:
            return self.seconds[-1]
        return self.seconds[-1] * rows / self.rows[-1] if self.fits else 0.0

    def complete(self, samples: Samples, inner: InnerFits, place: str, left: float) -> None:
        """Fit once more, to all rows, as far as the fits to folds went, if that ends within `left` seconds.

        Each such fit has a seed of its own. A model without `for_all_rows`, or that is not made for so many
        rows, is not fitted again; a fit that is stopped before its end is left out, and so is one that
        predicts the same as the one before, as it draws nothing.
        """
        if self.settled or self.takes_whole(len(samples.y)) > left:
            return
        self.settled = True  # where it ends early
        try:
            of_middle_length = sorted(self.fits, key=lambda fit: fit.best_round_)[len(self.fits) // 2]
            model = of_middle_length.for_all_rows()
        except UsboostError:
            return
        if "random_state" in model.get_params(deep=False):
            model.set_params(random_state=model.random_state + len(self.full_refits) * BETWEEN_SEEDS)
        # folds that a time limit cut short were shorter in an earlier run of the same command
        how_far = key_of(described(model))[:8]
        began, recorder = time.perf_counter(), StopRecorder(inner.callbacks)
        try:
            model = replace(inner, callbacks=[recorder]).fit_or_load(
                model, f"{place}-{how_far}", samples, None
            )
        except Unsuited:
            return
        if recorder.stopped:  # half a model would have half of the weight
            return
        some = samples.views[np.arange(min(len(samples.y), ROWS))]
        if self.full_refits and np.array_equal(
            self.predict(model, some), self.predict(self.full_refits[-1], some)
        ):
            return
        made = len(self.fits) + len(self.full_refits)
        self.predicting *= (made + 1) / made
        self.full_refits.append(model)
        self.seconds.append(time.perf_counter() - began)
        self.settled = False

    def about(self, weight: float, loss: float | None, without: float | None) -> "Member":
        """Describe the member for the ensemble's files and reports."""
        made = len(self.fits), sum(self.seconds), ROWS * self.predicting
        return Member(weight, loss, without, *made, self.cut, self.left_out, len(self.full_refits))


@dataclass(frozen=True)
class Member:
    """A member of a fitted ensemble, as its files and reports describe it.

    Attributes
    ----------
    weight : in the blend; 0 for one that is left out
    loss : of the rows that it was not fitted to; None if there was no time for a fit
    without : the blend's loss without it; None where it has no weight, or is all there is
    fits : how many were made to folds; seconds : of all its fits, that to all rows with them
    predicting : seconds to predict `ROWS` rows
    cut : whether time has stopped one of the fits before its end
    left_out : why it was not fitted, or to the first fold alone; "" if it was, or was not tried
    full_refits : how many further fits there are, to all rows
    """

    weight: float = 0.0
    loss: float | None = None
    without: float | None = None
    fits: int = 0
    seconds: float = 0.0
    predicting: float = 0.0
    cut: bool = False
    left_out: str = ""
    full_refits: int = 0

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Member":
        """Read what a file says of it. Raises `UsboostError` if a value is none that a member can have."""
        entry = cls(**document)
        numbers = [entry.weight, entry.seconds, entry.predicting, float(entry.fits), float(entry.full_refits)]
        numbers += [each for each in (entry.loss, entry.without) if each is not None]
        if not all(isinstance(each, (int, float)) and math.isfinite(each) and each >= 0 for each in numbers):
            raise UsboostError("what it says of a member is no number of at least 0")
        return entry


def in_time(
    fold_fits: Mapping[str, FoldFits], fold: int, left: Callable[[], float]
) -> Iterator[tuple[str, float]]:
    """Yield member and most seconds of each fit to a fold that there is time for.

    The very first fit is always made; another member's first one has its share of the time left, and is left
    out where that is shorter than the quickest fit so far. Of a member that has been fitted another fit
    begins only if it would end in time when it takes as long as its last one.

    Parameters
    ----------
    fold_fits : by member, in the order in which they are tried; grown by the caller between two steps
    fold : which; those before it have been gone through
    left : seconds for further fits
    """
    for index, (name, each) in enumerate(fold_fits.items()):
        seconds, fitted = left(), [each for each in fold_fits.values() if each.fits]
        if each.left_out:
            continue
        if fold:
            if len(each.fits) < fold or each.seconds[-1] > seconds:
                continue
        elif fitted:
            seconds /= len(fold_fits) - index + 1  # as much as this first fit is left for further ones
            if seconds < min(each.seconds[-1] for each in fitted):
                continue
        yield name, seconds


def seen_by_all(
    fold_fits: Mapping[str, FoldFits], splits: Sequence[Split]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return positions of the rows, in order, that every member still in the race has predicted without
    having seen them, and these predictions by member."""
    fitted = {name: each for name, each in fold_fits.items() if each.fits and not each.left_out}
    depth = min(len(each.fits) for each in fitted.values())
    rows = np.sort(np.concatenate([unseen for _, unseen in splits[:depth]]))
    return rows, {name: each.seen[rows] for name, each in fitted.items()}


PICKS = 50
"""Models picked, with replacement; a weight is a share of the picks."""


@dataclass(frozen=True)
class Unseen:
    """n rows that no model was fitted to, by which models are judged.

    In all methods `predicted` holds what `losses` reads of these rows: of each model, by its name, or of one.

    Attributes
    ----------
    y : int (n,), classes 0..M−1, or float (n,)
    weights : float (n,), how many rows each stands for; by default 1
    losses : (y, predicted) to the loss of each row, float64 (n,); by default of probabilities (n, M) or
        numbers (n,)
    """

    y: np.ndarray
    weights: np.ndarray | None = None
    losses: Callable[[np.ndarray, np.ndarray], np.ndarray] = row_losses

    def loss(self, predicted: np.ndarray) -> float:
        """Return the mean loss of one model's predictions, or of a blend's."""
        return mean(self.losses(self.y, predicted), self.weights)

    def greedy_weights(self, predicted: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Choose weights of models, each a whole number of `PICKS`, that sum to 1; models may have none.

        The best model is picked first, then again and again the one that makes the mean of all picks best.
        The mean of the lowest loss on the way is taken; of equal losses, the one of fewer picks.
        """
        names = list(predicted)
        total = np.zeros_like(predicted[names[0]], dtype=np.float64)
        chosen: list[str] = []
        best, n_best = np.inf, 0
        for count in range(1, PICKS + 1):
            risks = [self.loss((total + predicted[name]) / count) for name in names]
            k = int(np.argmin(risks))
            chosen.append(names[k])
            total = total + predicted[names[k]]
            if risks[k] < best:
                best, n_best = risks[k], count
        picked = chosen[:n_best]
        return {name: picked.count(name) / n_best for name in names if name in picked}

    def without_each(
        self, predicted: Mapping[str, np.ndarray], weights: Mapping[str, float]
    ) -> dict[str, float]:
        """Return the loss of the blend that would be chosen without each weighted model; none of one alone.

        Parameters
        ----------
        weights : what `greedy_weights` has chosen.
        """
        losses = {}
        for left_out in weights:
            others = {name: each for name, each in predicted.items() if name != left_out}
            if others:
                losses[left_out] = self.loss(blended(others, self.greedy_weights(others)))
        return losses

    def better_than_noise(self, one: np.ndarray, other: np.ndarray, errors: float = 1.0) -> bool:
        """Tell if one model, or a blend, loses less than another, by more than so many standard errors of the
        gain."""
        gains = self.losses(self.y, other) - self.losses(self.y, one)
        return bool(mean(gains, self.weights) > errors * error_of_mean(gains, self.weights))


def blended(predicted: Mapping[str, np.ndarray], weights: Mapping[str, float]) -> np.ndarray:
    """Return the weighted mean of predictions."""
    return np.asarray(sum(weight * predicted[name] for name, weight in weights.items()))

"""The fit to all rows after one with validation rows, so that these are used, too; and how far it goes.

Where there are few rows, the 15 % that stop a fit are a few dozen, and chance decides: then folds say it.
"""

import copy
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from usboost.boosting.callbacks import Callback, improves
from usboost.errors import Unsuited, UsboostError
from usboost.evaluation.folds import Fold, inner_folds
from usboost.evaluation.task import TASKS, Task
from usboost.fit.evaluate import FitData, WeightedRows, related_of
from usboost.fit.record import Keep
from usboost.learners.networks.learner import NetworkLearner
from usboost.models.methods.average import Average
from usboost.models.methods.ensemble import Ensemble
from usboost.models.methods.fold_fits import StopRecorder
from usboost.models.methods.weak_learners import BoostedWeakLearners
from usboost.models.tuned_images import fit_weighted, images_tuned
from usboost.shards.collective import world
from usboost.table.columns.encoding import Encoding
from usboost.table.user_table import UserTable

FEW = 2000
"""Rows below which folds say how far a model goes."""
FOLDS = 5
"""Parts of the rows, each left out in turn."""
FITS = 3 * FOLDS + 1
"""Fits at most, with the one to all rows."""


@dataclass(frozen=True)
class Refitted:
    """A model that was fitted again, the encoding of its rows, and the folds that say how far it goes."""

    model: Any
    encoding: Encoding
    folds: "FoldsResult | None" = None


def refit(
    model: Any,
    table: UserTable,
    parts: tuple[WeightedRows, WeightedRows],
    encoding: Encoding,
    took: float,
    *,
    wanted: bool | None,
    stopped: bool = False,
    callbacks: Sequence[Callback] = (),
    seed: int = 0,
    keep: Keep | None = None,
) -> Refitted | None:
    """Fit a model like `model` to all rows, the validation rows, too, as far as these let it go.

    Raises UsboostError if it has to be made, and it is not known how far to go.

    Parameters
    ----------
    parts : training and validation rows; encoding : learnt from the former.
    took : seconds of the first fit; stopped : whether a callback asked it to stop before its end.
    wanted : by default, None, it is made, except where a callback asks one of the two fits to stop before its
        end, or leaves no time for the second.
    callbacks : of this fit; seed : of the folds that say how far to go where there are few rows.
    keep : where the rounds are stored.

    Returns
    -------
    None where the fit is not wanted, there is no time, it was asked to stop before its end, it is not
    made for so many rows, or a model of its kind cannot be told how far to go. An ensemble is `model`
    itself, to which such fits of its members are added.
    """
    if wanted is False or (wanted is None and world().highest(stopped)):
        return None
    everything = parts[0].together(parts[1])
    rows = everything.rows
    related = related_of(table, rows)
    if isinstance(model, Ensemble):
        # fits to folds read rows by the encoding that they have learnt from
        given = table.views(encoding, rows), table.labels[rows], everything.in_fit, related
        return Refitted(model, encoding) if model.add_full_refits(*given, always=bool(wanted)) else None
    left = min((each.time_left() for each in callbacks), default=math.inf)
    longer = took * world().sum(len(rows)) / world().sum(len(parts[0]))
    if not wanted and world().highest(longer > left):
        return None
    # one that has to be made has a known length, and a limit of time has ended the first
    callbacks = [each for each in callbacks if not wanted or math.isinf(each.time_left())]
    folds = None
    if by_folds(model, table, len(rows)) and (wanted or took * FITS <= left):
        with suppress(UsboostError):  # fewer rows may be too few
            folds = choose_rounds(table, everything, model, seed, callbacks)
    try:
        again = model.for_all_rows() if folds is None else folds.model
    except UsboostError:
        if wanted:
            raise
        return None
    recorder = StopRecorder(callbacks)
    again.set_params(callbacks=[recorder])
    encoding = table.fit_encoding(rows)
    samples = table.views(encoding, rows), table.labels[rows], everything.in_fit
    if keep is not None:
        keep.keep(again, (*samples, *(() if related is None else related.arrays)))
    try:
        fit_weighted(again, samples, None, related)
    except Unsuited:  # for more rows than the first fit had, say
        if wanted:
            raise
        return None
    return None if world().highest(recorder.stopped) else Refitted(again, encoding, folds)


def by_folds(model: Any, table: UserTable, rows: int) -> bool:
    """Return whether folds say how far a fit like `model` to so many rows goes.

    Not where the user has said which rows stop a fit, and not of a model whose rounds fit networks or whose
    images were tuned: that takes too long for so many fits. Nor on several shards.
    """
    others = len(table) - np.bincount(table.labels).max() if table.classes else rows
    few = rows < FEW or (rows < 5 * FEW and others < FEW / 10)
    few = few and world().count == 1 and table.split is None
    return few and not images_tuned(model) and (isinstance(model, Average) or _quick(model))


def _quick(model: Any) -> bool:
    """Tell if a model is boosted, of learners that are quick to fit."""
    return isinstance(model, BoostedWeakLearners) and not any(
        isinstance(each, NetworkLearner) for each in model._learners().values()
    )


@dataclass(frozen=True)
class FoldsResult:
    """The result of fits to folds.

    Attributes
    ----------
    model : unfitted, knows how far to go.
    best_round_ : the round of the best mean over the folds.
    history_ : the mean over the folds of what was measured of each round; of an average, of its members'.
    rows : those that were left out of one of the fits.
    predicted : of these, each by such a fit that did not see it: probabilities float64 (n, M), or
        numbers float64 (n,).
    seconds : of all these fits.
    count : parts of the rows that were left out in turn.
    """

    model: Any
    best_round_: int
    history_: list[dict[str, Any]]
    rows: WeightedRows
    predicted: np.ndarray
    seconds: float
    count: int


def choose_rounds(
    table: UserTable, everything: WeightedRows, model: Any, seed: int, callbacks: Sequence[Callback]
) -> FoldsResult | None:
    """Choose how far to go by fits to folds of some rows; the encoders of each learn from its own rows.

    An average fits each member to the folds; what they predict of the rows left out chooses the weights.

    Raises `UsboostError` if the rows cannot be divided, or some of them cannot be fitted to.

    Parameters
    ----------
    model : fitted, whose settings each fit has; seed : of the folds.
    callbacks : of every fit; a fit that they stop ends it all, and the answer is None.
    """
    began, recorder, task = time.perf_counter(), StopRecorder(callbacks), TASKS[table.task]
    folds, places = round_folds(table, everything, seed)
    order = np.argsort(np.concatenate(places))
    judged = everything[np.concatenate(places)[order]]
    if isinstance(model, Average):
        own = {name: _by_folds(fit, task, folds, recorder) for name, fit in model.tried_.items()}
        if recorder.stopped:  # what was cut short says nothing of weights
            return None
        predicted = {name: each.predicted[order] for name, each in own.items()}
        model = copy.copy(model)  # should the last fit be stopped, the first stays as it was scored
        mixed = model.choose_again(predicted, table.labels[judged.rows], judged.in_fit)
        again = model.for_all_rows()
        again.set_params(members={name: own[name].model for name in model.weights_})
        rounds = [{"member": name, **row} for name, each in own.items() for row in each.history]
        result = _ByFolds(again, mixed, model.best_round_, rounds)
    else:
        result = _by_folds(model, task, folds, recorder)
        result = replace(result, predicted=result.predicted[order])
    if recorder.stopped:
        return None
    seconds = time.perf_counter() - began
    return FoldsResult(
        result.model, result.best_round, result.history, judged, result.predicted, seconds, len(folds)
    )


@dataclass(frozen=True)
class _ByFolds:
    """Hold a model that knows by folds how far to go, and what fits to them predict, fold by fold."""

    model: Any
    predicted: np.ndarray
    best_round: int
    history: list[dict[str, Any]] = field(default_factory=list)


def _by_folds(model: Any, task: Task, folds: Sequence[FitData], recorder: StopRecorder) -> _ByFolds:
    """Fit a model to folds.

    One whose rounds are quick goes as far as they say: fits that stop early say how many rounds are enough,
    and which penalty a start of classes has; fits of so many rounds, all with this penalty, say which round
    is the best; fits up to it predict. Another one goes as far as `model` went.
    """
    known = again = model.for_all_rows()
    best, history = model.best_round_, model.history_
    if _quick(model):
        base = model.unfitted()
        first = fit_folds(base, folds, recorder)
        enough: dict[str, Any] = {"n_rounds": max(len(each.history_) for each in first), "patience": None}
        if (penalty := best_penalty(first)) is not None:
            for each in (base, again):
                each.set_params(start__penalties=(penalty,))
        measured = means(fit_folds(clone(base).set_params(**enough), folds, recorder), folds)
        best, history = best_round(measured, model.monitor), measured[1:]
        again.set_params(n_rounds=best)
        known = base.set_params(n_rounds=best, validation_fraction=0.0)
    fits = fit_folds(known, folds, recorder, stops=False)
    predicted = [task.predict(each, fold.test[0]) for each, fold in zip(fits, folds, strict=True)]
    return _ByFolds(again, np.concatenate(predicted), best, history)


def round_folds(
    table: UserTable, everything: WeightedRows, seed: int
) -> tuple[list[FitData], list[np.ndarray]]:
    """Return the folds of some rows of a table, and where among these those are that each leaves out."""
    rows, in_fit = everything.rows, everything.in_fit
    splits = inner_folds(table.labels[rows], FOLDS, seed, related_of(table, rows))
    folds = []
    for seen, unseen in splits:
        left_out = rows[unseen]
        data = FitData.of(table, Fold(1, 1, rows[seen], left_out, left_out))
        if in_fit is not None:  # with the weights of classes
            train, test = (*data.train[:2], in_fit[seen]), (*data.test[:2], in_fit[unseen])
            data = replace(data, train=train, val=test, test=test)
        folds.append(data)
    return folds, [unseen for _, unseen in splits]


def fit_folds(model: Any, folds: Sequence[FitData], recorder: StopRecorder, stops: bool = True) -> list[Any]:
    """Fit one setting to all folds, with the rows left out to stop on or without."""
    fits: list[Any] = []
    for fold in folds:
        fits.append(clone(model).set_params(callbacks=[recorder]))
        fit_weighted(fits[-1], fold.train, fold.test if stops else None, fold.related)
    return fits


def means(fits: Sequence[Any], folds: Sequence[FitData]) -> list[dict[str, float]]:
    """Return what was measured of each round, on average over fits by the weight of the rows left out.

    The first is that of the start alone, empty without one.
    """
    weights = [float(len(each.test[1]) if each.test[2] is None else each.test[2].sum()) for each in folds]
    rounds = [[fit.before_ or {}, *fit.history_] for fit in fits]
    return [
        {name: float(np.average([row[name] for row in rows], weights=weights)) for name in rows[0]}
        for rows in zip(*rounds)  # fewer, where a callback has stopped a fit
    ]


def best_round(history: Sequence[Mapping[str, float]], monitor: str) -> int:
    """Return the round of the best metric; 0 is that of a start alone, where there is one."""
    best: Mapping[str, float] | None = history[0] or None
    chosen = 0
    for index, row in enumerate(history[1:], start=1):
        if improves(row, best, monitor):
            best, chosen = row, index
    return chosen


def best_penalty(fits: Sequence[Any]) -> float | None:
    """Return the penalty of the least mean loss over the fits' starts; None where no start tries several."""
    starts = [each.start_.history_ for each in fits if each.start_ is not None]
    tried = min(map(len, starts), default=0)
    if tried < 2:
        return None
    losses = [np.mean([start[k]["risk_val"] for start in starts]) for k in range(tried)]
    return float(starts[0][int(np.argmin(losses))]["penalty"])

"""Fit a model that is built to a user's table, with validation rows for early stopping."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from usboost.boosting.callbacks import Callback
from usboost.data.related import Split
from usboost.data.views import Views
from usboost.datasets.custom.own import OwnTable
from usboost.errors import UsboostError, option
from usboost.evaluation.calibration import FOLDS, calibrated, tempered
from usboost.evaluation.floor import floor_of, floored
from usboost.evaluation.metrics import best_threshold, row_losses
from usboost.evaluation.task import TASKS, Task
from usboost.evaluation.weighted import error_of_mean, mean, worth
from usboost.models.chosen import ChosenClassifier, ChosenRegressor
from usboost.models.ensemble_base import Ensemble
from usboost.models.inner_fits import Asked
from usboost.models.weights import ClassWeight, class_factors, fit_weighted
from usboost.multimodal.all_rows import fitted_to_all
from usboost.multimodal.bundle import Bundle
from usboost.multimodal.card import card_of
from usboost.multimodal.history import history_of
from usboost.multimodal.splits import hold_out
from usboost.multimodal.table_rows import arrays_of, counted_rows, related_of, rows_of, weights_of
from usboost.multimodal.unfinished import Keep


@dataclass(frozen=True)
class First:
    """A fit to the training rows, and the validation rows as it read and answered them.

    Attributes
    ----------
    model : fitted; an ensemble's members may since have been fitted to all rows.
    views, labels : of the validation rows.
    predicted : calibrated probabilities, float64 (n, M), or numbers, float64 (n,).
    """

    model: Any
    views: Views
    labels: np.ndarray
    predicted: np.ndarray


@dataclass(frozen=True)
class Fitted:
    """A bundle, and scores and cost of the fit.

    Attributes
    ----------
    scores : of the validation rows: those of the task, by `names.METRICS_OF`.
    rows : (training, validation).
    best_round : the round, epoch or fit kept; seconds : of the fit.
    pictures_help : whether the validation rows are predicted better with their own pictures than with each
        other's, by more than the standard error; None of a table without pictures.
    losses : log-loss, or RMSE, of the validation rows of each model that was chosen among, if there were
        several.
    first : what the fit that did not see the validation rows has said of them.
    again : whether the bundle's model is another fit, to all of these rows.
    """

    bundle: Bundle
    scores: dict[str, float]
    rows: tuple[int, int]
    best_round: int
    seconds: float
    first: First
    pictures_help: bool | None = None
    losses: dict[str, float] | None = None
    again: bool = False


def fit_built(
    table: OwnTable,
    model: Any,
    name: str,
    *,
    seed: int = 0,
    callbacks: Sequence[Callback] | None = None,
    callbacks_of_all: Sequence[Callback] | None = None,
    calibrate: bool = True,
    threshold: Literal["f1"] | float | None = None,
    refit: bool | None = None,
    class_weight: ClassWeight = None,
    keep: Keep | None = None,
) -> Fitted:
    """Fit a model to 85 % of the rows, of each class, and early stop it on the others; see `splits.hold_out`.

    Without pictures the network (U) and the trees (S) both read the whole table. Where the table has weights,
    they count in the fit, in early stopping, calibration and scores; rows of weight 0 take no part. The
    columns' medians and scales are those of the rows, whatever their weights.

    Parameters
    ----------
    model : unfitted, of views as the table has them; name : what the card calls it.
    seed : of the split.
    callbacks : of the fit; callbacks_of_all : of that to all rows, by default the same.
    calibrate : whether probabilities are tempered where that helps on rows that were not fitted to.
    threshold : of two classes, from which probability of the second on it is the answer: "f1" takes the
        one with the best F1 on the validation rows; by default the more probable class is the answer.
    refit : whether the model is fitted again to all rows, as far as the validation rows let it go. Scores,
        temperature, threshold and margin stay those of the first fit, which did not see the validation rows.
        By default it is, except where a callback asks one of the two fits to stop before its end, or leaves
        no time for the second: then the first is kept. Of an ensemble the members kept are, and the fits to
        folds stay.
    class_weight : "balanced", or a weight for each class by its name, times the rows' own in the fit and in
        early stopping. Calibration, threshold and scores are without, on the classes as frequent as they
        are; but a temperature moves no class's share, so that probabilities lean to those of large weight.
    keep : where rounds are kept until the fit has ended, and gone on from.

    Raises
    ------
    UsboostError
        If the model cannot be fitted to these rows.
    """
    if threshold is not None and len(table.classes) != 2:
        raise UsboostError(f"a threshold is of two classes; leave {option('threshold')} {threshold} out")
    task = TASKS[table.task]
    if class_weight is not None and not table.classes:
        raise UsboostError(
            f"{option('class_weight')} is for classes, but a number is predicted; leave it out"
        )
    counted = counted_rows(table)
    train, held = (counted[rows] for rows in hold_out(rows_of(table)[counted], seed))
    check_classes(table, train, held)
    labels, encoding = table.labels[held], table.fit_encoding(train)
    held_views = table.views(encoding, held)
    several, asked = isinstance(model, Ensemble), Asked(callbacks or ())
    if callbacks:
        model.set_params(callbacks=list(callbacks) if several else [asked])
    if several and refit is not False:
        model.set_params(whole=False)  # such fits follow, to the validation rows, too
    started = time.perf_counter()
    weights = weights_of(table, held)
    own, stopping = weights_of(table, train), weights
    if class_weight is not None:
        factors = class_factors(class_weight, table.labels[train], table.classes, own)
        own, stopping = (
            factors[table.labels[rows]] * (1.0 if each is None else each)
            for rows, each in ((train, own), (held, weights))
        )
    fitted_to, related = (table.views(encoding, train), table.labels[train], own), related_of(table, train)
    if keep is not None:
        keep.keep(model, (*fitted_to, *arrays_of(related)), (held_views, labels, stopping))
    fit_weighted(model, fitted_to, (held_views, labels, stopping), related)
    seconds = time.perf_counter() - started
    predicted = task.predict(model, held_views)
    helps = None
    if table.pictures:
        helps = _pictures_help(model, task, held_views, labels, predicted, weights)
    answers: dict[str, Any] = {}
    if table.classes:
        folds = calibration_folds(table, held, seed)
        temperature = calibrated(predicted, labels, weights, seed=seed, folds=folds) if calibrate else 1.0
        predicted = tempered(predicted, temperature)
        answers = {"temperature": temperature, "threshold": threshold}
        if threshold == "f1":
            answers["threshold"] = best_threshold(labels, predicted[:, 1], weights)
    else:
        answers["floor"] = floor_of(table.labels[train])
        predicted = floored(predicted, answers["floor"])
        answers["margin"] = list(margin_of(labels - predicted, weights))
    scores, losses = task.score(labels, predicted, weights), None
    if isinstance(model, (ChosenClassifier, ChosenRegressor)):
        model, name, losses = model.chosen_, model.chosen_name_, model.losses_
    # of the fit that was scored, also where another to all rows is saved
    answers["history"] = history_of(model)
    first = First(model, held_views, labels, predicted)
    rows, best_round = (len(train), len(held)), model.best_round_
    again = None
    if refit or (refit is None and not asked.stopped):
        again = fitted_to_all(
            model,
            table,
            (train, held),
            (own, stopping),
            encoding=encoding,
            callbacks=(callbacks or ()) if callbacks_of_all is None else callbacks_of_all,
            took=None if refit else seconds,
            keep=keep,
        )
    if again is not None:
        model, encoding = again
        if several:
            model.set_params(whole=True)
        rows = (len(train) + len(held), 0)
    fitted_rows = train if again is None else np.concatenate([train, held])
    answers["prior"] = _prior_of(table, fitted_rows)
    card = card_of(table, encoding, model=name, rows=rows, scores=scores, seed=seed, **answers)
    return Fitted(
        Bundle(model, card, encoding.texts),
        scores,
        (len(train), len(held)),
        best_round,
        seconds,
        first,
        helps,
        losses,
        again is not None,
    )


COVERED = 0.9
"""Share of rows that an interval of a predicted number is to hold."""


def margin_of(residuals: np.ndarray, weights: np.ndarray | None = None) -> tuple[float, float]:
    """What to add to predictions for the ends of an interval that holds `COVERED` of new rows.

    Quantiles of the residuals of rows that were not fitted to, with the finite-sample correction of split
    conformal prediction; as the same rows stopped the fit, new rows may be held a little less often.

    Parameters
    ----------
    residuals : true minus predicted, float64 (n,).
    weights : float64 (n,), positive, of whatever scale; by default equal. The correction is that of as many
        rows as they are worth (`usboost.evaluation.weighted.worth`).
    """
    order, tail = np.argsort(residuals, kind="stable"), (1 - COVERED) / 2
    weights = np.ones(len(order)) if weights is None else weights
    held = np.cumsum(weights[order] * (worth(weights) / weights.sum()))
    k = np.floor(tail * (held[-1] + 1) + 1e-9)  # 0.05 · 20 is a little less than 1
    at = np.searchsorted(held, np.array([max(k, 1), held[-1] - k + 1]) - 1e-9)
    low, high = residuals[order[np.minimum(at, len(order) - 1)]]
    return float(low), float(high)


def calibration_folds(table: OwnTable, held: np.ndarray, seed: int) -> list[Split] | None:
    """How validation rows are divided to see whether a temperature helps; None: by chance."""
    related = related_of(table, held)
    if related is None or not related.several:
        return None
    return related.folds(FOLDS, np.zeros(len(held)), seed)


def check_classes(table: OwnTable, train: np.ndarray, *others: np.ndarray) -> None:
    """Refuse a split in which some class is not among the rows that are fitted to.

    Raises
    ------
    UsboostError
        Naming it.
    """
    if not table.classes:
        return
    seen = np.bincount(table.labels[train], minlength=len(table.classes)) > 0
    if not seen.all():
        name = table.classes[int(seen.argmin())]
        raise UsboostError(
            f"{table.file}: class {name!r} is not among the rows that are fitted to, as they are divided; "
            f"divide them in another way, or leave the class out with {option('missing', repr(name))}"
        )


def _pictures_help(
    model: Any,
    task: Task,
    views: Views,
    labels: np.ndarray,
    given: np.ndarray,
    weights: np.ndarray | None,
) -> bool:
    """Whether rows are predicted better with their own pictures than with those of others."""
    cycle = np.random.default_rng(0).permutation(len(labels))
    order = np.empty_like(cycle)
    order[cycle] = np.roll(cycle, 1)  # no row keeps its own
    for name in views.names:
        if name != "S":
            views = views.with_view(name, views[name][order])
    gains = row_losses(labels, task.predict(model, views)) - row_losses(labels, given)
    return mean(gains, weights) > error_of_mean(gains, weights)


def _prior_of(table: OwnTable, train: np.ndarray) -> list[float]:
    """The shares of the classes among some rows, or the rows' mean."""
    labels, weights = table.labels[train], weights_of(table, train)
    if not table.classes:
        return [float(np.average(labels, weights=weights))]
    counts = np.bincount(labels, weights, minlength=len(table.classes))
    found: list[float] = (counts / counts.sum()).tolist()
    return found

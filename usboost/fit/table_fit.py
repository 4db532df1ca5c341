"""Fit a model to a user's table, with validation rows for early stopping, and then to all rows."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from usboost.boosting.callbacks import Callback
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.evaluation.calibration import FOLDS, calibrated, clip_lower, floor_of, tempered
from usboost.evaluation.folds import Split
from usboost.evaluation.intervals import least_by_class, least_probability, margins
from usboost.evaluation.metrics import best_threshold, row_losses
from usboost.evaluation.statistics import error_of_mean, mean
from usboost.evaluation.task import TASKS, Task
from usboost.fit import evaluate
from usboost.fit.bundle import Bundle
from usboost.fit.card import card_of, prior_of
from usboost.fit.options import AnswerOptions
from usboost.fit.record import Keep
from usboost.fit.refit import refit
from usboost.models.estimator import times_class_weight
from usboost.models.methods.ensemble import Ensemble
from usboost.models.methods.fold_fits import StopRecorder
from usboost.models.tuned_images import fit_weighted
from usboost.shards.collective import unsharded, world
from usboost.table.user_table import UserTable


@dataclass(frozen=True)
class Fitted:
    """A bundle, and scores and cost of the fit.

    Attributes
    ----------
    scores : of the validation rows, or of the rows left out of folds: those of the task, by
        `ranking.METRICS_OF`.
    rows : (training, validation).
    best_round : the round, epoch or fit kept.
    views : of the validation rows.
    labels, predicted : of the rows that judge it, those that stop it or that folds left out; the latter
        calibrated probabilities, float64 (n, M), or numbers, float64 (n,).
    seconds : of the first fit, and of those to folds.
    images_help : whether the validation rows are predicted better with their own images than with each
        other's, by more than the standard error; None of a table without images.
    again : whether the bundle's model is another fit, to all of these rows.
    judged : how many rows the scores are of; of very many rows of several shards, a sample.
    folds : how many fits to folds there were for them; 0: none.
    """

    bundle: Bundle
    scores: dict[str, float]
    rows: tuple[int, int]
    best_round: int
    views: Views
    labels: np.ndarray
    predicted: np.ndarray
    seconds: float
    images_help: bool | None
    again: bool = False
    judged: int = 0
    folds: int = 0


@dataclass(frozen=True)
class TableFit(AnswerOptions):
    """A fit of a model to 85 % of a table's rows, of each class, stopped early on the others: `run` makes it.

    How rows are divided: `usboost.evaluation.folds.Divisible.hold_out`. Without images the network (U) and
    the trees (S) both read the whole table. Where the table has weights, they count in the fit, in early
    stopping, calibration and scores; rows of weight 0 take no part. The columns' medians and scales are those
    of the rows, whatever their weights.

    Parameters
    ----------
    model : unfitted, of views as the table has them; name : what the card calls it.
    callbacks : of the fit; callbacks_of_all : of that to all rows, by default the same.
    keep : where rounds are stored until the fit has ended, and resumed from.
    seed, calibrate, threshold, refit, class_weight : see `usboost.fit.options.AnswerOptions`.
    """

    table: UserTable
    model: Any
    name: str
    callbacks: Sequence[Callback] = ()
    callbacks_of_all: Sequence[Callback] | None = None
    keep: Keep | None = None

    def run(self) -> Fitted:
        """Fit the model, and score it.

        Raises `UsboostError` if the model cannot be fitted to these rows.
        """
        table, task = self.table, TASKS[self.table.task]
        train, val = self.rows_and_weights()
        encoding = table.fit_encoding(train.rows)
        recorder, several = StopRecorder(self.callbacks), isinstance(self.model, Ensemble)
        if self.callbacks:
            # an ensemble asks each of them itself how much time its fits have
            self.model.set_params(callbacks=list(self.callbacks) if several else [recorder])
        if several and self.refit is not False:
            self.model.set_params(refit_full=False)  # members' fits to all rows wait for the validation rows
        views, labels = table.views(encoding, val.rows), table.labels[val.rows]
        started = time.perf_counter()
        stops_on, related = (views, labels, val.in_fit), evaluate.related_of(table, train.rows)
        fitted_to = table.views(encoding, train.rows), table.labels[train.rows], train.in_fit
        if self.keep is not None:
            arrays = () if related is None else related.arrays
            self.keep.keep(self.model, (*fitted_to, *arrays), stops_on)
        fit_weighted(self.model, fitted_to, stops_on, related)
        seconds = time.perf_counter() - started
        predicted, helps = task.predict(self.model, views), None
        if table.images:
            helps = images_help(self.model, task, views, labels, predicted, val.weights)
        again = refit(
            self.model,
            table,
            (train, val),
            encoding,
            seconds,
            wanted=self.refit,
            stopped=recorder.stopped,
            callbacks=self.callbacks if self.callbacks_of_all is None else self.callbacks_of_all,
            seed=self.seed,
            keep=self.keep,
        )
        judged, folds = val, None if again is None else again.folds
        if folds is not None:
            judged, predicted, seconds = folds.rows, folds.predicted, seconds + folds.seconds
        judged, labels, predicted = evaluate.of_all_shards(judged, table.labels[judged.rows], predicted)
        if table.classes:
            predicted, answers = world().once(
                lambda: unsharded(lambda: self._tempered(labels, predicted, judged, train))
            )
        else:
            floor = floor_of(table.labels[train.rows])
            predicted = clip_lower(predicted, floor)
            answers = {"floor": floor, "margin": margins(labels, predicted, judged.weights)}
        scores = world().once(lambda: unsharded(lambda: task.score(labels, predicted, judged.weights)))
        model, encoding = (self.model, encoding) if again is None else (again.model, again.encoding)
        rows = (int(world().sum(len(train))), int(world().sum(len(val))))
        scored = self.model if folds is None else folds
        rows_of_prior = train.rows if again is None else np.concatenate([train.rows, val.rows])
        answers |= {} if table.classes else {"floor": floor_of(table.labels[rows_of_prior])}
        card = card_of(
            table,
            encoding,
            model=self.name,
            rows=rows if again is None else (sum(rows), 0),
            seen=np.concatenate([train.rows, val.rows]),
            scores=scores,
            seed=self.seed,
            # of the fit that was scored, also where another to all rows is saved
            history=history_of(scored),
            prior=prior_of(table, rows_of_prior),
            **answers,
        )
        bundle = Bundle(model, card, encoding.texts)
        best, count = scored.best_round_, 0 if folds is None else folds.count
        about = (views, labels, predicted, seconds, helps, again is not None, len(judged), count)
        return Fitted(bundle, scores, rows, best, *about)

    def rows_and_weights(self) -> tuple[evaluate.WeightedRows, evaluate.WeightedRows]:
        """Return the training and the validation rows."""
        table = self.table
        if self.threshold is not None and len(table.classes) != 2:
            raise UsboostError(f"a threshold is of two classes; leave `threshold` {self.threshold} out")
        train, val = evaluate.divisible(table).hold_out(self.seed)
        evaluate.check_classes(table, train, val)
        weighted = [(rows, evaluate.weights_of(table, rows)) for rows in (train, val)]
        in_fit = times_class_weight(
            self.class_weight, table.classes, *((table.labels[rows], weights) for rows, weights in weighted)
        )
        first, second = (evaluate.WeightedRows(*each, counts) for each, counts in zip(weighted, in_fit))
        return first, second

    def _tempered(
        self,
        labels: np.ndarray,
        predicted: np.ndarray,
        val: evaluate.WeightedRows,
        train: evaluate.WeightedRows,
    ) -> tuple[np.ndarray, dict[str, Any]]:
        temperature, threshold = 1.0, self.threshold
        if self.calibrate:
            known, y, p = val, labels, predicted
            if isinstance(self.model, Ensemble):
                # a rare class has a handful of validation rows, by which chance tempers; folds left these out
                unseen = np.flatnonzero(~np.isnan(self.model.out_of_fold_[:, 0]))
                order = np.argsort(np.concatenate([val.rows, train.rows[unseen]]))
                known = val.together(train[unseen])
                y = self.table.labels[known.rows]
                p = np.concatenate([predicted, self.model.out_of_fold_[unseen]])[order]
            folds = calibration_folds(self.table, known.rows, self.seed)
            temperature = calibrated(p, y, known.weights, seed=self.seed, folds=folds)
        predicted = tempered(predicted, temperature)
        if threshold == "f1":
            threshold = best_threshold(labels, predicted[:, 1], val.weights)
        scored = labels, predicted, val.weights
        least = {"least": least_probability(*scored), "least_by_class": least_by_class(*scored)}
        return predicted, {"temperature": temperature, "threshold": threshold, **least}


def calibration_folds(table: UserTable, val: np.ndarray, seed: int) -> list[Split] | None:
    """Return how validation rows are divided to see whether a temperature helps; None: by chance."""
    related = evaluate.related_of(table, val)
    if related is None or not related.several:
        return None
    return related.folds(FOLDS, np.zeros(len(val)), seed)


MOST = 200
"""Rounds stored; of more, evenly spaced ones, the best and the last among them."""


def history_of(model: Any) -> dict[str, list[Any]]:
    """Return the rounds of a fit, and what was measured of training and validation rows after each of them.

    Returns
    -------
    ``round``, from 1, and ``risk_train``, ``risk_val``, ``f1_val`` and the like, each as long; a measure that
    some round does not have is left out. Of an average also ``member``, the one whose round it is. Empty
    where the steps of a fit are settings that were tried, or one.
    """
    fits, tables = dict[str | None, list[Any]](), list[pd.DataFrame]()
    for row in getattr(model, "history_", []):
        fits.setdefault(row.get("member"), []).append(row)
    for member, rows in fits.items():
        every = pd.DataFrame(rows, index=np.arange(1.0, len(rows) + 1))
        measured = every.filter(regex="_(train|val)$")
        measured = measured.loc[:, np.isfinite(measured).all()]
        if len(rows) < 2 or measured.empty or {"penalty", "leaf_size"} & {*every}:
            continue
        stored = [*np.linspace(1, len(rows), MOST).round(), getattr(model, "best_round_", 1)]
        own = measured[measured.index.isin(stored)].reset_index(names="round")
        tables.append(own if member is None else own.assign(member=member))
    return pd.concat(tables, join="inner").to_dict("list") if tables else {}


def images_help(
    model: Any,
    task: Task,
    views: Views,
    labels: np.ndarray,
    predicted: np.ndarray,
    weights: np.ndarray | None,
) -> bool:
    """Return whether rows are predicted better with their own images than with those of others.

    By more than the standard error of the mean gain.

    Parameters
    ----------
    views, labels, weights : of rows that the model was not fitted to.
    predicted : by the model for these views.
    """
    # one cycle through all rows, so that none keeps its own
    cycle = np.random.default_rng(0).permutation(len(labels))
    order = np.empty_like(cycle)
    order[cycle] = np.roll(cycle, 1)
    for name in views.names:
        if name != "S":
            views = views.with_view(name, views[name][order])
    gains = row_losses(labels, task.predict(model, views)) - row_losses(labels, predicted)
    return mean(gains, weights) > error_of_mean(gains, weights)

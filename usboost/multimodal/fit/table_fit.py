"""Fit a model that is built to a user's table, with validation rows for early stopping."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from usboost.boosting.callbacks import Callback
from usboost.data.row_groups import Split
from usboost.data.views import Views
from usboost.errors import UsboostError, option
from usboost.evaluation.calibration import FOLDS, calibrated, clip_lower, floor_of, tempered
from usboost.evaluation.intervals import least_probability, margin_of
from usboost.evaluation.metrics import best_threshold, row_losses
from usboost.evaluation.statistics import error_of_mean, mean
from usboost.evaluation.task import TASKS, Task
from usboost.models.estimator import times_class_weight
from usboost.models.tuned_images import fit_weighted
from usboost.multimodal.fit.bundle import Bundle
from usboost.multimodal.fit.card import card_of, prior_of
from usboost.multimodal.fit.refit import Again, Refit
from usboost.multimodal.fit.rounds import OfFolds
from usboost.multimodal.fit.splits import (
    Part,
    arrays_of,
    counted_rows,
    hold_out,
    of_all_shards,
    related_of,
    rows_of,
    weights_of,
)
from usboost.multimodal.fit.unfinished import Keep
from usboost.multimodal.options import AnswerOptions
from usboost.shards.collective import unsharded, world
from usboost.table.columns.encoding import Encoding
from usboost.table.user_table import UserTable


@dataclass(frozen=True)
class First:
    """A fit to the training rows, and the rows that judge it as they were read and answered.

    These are the validation rows, or where folds say how far the model goes, the rows left out of them.

    Attributes
    ----------
    model : fitted; an ensemble's members may since have been fitted to all rows.
    views : of the validation rows.
    labels : of the rows that judge it.
    predicted : of these, calibrated probabilities, float64 (n, M), or numbers, float64 (n,).
    seconds : of the fit, and of those to folds.
    images_help : whether the validation rows are predicted better with their own images than with each
        other's, by more than the standard error; None of a table without images.
    """

    model: Any
    views: Views
    labels: np.ndarray
    predicted: np.ndarray
    seconds: float
    images_help: bool | None

    def by(self, folds: OfFolds, table: UserTable) -> First:
        """The same, judged by the rows that were left out of folds."""
        labels, seconds = table.labels[folds.held.rows], self.seconds + folds.seconds
        return replace(self, labels=labels, predicted=folds.predicted, seconds=seconds)


@dataclass(frozen=True)
class Fitted:
    """A bundle, and scores and cost of the fit.

    Attributes
    ----------
    scores : of the validation rows, or of the rows left out of folds: those of the task, by
        `names.METRICS_OF`.
    rows : (training, validation).
    best_round : the round, epoch or fit kept.
    first : what the fit that did not see the validation rows has said of them.
    again : whether the bundle's model is another fit, to all of these rows.
    judged : how many rows the scores are of; of very many rows of several shards, a sample.
    folds : how many fits to folds there were for them; 0: none.
    """

    bundle: Bundle
    scores: dict[str, float]
    rows: tuple[int, int]
    best_round: int
    first: First
    again: bool = False
    judged: int = 0
    folds: int = 0

    @property
    def seconds(self) -> float:
        return self.first.seconds

    @property
    def images_help(self) -> bool | None:
        return self.first.images_help


@dataclass(frozen=True)
class TableFit(AnswerOptions):
    """A fit of a model to 85 % of a table's rows, of each class, stopped early on the others: `run` makes it.

    How rows are divided: `splits.hold_out`. Without images the network (U) and the trees (S) both read the
    whole table. Where the table has weights, they count in the fit, in early stopping, calibration and
    scores; rows of weight 0 take no part. The columns' medians and scales are those of the rows, whatever
    their weights.

    Parameters
    ----------
    model : unfitted, of views as the table has them; name : what the card calls it.
    callbacks : of the fit; callbacks_of_all : of that to all rows, by default the same.
    keep : where rounds are kept until the fit has ended, and resumed from.
    seed, calibrate, threshold, refit, class_weight : see `usboost.multimodal.options.AnswerOptions`.
    """

    table: UserTable
    model: Any
    name: str
    callbacks: Sequence[Callback] = ()
    callbacks_of_all: Sequence[Callback] | None = None
    keep: Keep | None = None

    def run(self) -> Fitted:
        """Fit the model, and say how well it does.

        Raises
        ------
        UsboostError
            If the model cannot be fitted to these rows.
        """
        train, held = self.rows_and_weights()
        encoding = self.table.fit_encoding(train.rows)
        refit = Refit(self.refit, self.callbacks, self.callbacks_of_all, self.seed)
        refit.prepare(self.model)
        first = self.first_fit(train, held, encoding)
        again = refit.fit(first.model, self.table, (train, held), encoding, first.seconds, self.keep)
        judged = held
        if again is not None and again.folds is not None:
            first, judged = first.by(again.folds, self.table), again.folds.held
        judged, labels, predicted = of_all_shards(judged, first.labels, first.predicted)
        first = replace(first, labels=labels, predicted=predicted)
        first, answers = self.answered(first, train, judged)
        return self.with_card(first, answers, (train, held, judged), encoding, again)

    def rows_and_weights(self) -> tuple[Part, Part]:
        """The training and the validation rows."""
        table = self.table
        if self.threshold is not None and len(table.classes) != 2:
            raise UsboostError(
                f"a threshold is of two classes; leave {option('threshold')} {self.threshold} out"
            )
        counted = counted_rows(table)
        train, held = (counted[rows] for rows in hold_out(rows_of(table)[counted], self.seed))
        check_classes(table, train, held)
        weighted = [(rows, weights_of(table, rows)) for rows in (train, held)]
        in_fit = times_class_weight(
            self.class_weight, table.classes, *((table.labels[rows], weights) for rows, weights in weighted)
        )
        first, second = (Part(*each, counts) for each, counts in zip(weighted, in_fit, strict=True))
        return first, second

    def first_fit(self, train: Part, held: Part, encoding: Encoding) -> First:
        """Fit to the training rows, stop early on the others, and predict these."""
        table, task = self.table, TASKS[self.table.task]
        views, labels = table.views(encoding, held.rows), table.labels[held.rows]
        started = time.perf_counter()
        stops_on, related = (views, labels, held.in_fit), related_of(table, train.rows)
        fitted_to = table.views(encoding, train.rows), table.labels[train.rows], train.in_fit
        if self.keep is not None:
            self.keep.keep(self.model, (*fitted_to, *arrays_of(related)), stops_on)
        fit_weighted(self.model, fitted_to, stops_on, related)
        seconds = time.perf_counter() - started
        predicted, helps = task.predict(self.model, views), None
        if table.images:
            helps = images_help(self.model, task, views, labels, predicted, held.weights)
        return First(self.model, views, labels, predicted, seconds, helps)

    def answered(self, first: First, train: Part, held: Part) -> tuple[First, dict[str, Any]]:
        """The rows that judge the fit as they are answered, tempered, or not below a floor.

        And what the card says: temperature, threshold and least probability of a classifier, floor and margin
        of a regressor.
        """
        if not self.table.classes:
            return self._bounded(first, train, held)
        predicted, answers = world().once(lambda: unsharded(lambda: self._tempered(first, held)))
        return replace(first, predicted=predicted), answers

    def _tempered(self, first: First, held: Part) -> tuple[np.ndarray, dict[str, Any]]:
        temperature, threshold = 1.0, self.threshold
        if self.calibrate:
            folds = calibration_folds(self.table, held.rows, self.seed)
            temperature = calibrated(first.predicted, first.labels, held.weights, seed=self.seed, folds=folds)
        predicted = tempered(first.predicted, temperature)
        if threshold == "f1":
            threshold = best_threshold(first.labels, predicted[:, 1], held.weights)
        least = least_probability(first.labels, predicted, held.weights)
        return predicted, {"temperature": temperature, "threshold": threshold, "least": least}

    def _bounded(self, first: First, train: Part, held: Part) -> tuple[First, dict[str, Any]]:
        floor = floor_of(self.table.labels[train.rows])
        predicted = clip_lower(first.predicted, floor)
        margin = margin_of(first.labels - predicted, held.weights)
        return replace(first, predicted=predicted), {"floor": floor, "margin": list(margin)}

    def with_card(
        self,
        first: First,
        answers: Mapping[str, Any],
        parts: tuple[Part, Part, Part],
        encoding: Encoding,
        again: Again | None,
    ) -> Fitted:
        """The bundle of the model that is kept, the first or the one of all rows; scores are the first's."""
        train, held, judged = parts
        rows = (int(world().sum(len(train))), int(world().sum(len(held))))
        score = TASKS[self.table.task].score
        scores = world().once(lambda: unsharded(lambda: score(first.labels, first.predicted, judged.weights)))
        model, encoding = (first.model, encoding) if again is None else (again.model, again.encoding)
        folds = None if again is None else again.folds
        scored = first.model if folds is None else folds
        card = card_of(
            self.table,
            encoding,
            model=self.name,
            rows=rows if again is None else (sum(rows), 0),
            scores=scores,
            seed=self.seed,
            # of the fit that was scored, also where another to all rows is saved
            history=history_of(scored),
            prior=prior_of(
                self.table, train.rows if again is None else np.concatenate([train.rows, held.rows])
            ),
            **answers,
        )
        bundle = Bundle(model, card, encoding.texts)
        best, count = scored.best_round_, 0 if folds is None else folds.count
        return Fitted(bundle, scores, rows, best, first, again is not None, len(judged), count)


def calibration_folds(table: UserTable, held: np.ndarray, seed: int) -> list[Split] | None:
    """How validation rows are divided to see whether a temperature helps; None: by chance."""
    related = related_of(table, held)
    if related is None or not related.several:
        return None
    return related.folds(FOLDS, np.zeros(len(held)), seed)


def check_classes(table: UserTable, train: np.ndarray, *others: np.ndarray) -> None:
    """Refuse a split in which some class is not among the rows that are fitted to.

    Raises
    ------
    UsboostError
        Naming it.
    """
    if not table.classes:
        return
    seen = world().sum(np.bincount(table.labels[train], minlength=len(table.classes))) > 0
    if not seen.all():
        name = table.classes[int(seen.argmin())]
        raise UsboostError(
            f"{table.file}: class {name!r} is not among the rows that are fitted to, as they are divided; "
            f"divide them in another way, or leave the class out with {option('missing', repr(name))}"
        )


MOST = 200
"""Rounds kept; of more, evenly spaced ones, the best and the last among them."""

_MEASURED = ("_train", "_val")


def history_of(model: Any) -> dict[str, list[float]]:
    """The rounds of a fit, and what was measured of training and validation rows after each of them.

    Returns
    -------
    ``round``, from 1, and ``risk_train``, ``risk_val``, ``f1_val`` and the like, each as long; a measure that
    some round does not have is left out. Empty where the steps of a fit are settings that were tried, or one.
    """
    rows = list(getattr(model, "history_", []))
    names = [name for name in (rows[0] if rows else ()) if str(name).endswith(_MEASURED)]
    names = [name for name in names if all(np.isfinite(row.get(name, np.nan)) for row in rows)]
    if len(rows) < 2 or not names or any(name in rows[0] for name in ("penalty", "leaf_size")):
        return {}
    kept = np.unique(np.linspace(0, len(rows) - 1, MOST).round().astype(int))
    best = int(getattr(model, "best_round_", len(rows))) - 1
    kept = np.unique([*kept, *([best] if 0 <= best < len(rows) else [])]).astype(int)
    found = {str(name): [float(rows[k][name]) for k in kept] for name in names}
    return {"round": [float(k + 1) for k in kept], **found}


def images_help(
    model: Any,
    task: Task,
    views: Views,
    labels: np.ndarray,
    predicted: np.ndarray,
    weights: np.ndarray | None,
) -> bool:
    """Whether rows are predicted better with their own images than with those of others.

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

"""How far a boosted model goes that is fitted to few rows: by the mean loss over folds of them.

Of a few hundred rows, the 15 % that stop a fit are a few dozen, and chance decides.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from usboost.boosting.callbacks import Callback, improves
from usboost.data.row_groups import Related, inner_folds
from usboost.evaluation.task import TASKS
from usboost.learners.networks.learner import NetworkLearner
from usboost.models.base import for_all_rows
from usboost.models.methods.fold_fits import StopRecorder
from usboost.models.methods.weak_learners import BoostedWeakLearners
from usboost.models.tuned_images import Weighted, fit_weighted, images_tuned
from usboost.multimodal.fit.splits import Part, related_of
from usboost.shards.collective import world
from usboost.table.user_table import UserTable

FEW = 2000
"""Rows below which folds say how far a model goes."""
FOLDS = 5
"""Parts of the rows, each left out in turn."""
FITS = 3 * FOLDS + 1
"""How many fits that is at most, with the one to all rows."""


def by_folds(model: Any, table: UserTable, rows: int) -> bool:
    """Whether folds say how far a fit like `model` to so many rows goes.

    Not where the user has said which rows stop a fit, and not of a model whose rounds fit networks or whose
    images were tuned: that takes too long for so many fits. Nor on several shards.
    """
    return (
        rows < FEW
        and world().count == 1
        and table.split is None
        and isinstance(model, BoostedWeakLearners)
        and not any(isinstance(each, NetworkLearner) for each in model._learners().values())
        and not images_tuned(model)
    )


@dataclass(frozen=True)
class OfFolds:
    """What fits to folds say of a model.

    Attributes
    ----------
    model : unfitted, knows how far to go.
    best_round_ : the round of the best mean over the folds.
    history_ : the mean over the folds of what was measured of each round.
    held : the rows that were left out of one of the fits.
    predicted : of these, each by such a fit that did not see it: probabilities float64 (n, M), or
        numbers float64 (n,).
    seconds : of all these fits.
    count : parts of the rows that were left out in turn.
    """

    model: Any
    best_round_: int
    history_: list[dict[str, float]]
    held: Part
    predicted: np.ndarray
    seconds: float
    count: int


@dataclass(frozen=True)
class Fold:
    """Rows to fit to and rows left out, as views that learn from the former; and where the latter are.

    Attributes
    ----------
    related : how the rows to fit to are related.
    places : of the rows left out among all, int64 (n,).
    """

    train: Weighted
    held: Weighted
    related: Related | None
    places: np.ndarray


@dataclass(frozen=True)
class FoldRounds:
    """Fits to folds of some rows of a table; the encoders of each learn from its own rows.

    Parameters
    ----------
    model : fitted, whose settings each fit has.
    seed : of the folds.
    callbacks : told of every fit's rounds; a fit that they stop ends it all.
    """

    table: UserTable
    everything: Part
    model: Any
    seed: int
    callbacks: Sequence[Callback]

    def run(self) -> OfFolds | None:
        """How far to go, and what fits say of rows that they did not see; None if a callback stopped one.

        Fits that stop early say how many rounds are enough, and which penalty a start of classes has; fits of
        so many rounds, all with this penalty, say which round is the best; fits up to it predict.

        Raises
        ------
        UsboostError
            If the rows cannot be divided, or some of them cannot be fitted to.
        """
        began, asked = time.perf_counter(), StopRecorder(self.callbacks)
        folds, base = self._folds(), unfitted(self.model)
        first = self._fits(base, folds, asked)
        enough: dict[str, Any] = {"n_rounds": max(len(each.history_) for each in first), "patience": None}
        if (penalty := best_penalty(first)) is not None:
            base.set_params(start__penalties=(penalty,))
        history = means(self._fits(clone(base).set_params(**enough), folds, asked), folds)
        best = best_round(history, self.model.monitor)
        known = base.set_params(n_rounds=best, validation_fraction=0.0)
        last = self._fits(known, folds, asked, stops=False)
        if asked.stopped:
            return None
        held = np.sort(np.concatenate([fold.places for fold in folds]))
        predicted = self._predicted(last, folds)[held]
        again = for_all_rows(self.model).set_params(n_rounds=best)
        if penalty is not None:
            again.set_params(start__penalties=(penalty,))
        took = time.perf_counter() - began
        return OfFolds(again, best, history[1:], self.everything[held], predicted, took, len(last))

    def _folds(self) -> list[Fold]:
        table, rows, in_fit = self.table, self.everything.rows, self.everything.in_fit
        related, labels, found = related_of(table, rows), table.labels[rows], []
        for seen, held in inner_folds(labels, FOLDS, self.seed, related):
            encoding = table.fit_encoding(rows[seen])
            train, unseen = (
                (table.views(encoding, rows[of]), labels[of], None if in_fit is None else in_fit[of])
                for of in (seen, held)
            )
            found.append(Fold(train, unseen, related_of(table, rows[seen]), held))
        return found

    def _fits(self, model: Any, folds: Sequence[Fold], asked: StopRecorder, stops: bool = True) -> list[Any]:
        """Of one setting to all folds, with the rows left out to stop on or without."""
        found: list[Any] = []
        for fold in folds:
            found.append(clone(model).set_params(callbacks=[asked]))
            fit_weighted(found[-1], fold.train, fold.held if stops else None, fold.related)
        return found

    def _predicted(self, fits: Sequence[Any], folds: Sequence[Fold]) -> np.ndarray:
        """Of each row by the fit that did not see it; NaN of rows that all have seen."""
        task, found = TASKS[self.table.task], np.empty(0)
        for model, fold in zip(fits, folds, strict=True):
            predicted = task.predict(model, fold.held[0])
            if not len(found):
                found = np.full((len(self.everything), *predicted.shape[1:]), np.nan)
            found[fold.places] = predicted
        return found


def unfitted(model: Any) -> Any:
    """A copy without checkpoint and callbacks: these may hold what cannot be copied."""
    watching = model.callbacks
    try:
        return clone(model.set_params(callbacks=None)).set_params(checkpoint=None)
    finally:
        model.set_params(callbacks=watching)


def means(fits: Sequence[Any], folds: Sequence[Fold]) -> list[dict[str, float]]:
    """What was measured of each round, on average over fits of as many rounds, by the weight of the rows left
    out of each; first of the start alone, empty without one."""
    weights = [float(len(each.held[1]) if each.held[2] is None else each.held[2].sum()) for each in folds]
    rounds = [[fit.before_ or {}, *fit.history_] for fit in fits]
    return [
        {name: float(np.average([row[name] for row in rows], weights=weights)) for name in rows[0]}
        for rows in zip(*rounds)  # fewer, where a callback has stopped a fit
    ]


def best_round(history: Sequence[Mapping[str, float]], monitor: str) -> int:
    """The round of the best metric; 0 is that of a start alone, where there is one."""
    best: Mapping[str, float] | None = history[0] or None
    found = 0
    for index, row in enumerate(history[1:], start=1):
        if improves(row, best, monitor):
            best, found = row, index
    return found


def best_penalty(fits: Sequence[Any]) -> float | None:
    """The penalty of the least mean loss over the fits' starts; None where no start tries several."""
    starts = [each.start_.history_ for each in fits if each.start_ is not None]
    tried = min(map(len, starts), default=0)
    if tried < 2:
        return None
    losses = [np.mean([start[k]["risk_val"] for start in starts]) for k in range(tried)]
    return float(starts[0][int(np.argmin(losses))]["penalty"])

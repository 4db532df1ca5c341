"""What the ensembles of classifiers and of regressors share: fits, weights, predictions, files."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from usboost.boosting.callbacks import Callback
from usboost.boosting.context import FitContext
from usboost.data.row_groups import Related, Split, inner_folds
from usboost.data.views import Views
from usboost.errors import Unsuited, UsboostError
from usboost.learners.networks.images import embeddings
from usboost.models.base import MODELS, for_all_rows
from usboost.models.class_weights import fit_weighted
from usboost.models.ensembles.fold_fits import (
    ROWS,
    FoldFits,
    InnerFits,
    Member,
    StopRecorder,
    in_time,
    seen_by_all,
)
from usboost.models.ensembles.selection import Unseen, blended
from usboost.models.estimator import Samples, ViewsEstimator, as_views
from usboost.models.inputs import embed

SPARE = 0.1
"""Of the time that the fits took, what further fits to all rows leave: the model is still to be written."""


class Ensemble(ViewsEstimator):
    """What the classifier and the regressor share."""

    members: Mapping[str, Any] | None
    folds: int
    fast_predict: bool
    refit_full: bool
    repeats: int
    random_state: int

    weights_: dict[str, float]
    fits_: dict[str, list[Any]]
    full_refits_: dict[str, list[Any]]
    losses_: dict[str, float]
    members_: dict[str, Member]
    blend_loss_: float | None
    alone_: float | None
    bytes_: dict[str, int]
    out_of_fold_: np.ndarray
    _before: tuple[dict[str, FoldFits], InnerFits, dict[str, float]] | None = None

    holds: ClassVar[Mapping[str, Any]] = {"members": MODELS}
    fits_inside: ClassVar[bool] = True
    """Images are tuned for the rows of each fit inside."""

    def _of(self, model: Any, views: Views) -> np.ndarray:
        """A member's predictions as encoded: probabilities (n, M) or numbers (n,)."""
        raise AttributeError("_of is defined for each task")

    def _learnt_as(self, y: np.ndarray) -> np.ndarray:
        """Labels or targets as the members learn them."""
        raise AttributeError("_learnt_as is defined for each task")

    def _nothing(self, n: int) -> np.ndarray:
        """Room for predictions of n rows."""
        raise AttributeError("_nothing is defined for each task")

    def _fit(self, views: Views, y: np.ndarray, context: FitContext) -> None:
        if not self.members:
            raise UsboostError("members is empty; give the models to combine by name")
        related = context.related
        samples = Samples(views, y, context.weights, related)
        splits = _enough(inner_folds(y, self.folds, self.random_state, related))
        fold_fits = {
            name: FoldFits(each, self._of, self._nothing(len(y))) for name, each in self.members.items()
        }
        ahead = 0 if context.validation is None else len(context.validation[0])
        if not math.isinf(_time_left(context.callbacks)):
            # else the first fit would seem to take as long as the images
            for each in (views, *(context.validation or ())[:1]):
                _embed(self.members, each)

        def left() -> float:
            # these rows will be predicted twice: for the scores, and with other rows' images
            return _time_left(context.callbacks) - 2 * ahead * sum(
                each.predicting for each in fold_fits.values()
            )

        def left_for_folds() -> float:
            # at least one member will be fitted to all rows
            rows = len(y) + ahead
            return left() - max((each.takes_whole(rows) for each in fold_fits.values()), default=0.0)

        inner, places = InnerFits(context.checkpoint, context.callbacks), list(fold_fits)
        for fold, split in enumerate(splits):
            for name, seconds in in_time(fold_fits, fold, left_for_folds):
                try:
                    place = f"m{places.index(name)}-{fold}"
                    fold_fits[name].grow(samples, split, inner, place, seconds)
                except Unsuited as error:
                    fold_fits[name].left_out = str(error)
            if not fold and not self.fast_predict:  # which may have to fall back on any of them
                _leave_out(fold_fits, samples, split[1])
        if not any(each.fits for each in fold_fits.values()):
            raise UsboostError("; ".join(each.left_out for each in fold_fits.values()))
        without = self._weigh(fold_fits, samples, splits)
        if self.refit_full and not self.fast_predict:
            self._complete(fold_fits, samples, inner, left)
        self.members_ = {
            name: each.about(self.weights_.get(name, 0.0), self.losses_.get(name), without.get(name))
            for name, each in fold_fits.items()
        }
        if self.fast_predict:
            self._keep_best(fold_fits, samples, context.callbacks)
        self._before = None if self.refit_full else (fold_fits, inner, without)
        self.best_round_ = sum(map(len, self.fits_.values()))
        self.history_ = [{"round": k + 1, "loss": loss} for k, loss in enumerate(self.losses_.values())]

    def add_full_refits(
        self,
        X: Views | Mapping[str, Any],
        y: np.ndarray,
        sample_weight: np.ndarray | None = None,
        related: Related | None = None,
        always: bool = False,
    ) -> bool:
        """Fit the members kept to these rows, too: all that there are, validation rows among them.

        With `fast_predict` it is the best member, in place of the one kept. Fits to folds and weights stay.
        To be called once, after a fit without `refit_full`, which is set if there is such a fit. What a
        callback asks to stop, or has no time for, is left out.

        Parameters
        ----------
        X, y, sample_weight : as of ``fit``
        always : whether callbacks by which there is no time for them are not asked

        Returns
        -------
        Whether there is such a fit now.
        """
        if self._before is None:
            raise UsboostError(
                "members are fitted to all rows already; fit the ensemble with refit_full=False"
            )
        fold_fits, inner, without = self._before
        views = as_views(X)
        samples = Samples.counted(views, self._learnt_as(np.asarray(y)), sample_weight, related=related)
        self._before = None
        if always:
            inner = replace(inner, callbacks=[c for c in inner.callbacks if math.isinf(c.time_left())])
        if self.fast_predict:
            self.refit_full = self._add_best(fold_fits, samples, inner.callbacks)
            return self.refit_full
        self._complete(fold_fits, samples, inner, lambda: _time_left(inner.callbacks))
        self.members_ |= {
            name: fold_fits[name].about(self.weights_[name], self.losses_[name], without.get(name))
            for name in self.weights_
        }
        self.refit_full = bool(self.full_refits_)
        return self.refit_full

    def _weigh(
        self,
        fold_fits: Mapping[str, FoldFits],
        samples: Samples,
        splits: Sequence[tuple[np.ndarray, np.ndarray]],
    ) -> dict[str, float]:
        """Choose the weights; the blend's loss without each member that has one."""
        rows, seen = seen_by_all(fold_fits, splits)
        judge = _judge(samples, rows)
        self.losses_ = {name: judge.loss(each) for name, each in seen.items()}
        best = min(self.losses_, key=self.losses_.__getitem__)
        self.weights_ = judge.greedy_weights(seen)
        if not judge.better_than_noise(blended(seen, self.weights_), seen[best]):
            self.weights_ = {best: 1.0}
        blend = blended(seen, self.weights_)
        self.blend_loss_ = judge.loss(blend)
        self.out_of_fold_ = np.full((len(samples.y), *blend.shape[1:]), np.nan)
        self.out_of_fold_[rows] = blend
        self.fits_ = {name: fold_fits[name].fits for name in self.weights_}
        self.full_refits_, self.alone_, self.bytes_ = {}, None, {}
        return judge.without_each(seen, self.weights_)

    def _complete(
        self, fold_fits: Mapping[str, FoldFits], samples: Samples, inner: InnerFits, left: Callable[[], float]
    ) -> None:
        """Fit the members kept to all rows, as often as asked and there is time for, heaviest first."""
        heaviest = sorted(self.weights_, key=self.weights_.__getitem__, reverse=True)
        spare = SPARE * sum(sum(each.seconds) for each in fold_fits.values())
        # where one fold is plenty, so is one fit to all rows
        for turn in range(min(self.repeats, max(len(each.fits) for each in fold_fits.values()))):
            for name in heaviest:
                place = f"m{list(fold_fits).index(name)}-all"
                fold_fits[name].complete(samples, inner, place, left() - (spare if turn else 0.0))
        self.full_refits_ = {
            name: fold_fits[name].full_refits for name in heaviest if fold_fits[name].full_refits
        }

    def _keep_best(
        self, fold_fits: Mapping[str, FoldFits], samples: Samples, callbacks: Sequence[Callback]
    ) -> None:
        """Let the best member that is made for so many rows take the blend's place."""
        for name in sorted(self.losses_, key=self.losses_.__getitem__):
            try:
                self._keep_one(name, fold_fits, samples, callbacks)
                return
            except Unsuited as error:
                refused = error
        raise refused

    def _add_best(
        self, fold_fits: Mapping[str, FoldFits], samples: Samples, callbacks: Sequence[Callback]
    ) -> bool:
        """Fit the member that is kept to all rows, if there is time and it is made for so many."""
        (name,) = self.weights_
        if fold_fits[name].takes_whole(len(samples.y)) > _time_left(callbacks):
            return False
        try:
            return self._keep_one(name, fold_fits, samples, callbacks)
        except Unsuited:  # for more rows than the one kept had, say
            return False

    def _keep_one(
        self, name: str, fold_fits: Mapping[str, FoldFits], samples: Samples, callbacks: Sequence[Callback]
    ) -> bool:
        """A member, fitted to all rows as far as its fits went, takes the blend's place.

        One that is kept already stays where the next is asked to stop before its end.
        """
        # its length is known, and time was left for it
        asked = StopRecorder([each for each in callbacks if math.isinf(each.time_left())])
        model = for_all_rows(fold_fits[name].typical()).set_params(callbacks=[asked])
        fit_weighted(model, samples.weighted, None, samples.related)
        if asked.stopped and self.alone_ is not None:
            return False
        began, some = time.perf_counter(), np.arange(min(len(samples.y), ROWS))
        self._of(model, samples.views[some])
        self.alone_ = ROWS * (time.perf_counter() - began) / len(some)
        self.weights_, self.fits_ = {name: 1.0}, {name: [model]}
        return True

    @property
    def n_rounds(self) -> int:
        """Fits, under the name that callbacks know."""
        return len(self.members or ()) * self.folds

    @property
    def n_estimators_(self) -> int:
        """Models whose predictions are averaged."""
        self._check_fitted()
        return sum(map(len, [*self.fits_.values(), *self.full_refits_.values()]))

    def _blend(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """Σ_m w_m · (f + Σ_k g_k) / (1 + K), f the mean of its fits to folds, g its K to all rows."""
        self._check_fitted()
        views = as_views(X)
        with embeddings.held():
            means = {}
            for name, fits in self.fits_.items():
                folds = np.mean([self._of(each, views) for each in fits], axis=0)
                whole = [self._of(each, views) for each in self.full_refits_.get(name, [])]
                means[name] = np.mean([folds, *whole], axis=0)
        return blended(means, self.weights_)

    def _write(self, folder: Path) -> dict[str, Any]:
        from usboost.models.ensembles import files as ensemble_files

        return ensemble_files.write(self, folder)

    def _read(self, document: Mapping[str, Any], folder: Path) -> None:
        from usboost.models.ensembles import files as ensemble_files

        ensemble_files.read(self, document, folder)

    def _check_member(self, model: Any) -> None:
        """Refuse a member of other classes."""


LEAST, ENOUGH, PLENTY = 3, 2000, 10_000
"""Folds, and rows that they hold out together, that say well enough what each member is worth; rows of the
first fold that say it alone."""


def _enough(splits: list[Split]) -> list[Split]:
    """The first splits that hold out enough rows; all where they hold out fewer."""
    held = np.cumsum([len(rows) for _, rows in splits])
    needed = 1 if held[0] >= PLENTY else max(LEAST, 1 + int(np.searchsorted(held, ENOUGH)))
    return splits[:needed]


BEHIND = 2.0
"""Standard errors."""


def _leave_out(fold_fits: Mapping[str, FoldFits], samples: Samples, held: np.ndarray) -> None:
    """Let no further fit be made of members that have no weight by the first fold's held-out rows, and are
    behind the best member there by more than `BEHIND` standard errors."""
    seen = {name: each.seen[held] for name, each in fold_fits.items() if each.fits}
    if len(seen) < 2:
        return
    judge = _judge(samples, held)
    weights = judge.greedy_weights(seen)
    best = min(seen, key=lambda name: judge.loss(seen[name]))
    for name in seen.keys() - weights.keys():
        if judge.better_than_noise(seen[best], seen[name], BEHIND):
            fold_fits[name].left_out = "it adds nothing to the others on the first fold's rows"


def _judge(samples: Samples, rows: np.ndarray) -> Unseen:
    return Unseen(samples.y[rows], None if samples.weights is None else samples.weights[rows])


def _time_left(callbacks: Sequence[Callback]) -> float:
    return min((each.time_left() for each in callbacks), default=math.inf)


def _embed(members: Mapping[str, Any], views: Views) -> None:
    """Embed the images that the members read as tables."""
    given = (member.get_params(deep=False) for member in members.values())
    reader = next((each for each in given if each.get("backbone") is not None), None)
    if reader is not None:
        embed(views, reader["backbone"], reader.get("device", "auto"))

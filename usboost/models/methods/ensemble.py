"""Fits of several models to folds, their scores weighted by what they say of rows not seen."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from usboost.boosting.callbacks import Callback
from usboost.boosting.checkpoint import Checkpoint
from usboost.boosting.context import FitContext
from usboost.data.views import Views
from usboost.errors import Unsuited, UsboostError
from usboost.evaluation.folds import Related, Split, inner_folds
from usboost.models.base import ViewsRegressor
from usboost.models.estimator import Samples, as_views
from usboost.models.inputs import embed
from usboost.models.methods.blend import Blend, BlendClassifier, BlendRegressor
from usboost.models.methods.fold_fits import FoldFits, InnerFits, Unseen, blended, in_time, seen_by_all

SPARE = 0.1
"""Share of the fits' time that further fits to all rows leave, in which the model is written."""
LEAST, ENOUGH, PLENTY = 3, 2000, 10_000
"""Folds, and rows that they hold out together, that say well enough what each member is worth; rows of the
first fold that say it alone."""
BEHIND = 2.0
"""Standard errors by which a member without a weight is behind the best one to be left out."""


@dataclass(eq=False, repr=False)
class Ensemble(Blend):
    """Fits, weights, predictions and files of the ensembles of classifiers and of regressors."""

    members: Mapping[str, Any] | None = None
    folds: int = 5
    refit_full: bool = True
    repeats: int = 1
    validation_fraction: float = 0.0
    random_state: int = 0
    callbacks: Sequence[Callback] | None = None
    checkpoint: Checkpoint | Path | str | None = None

    fits_inside: ClassVar[bool] = True
    """Images are tuned for the rows of each fit inside."""

    def _fit(self, views: Views, y: np.ndarray, context: FitContext) -> None:
        if not self.members:
            raise UsboostError("members is empty; give the models to combine by name")
        related = context.related
        samples = Samples(views, y, context.weights, related)
        splits = inner_folds(y, self.folds, self.random_state, related)
        n_seen = np.cumsum([len(rows) for _, rows in splits])
        # the first splits that hold out enough rows; all where they hold out fewer
        splits = splits[: 1 if n_seen[0] >= PLENTY else max(LEAST, 1 + int(np.searchsorted(n_seen, ENOUGH)))]
        shape = len(y), self._n_outputs()
        fold_fits = {name: FoldFits(each, self._f_of, np.zeros(shape)) for name, each in self.members.items()}
        ahead = 0 if context.validation is None else len(context.validation[0])
        given = (member.get_params(deep=False) for member in self.members.values())
        reader = next((each for each in given if each.get("backbone") is not None), None)
        if reader is not None and not math.isinf(_time_left(context.callbacks)):
            # all images at once, else the first fit would seem to take as long as they
            for each in (views, *(context.validation or ())[:1]):
                embed(each, reader["backbone"], reader.get("device", "auto"))

        def left() -> float:
            # these rows will be predicted twice: for the scores, and with other rows' images
            predicting = sum(each.predicting for each in fold_fits.values())
            return _time_left(context.callbacks) - 2 * ahead * predicting

        def left_for_folds() -> float:  # as one member at least will be fitted to all rows
            whole = (each.takes_whole(len(y) + ahead) for each in fold_fits.values())
            return left() - max(whole, default=0.0)

        inner, places = InnerFits(context.checkpoint, context.callbacks), list(fold_fits)
        for fold, split in enumerate(splits):
            for name, seconds in in_time(fold_fits, fold, left_for_folds):
                try:
                    fold_fits[name].grow(samples, split, inner, f"m{places.index(name)}-{fold}", seconds)
                except Unsuited as error:
                    fold_fits[name].left_out = str(error)
            seen = {name: each.seen[split[1]] for name, each in fold_fits.items() if not fold and each.fits}
            if len(seen) < 2:
                continue
            judge = self._judge(samples, split[1])
            best, weighted = min(seen, key=lambda name: judge.loss(seen[name])), judge.greedy_weights(seen)
            for name in seen.keys() - weighted.keys():
                if judge.better_than_noise(seen[best], seen[name], BEHIND):
                    fold_fits[name].left_out = "it adds nothing to the others on the first fold's rows"
        if not any(each.fits for each in fold_fits.values()):
            raise UsboostError("; ".join(each.left_out for each in fold_fits.values()))
        without = self._weigh(fold_fits, samples, splits)
        self._single = len(splits) == 1
        self.best_round_ = sum(map(len, self.fits_.values()))
        if self.refit_full:
            self._complete(fold_fits, samples, inner, left)
        self.members_ = {
            name: each.about(self.weights_.get(name, 0.0), self.losses_.get(name), without.get(name))
            for name, each in fold_fits.items()
        }
        self._before = None if self.refit_full else (fold_fits, inner, without)
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

        Fits to folds and weights stay. To be called once, after a fit without `refit_full`, which is set, and
        returned, if there is one then. Fits that a callback stops, or has no time for, are left out.

        Parameters
        ----------
        X, y, sample_weight : as of ``fit``
        always : whether callbacks that limit the time are left out
        """
        if (before := getattr(self, "_before", None)) is None:
            raise UsboostError("members are fitted to all rows already; fit it with refit_full=False")
        fold_fits, inner, without = before
        encoded = self._encode(np.asarray(y))
        targets = self._standardised(encoded) if isinstance(self, ViewsRegressor) else encoded
        samples = Samples.counted(as_views(X), targets, sample_weight, related=related)
        self._before = None
        if always:
            inner = replace(inner, callbacks=[c for c in inner.callbacks if math.isinf(c.time_left())])
        self._complete(fold_fits, samples, inner, lambda: _time_left(inner.callbacks))
        self.members_ |= {
            name: fold_fits[name].about(self.weights_[name], self.losses_[name], without.get(name))
            for name in self.weights_
        }
        self.refit_full = bool(self.full_refits_)
        return self.refit_full

    def _weigh(
        self, fold_fits: Mapping[str, FoldFits], samples: Samples, splits: Sequence[Split]
    ) -> dict[str, float]:
        """Choose the weights; return the blend's loss without each member that has one."""
        rows, seen = seen_by_all(fold_fits, splits)
        judge = self._judge(samples, rows)
        self.losses_ = {name: judge.loss(each) for name, each in seen.items()}
        self.weights_ = judge.greedy_weights(seen)
        f = blended(seen, self.weights_)
        self.blend_loss_: float | None = judge.loss(f)
        predicted = self._as_encoded(f)
        self.out_of_fold_ = np.full((len(samples.y), *predicted.shape[1:]), np.nan)
        self.out_of_fold_[rows] = predicted
        self.fits_ = {name: fold_fits[name].fits for name in self.weights_}
        self.full_refits_: dict[str, list[Any]] = {}
        self.bytes_: dict[str, int] = {}
        return judge.without_each(seen, self.weights_)

    def _judge(self, samples: Samples, rows: np.ndarray) -> Unseen:
        weights = None if samples.weights is None else samples.weights[rows]
        return Unseen(samples.y[rows], weights, self._losses)

    def _complete(
        self, fold_fits: Mapping[str, FoldFits], samples: Samples, inner: InnerFits, left: Callable[[], float]
    ) -> None:
        """Fit the members kept to all rows, as often as `repeats` and the time allow, heaviest first."""
        heaviest = sorted(self.weights_, key=self.weights_.__getitem__, reverse=True)
        spare = SPARE * sum(sum(each.seconds) for each in fold_fits.values())
        # where one fold is plenty, so is one fit to all rows
        for turn in range(min(self.repeats, max(len(each.fits) for each in fold_fits.values()))):
            for name in heaviest:
                place = f"m{list(fold_fits).index(name)}-all"
                fold_fits[name].complete(samples, inner, place, left() - (spare if turn else 0.0))
        self.full_refits_ = {m: fold_fits[m].full_refits for m in heaviest if fold_fits[m].full_refits}
        if self._single:  # its fit saw fewer rows, and there are no other folds' to make up for it
            for name in self.full_refits_:
                self.fits_[name] = []
                fold_fits[name].predicting /= 2

    @property
    def n_rounds(self) -> int:
        """Count the fits, under the name that callbacks know."""
        return len(self.members or ()) * self.folds


def _time_left(callbacks: Sequence[Callback]) -> float:
    return min((each.time_left() for each in callbacks), default=math.inf)


class EnsembleClassifier(Ensemble, BlendClassifier):
    """Several classifiers, each fitted once for each fold, their scores averaged by greedy weights.

    Each fold's fit stops early on the fold that it is not fitted to; the weights are those that predict these
    rows best (Caruana et al., 2004), which flatters members that stop early a little. Once three folds have
    held out 2,000 rows, or the first one 10,000, no other is fitted. Members with a weight are fitted to all
    rows, too, as far as their fits to folds went; in a member's mean those to folds count together as much as
    one of these; that to a single fold is dropped. Validation samples are not looked at. Related rows are
    divided as `usboost.evaluation.folds.Related.folds` says: by whole groups, or so that later rows judge
    each fit; these are half of all rows then.

    Parameters
    ----------
    members : mapping of name to ViewsClassifier, unfitted; the first should be quick and good, as it is all
        there is where there is time for no other
    folds : how many fits of each at most
    refit_full : whether members that are kept are fitted to all rows, too; else `add_full_refits` does it
    repeats : how many such fits of each, with other seeds, but no more than folds were fitted; of a member
        that draws nothing there is one
    validation_fraction, random_state, callbacks : as everywhere; no samples need be set aside. A `TimeLimit`
        holds for all fits together, see `usboost.models.methods.fold_fits.in_time`
    checkpoint : Checkpoint or path, optional; keeps the fits of every member and fold

    Attributes
    ----------
    weights_ : of the members kept, by name; fits_ : their fitted models, one a fold, that are kept
    full_refits_ : their fits to all rows by name, of those that there was time for
    losses_ : log-loss of every member on the rows that its fits stopped on, and were not fitted to; where
        time was short, on the folds that all members were fitted for
    blend_loss_ : of the blend on these rows, that chose its weights
    out_of_fold_ : the blend's probabilities for the training rows, each by fits that did not see the row,
        float64 (n, M); NaN where there was no time for such a fit. Not kept in files.
    members_ : a `Member` of each, by name, also of those that are not kept
    bytes_ : of each member's files, once they are written or read
    classes_ ; n_estimators_ ; history_ : "loss" of each member
    """


class EnsembleRegressor(Ensemble, BlendRegressor):
    """Several regressors, each fitted once for each fold, their predictions averaged by greedy weights.

    Parameters and attributes are those of `EnsembleClassifier`; losses_ are mean squared errors of targets
    standardised by target_centre_ and target_scale_, as out_of_fold_ is, float64 (n,).
    """

"""Bagged folds of several models, weighted by what they predict of rows that they have not seen."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.model_selection import KFold, StratifiedKFold

from usboost.boosting.callbacks import Callback
from usboost.boosting.checkpoint import Checkpoint
from usboost.boosting.context import FitContext
from usboost.data.views import Views
from usboost.errors import Unsuited, UsboostError
from usboost.evaluation.metrics import row_losses
from usboost.evaluation.weighted import mean
from usboost.learners.networks import embeddings
from usboost.models.bags import ROWS, Bag, Member, in_time, seen_by_all
from usboost.models.base import MODELS, ViewsClassifier
from usboost.models.estimator import Samples, ViewsEstimator, as_views
from usboost.models.inner_fits import InnerFits
from usboost.models.reading import embed
from usboost.models.refit import for_all_rows
from usboost.models.regressor import ViewsRegressor
from usboost.models.selection import better_than_noise, blended, greedy_weights, without_each


class _Ensemble(ViewsEstimator):
    """What the classifier and the regressor share."""

    members: Mapping[str, Any] | None
    folds: int
    fast_predict: bool
    random_state: int

    weights_: dict[str, float]
    fits_: dict[str, list[Any]]
    losses_: dict[str, float]
    members_: dict[str, Member]
    blend_loss_: float | None
    alone_: float | None
    bytes_: dict[str, int]

    holds: ClassVar[Mapping[str, Any]] = {"members": MODELS}

    def _splits(self, y: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Rows to fit to and rows to stop on, by fold."""
        raise AttributeError("_splits is defined for each task")

    def _of(self, model: Any, views: Views) -> np.ndarray:
        """A member's predictions as encoded: probabilities (n, M) or numbers (n,)."""
        raise AttributeError("_of is defined for each task")

    def _nothing(self, n: int) -> np.ndarray:
        """Room for predictions of n rows."""
        raise AttributeError("_nothing is defined for each task")

    def _fit(self, views: Views, y: np.ndarray, context: FitContext) -> None:
        if not self.members:
            raise UsboostError("members is empty; give the models to combine by name")
        samples, related = Samples(views, y, context.weights, context.related), context.related
        splits = list(self._splits(y)) if related is None else related.folds(self.folds, y, self.random_state)
        bags = {name: Bag(each, self._of, self._nothing(len(y))) for name, each in self.members.items()}
        ahead = 0 if context.validation is None else len(context.validation[0])
        if not math.isinf(_time_left(context.callbacks)):
            # else the first fit would seem to take as long as the pictures
            for each in (views, *(context.validation or ())[:1]):
                _embed(self.members, each)

        def left() -> float:
            # these rows will be predicted twice: for the scores, and with other rows' pictures
            spared = 2 * ahead * sum(bag.predicting for bag in bags.values())
            if self.fast_predict:
                spared += max((bag.seconds[-1] for bag in bags.values() if bag.fits), default=0.0)
            return _time_left(context.callbacks) - spared

        inner, places = InnerFits(context.checkpoint, context.callbacks), list(bags)
        for name, fold, seconds in in_time(bags, len(splits), left):
            try:
                place = f"m{places.index(name)}-{fold}"
                bags[name].grow(samples, splits[fold], inner, place, seconds)
            except Unsuited as error:
                bags[name].left_out = str(error)
        if not any(bag.fits for bag in bags.values()):
            raise UsboostError("; ".join(bag.left_out for bag in bags.values()))
        self._weigh(bags, samples, splits)
        if self.fast_predict:
            self._keep_one(bags, samples, splits[0][1], context.callbacks)
        self.best_round_ = sum(map(len, self.fits_.values()))
        self.history_ = [{"round": k + 1, "loss": loss} for k, loss in enumerate(self.losses_.values())]

    def _weigh(
        self,
        bags: Mapping[str, Bag],
        samples: Samples,
        splits: Sequence[tuple[np.ndarray, np.ndarray]],
    ) -> None:
        rows, seen = seen_by_all(bags, splits)
        y, weights = samples[rows].y, samples[rows].weights

        def risk(predicted: np.ndarray) -> float:
            return mean(row_losses(y, predicted), weights)

        self.losses_ = {name: risk(each) for name, each in seen.items()}
        best = min(self.losses_, key=self.losses_.__getitem__)
        self.weights_ = greedy_weights(seen, y, weights)
        if not better_than_noise(blended(seen, self.weights_), seen[best], y, weights):
            self.weights_ = {best: 1.0}
        self.blend_loss_ = risk(blended(seen, self.weights_))
        self.fits_ = {name: bags[name].fits for name in self.weights_}
        without = without_each(seen, y, self.weights_, weights)
        self.members_ = {
            name: bag.about(self.weights_.get(name, 0.0), self.losses_.get(name), without.get(name))
            for name, bag in bags.items()
        }
        self.alone_, self.bytes_ = None, {}

    def _keep_one(
        self, bags: Mapping[str, Bag], samples: Samples, some: np.ndarray, callbacks: Sequence[Callback]
    ) -> None:
        """The best member, fitted to all rows as far as its fits went, takes the blend's place."""
        best = min(self.losses_, key=self.losses_.__getitem__)
        # its length is known, and time was left for it
        own = [each for each in callbacks if math.isinf(each.time_left())]
        model = for_all_rows(bags[best].typical()).set_params(callbacks=own)
        more = {} if samples.related is None else samples.related.arguments
        model.fit(samples.views, samples.y, None, samples.weights, **more)
        began = time.perf_counter()
        self._of(model, samples.views[some])
        self.alone_ = ROWS * (time.perf_counter() - began) / len(some)
        self.weights_, self.fits_ = {best: 1.0}, {best: [model]}

    @property
    def n_rounds(self) -> int:
        """Fits, under the name that callbacks know."""
        return len(self.members or ()) * self.folds

    @property
    def n_estimators_(self) -> int:
        """Models whose predictions are averaged."""
        self._check_fitted()
        return sum(map(len, self.fits_.values()))

    def _blend(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """Σ_m w_m · the mean of the member's fits."""
        self._check_fitted()
        views = as_views(X)
        with embeddings.held():
            means = {
                name: np.mean([self._of(each, views) for each in fits], axis=0)
                for name, fits in self.fits_.items()
            }
        return blended(means, self.weights_)

    def _write(self, folder: Path) -> dict[str, Any]:
        from usboost.models import ensemble_files

        return ensemble_files.write(self, folder)

    def _read(self, document: Mapping[str, Any], folder: Path) -> None:
        from usboost.models import ensemble_files

        ensemble_files.read(self, document, folder)

    def _check_member(self, model: Any) -> None:
        """Refuse a member of other classes."""


class EnsembleClassifier(_Ensemble, ViewsClassifier):
    """Several classifiers, each fitted once for each fold, their probabilities averaged by greedy weights.

    Each fold's fit stops early on the fold that it is not fitted to; the weights are those that predict these
    rows best (Caruana et al., 2004), which flatters members that stop early a little. Where the blend is not
    better than the best member beyond the standard error, that member alone is kept. Validation samples are
    not looked at. Related rows are divided as `usboost.data.related.Related.folds` says: by whole groups, or
    so that later rows judge each fit; these are half of all rows then.

    Parameters
    ----------
    members : mapping of name to ViewsClassifier, unfitted; the first should be quick and good, as it is all
        there is where there is time for no other
    folds : how many fits of each
    fast_predict : keep one model instead of the blend: the best member, fitted once more to all rows
    validation_fraction, random_state, callbacks : as everywhere; no samples need be set aside. A `TimeLimit`
        holds for all fits together, see `usboost.models.bags.in_time`
    checkpoint : Checkpoint or path, optional; keeps the fits of every member and fold

    Attributes
    ----------
    weights_ : of the members kept, by name; fits_ : their fitted models, one a fold
    losses_ : log-loss of every member on the rows that its fits stopped on, and were not fitted to; where
        time was short, on the folds that all members were fitted for
    blend_loss_ : of the blend on these rows, that chose its weights
    members_ : a `Member` of each, by name, also of those that are not kept
    alone_ : with `fast_predict` the seconds in which the one model predicts 1,000 rows; else None
    bytes_ : of each member's files, once they are written or read
    classes_ ; n_estimators_ ; history_ : "loss" of each member
    """

    def __init__(
        self,
        members: Mapping[str, Any] | None = None,
        folds: int = 5,
        fast_predict: bool = False,
        validation_fraction: float = 0.0,
        random_state: int = 0,
        callbacks: Sequence[Callback] | None = None,
        checkpoint: Checkpoint | Path | str | None = None,
    ) -> None:
        self.members = members
        self.folds = folds
        self.fast_predict = fast_predict
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.callbacks = callbacks
        self.checkpoint = checkpoint

    def _splits(self, y: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        counts = np.bincount(y)
        if counts.max() < 2:
            raise UsboostError("each class has one row only, so no fold can be held out; add rows")
        # the one row of a class is always fitted to
        single, others = np.flatnonzero(counts[y] == 1), np.flatnonzero(counts[y] > 1)
        folds = min(self.folds, int(counts.max()))
        splitter = StratifiedKFold(folds, shuffle=True, random_state=self.random_state)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The least populated class")
            for train, held in splitter.split(others, y[others]):
                yield np.sort(np.concatenate([single, others[train]])), others[held]

    def _of(self, model: Any, views: Views) -> np.ndarray:
        found: np.ndarray = model.predict_proba(views)
        return found

    def _nothing(self, n: int) -> np.ndarray:
        return np.zeros((n, len(self.classes_)))

    def _check_member(self, model: Any) -> None:
        if list(model.classes_) != list(range(len(self.classes_))):
            raise UsboostError("a member has other classes")

    def predict_proba(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """The weighted mean of the members' probabilities, float64 (n, M)."""
        return self._blend(X)


class EnsembleRegressor(_Ensemble, ViewsRegressor):
    """Several regressors, each fitted once for each fold, their predictions averaged by greedy weights.

    Parameters
    ----------
    As of `EnsembleClassifier`.

    Attributes
    ----------
    As of `EnsembleClassifier`; losses_ : mean squared errors of standardised targets
    target_centre_, target_scale_ : of the training targets
    """

    def __init__(
        self,
        members: Mapping[str, Any] | None = None,
        folds: int = 5,
        fast_predict: bool = False,
        validation_fraction: float = 0.0,
        random_state: int = 0,
        callbacks: Sequence[Callback] | None = None,
        checkpoint: Checkpoint | Path | str | None = None,
    ) -> None:
        self.members = members
        self.folds = folds
        self.fast_predict = fast_predict
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.callbacks = callbacks
        self.checkpoint = checkpoint

    def _splits(self, y: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return KFold(self.folds, shuffle=True, random_state=self.random_state).split(y)

    def _of(self, model: Any, views: Views) -> np.ndarray:
        found: np.ndarray = model.predict(views)
        return found

    def _nothing(self, n: int) -> np.ndarray:
        return np.zeros(n)

    def _predict(self, views: Views) -> np.ndarray:
        return self._blend(views)


def _time_left(callbacks: Sequence[Callback]) -> float:
    return min((each.time_left() for each in callbacks), default=math.inf)


def _embed(members: Mapping[str, Any], views: Views) -> None:
    """Embed the pictures that the members read as tables."""
    given = (member.get_params(deep=False) for member in members.values())
    reader = next((each for each in given if each.get("backbone") is not None), None)
    if reader is not None:
        embed(views, reader["backbone"], reader.get("device", "auto"))

"""Bagged folds of several models, weighted by what they predict of rows that they have not seen."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import KFold, StratifiedKFold

from usboost.boosting.callbacks import Callback
from usboost.boosting.checkpoint import Checkpoint
from usboost.boosting.context import FitContext
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.evaluation.weighted import mean
from usboost.files.arrays import digest_of
from usboost.models.base import MODELS, ViewsClassifier
from usboost.models.estimator import ViewsEstimator, as_views
from usboost.models.inner_fits import InnerFits
from usboost.models.regressor import ViewsRegressor
from usboost.models.selection import better_than_noise, blended, greedy_weights, losses


class _Ensemble(ViewsEstimator):
    """What the classifier and the regressor share."""

    members: Mapping[str, Any] | None
    folds: int
    random_state: int

    weights_: dict[str, float]
    fits_: dict[str, list[Any]]
    losses_: dict[str, float]

    holds: ClassVar[Mapping[str, Any]] = {"members": MODELS}

    def _given(self, y: np.ndarray) -> np.ndarray:
        """Encoded labels or targets as they were given."""
        raise AttributeError("_given is defined for each task")

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
        splits, weights = list(self._splits(y)), context.weights
        inner = InnerFits(context.checkpoint, context.callbacks)
        seen: dict[str, np.ndarray] = {}
        fits: dict[str, list[Any]] = {}
        self.history_ = []
        for index, (name, member) in enumerate(self.members.items()):
            seen[name], fits[name] = self._nothing(len(y)), []
            for k, (train, held) in enumerate(splits):
                to, stop = (
                    (views[rows], self._given(y[rows]), None if weights is None else weights[rows])
                    for rows in (train, held)
                )
                model = inner.fit_or_load(clone(member), _place(index, k), to, stop)
                seen[name][held] = self._of(model, views[held])
                fits[name].append(model)
        self.losses_ = {name: mean(losses(each, y), weights) for name, each in seen.items()}
        best = min(self.losses_, key=self.losses_.__getitem__)
        self.weights_ = greedy_weights(seen, y, weights)
        if not better_than_noise(blended(seen, self.weights_), seen[best], y, weights):
            self.weights_ = {best: 1.0}
        self.fits_ = {name: fits[name] for name in self.weights_}
        self.best_round_ = sum(map(len, self.fits_.values()))
        self.history_ = [{"round": k + 1, "risk_val": loss} for k, loss in enumerate(self.losses_.values())]

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
        means = {
            name: np.mean([self._of(each, views) for each in fits], axis=0)
            for name, fits in self.fits_.items()
        }
        return blended(means, self.weights_)

    def _write(self, folder: Path) -> dict[str, Any]:
        from usboost.models import persistence

        for name, k, model in self._parts():
            persistence.save(model, folder / _place(list(self.fits_).index(name), k))
        _link_equal_files(folder)
        return {
            "weights": self.weights_,
            "losses": self.losses_,
            "fits": {n: len(f) for n, f in self.fits_.items()},
        }

    def _parts(self) -> Iterator[tuple[str, int, Any]]:
        for name, fits in self.fits_.items():
            for k, model in enumerate(fits):
                yield name, k, model

    def _read(self, document: Mapping[str, Any], folder: Path) -> None:
        from usboost.models import persistence

        weights = {str(name): float(value) for name, value in document["weights"].items()}
        right = set(weights) <= set(self.members or ()) and weights and min(weights.values()) > 0
        if not right or abs(sum(weights.values()) - 1) > 1e-9 or set(document["fits"]) != set(weights):
            raise UsboostError("the weights are not those of its members, which sum to 1")
        self.weights_ = weights
        self.losses_ = {str(name): float(value) for name, value in document["losses"].items()}
        self.fits_ = {}
        for index, name in enumerate(weights):
            self.fits_[name] = []
            for k in range(int(document["fits"][name])):
                model = persistence.load(folder / _place(index, k))
                if type(model) is not type((self.members or {})[name]):
                    raise UsboostError(f"the member {name} is a {type(model).__name__}")
                self._check_member(model)
                self.fits_[name].append(model)
            if not self.fits_[name]:
                raise UsboostError(f"the member {name} has no fit")

    def _check_member(self, model: Any) -> None:
        """Refuse a member of other classes."""


class EnsembleClassifier(_Ensemble, ViewsClassifier):
    """Several classifiers, each fitted once for each fold, their probabilities averaged by greedy weights.

    Each fold's fit stops early on the fold that it is not fitted to; the weights are those that predict these
    rows best (Caruana et al., 2004), which flatters members that stop early a little. Where the blend is not
    better than the best member beyond the standard error, that member alone is kept. Validation samples are
    not looked at.

    Parameters
    ----------
    members : mapping of name to ViewsClassifier, unfitted
    folds : how many fits of each
    validation_fraction, random_state, callbacks : as everywhere; no samples need be set aside
    checkpoint : Checkpoint or path, optional; keeps the fits of every member and fold

    Attributes
    ----------
    weights_ : of the members kept, by name; fits_ : their fitted models, one a fold
    losses_ : log-loss of every member on the rows that its fits stopped on, and were not fitted to
    classes_ ; n_estimators_ ; history_ : "risk_val" of each member
    """

    def __init__(
        self,
        members: Mapping[str, Any] | None = None,
        folds: int = 5,
        validation_fraction: float = 0.0,
        random_state: int = 0,
        callbacks: Sequence[Callback] | None = None,
        checkpoint: Checkpoint | Path | str | None = None,
    ) -> None:
        self.members = members
        self.folds = folds
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.callbacks = callbacks
        self.checkpoint = checkpoint

    def _given(self, y: np.ndarray) -> np.ndarray:
        return y  # members know the codes

    def _splits(self, y: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        rarest = int(np.bincount(y).min())
        if rarest < 2:
            raise UsboostError("a class has one row only, so no fold can be held out; add rows of it")
        splitter = StratifiedKFold(min(self.folds, rarest), shuffle=True, random_state=self.random_state)
        return splitter.split(np.zeros(len(y)), y)

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
        validation_fraction: float = 0.0,
        random_state: int = 0,
        callbacks: Sequence[Callback] | None = None,
        checkpoint: Checkpoint | Path | str | None = None,
    ) -> None:
        self.members = members
        self.folds = folds
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.callbacks = callbacks
        self.checkpoint = checkpoint

    def _given(self, y: np.ndarray) -> np.ndarray:
        return y

    def _splits(self, y: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return KFold(self.folds, shuffle=True, random_state=self.random_state).split(y)

    def _of(self, model: Any, views: Views) -> np.ndarray:
        found: np.ndarray = model.predict(views)
        return found

    def _nothing(self, n: int) -> np.ndarray:
        return np.zeros(n)

    def _predict(self, views: Views) -> np.ndarray:
        return self._blend(views)


def _place(member: int, k: int) -> str:
    return f"m{member}-{k}"


def _link_equal_files(folder: Path) -> None:
    """Keep equal files, such as a frozen backbone's weights, once: further ones are links to the first."""
    first: dict[str, Path] = {}
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        known = first.setdefault(digest_of(file), file)
        if known is not file:
            other = file.with_suffix(".link")
            os.link(known, other)
            other.replace(file)

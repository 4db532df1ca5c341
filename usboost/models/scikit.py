"""Another package's estimator on a table with pictures, to be measured against; it has no file form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import PredefinedSplit
from sklearn.utils.validation import has_fit_parameter

from usboost.boosting.callbacks import Callback, tell, watched
from usboost.boosting.context import FitContext
from usboost.boosting.rounds import Clock, Round
from usboost.data.related import Related
from usboost.data.table import Table
from usboost.data.views import Views
from usboost.errors import Unsuited, UsboostError
from usboost.learners.dimensions import Integer, Real, Space
from usboost.learners.networks.backbones import Backbone
from usboost.models.base import ViewsClassifier
from usboost.models.entry import COMPONENTS
from usboost.models.estimator import as_views
from usboost.models.linear_views import MatrixOnViews
from usboost.models.regressor import ViewsRegressor

PATIENCE = 50
"""Rounds without a better validation loss, for packages that stop early."""


class _Scikit(MatrixOnViews):
    """What the classifier and the regressor share."""

    estimator: Any
    stops_early: bool
    random_state: int
    callbacks: Sequence[Callback] | None

    own_categories_: bool  # whether the fitted estimator is given codes, and no indicators of them

    components = COMPONENTS
    n_rounds = 1
    learns_from_held = True  # from validation rows, too, where it chooses nothing on them

    @property
    def space(self) -> Space:
        """That of the package that the estimator is of; nothing of any other."""
        known = self._known()
        return known.space if known is not None else {}

    def _known(self) -> Package | None:
        """The package that the estimator is of, if it is one of `PACKAGES`."""
        return PACKAGES.get(type(self.estimator).__module__.partition(".")[0])

    @property
    def n_estimators_(self) -> int:
        """One."""
        self._check_fitted()
        return 1

    def _ready(self, y: np.ndarray, related: Related | None) -> Any:
        """The estimator to be fitted to labels or targets (n,), of which the first rows are related."""
        made = clone(self.estimator)
        if "random_state" in made.get_params(deep=False):
            made.set_params(random_state=self.random_state)
        return made

    def _matrix(self, table: Table) -> Any:
        """As of every linear baseline, or a frame whose columns of categories are of pandas' own type."""
        if not self.own_categories_:
            return super()._matrix(table)
        from pandas import Categorical, DataFrame

        numbers = (table.numeric - self.mean_) * self.scale_
        frame = DataFrame(numbers, columns=range(numbers.shape[1]))
        for codes, count in zip(table.codes.T, table.cardinalities, strict=True):
            frame[frame.shape[1]] = Categorical.from_codes(codes, categories=range(count))
        return frame

    def _fit(self, views: Views, y: np.ndarray, context: FitContext) -> None:
        known = self._known()
        self.own_categories_ = known is not None and known.own_categories
        x, watch, weights = self._learn(views, context.weights), context.watch(), context.weights
        held = None
        if context.validation is not None:
            held = self._rows(context.validation[0]), context.validation[1]
        if held is not None and not self.stops_early and self.learns_from_held:
            x, y = np.concatenate([x, held[0]]), np.concatenate([y, held[1]])
            if weights is not None:
                unseen = context.held_weights
                more = np.ones(len(held[1])) if unseen is None else unseen
                weights = np.concatenate([weights, more])
        self._learnt(x, y, len(views))
        clock = Clock()
        with watched(self, watch.callbacks):
            given = self._hooks(watch.callbacks)
            told = not given
            if held is not None and self.stops_early:
                given |= {"eval_set": [held], "verbose": False}
            if known is not None and known.own_categories and known.told_categories:
                given[known.told_categories] = list(range(len(self.mean_), x.shape[1]))
            ready = self._ready(y, context.apart)
            if weights is not None:
                if not has_fit_parameter(ready, "sample_weight"):
                    raise Unsuited(f"a {type(ready).__name__} takes no weights; leave it out")
                given["sample_weight"] = weights
            self.estimator_ = ready.fit(x, y, **given)
            if told:
                tell(watch.callbacks, Round(1, None, {}, clock.seconds()))
        self.history_, self.best_round_ = watch.history, 1

    def _learnt(self, x: np.ndarray, y: np.ndarray, rows: int) -> None:
        """Told of what the estimator will be fitted to, (n, p) and (n,); so many are training rows."""

    def _hooks(self, callbacks: Sequence[Callback]) -> dict[str, Any]:
        """Arguments of the estimator's fit by which it tells of its rounds; empty if it cannot."""
        return {}


class ScikitBaseline(_Scikit, ViewsClassifier):
    """A scikit-learn classifier on everything: numbers standardised, categories one-hot, pictures embedded.

    XGBoost and CatBoost are given the categories themselves.

    Parameters
    ----------
    estimator : a classifier; without ``predict_proba`` its decisions are calibrated by a sigmoid, fitted to
        out-of-fold ones. One that divides the rows by itself (``LogisticRegressionCV``, say) does not know
        how they are related
    views : names of the views it reads
    stops_early : whether its ``fit`` takes the validation rows as ``eval_set``; else it learns from them, too
    validation_fraction, random_state, callbacks : as everywhere
    backbone : Backbone, optional; what embeds pictures (always frozen here)
    device : where pictures are embedded

    Attributes
    ----------
    classes_ ; estimator_ : fitted, of the classes' positions
    """

    def __init__(
        self,
        estimator: Any = None,
        views: Sequence[str] = ("U", "S"),
        stops_early: bool = False,
        validation_fraction: float = 0.0,
        backbone: Backbone | None = None,
        device: str = "auto",
        random_state: int = 0,
        callbacks: Sequence[Callback] | None = None,
    ) -> None:
        self.estimator = estimator
        self.views = views
        self.stops_early = stops_early
        self.validation_fraction = validation_fraction
        self.backbone = backbone
        self.device = device
        self.random_state = random_state
        self.callbacks = callbacks

    def _ready(self, y: np.ndarray, related: Related | None) -> Any:
        made = super()._ready(y, related)
        if hasattr(made, "predict_proba"):
            return made
        fewest = int(np.bincount(y)[np.unique(y)].min())
        cv = min(5, max(2, fewest)) if related is None else self._parts(y, related)
        return CalibratedClassifierCV(made, ensemble=False, cv=cv)

    def _parts(self, y: np.ndarray, related: Related) -> PredefinedSplit:
        """Parts of related training rows; validation rows after them, if there are any, are one more."""
        n = sum(map(len, related.arguments.values()))
        part = related.parts(5, y[:n], self.random_state)
        part = np.append(part, np.full(len(y) - n, part.max() + 1))
        if any(len(np.unique(y[part != k])) < len(np.unique(y)) for k in range(int(part.max()) + 1)):
            raise Unsuited(
                f"the decisions of a {type(self.estimator).__name__} cannot be calibrated, as some class is "
                "in one part of the groups or times only; name an estimator with predict_proba"
            )
        return PredefinedSplit(part)

    def predict_proba(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """Class probabilities, float64 (n, M), columns as in ``classes_``."""
        self._check_fitted()
        found = np.asarray(self.estimator_.predict_proba(self._rows(as_views(X))), dtype=np.float64)
        return found / found.sum(axis=1, keepdims=True)


class ScikitBaselineRegressor(_Scikit, ViewsRegressor):
    """A scikit-learn regressor on everything; see `ScikitBaseline`.

    Parameters
    ----------
    As of `ScikitBaseline`; the estimator is fitted to centred and scaled targets.

    Attributes
    ----------
    estimator_ ; target_centre_, target_scale_ : of the training targets
    """

    def __init__(
        self,
        estimator: Any = None,
        views: Sequence[str] = ("U", "S"),
        stops_early: bool = False,
        validation_fraction: float = 0.0,
        backbone: Backbone | None = None,
        device: str = "auto",
        random_state: int = 0,
        callbacks: Sequence[Callback] | None = None,
    ) -> None:
        self.estimator = estimator
        self.views = views
        self.stops_early = stops_early
        self.validation_fraction = validation_fraction
        self.backbone = backbone
        self.device = device
        self.random_state = random_state
        self.callbacks = callbacks

    def _predict(self, views: Views) -> np.ndarray:
        found = np.asarray(self.estimator_.predict(self._rows(views)), dtype=np.float64)
        return found.reshape(len(views))


@dataclass(frozen=True)
class Package:
    """A package whose estimators a comparison knows by a short name.

    Attributes
    ----------
    classes : import paths of its estimators by task.
    settings : of these, given a number of threads and a seed.
    stops_early : see `ScikitBaseline`.
    space : of these, by path.
    own_categories : whether it reads categories itself, in frames with columns of that type; else they are
        given as indicators. told_categories : its ``fit``'s argument for their columns, if it has one.
    rows, columns, n_classes : most that it is made for; None for any.
    rows_on_cpu : most that are bearable without a GPU.
    """

    classes: Mapping[str, str]
    settings: Callable[[int, int], dict[str, Any]] = field(default=lambda threads, seed: {})
    stops_early: bool = False
    space: Space = field(default_factory=dict)
    own_categories: bool = False
    told_categories: str = ""
    rows: int | None = None
    columns: int | None = None
    n_classes: int | None = None
    rows_on_cpu: int | None = None


def _xgboost(threads: int, seed: int) -> dict[str, Any]:
    return {
        "n_estimators": 2000,
        "learning_rate": 0.05,
        "max_depth": 6,  # this and the next are its own, written out for a search to begin from
        **{"min_child_weight": 1.0, "subsample": 1.0, "colsample_bytree": 1.0, "reg_lambda": 1.0},
        "early_stopping_rounds": PATIENCE,
        "enable_categorical": True,
        "n_jobs": threads,
        "random_state": seed,
    }


def _catboost(threads: int, seed: int) -> dict[str, Any]:
    return {
        "iterations": 2000,
        "depth": 6,  # this and the next are its own, written out for a search to begin from
        "l2_leaf_reg": 3.0,
        "random_strength": 1.0,
        "early_stopping_rounds": PATIENCE,
        "thread_count": threads,
        "random_seed": seed,
        "allow_writing_files": False,
        "verbose": False,
    }


PACKAGES = {
    "catboost": Package(
        {"classification": "catboost:CatBoostClassifier", "regression": "catboost:CatBoostRegressor"},
        _catboost,
        stops_early=True,
        own_categories=True,
        told_categories="cat_features",
        space={
            "estimator__depth": Integer(4, 10),
            "estimator__l2_leaf_reg": Real(0.3, 30.0, log=True),
            "estimator__random_strength": Real(0.1, 10.0, log=True),
        },
    ),
    "xgboost": Package(
        {"classification": "xgboost:XGBClassifier", "regression": "xgboost:XGBRegressor"},
        _xgboost,
        stops_early=True,
        own_categories=True,
        space={
            "estimator__learning_rate": Real(0.01, 0.3, log=True),
            "estimator__max_depth": Integer(2, 10),
            "estimator__min_child_weight": Real(0.5, 100.0, log=True),
            "estimator__subsample": Real(0.5, 1.0),
            "estimator__colsample_bytree": Real(0.3, 1.0),
            "estimator__reg_lambda": Real(0.1, 100.0, log=True),
        },
    ),
    "tabpfn": Package(
        {"classification": "tabpfn:TabPFNClassifier", "regression": "tabpfn:TabPFNRegressor"},
        lambda threads, seed: {"random_state": seed},
        # its version 2's own limits; without a GPU it refuses more than 1,000 rows itself
        rows=10_000,
        columns=500,
        n_classes=10,
        rows_on_cpu=1_000,
    ),
    "tabicl": Package(
        {"classification": "tabicl:TabICLClassifier", "regression": "tabicl:TabICLRegressor"},
        lambda threads, seed: {"random_state": seed, "n_jobs": threads},
        # version 2's authors tried it up to these
        rows=100_000,
        columns=2_000,
        rows_on_cpu=5_000,
    ),
}
"""By name, which is also what is to be installed."""


def check_outside(name: str, task: str) -> None:
    """Refuse what `outside` could not build.

    Raises
    ------
    UsboostError
        If the package is not installed, or the path names no estimator for the task.
    """
    if name in PACKAGES and find_spec(name) is None:
        raise UsboostError(f"{name} is not installed; install it with `pip install {name}`, or leave it out")
    found = imported(PACKAGES[name].classes[task] if name in PACKAGES else name)
    wanted = is_classifier if task == "classification" else is_regressor
    if name not in PACKAGES and not wanted(found()):
        kind = "classifier" if task == "classification" else "regressor"
        raise UsboostError(f"{name} is no {kind}, which this label needs; name another class")


def outside(
    name: str, task: str, *, views: Sequence[str], backbone: Backbone | None = None, seed: int = 0
) -> ScikitBaseline | ScikitBaselineRegressor:
    """A package of `PACKAGES`, or any scikit-learn estimator by its import path, on views.

    Parameters
    ----------
    name : "catboost", or "sklearn.svm:SVC".
    task : of `entry.TASKS`.
    views : those that it reads; backbone : what embeds pictures among them.

    Raises
    ------
    UsboostError
        As `check_outside`.
    """
    check_outside(name, task)
    package = PACKAGES.get(name, Package({task: name}))
    settings = package.settings(torch.get_num_threads(), seed)
    made = imported(package.classes[task])(**settings)
    wrapped = ScikitBaseline if task == "classification" else ScikitBaselineRegressor
    return wrapped(made, views, package.stops_early, backbone=backbone, random_state=seed)


def imported(path: str) -> type[BaseEstimator]:
    """The estimator's class that "module:Class" names.

    Raises
    ------
    UsboostError
        If there is no such module or class, or it is no scikit-learn estimator that needs no arguments.
    """
    module, _, name = path.partition(":")
    if not module or not name:
        raise UsboostError(f"{path!r} names no class; write module:Class, sklearn.svm:SVC say")
    try:
        found = getattr(import_module(module), name)
    except ImportError as error:
        raise UsboostError(f"{path}: {error}; install it, or name another class") from None
    except AttributeError:
        raise UsboostError(f"{module} has no class {name!r}; name another one") from None
    if not (
        isinstance(found, type) and all(hasattr(found, each) for each in ("fit", "predict", "get_params"))
    ):
        raise UsboostError(f"{path} is no scikit-learn estimator; name a class with fit and predict")
    try:
        found()
    except TypeError as error:
        raise UsboostError(f"{path} cannot be made without arguments ({error}); name another class") from None
    return found

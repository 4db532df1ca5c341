"""The table of other packages, which a user may name, and any scikit-learn estimator, on views; the prior.

Another method to be measured against, with a file, is one more entry in `PACKAGES`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import PredefinedSplit

from usboost.boosting.callbacks import Callback, begin_and_end, notify
from usboost.boosting.context import FitContext
from usboost.boosting.rounds import Clock, Round
from usboost.data.views import Views
from usboost.errors import Unsuited, UsboostError
from usboost.files.onnx_graph import TableNodes, Value, ViewNodes, no_form
from usboost.learners.networks.backbones import Backbone
from usboost.learners.search_space import Integer, Real
from usboost.learners.tree import Node, Tree
from usboost.models.base import ViewsClassifier, ViewsRegressor
from usboost.models.baselines.wrapper import (
    Classifier,
    FitRows,
    Names,
    Package,
    Regressor,
    Stages,
    Wrapper,
    without_stopping,
)
from usboost.models.estimator import ViewsEstimator, as_views
from usboost.models.methods.boosted_features import GradientBoostedTrees

PATIENCE = 50
"""Rounds without a better validation loss, for packages that stop early."""


class XGBoost(Package):
    """XGBoost by its interface of scikit-learn; an export writes its trees, read from its JSON, as ours."""

    def to_onnx(self, model: Any, table: TableNodes) -> Value:
        """Return in the table's graph what `predict` gives, float64 (n, D)."""
        learner = json.loads(model.estimator_.get_booster().save_raw("json"))["learner"]
        booster, objective = learner["gradient_booster"], learner["objective"]["name"]
        known = objective in ("binary:logistic", "multi:softprob", "reg:squarederror")
        known &= booster["model"]["gbtree_model_param"]["num_parallel_tree"] == "1"
        if not known or booster["name"] != "gbtree" or not model.own_categories_:
            raise no_form(model.estimator_, f"with {objective}")
        n_outputs = max(booster["model"]["tree_info"]) + 1
        grown = booster["model"]["trees"]
        last = int(learner["attributes"].get("best_iteration", len(grown)))
        trees = [tree_of(each) for each in grown[: (last + 1) * n_outputs]]
        base = np.full(n_outputs, json.loads(learner["learner_model_param"]["base_score"]), np.float64)
        if objective == "binary:logistic":
            base = np.log(base / (1 - base))
        return GradientBoostedTrees(trees, base, 1.0, len(getattr(model, "classes_", [0]))).to_onnx(table)


def tree_of(grown: dict[str, Any]) -> Tree:
    """Return a tree of one in XGBoost's JSON: rows below a number go left there, codes of a set right."""
    left, right = (np.array(grown[f"{side}_children"]) for side in ("left", "right"))
    is_inner, conditions = left >= 0, np.array(grown["split_conditions"], dtype=np.float32)
    place = np.where(is_inner, np.cumsum(is_inner) - 1, ~(np.cumsum(~is_inner) - 1))
    below = np.nextafter(conditions, np.float32(-np.inf))
    segments = zip(*(grown[f"categories_{name}"] for name in ("nodes", "segments", "sizes")), strict=True)
    sets = {node: grown["categories"][start : start + size] for node, start, size in segments}
    nodes: list[Node] = []
    for node in np.flatnonzero(is_inner).tolist():
        sides, codes = (int(place[left[node]]), int(place[right[node]])), sets.get(node, [])
        nodes.append((grown["split_indices"][node], below[node], *(sides[::-1] if codes else sides), codes))
    return Tree._build(nodes, conditions[~is_inner, None], [0.0] * len(nodes))


def _of_catboost(model: Any, rows: FitRows, callbacks: Sequence[Callback]) -> dict[str, Any]:
    """Return CatBoost's arguments: its categories, callbacks, and validation rows that have weights."""
    categories = list(rows.categories)
    given: dict[str, Any] = {"cat_features": categories} if model.own_categories_ else {}
    if model.tells_stages:
        given["callbacks"] = [Stages(callbacks)]
    if rows.val is not None and model.stops_early and rows.val_weights is not None:
        pool = import_module("catboost").Pool
        given["eval_set"] = pool(*rows.val, cat_features=categories or None, weight=rows.val_weights)
    return given


PACKAGES = {
    "catboost": Package(
        {"classification": "catboost:CatBoostClassifier", "regression": "catboost:CatBoostRegressor"},
        lambda threads, seed: {
            "iterations": 2000,
            # its own rate, .02 to .08 by the number of rows, cannot be had with a penalty that is given
            "learning_rate": 0.05,
            "depth": 6,  # this and the next are its own, written out for a search to begin from
            "l2_leaf_reg": 3.0,
            "random_strength": 1.0,
            "early_stopping_rounds": PATIENCE,
            "thread_count": threads,
            "random_seed": seed,
            "allow_writing_files": False,
            "verbose": False,
        },
        reads="frame",
        stages=True,
        stops_early=True,
        length="iterations",
        best="best_iteration_",
        arguments=_of_catboost,
        file="catboost.cbm",
        space={
            "estimator__learning_rate": Real(0.01, 0.3, log=True),
            "estimator__depth": Integer(4, 8),
            "estimator__l2_leaf_reg": Real(0.3, 30.0, log=True),
            "estimator__random_strength": Real(0.1, 10.0, log=True),
        },
    ),
    "xgboost": XGBoost(
        {"classification": "xgboost:XGBClassifier", "regression": "xgboost:XGBRegressor"},
        lambda threads, seed: {
            "n_estimators": 2000,
            "learning_rate": 0.05,
            "max_depth": 6,  # this and the next are its own, written out for a search to begin from
            **{"min_child_weight": 1.0, "subsample": 1.0, "colsample_bytree": 1.0, "reg_lambda": 1.0},
            "early_stopping_rounds": PATIENCE,
            "enable_categorical": True,
            "n_jobs": threads,
            "random_state": seed,
        },
        reads="frame",
        stops_early=True,
        length="n_estimators",
        best="best_iteration",
        # its argument for validation rows that have weights
        arguments=lambda model, rows, callbacks: (
            {"sample_weight_eval_set": [rows.val_weights]}
            if rows.val is not None and model.stops_early and rows.val_weights is not None
            else {}
        ),
        file="xgboost.json",
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
"""By the name that is to be installed, and that a user names."""


def installed() -> list[str]:
    """Return the names of those of `PACKAGES` that are installed."""
    return [name for name in PACKAGES if find_spec(name) is not None]


def imported(path: str) -> type[BaseEstimator]:
    """Import the estimator's class that "module:Class" names.

    Raises `UsboostError` if there is no such module or class, or it is no scikit-learn estimator that needs
    no arguments.
    """
    module, _, name = path.partition(":")
    if not module or not name:
        raise UsboostError(f"{path!r} names no class; write module:Class, sklearn.svm:SVC say")
    try:
        estimator_class = getattr(import_module(module), name)
    except ImportError as error:
        raise UsboostError(f"{path}: {error}; install it, or name another class") from None
    except AttributeError:
        raise UsboostError(f"{module} has no class {name!r}; name another one") from None
    needed = ("fit", "predict", "get_params")
    if not isinstance(estimator_class, type) or not all(hasattr(estimator_class, each) for each in needed):
        raise UsboostError(f"{path} is no scikit-learn estimator; name a class with fit and predict")
    try:
        estimator_class()
    except TypeError as error:
        raise UsboostError(f"{path} cannot be made without arguments ({error}); name another class") from None
    return estimator_class


def check_outside(name: str, task: str) -> None:
    """Refuse what `outside` could not build.

    Raises `UsboostError` if the package is not installed, or the path names no estimator for the task.
    """
    package = PACKAGES.get(name)
    if package and find_spec(name) is None:
        raise UsboostError(f"{name} is not installed; install it with `pip install {name}`, or leave it out")
    estimator_class = imported(package.classes[task] if package else name)
    if not package and not (is_classifier if task == "classification" else is_regressor)(estimator_class()):
        kind = "classifier" if task == "classification" else "regressor"
        raise UsboostError(f"{name} is no {kind}, which this label needs; name another class")


def outside(
    name: str, task: str, *, views: Names, backbone: Backbone | None = None, seed: int = 0
) -> "ScikitBaseline | ScikitBaselineRegressor":
    """Build a package of `PACKAGES`, or any scikit-learn estimator by its import path, on views.

    Raises `UsboostError` as `check_outside`.

    Parameters
    ----------
    name : "catboost", or "sklearn.svm:SVC".
    task : of `entry.TASKS`.
    views : those that it reads; backbone : what embeds images among them.
    """
    check_outside(name, task)
    package = PACKAGES.get(name) or Package({task: name})
    made = imported(package.classes[task])(**package.settings(torch.get_num_threads(), seed))
    wrapped = ScikitBaseline if task == "classification" else ScikitBaselineRegressor
    return wrapped(made, views, package.stops_early, backbone=backbone, random_state=seed)


@dataclass(eq=False, repr=False)
class _Scikit(Wrapper):
    """Any estimator with scikit-learn's interface."""

    estimator: Any = None
    views: Names = ("U", "S")
    stops_early: bool = False
    _: KW_ONLY
    validation_fraction: float = 0.0

    @property
    def _entry(self) -> Package:
        return PACKAGES.get(type(self.estimator).__module__.partition(".")[0]) or Package()

    def _given(self, views: Views, y: np.ndarray, context: FitContext) -> FitRows:
        rows = super()._given(views, y, context)
        return rows if self.stops_early else rows.joined()

    def _unfitted(self, rows: FitRows | None = None) -> Any:
        made = clone(self.estimator)
        if "random_state" in made.get_params(deep=False):
            made.set_params(random_state=self.random_state)
        return made

    def _as_far(self) -> dict[str, Any]:
        copy, length = clone(self.estimator), self._entry.length
        if not self.stops_early:
            return {"estimator": copy}
        if not length:
            raise UsboostError(f"a {type(copy).__name__} has no known number of rounds; leave `refit` out")
        return {"estimator": without_stopping(copy, **{length: self.best_round_}), "stops_early": False}


class ScikitBaseline(_Scikit, Classifier):
    """A scikit-learn classifier on everything: numbers standardised, categories one-hot, images embedded.

    XGBoost and CatBoost are given the categories themselves.

    Parameters
    ----------
    estimator : a classifier; without ``predict_proba`` its decisions are calibrated by a sigmoid, fitted to
        out-of-fold ones. One that divides the rows by itself (``LogisticRegressionCV``, say) does not know
        how they are related
    views : names of the views it reads
    stops_early : whether its ``fit`` takes the validation rows as ``eval_set``; else it learns from them, too
    validation_fraction, random_state, callbacks, backbone, device : as of `LightGBMBaseline`

    Attributes
    ----------
    classes_ ; estimator_ : fitted, of the classes' positions
    """

    def _unfitted(self, rows: FitRows | None = None) -> Any:
        made = super()._unfitted(rows)
        if rows is None or hasattr(made, "predict_proba"):
            return made
        if rows.apart is None:
            fewest = int(np.bincount(rows.y)[np.unique(rows.y)].min())
            return CalibratedClassifierCV(made, ensemble=False, cv=min(5, max(2, fewest)))
        # parts of related training rows; validation rows after them, if there are any, are one more
        y, n = rows.y, sum(map(len, rows.apart.arguments.values()))
        part = rows.apart.parts(5, y[:n], self.random_state)
        part = np.append(part, np.full(len(y) - n, part.max() + 1))
        if any(len(np.unique(y[part != k])) < len(np.unique(y)) for k in range(int(part.max()) + 1)):
            raise Unsuited(
                f"the decisions of a {type(self.estimator).__name__} cannot be calibrated, as some class is "
                "in one part of the groups or times only; name an estimator with predict_proba"
            )
        return CalibratedClassifierCV(made, ensemble=False, cv=PredefinedSplit(part))


class ScikitBaselineRegressor(_Scikit, Regressor):
    """A scikit-learn regressor on everything, fitted to standardised targets; see `ScikitBaseline`."""


@dataclass(eq=False, repr=False)
class _Package(Wrapper):
    """A package of the table by its name, with a file."""

    package: str = "catboost"
    views: Names = ("U", "S")
    n_trees: int = 2000
    _: KW_ONLY
    validation_fraction: float = 0.0

    @property
    def _entry(self) -> Package:
        if self.package not in PACKAGES:
            raise UsboostError(f"unknown package {self.package!r}; choose among {', '.join(PACKAGES)}")
        return PACKAGES[self.package]

    @property
    def stops_early(self) -> bool:
        """Tell if validation rows end its fit."""
        return self._entry.stops_early

    def _unfitted(self, rows: FitRows | None = None) -> Any:
        if find_spec(self.package) is None:
            raise UsboostError(f"the model needs {self.package}, not installed; `pip install {self.package}`")
        task = "classification" if isinstance(self, ViewsClassifier) else "regression"
        settings = self._entry.settings(torch.get_num_threads(), self.random_state)
        rounds = {self._entry.length: self.n_trees} if self._entry.length else {}
        return imported(self._entry.classes[task])(**settings | rounds)

    def _fit(self, views: Views, y: np.ndarray, context: FitContext) -> None:
        try:
            super()._fit(views, y, context)
        except UsboostError:
            raise
        except Exception as error:  # a package's own errors: no weights to be had, no memory, any other
            lines = str(error).splitlines() or [type(error).__name__]
            raise Unsuited(f"{self.package}: {lines[0]}") from error

    def _given(self, views: Views, y: np.ndarray, context: FitContext) -> FitRows:
        rows, package = super()._given(views, y, context), self._entry
        most = package.rows if torch.cuda.is_available() else package.rows_on_cpu
        for what, count, limit in (
            ("rows", len(y), most),
            ("columns", rows.x.shape[1], package.columns),
            ("classes", self.n_outputs, package.n_classes),
        ):
            if limit is not None and count > limit:
                raise Unsuited(f"{self.package} takes up to {limit:,} {what} here, not {count:,}")
        if not package.file:
            self.rows_ = np.asarray(rows.x, dtype=np.float32), y
        return rows


class PackageClassifier(_Package, Classifier):
    """A classifier of another package: numbers standardised, categories one-hot, images embedded.

    CatBoost and XGBoost are given the categories themselves.

    Raises `Unsuited` by ``fit``, of more rows, columns or classes than the package takes, or if it fails.

    Parameters
    ----------
    package : a name of `PACKAGES`
    views : names of the views it reads
    n_trees : CatBoost's and XGBoost's rounds at most
    validation_fraction, random_state, callbacks, backbone, device : as of `LightGBMBaseline`

    Attributes
    ----------
    classes_ ; estimator_ : fitted, of the classes' positions
    """


class PackageRegressor(_Package, Regressor):
    """A regressor of another package, fitted to standardised targets; see `PackageClassifier`."""


@dataclass(eq=False, repr=False)
class _Prior(ViewsEstimator):
    """One answer for every row, of which no column is read."""

    validation_fraction: float = 0.0
    random_state: int = 0
    callbacks: Sequence[Callback] | None = None

    n_rounds: ClassVar[int] = 1

    def _fit(self, views: Views, y: np.ndarray, context: FitContext) -> None:
        watch = context.watch()
        with begin_and_end(self, watch.callbacks):
            notify(watch.callbacks, Round(1, None, {}, Clock().seconds()))
        self.history_, self.best_round_ = watch.history, 1

    def _as_far(self) -> dict[str, Any]:
        return {}

    def _to_onnx(self, views: Mapping[str, ViewNodes]) -> Value:
        view: Any = next(iter(views.values()))
        rows: Value = view.absent or view.rows
        return rows.each(getattr(self, "shares_", np.zeros(1)))

    def _write(self, folder: Path) -> dict[str, Any]:
        return {}

    def _read(self, document: Mapping[str, Any], folder: Path) -> None:
        """Read nothing; a regressor's mean is its centre, which is read with the settings."""


class PriorBaseline(_Prior, ViewsClassifier):
    """The training rows' shares of the classes, for every row.

    Parameters
    ----------
    validation_fraction, random_state, callbacks : as everywhere

    Attributes
    ----------
    classes_ ; shares_ : float64 (M,)
    """

    def _fit(self, views: Views, y: np.ndarray, context: FitContext) -> None:
        counts = np.bincount(y, context.weights, len(self.classes_))
        self.shares_ = counts / counts.sum()
        super()._fit(views, y, context)

    def predict_proba(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """Return the shares, float64 (n, M)."""
        self._check_fitted()
        return np.tile(self.shares_, (len(as_views(X)), 1))

    def _write(self, folder: Path) -> dict[str, Any]:
        return {"shares": self.shares_.tolist()}

    def _read(self, document: Mapping[str, Any], folder: Path) -> None:
        self.shares_ = np.asarray(document["shares"], dtype=np.float64)
        right = self.shares_.shape == (len(self.classes_),) and (self.shares_ >= 0).all()
        if not right or abs(self.shares_.sum() - 1) > 1e-6:
            raise UsboostError("the classes' shares are not one for each, which sum to 1")


class PriorBaselineRegressor(_Prior, ViewsRegressor):
    """The training rows' mean, for every row; see `PriorBaseline`."""

    def _predict(self, views: Views) -> np.ndarray:
        return np.zeros(len(views))

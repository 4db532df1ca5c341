"""Packages whose estimators a comparison knows by a short name, and others by their import path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, is_classifier, is_regressor

from usboost.errors import UsboostError
from usboost.learners.dimensions import Integer, Real, Space

PATIENCE = 50
"""Rounds without a better validation loss, for packages that stop early."""


@dataclass(frozen=True)
class Package:
    """A package whose estimators a comparison knows by a short name.

    Attributes
    ----------
    classes : import paths of its estimators by task.
    settings : of these, given a number of threads and a seed.
    stops_early : see `ScikitBaseline`.
    length : its setting of the rounds at most; best : its attribute of the best round's position, from 0.
    space : of these, by path.
    own_categories : whether it reads categories itself, in frames with columns of that type; else they are
        given as indicators. told_categories : its ``fit``'s argument for their columns, if it has one.
    weighted : arguments of its ``fit`` for validation rows that have weights: of rows, labels, weights and
        the columns of categories.
    rows, columns, n_classes : most that it is made for; None for any.
    rows_on_cpu : most that are bearable without a GPU.
    """

    classes: Mapping[str, str]
    settings: Callable[[int, int], dict[str, Any]] = field(default=lambda threads, seed: {})
    stops_early: bool = False
    length: str = ""
    best: str = ""
    space: Space = field(default_factory=dict)
    own_categories: bool = False
    told_categories: str = ""
    weighted: Callable[[Any, np.ndarray, np.ndarray, list[int]], dict[str, Any]] | None = None
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


def _held_by_xgboost(x: Any, y: np.ndarray, weights: np.ndarray, categories: list[int]) -> dict[str, Any]:
    return {"eval_set": [(x, y)], "sample_weight_eval_set": [weights]}


def _held_by_catboost(x: Any, y: np.ndarray, weights: np.ndarray, categories: list[int]) -> dict[str, Any]:
    pool = import_module("catboost").Pool
    return {"eval_set": pool(x, y, cat_features=categories or None, weight=weights)}


def _catboost(threads: int, seed: int) -> dict[str, Any]:
    return {
        "iterations": 2000,
        # its own rate, .02 to .08 by the number of rows, is not to be had beside a penalty that is given
        "learning_rate": 0.05,
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
        length="iterations",
        best="best_iteration_",
        own_categories=True,
        told_categories="cat_features",
        weighted=_held_by_catboost,
        space={
            "estimator__learning_rate": Real(0.01, 0.3, log=True),
            "estimator__depth": Integer(4, 8),
            "estimator__l2_leaf_reg": Real(0.3, 30.0, log=True),
            "estimator__random_strength": Real(0.1, 10.0, log=True),
        },
    ),
    "xgboost": Package(
        {"classification": "xgboost:XGBClassifier", "regression": "xgboost:XGBRegressor"},
        _xgboost,
        stops_early=True,
        length="n_estimators",
        best="best_iteration",
        own_categories=True,
        weighted=_held_by_xgboost,
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

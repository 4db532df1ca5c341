"""The table of packages: another method to be measured against is one more entry here."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from sklearn.base import is_classifier, is_regressor

from usboost.errors import UsboostError
from usboost.learners.dimensions import COMPONENTS, Choice, Integer, Real
from usboost.models.baselines.linear import LOGISTIC, RIDGE
from usboost.models.baselines.package import Package, Rows, Stages, imported
from usboost.models.baselines.trees import Forest, LightGBM

PATIENCE = 50
"""Rounds without a better validation loss, for packages that stop early."""


def _held_by_catboost(rows: Rows) -> dict[str, Any]:
    x, y = rows.held or (rows.x, rows.y)
    pool = import_module("catboost").Pool
    return {"eval_set": pool(x, y, cat_features=list(rows.categories) or None, weight=rows.held_weights)}


PACKAGES = {
    "lightgbm": LightGBM(
        reads="table",
        stages=True,
        space={
            "learning_rate": Real(0.01, 0.3, log=True),
            "num_leaves": Integer(4, 256, log=True),
            "min_samples_leaf": Integer(1, 200, log=True),
            "feature_fraction": Real(0.3, 1.0),
            "lambda_l2": Choice((0.0, 0.1, 1.0, 10.0, 100.0), ordered=True),
            "category_l2": Choice((0.0, 3.0, 10.0, 30.0, 300.0, 3000.0), ordered=True),
            "components": COMPONENTS,
        },
    ),
    "forest": Forest(
        reads="table",
        chosen="leaf_sizes",
        scored=True,
        space={
            "n_trees": Integer(100, 1000, log=True),
            "leaf_sizes": Choice(((1, 5), (1,), (3,), (10,), (30,))),
            "max_features": Choice(("sqrt", 0.1, 1 / 3, 0.6, 1.0)),
            "components": COMPONENTS,
        },
    ),
    "logistic": LOGISTIC,
    "ridge": RIDGE,
    "catboost": Package(
        {"classification": "catboost:CatBoostClassifier", "regression": "catboost:CatBoostRegressor"},
        lambda threads, seed: {
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
        },
        reads="frame",
        stages=True,
        stops_early=True,
        length="iterations",
        best="best_iteration_",
        weighted=_held_by_catboost,
        told_categories="cat_features",
        hooks=lambda callbacks: {"callbacks": [Stages(callbacks)]},
        file="catboost.cbm",
        space={
            "estimator__learning_rate": Real(0.01, 0.3, log=True),
            "estimator__depth": Integer(4, 8),
            "estimator__l2_leaf_reg": Real(0.3, 30.0, log=True),
            "estimator__random_strength": Real(0.1, 10.0, log=True),
        },
    ),
    "xgboost": Package(
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
        weighted=lambda rows: {"sample_weight_eval_set": [rows.held_weights]},
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
"""By name. That of a package with `classes` is what is to be installed, and what a user names."""


def named(name: str) -> Package | None:
    """The package that a user may name so, if it is in the table."""
    found = PACKAGES.get(name)
    return found if found is not None and found.classes else None


def installed() -> list[str]:
    """The names of those that a user may name and that are installed."""
    return [name for name in PACKAGES if named(name) and find_spec(name) is not None]


def check_outside(name: str, task: str) -> None:
    """Refuse what `outside` could not build.

    Raises
    ------
    UsboostError
        If the package is not installed, or the path names no estimator for the task.
    """
    package = named(name)
    if package and find_spec(name) is None:
        raise UsboostError(f"{name} is not installed; install it with `pip install {name}`, or leave it out")
    found = imported(package.classes[task] if package else name)
    wanted = is_classifier if task == "classification" else is_regressor
    if not package and not wanted(found()):
        kind = "classifier" if task == "classification" else "regressor"
        raise UsboostError(f"{name} is no {kind}, which this label needs; name another class")

"""The table of packages: another method to be measured against is one more entry in `PACKAGES`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import is_classifier, is_regressor

from usboost.boosting.callbacks import Callback
from usboost.data.table import Table
from usboost.errors import Unsuited, UsboostError, choices
from usboost.files.arrays import read_arrays, write_arrays
from usboost.learners.search_space import COMPONENTS, Choice, Integer, Real
from usboost.learners.trees.engines import quiet_lightgbm
from usboost.learners.trees.fitted import FittedTrees
from usboost.learners.trees.tree import Tree
from usboost.models.baselines.linear import LOGISTIC, RIDGE
from usboost.models.baselines.package import Package, Rows, Stages, imported
from usboost.models.networks.boosted_features import (
    GradientBoostedTrees,
    initial_score,
    lightgbm_dataset,
    lightgbm_parameters,
    lightgbm_threads,
)
from usboost.models.networks.gbm_files import load_gbm, save_gbm

PATIENCE = 50
"""Rounds without a better validation loss, for packages that stop early."""


def _held_by_catboost(rows: Rows) -> dict[str, Any]:
    x, y = rows.held or (rows.x, rows.y)
    pool = import_module("catboost").Pool
    return {"eval_set": pool(x, y, cat_features=list(rows.categories) or None, weight=rows.held_weights)}


TREES = "forest.safetensors"


OBJECTIVES = {"squared": "regression", "absolute": "regression_l1", "huber": "huber", "quantile": "quantile"}
"""LightGBM's names of losses."""


def monotone_constraints(directions: Any, loss: str, table: Table) -> dict[str, list[int]]:
    """LightGBM's setting for the columns in which predictions are to be monotone.

    Encoded numbers grow with those of the table, so that it holds for these.

    Raises
    ------
    UsboostError
        If the loss cannot keep it, a column is none of numbers, or a direction is neither "+" nor "-".
    """
    if loss in ("absolute", "quantile"):
        raise UsboostError(f"LightGBM keeps no column monotone with the {loss} loss; leave one of them out")
    if not isinstance(directions, Mapping):
        raise UsboostError(f"monotone is columns with + or -, such as {{age: +}}, not {directions!r}")
    numbers = {name.rpartition("__")[2]: k for k, name in enumerate(table.names[: table.n_numeric])}
    numbers |= {name: k for k, name in enumerate(table.names[: table.n_numeric])}
    found = [0] * table.n_columns
    for name, direction in directions.items():
        if name not in numbers:
            raise UsboostError(
                f"monotone: there is no column of numbers {name!r}; {choices(str(name), list(numbers))}"
            )
        if direction not in ("+", "-"):
            raise UsboostError(f"monotone: the direction of {name!r} is + or -, not {direction!r}")
        found[numbers[name]] = 1 if direction == "+" else -1
    return {"monotone_constraints": found}


class LightGBM(Package):
    """LightGBM by its own interface, so that the initial score stays apart from the trees."""

    sums_to_one = True

    def fit(
        self, model: Any, rows: Rows, choice: Any, callbacks: Sequence[Callback]
    ) -> tuple[dict[str, Any], dict[str, float]]:
        lightgbm, n_outputs = quiet_lightgbm(), model.n_outputs
        initial = initial_score(rows.y, n_outputs, rows.weights) if n_outputs > 1 else np.zeros(1)
        parameters = lightgbm_parameters(n_outputs) | {
            "learning_rate": model.learning_rate,
            "num_leaves": model.num_leaves,
            "min_data_in_leaf": model.min_samples_leaf,
            "feature_fraction": model.feature_fraction,
            "lambda_l2": model.lambda_l2,
            "cat_l2": model.category_l2,
            "seed": model.random_state,
            "num_threads": lightgbm_threads(len(rows.y)),
        }
        if n_outputs == 1:
            parameters["objective"] = OBJECTIVES[model.loss]
            parameters |= {"alpha": model.quantile} if model.loss == "quantile" else {}
            parameters |= monotone_constraints(model.monotone, model.loss, rows.x) if model.monotone else {}

        def dataset(table: Table, y: np.ndarray, weights: np.ndarray | None, reference: Any = None) -> Any:
            return lightgbm_dataset(table, y, weights, initial, parameters, reference)

        train, held, stages = dataset(rows.x, rows.y, rows.weights), [], Stages(callbacks)
        hooks: list[Any] = [stages]
        if rows.held is not None:
            held = [dataset(*rows.held, rows.held_weights, train)]
            hooks.append(lightgbm.early_stopping(model.patience, verbose=False))
        booster = lightgbm.train(parameters, train, model.n_trees, valid_sets=held, callbacks=hooks)
        # LightGBM calls the round in which a callback asks to stop its best
        best = 1 + int(np.argmin(stages.losses)) if stages.losses else booster.current_iteration()
        grown = booster.dump_model(num_iteration=best)["tree_info"]
        trees = [Tree.from_lightgbm(tree, scale=1 / model.learning_rate) for tree in grown]
        gbm = GradientBoostedTrees(trees, initial, model.learning_rate, n_outputs)
        return {"gbm_": gbm, "best_round_": best}, {}

    def predict(self, model: Any, x: Table) -> np.ndarray:
        gbm: GradientBoostedTrees = model.gbm_
        return gbm.probabilities(x) if model.n_outputs > 1 else gbm.raw_score(x)

    def size(self, model: Any) -> int:
        return int(model.gbm_.n_stages)

    def trees(self, model: Any) -> Sequence[Tree]:
        return list(model.gbm_.trees)

    def write(self, model: Any, folder: Path) -> dict[str, Any]:
        save_gbm(model.gbm_, folder / "gbm")
        return {}

    def read(self, model: Any, folder: Path, document: Mapping[str, Any]) -> None:
        model.gbm_ = load_gbm(folder / "gbm", model.n_outputs)


FOREST_BYTES, MANY_CLASSES, MOST_CLASSES = 1 << 31, 20, 300
"""What the nodes of a forest of more than so many classes may take, and the most that it is fitted to."""


class Forest(Package):
    """scikit-learn's random forest: the mean of trees, each of a bootstrap sample.

    A node holds a number for each class, and each split looks at all: of more than `MANY_CLASSES`, leaves are
    so large that all nodes fit in `FOREST_BYTES`; more than `MOST_CLASSES` are refused as `Unsuited`.
    """

    def fit(
        self, model: Any, rows: Rows, choice: Any, callbacks: Sequence[Callback]
    ) -> tuple[dict[str, Any], dict[str, float]]:
        from sklearn.ensemble import RandomForestRegressor

        if model.n_outputs > MOST_CLASSES:
            raise Unsuited(
                f"a random forest takes up to {MOST_CLASSES} classes, not {model.n_outputs:,}; fit another "
                "model, logistic say"
            )
        # on indicators of the classes the squared error is Gini's impurity
        outputs = np.eye(model.n_outputs)[rows.y] if model.n_outputs > 1 else rows.y
        if model.n_outputs > MANY_CLASSES:
            # two nodes for each leaf, of the 63 in 100 rows that a bootstrap sample has
            numbers = model.n_trees * 1.26 * len(rows.y) * model.n_outputs
            choice = max(choice, int(np.ceil(8 * numbers / FOREST_BYTES)))
        forest = RandomForestRegressor(
            model.n_trees,
            min_samples_leaf=choice,
            max_features=model.max_features,
            n_jobs=torch.get_num_threads(),
            random_state=model.random_state,
        ).fit(rows.x.matrix(), outputs, rows.weights)
        return {"trees_": [Tree.from_sklearn(each.tree_) for each in forest.estimators_]}, {
            "leaf_size": float(choice)
        }

    def predict(self, model: Any, x: Table) -> np.ndarray:
        matrix = x.matrix()
        total = np.zeros((len(matrix), model.n_outputs))
        for tree in model.trees_:
            total += tree.predict(matrix)
        return total / len(model.trees_)

    def size(self, model: Any) -> int:
        return len(model.trees_)

    def trees(self, model: Any) -> Sequence[Tree]:
        return list(model.trees_)

    def write(self, model: Any, folder: Path) -> dict[str, Any]:
        arrays, document = FittedTrees(tuple(model.trees_)).to_arrays()
        write_arrays(arrays, folder / TREES)
        return document

    def read(self, model: Any, folder: Path, document: Mapping[str, Any]) -> None:
        arrays, count = read_arrays(folder / TREES), int(document["trees"])
        model.trees_ = list(FittedTrees.from_arrays(arrays, {"trees": count}).trees)
        columns = next(iter(getattr(model, "columns_", {}).values()), None)
        for tree in model.trees_:
            tree.check(len(columns) if columns else None)
            if tree.value.shape[1] != model.n_outputs:
                raise UsboostError(f"a tree has {tree.value.shape[1]} outputs, not {model.n_outputs}")
        if not model.trees_:
            raise UsboostError("a forest has no tree")


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

    Raises `UsboostError` if the package is not installed, or the path names no estimator for the task.
    """
    package = named(name)
    if package and find_spec(name) is None:
        raise UsboostError(f"{name} is not installed; install it with `pip install {name}`, or leave it out")
    found = imported(package.classes[task] if package else name)
    wanted = is_classifier if task == "classification" else is_regressor
    if not package and not wanted(found()):
        kind = "classifier" if task == "classification" else "regressor"
        raise UsboostError(f"{name} is no {kind}, which this label needs; name another class")

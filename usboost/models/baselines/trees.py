"""LightGBM and the random forest: trees that are kept as our own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from usboost.boosting.callbacks import Callback
from usboost.data.table import Table
from usboost.errors import UsboostError
from usboost.files.arrays import read_arrays, write_arrays
from usboost.learners.trees.engines import quiet_lightgbm
from usboost.learners.trees.fitted import FittedTrees
from usboost.learners.trees.tree import Tree
from usboost.models.baselines.package import Package, Rows, Stages
from usboost.models.networks.gbm import (
    GradientBoostedTrees,
    initial_score,
    lightgbm_dataset,
    lightgbm_parameters,
    lightgbm_threads,
)
from usboost.models.networks.gbm_files import load_gbm, save_gbm

TREES = "forest.safetensors"
OBJECTIVES = {"squared": "regression", "absolute": "regression_l1", "huber": "huber", "quantile": "quantile"}
"""LightGBM's names of losses."""


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


class Forest(Package):
    """scikit-learn's random forest: the mean of trees, each of a bootstrap sample."""

    def fit(
        self, model: Any, rows: Rows, choice: Any, callbacks: Sequence[Callback]
    ) -> tuple[dict[str, Any], dict[str, float]]:
        from sklearn.ensemble import RandomForestRegressor

        # on indicators of the classes the squared error is Gini's impurity
        outputs = np.eye(model.n_outputs)[rows.y] if model.n_outputs > 1 else rows.y
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

"""Regression trees as weak learners: grown by LightGBM or scikit-learn, kept as plain arrays."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator

from usboost.data.table import Table
from usboost.data.views import View
from usboost.errors import UsboostError
from usboost.learners.base import FittedLearner, Target, sum_one_by_one
from usboost.learners.trees.forest import Forest
from usboost.learners.trees.tree import Tree


@dataclass(frozen=True)
class FittedTrees:
    """The trees of one round, their outputs side by side: one tree per output, or one for all."""

    trees: tuple[Tree, ...]
    kind: ClassVar[str] = "trees"

    def predict(self, prepared: PreparedTable) -> np.ndarray:
        outputs = [tree.predict(prepared.matrix) for tree in self.trees]
        return outputs[0] if len(outputs) == 1 else np.concatenate(outputs, axis=1)

    @classmethod
    def weighted_sum(
        cls, learners: Sequence[FittedTrees], steps: Sequence[float], prepared: PreparedTable
    ) -> np.ndarray:
        """Σ_k step_k · trees_k(x), float64 (n, D): all trees on one block of rows after another."""
        counts = {len(learner.trees) for learner in learners}
        if len(counts) > 1:
            return sum_one_by_one(learners, steps, prepared)
        outputs = zip(*(learner.trees for learner in learners))
        weights = np.asarray(steps, dtype=np.float64)
        return np.concatenate(
            [Forest(trees).weighted_sum(prepared.matrix, weights) for trees in outputs], axis=1
        )

    def to_arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        arrays = {
            f"{i}.{name}": array for i, tree in enumerate(self.trees) for name, array in tree.arrays().items()
        }
        return arrays, {"trees": len(self.trees)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> FittedTrees:
        return cls(tuple(Tree.from_arrays(arrays, f"{i}.") for i in range(meta["trees"])))


@dataclass(frozen=True)
class PreparedTable:
    """A table as trees read it: float32 (n, p), column-major."""

    matrix: np.ndarray
    categorical: tuple[int, ...]


class TreeLearner(BaseEstimator):
    """A shallow regression tree fitted by (weighted) mean squared error.

    Parameters
    ----------
    max_depth : int
    max_leaves : int, optional
        The splits that gain most are made first, until there are so many leaves; default 2^max_depth.
    min_samples_leaf : int
    category_l2 : float
        On splits by category, a leaf's value is drawn to 0 as by so many samples of average weight:
        what keeps columns of many rare categories from being fitted to noise (LightGBM only).
    engine : {"lightgbm", "sklearn"}
        "lightgbm" bins the view once and grows one tree per output in milliseconds, with native
        splits on categories. "sklearn" is the paper's: one exact `DecisionTreeRegressor` with all
        outputs in its leaves, categories taken as ordinals.
    max_bin : int
        Bins per column (LightGBM).
    num_threads : int
        One by default: at these sizes the tree then costs milliseconds and leaves the other cores
        to the network that trains beside it.
    """

    def __init__(
        self,
        max_depth: int = 3,
        max_leaves: int | None = None,
        min_samples_leaf: int = 20,
        category_l2: float = 0.0,
        engine: str = "lightgbm",
        max_bin: int = 255,
        num_threads: int = 1,
    ) -> None:
        self.max_depth = max_depth
        self.max_leaves = max_leaves
        self.min_samples_leaf = min_samples_leaf
        self.category_l2 = category_l2
        self.engine = engine
        self.max_bin = max_bin
        self.num_threads = num_threads

    def prepare(self, view: View) -> PreparedTable:
        if not isinstance(view, Table):
            raise UsboostError(f"a tree reads tables, not {type(view).__name__}; give this view a network")
        return PreparedTable(view.matrix(), view.categorical)

    def trainer(self, prepared: PreparedTable, n_outputs: int) -> LightGBMTrainer | SklearnTrainer:
        if self.engine == "lightgbm":
            return LightGBMTrainer(self, prepared, n_outputs)
        if self.engine == "sklearn":
            return SklearnTrainer(self, prepared)
        raise UsboostError(f"there is no tree engine {self.engine!r}; choose 'lightgbm' or 'sklearn'")


def quiet_lightgbm() -> Any:
    """The lightgbm module, silent in this thread.

    Its verbosity is per thread and set whenever parameters are read, so a thread that only grows
    trees has to read some once.
    """
    import lightgbm

    if not getattr(_QUIET, "here", False):
        lightgbm.Dataset(np.zeros((2, 1)), params={"verbose": -1}).construct()
        _QUIET.here = True
    return lightgbm


_QUIET = threading.local()


class LightGBMTrainer:
    """Grows one tree per output and round on columns that are binned once."""

    def __init__(self, learner: TreeLearner, prepared: PreparedTable, n_outputs: int) -> None:
        lightgbm = quiet_lightgbm()
        self._parameters = {
            "objective": "none",
            "learning_rate": 1.0,
            "max_depth": learner.max_depth,
            "num_leaves": learner.max_leaves or 2**learner.max_depth,
            "min_data_in_leaf": learner.min_samples_leaf,
            "min_sum_hessian_in_leaf": 1e-10,
            "max_bin": learner.max_bin,
            "feature_pre_filter": False,
            "min_data_in_bin": 1,  # values that few samples have can be split off too
            "min_data_per_group": learner.min_samples_leaf,
            "cat_l2": learner.category_l2,  # 0: leaf values are plain means, as in any regression tree
            "num_threads": learner.num_threads,
            "boost_from_average": False,
            "deterministic": True,
            "force_col_wise": True,
            "verbose": -1,
        }
        self._n_outputs = n_outputs
        self._boosters: list[Any] = []
        lowest, highest = prepared.matrix.min(axis=0), prepared.matrix.max(axis=0)
        if not (lowest < highest).any():  # LightGBM refuses to grow on columns that all are constant
            return
        self._dataset = lightgbm.Dataset(
            prepared.matrix, params=self._parameters, categorical_feature=list(prepared.categorical)
        ).construct()
        self._boosters = [lightgbm.Booster(self._parameters, self._dataset) for _ in range(n_outputs)]

    def fit(self, target: Target, *, seed: int, start: FittedLearner | None = None) -> FittedTrees:
        quiet_lightgbm()
        return FittedTrees(tuple(self._grow(j, target) for j in range(self._n_outputs)))

    def _grow(self, output: int, target: Target) -> Tree:
        values, weights = target.values[:, output], target.fit_weights
        hessian, mean_weight = np.ones(len(values), dtype=np.float32), 1.0
        gradient = -values.astype(np.float32)
        if weights is not None:
            column = weights if weights.ndim == 1 else weights[:, output]
            # only ratios matter; a mean of one keeps LightGBM's absolute thresholds out of the way
            mean_weight = float(column.mean())
            hessian = (column / mean_weight).astype(np.float32)
            gradient *= hessian
        if not self._boosters:
            return Tree.constant(np.average(values, weights=hessian))
        booster = self._boosters[output]
        before = booster.num_trees()
        booster.update(fobj=lambda predictions, dataset: (gradient, hessian))
        grown = booster.dump_model(start_iteration=before, num_iteration=1)["tree_info"]
        if booster.num_trees() == before or grown[0]["num_leaves"] <= 1:  # nothing worth splitting
            return Tree.constant(np.average(values, weights=hessian))
        tree = Tree.from_lightgbm(grown[0])
        return replace(tree, gain=tree.gain * mean_weight)


class SklearnTrainer:
    """The paper's tree: scikit-learn's exact splits, all outputs in one tree."""

    def __init__(self, learner: TreeLearner, prepared: PreparedTable) -> None:
        self._learner, self._matrix = learner, np.ascontiguousarray(prepared.matrix)

    def fit(self, target: Target, *, seed: int, start: FittedLearner | None = None) -> FittedTrees:
        from sklearn.tree import DecisionTreeRegressor

        def grow(values: np.ndarray, weights: np.ndarray | None) -> Tree:
            tree = DecisionTreeRegressor(
                max_depth=self._learner.max_depth,
                max_leaf_nodes=self._learner.max_leaves,
                min_samples_leaf=self._learner.min_samples_leaf,
                random_state=seed % 2**32,
            ).fit(self._matrix, values, sample_weight=weights)
            return Tree.from_sklearn(tree.tree_)

        weights = target.fit_weights
        if weights is not None and weights.ndim == 2:
            columns = range(target.values.shape[1])
            return FittedTrees(tuple(grow(target.values[:, j], weights[:, j]) for j in columns))
        return FittedTrees((grow(target.values, weights),))

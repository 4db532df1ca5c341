"""Regression trees as weak learners: grown by LightGBM or scikit-learn, kept as plain arrays."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator

from usboost.errors import UsboostError
from usboost.learners.base import FittedLearner, Target, sum_one_by_one
from usboost.learners.forest import Forest
from usboost.views import Table, View


@dataclass(frozen=True)
class Tree:
    """A binary regression tree over the columns of a float32 matrix.

    Attributes
    ----------
    feature : int32 (nodes,)
        Column tested at each inner node; node 0 is the root.
    threshold : float32 (nodes,)
        Rows with ``x <= threshold`` go left; unused at categorical nodes.
    left, right : int32 (nodes,)
        Child node, or ``~leaf`` for a leaf.
    value : float32 (leaves, k)
        Leaf values.
    categories : int32 (c,) and category_start : int32 (nodes + 1,)
        Codes that go left at each categorical node; an empty range means a numeric node.
    gain : float64 (nodes,), or empty where it is not known
        By how much each node's split reduced the weighted sum of squared errors that the tree was
        fitted to, on splits by category as `category_l2` penalises it (for a GBM's trees, the gain
        that its engine reports).
    """

    feature: np.ndarray
    threshold: np.ndarray
    left: np.ndarray
    right: np.ndarray
    value: np.ndarray
    categories: np.ndarray
    category_start: np.ndarray
    gain: np.ndarray = field(default_factory=lambda: np.empty(0))

    def leaves(self, matrix: np.ndarray) -> np.ndarray:
        """Leaf index of every row, int32 (n,). The matrix is float32 (n, p), column-major for speed."""
        if len(self.feature) == 0:
            return np.zeros(len(matrix), dtype=np.int32)
        return self._descend(matrix, 0, np.arange(len(self.value), dtype=np.int32))

    def predict(self, matrix: np.ndarray) -> np.ndarray:
        """Leaf values of every row, float32 (n, k)."""
        if len(self.feature) == 0:
            return np.repeat(self.value, len(matrix), axis=0)
        if self.value.shape[1] == 1:
            return self._descend(matrix, 0, self.value[:, 0])[:, None]
        return self.value[self.leaves(matrix)]

    def _descend(self, matrix: np.ndarray, node: int, leaf_value: np.ndarray) -> np.ndarray:
        # whole columns and selects: for shallow trees far faster than walking row by row
        sides = [
            leaf_value[~child] if child < 0 else self._descend(matrix, child, leaf_value)
            for child in (int(self.left[node]), int(self.right[node]))
        ]
        return np.where(self._goes_left(matrix, node), *sides)

    def _goes_left(self, matrix: np.ndarray, node: int) -> np.ndarray:
        if self.feature[node] >= matrix.shape[1]:
            raise UsboostError(f"a tree reads column {self.feature[node]}, but there are {matrix.shape[1]}")
        column = matrix[:, self.feature[node]]
        start, stop = self.category_start[node], self.category_start[node + 1]
        if start == stop:
            return column <= self.threshold[node]
        codes = self.categories[start:stop]
        table = np.zeros(int(max(codes.max(), column.max(initial=0))) + 1, dtype=bool)
        table[codes] = True
        return table[column.astype(np.intp)]

    @classmethod
    def constant(cls, value: float) -> Tree:
        """A tree of a single leaf."""
        return cls._build([], np.full((1, 1), value, dtype=np.float32))

    @classmethod
    def from_lightgbm(cls, dumped: dict[str, Any], scale: float = 1.0) -> Tree:
        """From one ``tree_info`` entry of ``Booster.dump_model()``; leaf values are multiplied by `scale`."""
        nodes: list[tuple[int, float, int, int, list[int]]] = []
        values: list[float] = []
        gains: list[float] = []

        def visit(node: dict[str, Any]) -> int:
            if "split_feature" not in node:
                values.append(node["leaf_value"] * scale)
                return ~(len(values) - 1)
            index = len(nodes)
            nodes.append((0, 0.0, 0, 0, []))
            gains.append(node["split_gain"])
            categorical = node["decision_type"] == "=="
            codes = [int(code) for code in node["threshold"].split("||")] if categorical else []
            threshold = 0.0 if categorical else node["threshold"]
            left, right = visit(node["left_child"]), visit(node["right_child"])
            nodes[index] = (node["split_feature"], threshold, left, right, codes)
            return index

        visit(dumped["tree_structure"])
        return cls._build(nodes, np.asarray(values, dtype=np.float32)[:, None], gains)

    @classmethod
    def from_sklearn(cls, tree: Any, scale: float = 1.0) -> Tree:
        """From the ``tree_`` of a scikit-learn regression tree."""
        inner = np.flatnonzero(tree.children_left >= 0)
        leaf = np.flatnonzero(tree.children_left < 0)
        renumber = np.empty(tree.node_count, dtype=np.int64)
        renumber[inner] = np.arange(len(inner))
        renumber[leaf] = ~np.arange(len(leaf))
        nodes: list[tuple[int, float, int, int, list[int]]] = [
            (
                int(tree.feature[i]),
                float(tree.threshold[i]),
                int(renumber[tree.children_left[i]]),
                int(renumber[tree.children_right[i]]),
                [],
            )
            for i in inner
        ]
        # impurities are means over rows and outputs
        error = tree.n_outputs * tree.weighted_n_node_samples * tree.impurity
        gains = error[inner] - error[tree.children_left[inner]] - error[tree.children_right[inner]]
        value = (tree.value[leaf, :, 0] * scale).astype(np.float32)
        return cls._build(nodes, value, np.maximum(gains, 0.0).tolist())

    @classmethod
    def _build(
        cls,
        nodes: Sequence[tuple[int, float, int, int, list[int]]],
        value: np.ndarray,
        gains: Sequence[float] = (),
    ) -> Tree:
        threshold64 = np.asarray([node[1] for node in nodes], dtype=np.float64)
        threshold = threshold64.astype(np.float32)
        # for float32 x, x <= t holds exactly when x <= the largest float32 that is not above t
        too_high = threshold.astype(np.float64) > threshold64
        threshold[too_high] = np.nextafter(threshold[too_high], np.float32(-np.inf))
        codes = [node[4] for node in nodes]
        return cls(
            feature=np.asarray([node[0] for node in nodes], dtype=np.int32),
            threshold=threshold,
            left=np.asarray([node[2] for node in nodes], dtype=np.int32),
            right=np.asarray([node[3] for node in nodes], dtype=np.int32),
            value=value,
            categories=np.asarray([code for part in codes for code in part], dtype=np.int32),
            category_start=np.cumsum([0, *map(len, codes)], dtype=np.int32),
            gain=np.asarray(gains, dtype=np.float64),
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """Its arrays by name; `from_arrays` makes it of them again."""
        return {name: getattr(self, name) for name in (*_TREE_FIELDS, "gain")}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], prefix: str = "") -> Tree:
        """The tree whose arrays are called `prefix` + name; files from before `gain` have none."""
        gain = {"gain": arrays[f"{prefix}gain"]} if f"{prefix}gain" in arrays else {}
        return cls(**{name: arrays[prefix + name] for name in _TREE_FIELDS}, **gain)


_TREE_FIELDS = ("feature", "threshold", "left", "right", "value", "categories", "category_start")


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

"""What grows trees: LightGBM on columns binned once, or scikit-learn's exact splits."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from usboost.learners.base import FittedLearner, Target
from usboost.learners.trees.fitted import FittedTrees, PreparedTable, with_leaf_values
from usboost.learners.trees.histogram import HistogramGrower, Limits
from usboost.learners.trees.tree import Tree
from usboost.losses.base import simplex_codewords
from usboost.shards.here import here


class TreeSettings(Protocol):
    """What an engine needs to know; see `usboost.learners.trees.learner.TreeLearner`."""

    max_depth: int
    max_leaves: int | None
    min_samples_leaf: int
    category_l2: float
    max_bin: int
    num_threads: int
    feature_fraction: float


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


FEWEST_COLUMNS = 4
"""Of so many columns, or fewer, all are drawn: half of two show no interaction of both."""


def share_drawn(n_columns: int, fraction: float) -> float:
    """The share of the columns that a round draws: `FEWEST_COLUMNS` at least, if there are so many."""
    return min(1.0, max(fraction, FEWEST_COLUMNS / n_columns))


def drawn_columns(n_columns: int, fraction: float, seed: int) -> np.ndarray | None:
    """The columns of a round, int (k,), ascending; None for all."""
    share = share_drawn(n_columns, fraction)
    if share == 1:
        return None
    drawn = np.random.default_rng(seed).permutation(n_columns)
    return np.sort(drawn[: round(share * n_columns)])


HISTOGRAMS = 2048
"""Megabytes that LightGBM may keep histograms in. By itself it makes room for all leaves that a tree may
have: 20 GB for a tree of depth 12 on a thousand columns."""


MOST_TREES = 100
"""Outputs above which a round has one tree for all of them, not one for each."""


class LightGBMTrainer:
    """Grows one tree per output and round on columns that are binned once.

    In a metric the outputs depend on each other, which LightGBM's trees cannot: then one tree for all of
    them is grown on histograms of our own, and so where they are more than `MOST_TREES`.
    """

    takes_metric = True

    def __init__(self, learner: TreeSettings, prepared: PreparedTable, n_outputs: int) -> None:
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
            "histogram_pool_size": HISTOGRAMS / n_outputs,  # each output's booster has its own
            "feature_fraction": share_drawn(prepared.matrix.shape[1], learner.feature_fraction),
            "verbose": -1,
        }
        self._learner, self._n_outputs, self._matrix = learner, n_outputs, prepared.matrix
        self._joint = JointTrainer(learner, prepared)
        self._boosters: list[Any] = []
        if n_outputs > MOST_TREES:
            return
        lowest, highest = prepared.matrix.min(axis=0), prepared.matrix.max(axis=0)
        if not (lowest < highest).any():  # LightGBM refuses to grow on columns that all are constant
            return
        self._dataset = lightgbm.Dataset(
            prepared.matrix, params=self._parameters, categorical_feature=list(prepared.categorical)
        ).construct()
        self._boosters = [lightgbm.Booster(self._parameters, self._dataset) for _ in range(n_outputs)]

    def fit(self, target: Target, *, seed: int, start: FittedLearner | None = None) -> FittedTrees:
        if target.metric is not None or self._n_outputs > MOST_TREES:
            return self._joint.fit(target, seed=seed, start=start)
        lightgbm = quiet_lightgbm()
        if self._boosters and share_drawn(self._matrix.shape[1], self._learner.feature_fraction) < 1:
            # a booster's draws follow from its first seed, and are to follow from the round's
            drawing = {**self._parameters, "feature_fraction_seed": seed % 2**31}
            self._boosters = [lightgbm.Booster(drawing, self._dataset) for _ in self._boosters]
        grown = FittedTrees(tuple(self._grow(j, target) for j in range(self._n_outputs)))
        return with_leaf_values(grown, self._matrix, target)

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


class JointTrainer:
    """Grows one tree a round for all outputs, in the target's metric if it has one.

    Parameters
    ----------
    each : whether without a metric each output has a tree of its own, of `MOST_TREES` at most
    """

    takes_metric = True

    def __init__(self, learner: TreeSettings, prepared: PreparedTable, each: bool = False) -> None:
        self._learner, self._prepared, self._each = learner, prepared, each
        self._made: HistogramGrower | None = None

    def _grower(self, counts: np.ndarray | None) -> HistogramGrower:
        """Made once: rows count the same in every round."""
        if self._made is None:
            chosen, table = self._learner, self._prepared
            limits = Limits(chosen.max_depth, chosen.max_leaves, chosen.min_samples_leaf, chosen.category_l2)
            self._made = HistogramGrower(
                table.matrix, table.categorical, limits, chosen.max_bin, chosen.num_threads, counts
            )
        return self._made

    def fit(self, target: Target, *, seed: int, start: FittedLearner | None = None) -> FittedTrees:
        chosen, matrix = self._learner, self._prepared.matrix
        values, metric, grower = target.values, target.metric, self._grower(target.counts)
        weights, columns = target.fit_weights, drawn_columns(matrix.shape[1], chosen.feature_fraction, seed)

        def grown(values: np.ndarray, weights: np.ndarray | None, metric: np.ndarray | None = None) -> Tree:
            return grower.grow(np.asarray(values, dtype=np.float64), weights, metric, columns)

        if metric is None:
            outputs = range(values.shape[1])
            if weights is not None and weights.ndim == 2:
                return FittedTrees(tuple(grown(values[:, [j]], weights[:, j]) for j in outputs))
            if self._each and len(outputs) <= MOST_TREES:
                columns_of = (values if len(outputs) == 1 else values[:, [j]] for j in outputs)
                return FittedTrees(tuple(grown(column, weights) for column in columns_of))
            return with_leaf_values(FittedTrees((grown(values, weights),)), matrix, target)
        off, size = here().highest(
            np.array([np.abs(each).max(initial=0) for each in (metric.sum(axis=2), metric)])
        )
        if off > 1e-8 * size:
            return FittedTrees((grown(values, weights, metric),))
        # singular along (1, …, 1): solved in the zero-sum space, whose basis makes no difference
        basis = simplex_codewords(values.shape[1])
        tree = grown(values @ basis, weights, basis.T @ metric @ basis)
        return FittedTrees((replace(tree, value=(tree.value @ basis.T).astype(np.float32)),))


class SklearnTrainer:
    """The paper's tree: scikit-learn's exact splits, all outputs in one tree."""

    def __init__(self, learner: TreeSettings, prepared: PreparedTable) -> None:
        self._learner, self._matrix = learner, np.ascontiguousarray(prepared.matrix)

    def fit(self, target: Target, *, seed: int, start: FittedLearner | None = None) -> FittedTrees:
        from sklearn.tree import DecisionTreeRegressor

        columns = drawn_columns(self._matrix.shape[1], self._learner.feature_fraction, seed)
        matrix = self._matrix if columns is None else self._matrix[:, columns]

        def grow(values: np.ndarray, weights: np.ndarray | None) -> Tree:
            tree = DecisionTreeRegressor(
                max_depth=self._learner.max_depth,
                max_leaf_nodes=self._learner.max_leaves,
                min_samples_leaf=self._learner.min_samples_leaf,
                random_state=seed % 2**32,
            ).fit(matrix, values, sample_weight=weights)
            found = Tree.from_sklearn(tree.tree_)
            return (
                found if columns is None else replace(found, feature=columns[found.feature].astype(np.int32))
            )

        weights = target.fit_weights
        if weights is not None and weights.ndim == 2:
            outputs = range(target.values.shape[1])
            return FittedTrees(tuple(grow(target.values[:, j], weights[:, j]) for j in outputs))
        return with_leaf_values(FittedTrees((grow(target.values, weights),)), self._matrix, target)

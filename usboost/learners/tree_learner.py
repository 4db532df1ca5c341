"""Regression trees as weak learners: grown by LightGBM, on our histograms, or by scikit-learn."""

import math
import threading
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator

from usboost.data.table import Table
from usboost.data.views import View
from usboost.errors import UsboostError
from usboost.learners.base import FittedLearner, Target
from usboost.learners.forest import FittedTrees, PreparedTable, with_leaf_values
from usboost.learners.search_space import COMPONENTS, Choice, Integer, Real, Space
from usboost.learners.tree import Tree
from usboost.learners.tree_grower import HistogramGrower, Limits
from usboost.losses.base import simplex_codewords
from usboost.shards.collective import world


def quiet_lightgbm() -> Any:
    """Import lightgbm, silent in this thread: its verbosity is a thread's, set when parameters are read."""
    import lightgbm

    if not getattr(_QUIET, "done", False):
        lightgbm.Dataset(np.zeros((2, 1)), params={"verbose": -1}).construct()
        _QUIET.done = True
    return lightgbm


_QUIET = threading.local()


FEWEST_COLUMNS = 4
"""Columns that a round draws at least: half of two show no interaction of both."""


def share_drawn(n_columns: int, fraction: float) -> float:
    """Return the share of the columns that a round draws: `FEWEST_COLUMNS` at least, if there are so many."""
    return min(1.0, max(fraction, FEWEST_COLUMNS / n_columns))


def drawn_columns(n_columns: int, fraction: float, seed: int) -> np.ndarray | None:
    """Draw the columns of a round, int (k,), ascending; None for all."""
    share = share_drawn(n_columns, fraction)
    drawn = np.random.default_rng(seed).permutation(n_columns)[: round(share * n_columns)]
    return None if share == 1 else np.sort(drawn)


HISTOGRAMS = 2048
"""Megabytes that LightGBM may keep histograms in. By itself it makes room for all leaves that a tree may
have: 20 GB for a tree of depth 12 on a thousand columns."""

MOST_LEAVES = 256
"""Leaves up to which trees grow with the rows."""

MOST_TREES = 50
"""Outputs above which a round has one tree for all of them, not one for each."""

FEWEST_OF_MANY, BINS_OF_MANY, SUMS_OF_MANY = 16, 64, 1 << 17
"""Bins of a column for such a tree, and all bins times outputs, which are read to split each leaf."""

FEW_OUTPUTS, FEWEST_BINS = 7, 32
"""Outputs, in a metric, up to which columns have all their bins, as each costs their cube; bins with more."""


class LightGBMTrainer:
    """Grows one tree per output and round on columns that are binned once.

    In a metric the outputs depend on each other, which LightGBM's trees cannot: then one tree for all of
    them is grown on histograms of our own, and so where they are more than `MOST_TREES`.
    """

    takes_metric = True

    def __init__(self, learner: "TreeLearner", prepared: PreparedTable, n_outputs: int) -> None:
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
        self._joint = JointTrainer(learner, prepared, each=True)
        self._boosters: list[Any] = []
        self._has_grown = False
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
        quiet_lightgbm()
        if self._boosters and share_drawn(self._matrix.shape[1], self._learner.feature_fraction) < 1:
            # Draw as a new booster with the round's seed, which would take longer to make than the tree. A
            # booster draws when it is made or reset, and for each tree; `update` resets it before its first.
            # A reset begins anew only where the seed is another.
            drawn = seed % 2**31
            for given in (drawn ^ 1, drawn, drawn)[: 3 if self._has_grown else 2]:
                for booster in self._boosters:
                    booster.reset_parameter({"feature_fraction_seed": given})
            self._has_grown = True
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
        if self._boosters:
            booster = self._boosters[output]
            before = booster.num_trees()
            booster.update(fobj=lambda predictions, dataset: (gradient, hessian))
            grown = booster.dump_model(start_iteration=before, num_iteration=1)["tree_info"]
            if booster.num_trees() > before and grown[0]["num_leaves"] > 1:
                tree = Tree.from_lightgbm(grown[0])
                return replace(tree, gain=tree.gain * mean_weight)
        return Tree.constant(np.average(values, weights=hessian))  # nothing worth splitting


class JointTrainer:
    """Grows one tree a round for all outputs, in the target's metric if it has one.

    `each`: without a metric each output has a tree of its own, of `MOST_TREES` at most. The one tree in place
    of more, or in a diagonal metric, has as many leaves as they would have together, `MOST_LEAVES` at most.
    """

    takes_metric = True

    def __init__(self, learner: "TreeLearner", prepared: PreparedTable, each: bool = False) -> None:
        self._learner, self._prepared, self._each = learner, prepared, each
        self._grower: HistogramGrower | None = None

    def fit(self, target: Target, *, seed: int, start: FittedLearner | None = None) -> FittedTrees:
        chosen, table, values, metric = self._learner, self._prepared, target.values, target.metric
        weights = target.fit_weights
        columns = drawn_columns(table.matrix.shape[1], chosen.feature_fraction, seed)
        if self._grower is None:  # once: rows count the same in every round
            limits = Limits(chosen.max_depth, chosen.max_leaves, chosen.min_samples_leaf, chosen.category_l2)
            most, d = chosen.max_bin, values.shape[1]
            is_flat = weights is None or weights.ndim == 1
            if metric.ndim == 2 if metric is not None else d > MOST_TREES and is_flat:
                bins = SUMS_OF_MANY // (d * max(table.matrix.shape[1], 1))
                most = min(most, max(FEWEST_OF_MANY, min(BINS_OF_MANY, bins)))
                if self._each:
                    leaves = min(MOST_LEAVES, d * (chosen.max_leaves or 2**chosen.max_depth))
                    limits = replace(limits, max_leaves=leaves, max_depth=2 * math.ceil(math.log2(leaves)))
                limits = limits if metric is None else replace(limits, l2=0.1)  # bounds what one row says
            elif metric is not None and d > FEW_OUTPUTS:
                most = min(most, max(FEWEST_BINS, most * FEW_OUTPUTS**2 // d**2))
            self._grower = HistogramGrower(
                table.matrix, table.categorical, limits, most, chosen.num_threads, target.counts
            )
        grower = self._grower

        def grown(values: np.ndarray, weights: np.ndarray | None, metric: np.ndarray | None = None) -> Tree:
            return grower.grow(np.asarray(values, dtype=np.float64), weights, metric, columns)

        if metric is None:
            outputs = range(values.shape[1])
            if weights is not None and weights.ndim == 2:
                return FittedTrees(tuple(grown(values[:, [j]], weights[:, j]) for j in outputs))
            if self._each and len(outputs) <= MOST_TREES:
                return FittedTrees(tuple(grown(values[:, [j]], weights) for j in outputs))
            return with_leaf_values(FittedTrees((grown(values, weights),)), table.matrix, target)
        if metric.ndim == 2:  # and weights have it
            return FittedTrees((grown(values, weights),))
        largest = [np.abs(each).max(initial=0) for each in (metric.sum(axis=2), metric)]
        off, size = world().highest(np.array(largest))
        if off > 1e-8 * size:
            return FittedTrees((grown(values, weights, metric),))
        # singular along (1, …, 1): solved in the zero-sum space, whose basis makes no difference
        basis = simplex_codewords(values.shape[1])
        tree = grown(values @ basis, weights, basis.T @ metric @ basis)
        return FittedTrees((replace(tree, value=(tree.value @ basis.T).astype(np.float32)),))


class SklearnTrainer:
    """The paper's tree: scikit-learn's exact splits, all outputs in one tree."""

    def __init__(self, learner: "TreeLearner", prepared: PreparedTable) -> None:
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
            grown = Tree.from_sklearn(tree.tree_)
            own = grown.feature if columns is None else columns[grown.feature].astype(np.int32)
            return replace(grown, feature=own)

        weights = target.fit_weights
        if weights is not None and weights.ndim == 2:
            outputs = range(target.values.shape[1])
            return FittedTrees(tuple(grow(target.values[:, j], weights[:, j]) for j in outputs))
        return with_leaf_values(FittedTrees((grow(target.values, weights),)), self._matrix, target)


@dataclass(eq=False, repr=False)
class TreeLearner(BaseEstimator):
    """A shallow regression tree fitted by (weighted) mean squared error.

    Parameters
    ----------
    max_depth : int
    max_leaves : splits of most gain come first; default 2^max_depth. One tree of many classes has up to 256.
    min_samples_leaf : int
        Fewest samples of a leaf. One of sample weight 2 counts as two by "histogram", and one of ½ as half
        a sample; by "lightgbm" in proportion to its share of all weights; by "sklearn" each counts once.
    category_l2 : on splits by category, a leaf's value is drawn to 0 as by so many samples of average weight:
        what keeps columns of many rare categories from being fitted to noise (not by "sklearn")
    engine : {"lightgbm", "histogram", "sklearn"}
        "lightgbm" bins the view once and grows one tree per output in milliseconds, with native
        splits on categories; targets with a metric (2WL-Newton with three or more classes) get one tree
        for all outputs, as by "histogram". "histogram" always grows that: the paper's tree, whose gains
        are summed over the outputs, on bins and with categories. "sklearn" is the same by scikit-learn's
        exact splits, categories taken as ordinals.
    max_bin : bins per column (not by "sklearn"); fewer for one tree of many classes
    reads : tuple of view names, optional
        The views that it reads side by side; by default the view with the learner's own name.
    components : images among them are read as so many principal components of their embeddings; None: as all
        features of the embeddings
    feature_fraction : share of the columns, drawn anew each round, among which that round's trees look for
        splits; four columns at least
    num_threads : one by default: at these sizes the tree then costs milliseconds and leaves the other cores
        to the network that trains next to it
    rows_per_leaf : if given, and `max_leaves` is not, a large table's trees have a leaf for each so many of
        its rows, `MOST_LEAVES` at most, if that is more than 2^max_depth, and twice a balanced tree's depth

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from usboost import Table, TreeLearner, TwoWeakLearnerClassifier, Views
    >>> X, y = load_iris(return_X_y=True)
    >>> views = Views(U=Table.from_numeric(X[:, :2]), S=Table.from_numeric(X[:, 2:]))
    >>> model = TwoWeakLearnerClassifier({"S": TreeLearner(max_depth=2)}, n_rounds=20).fit(views, y)
    >>> model.score(views, y) > 0.8, len(model.feature_importances_)
    (True, 2)
    """

    kind: ClassVar[str] = "tree"
    fitted: ClassVar[type] = FittedTrees
    space: ClassVar[Space] = {
        "max_depth": Integer(1, 12, log=True),
        "max_leaves": Choice((4, 8, 16, 31, 64, 128), ordered=True),
        "min_samples_leaf": Integer(1, 200, log=True),
        "category_l2": Choice((0.0, 3.0, 30.0, 300.0, 3000.0), ordered=True),
        "feature_fraction": Real(0.3, 1.0),
        "components": COMPONENTS,
    }

    max_depth: int = 3
    max_leaves: int | None = None
    min_samples_leaf: int = 20
    category_l2: float = 0.0
    engine: str = "lightgbm"
    max_bin: int = 255
    num_threads: int = 1
    reads: tuple[str, ...] | None = None
    components: int | None = None
    feature_fraction: float = 1.0
    rows_per_leaf: int | None = None

    def prepare(self, view: View) -> PreparedTable:
        if not isinstance(view, Table):
            raise UsboostError(f"a tree reads tables, not {type(view).__name__}; give this view a network")
        return PreparedTable(view.matrix(), view.categorical)

    def trainer(
        self, prepared: PreparedTable, n_outputs: int
    ) -> LightGBMTrainer | JointTrainer | SklearnTrainer:
        if not 0 < self.feature_fraction <= 1:
            raise UsboostError(f"feature_fraction is a share of the columns, not {self.feature_fraction}")
        learner = self
        if self.rows_per_leaf and self.max_leaves is None:
            leaves = min(MOST_LEAVES, int(world().sum(len(prepared.matrix))) // self.rows_per_leaf)
            if leaves > 2**self.max_depth:
                learner = replace(self, max_leaves=leaves, max_depth=2 * math.ceil(math.log2(leaves)))
        if self.engine == "lightgbm":
            if world().count > 1:
                return JointTrainer(learner, prepared, each=True)
            return LightGBMTrainer(learner, prepared, n_outputs)
        if self.engine == "histogram":
            return JointTrainer(learner, prepared)
        if self.engine == "sklearn":
            return SklearnTrainer(learner, prepared)
        raise UsboostError(f"there is no tree engine {self.engine!r}; choose lightgbm, histogram or sklearn")

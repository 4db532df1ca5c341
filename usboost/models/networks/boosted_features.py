"""Boosted feature vectors: the leaf values a sample falls into, tree by tree (US §3.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator
from sklearn.model_selection import KFold, PredefinedSplit, StratifiedKFold

from usboost.data.row_groups import Related
from usboost.data.table import CodedTable, Table
from usboost.errors import UsboostError
from usboost.evaluation.weighted import mean
from usboost.learners.search_space import Integer, Real, Space
from usboost.learners.trees.engines import HISTOGRAMS, quiet_lightgbm
from usboost.learners.trees.fitted import Forest
from usboost.learners.trees.tree import Tree


@dataclass(frozen=True)
class GradientBoostedTrees:
    """A fitted GBM as plain trees: what BFVs are read from, whatever engine grew it.

    Attributes
    ----------
    trees : list of N·T trees, stage by stage, classes inside; T = 1 for two classes or a regression, else M
    initial : float64 (T,) raw score before the first stage
    learning_rate : raw score = initial + learning_rate · Σ_stages leaf value
    n_classes : M; 1 for a regression
    """

    trees: list[Tree]
    initial: np.ndarray
    learning_rate: float
    n_classes: int

    def __repr__(self) -> str:
        return f"GradientBoostedTrees({self.n_stages} stages, {self.n_classes} classes)"

    @property
    def n_stages(self) -> int:
        """N."""
        return len(self.trees) // self.trees_per_stage

    @property
    def trees_per_stage(self) -> int:
        return len(self.initial)

    @property
    def n_features(self) -> int:
        """Length of a BFV: N·M, or N for two classes."""
        return len(self.trees)

    def features(self, table: Table, rows: slice = slice(None)) -> np.ndarray:
        """BFV(x) of the rows, float32 (n, N·T), columns by stage and then class."""
        return self._forest.leaf_values(table[rows].matrix())

    def leaf_numbers(self, table: Table) -> Table:
        """The leaves that the rows fall into as N·T categorical columns, by stage and then class."""
        codes = self._forest.leaf_numbers(table.matrix())
        names = tuple(f"tree_{j}" for j in range(len(self.trees)))
        sizes = tuple(len(tree.value) for tree in self.trees)
        return Table(np.empty((len(codes), 0), dtype=np.float32), codes, sizes, names)

    def coded(self, table: Table) -> CodedTable:
        """BFV(x) of the rows, held as leaf numbers."""
        codes = self._forest.leaf_numbers(table.matrix())
        return CodedTable.of_codes(codes, [tree.value[:, 0] for tree in self.trees])

    @cached_property
    def _forest(self) -> Forest:
        return Forest(self.trees)

    def chunks(self, table: Table, rows: int = 32_768) -> Iterator[np.ndarray]:
        """The BFVs in blocks of rows, so that the full matrix never has to exist."""
        for start in range(0, len(table), rows):
            yield self.features(table, slice(start, start + rows))

    def raw_score(self, table: Table) -> np.ndarray:
        """initial + learning_rate · Σ BFV per class: float64 (n, T)."""
        matrix = table.matrix()
        classes = [self.trees[k :: self.trees_per_stage] for k in range(self.trees_per_stage)]
        sums = [Forest(trees).weighted_sum(matrix, np.ones(len(trees))) for trees in classes]
        return self.initial + self.learning_rate * np.concatenate(sums, axis=1)

    def staged_raw_score(self, table: Table) -> Iterator[np.ndarray]:
        """The raw score after each stage, float64 (n, T); one array, that the next stage changes."""
        matrix = table.matrix()
        raw = np.repeat(self.initial[None, :], len(matrix), axis=0)
        for start in range(0, len(self.trees), self.trees_per_stage):
            stage = self.trees[start : start + self.trees_per_stage]
            raw += self.learning_rate * np.concatenate([tree.predict(matrix) for tree in stage], axis=1)
            yield raw

    def probabilities(self, table: Table) -> np.ndarray:
        """Class probabilities of the GBM alone, float64 (n, M)."""
        raw = self.raw_score(table)
        if self.n_classes == 2:
            positive = expit(raw[:, 0])
            return np.column_stack([1 - positive, positive])
        return softmax(raw, axis=1)


def initial_score(y: np.ndarray, n_classes: int, weights: np.ndarray | None = None) -> np.ndarray:
    """The raw score before the first stage, float64 (T,).

    Log-odds of class 1, or every class's log share; for a regression the targets' mean. By `weights` (n,), if
    there are any.
    """
    if n_classes == 1:
        return np.array([mean(y, weights)])
    held = np.bincount(y, weights, n_classes)
    shares = np.where(held > 0, held, 1) / (len(y) if weights is None else weights.sum())
    return np.array([np.log(shares[1] / shares[0])]) if n_classes == 2 else np.log(shares)


def lightgbm_parameters(n_classes: int) -> dict[str, Any]:
    """LightGBM's parameters for equal trees from equal seeds; `n_classes` is 1 for a regression."""
    return {
        "objective": {1: "regression", 2: "binary"}.get(n_classes, "multiclass"),
        "num_class": 1 if n_classes == 2 else n_classes,
        "boost_from_average": False,  # the initial score stays apart from the first tree
        "deterministic": True,
        "force_col_wise": True,
        "histogram_pool_size": HISTOGRAMS,
        "verbose": -1,
    }


def lightgbm_threads(rows: int) -> int:
    """All cores (0) where a tree takes long enough; one below, where threads that spin only cost."""
    return 0 if rows > 50_000 else 1


def lightgbm_dataset(
    table: Table,
    y: np.ndarray,
    weights: np.ndarray | None,
    initial: np.ndarray,
    parameters: dict[str, Any],
    reference: Any = None,
) -> Any:
    """LightGBM's own form of n rows; `reference`, of validation rows, is that of the training rows."""
    return quiet_lightgbm().Dataset(
        table.matrix(),
        label=y,
        weight=weights,
        init_score=np.repeat(initial, len(y)),  # LightGBM reads them class by class
        params=parameters,
        categorical_feature=list(table.categorical),
        reference=reference,
    )


@dataclass(eq=False, repr=False)
class BoostedFeatures(BaseEstimator):
    """Fits a GBM on a table and gives its boosted feature vectors.

    Parameters
    ----------
    n_trees : N, the GBM's stages ("BFV trees")
    max_depth : int
    learning_rate : float
    min_samples_leaf : int
    engine : {"lightgbm", "sklearn"}
        "sklearn" is the paper's `GradientBoostingClassifier`, categories taken as ordinals.
    num_threads : LightGBM's; 0 chooses by the number of rows
    random_state : int

    Attributes
    ----------
    gbm_ : GradientBoostedTrees

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from usboost import BoostedFeatures, Table, Views
    >>> X, y = load_iris(return_X_y=True)
    >>> views = Views(U=Table.from_numeric(X[:, :2]), S=Table.from_numeric(X[:, 2:]))
    >>> features = BoostedFeatures(n_trees=4).fit(views["S"], y)
    >>> features.transform(views["S"]).shape  # a leaf value of each of 4 stages for each of 3 classes
    (150, 12)
    """

    space: ClassVar[Space] = {
        "n_trees": Integer(50, 1000, log=True),
        "max_depth": Integer(1, 8),
        "learning_rate": Real(0.01, 0.3, log=True),
        "min_samples_leaf": Integer(1, 200, log=True),
    }

    n_trees: int = 500
    max_depth: int = 3
    learning_rate: float = 0.1
    min_samples_leaf: int = 20
    engine: str = "lightgbm"
    num_threads: int = 0
    random_state: int = 0

    def fit(self, table: Table, y: np.ndarray, weights: np.ndarray | None = None) -> BoostedFeatures:
        """Fit the GBM to a table of n rows and y of shape (n,): codes 0..M−1, or float targets.

        `weights`, positive (n,), count as the engine takes them; `min_samples_leaf` counts rows.
        """
        if self.engine not in ("lightgbm", "sklearn"):
            raise UsboostError(f"unknown GBM engine {self.engine!r}; choose 'lightgbm' or 'sklearn'")
        n_classes = 1 if y.dtype.kind == "f" else int(y.max()) + 1
        grow = self._fit_lightgbm if self.engine == "lightgbm" else self._fit_sklearn
        self.gbm_ = grow(table, y, n_classes, weights)
        return self

    def transform(self, table: Table) -> np.ndarray:
        """BFV(x), float32 (n, N·M), or (n, N) for two classes."""
        return self.gbm_.features(table)

    def out_of_fold(
        self,
        table: Table,
        y: np.ndarray,
        n_folds: int = 5,
        weights: np.ndarray | None = None,
        related: Related | None = None,
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Row numbers and BFVs, fold by fold, each from a GBM that never saw those rows.

        In-sample leaf values (the paper's) are optimistic: the network is then trained on features
        that are better than those it meets later. Columns mean different trees in each fold, so
        what the folds share is each column's place in the sequence of stages. Of related rows the folds are
        whole groups, or stretches of time.
        """
        cut: Any = KFold if y.dtype.kind == "f" else StratifiedKFold
        folds = cut(n_folds, shuffle=True, random_state=self.random_state)
        if related is not None:
            folds = PredefinedSplit(related.parts(n_folds, y, self.random_state))
        for seen, unseen in folds.split(np.zeros(len(y)), y):
            if y.dtype.kind != "f" and len(np.unique(y[seen])) < len(np.unique(y)):
                raise UsboostError(
                    "a class is in one part of the rows only, so features out of fold do not know of it; "
                    "choose features in sample, or leave the groups or times out"
                )
            own = None if weights is None else weights[seen]
            fitted = BoostedFeatures(**self.get_params()).fit(table[seen], y[seen], own)
            yield unseen, fitted.transform(table[unseen])

    def _fit_lightgbm(
        self, table: Table, y: np.ndarray, n_classes: int, weights: np.ndarray | None
    ) -> GradientBoostedTrees:
        lightgbm = quiet_lightgbm()
        initial = initial_score(y, n_classes, weights)
        parameters = lightgbm_parameters(n_classes) | {
            "learning_rate": self.learning_rate,
            "max_depth": self.max_depth,
            "num_leaves": 2**self.max_depth,
            "min_data_in_leaf": self.min_samples_leaf,
            "num_threads": self.num_threads or lightgbm_threads(len(y)),
            "seed": self.random_state,
        }
        dataset = lightgbm_dataset(table, y, weights, initial, parameters)
        booster = lightgbm.train(parameters, dataset, num_boost_round=self.n_trees)
        grown = booster.dump_model()["tree_info"]
        trees = [Tree.from_lightgbm(tree, scale=1 / self.learning_rate) for tree in grown]
        # LightGBM stops when nothing is left to split; the stages it leaves out add nothing
        trees += [Tree.constant(0.0)] * (self.n_trees * len(initial) - len(trees))
        return GradientBoostedTrees(trees, initial, self.learning_rate, n_classes)

    def _fit_sklearn(
        self, table: Table, y: np.ndarray, n_classes: int, weights: np.ndarray | None
    ) -> GradientBoostedTrees:
        from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor

        gbm = (GradientBoostingRegressor if n_classes == 1 else GradientBoostingClassifier)(
            n_estimators=self.n_trees,
            max_depth=self.max_depth,
            learning_rate=self.learning_rate,
            min_samples_leaf=self.min_samples_leaf,
            random_state=self.random_state,
        ).fit(np.ascontiguousarray(table.matrix()), y, sample_weight=weights)
        initial = initial_score(y, n_classes, weights)
        if n_classes > 2:
            initial -= initial.mean()  # scikit-learn starts from centred log shares
        trees = [Tree.from_sklearn(tree.tree_) for stage in gbm.estimators_ for tree in stage]
        return GradientBoostedTrees(trees, initial, self.learning_rate, n_classes)

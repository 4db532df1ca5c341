"""Regression trees as weak learners: grown by LightGBM or scikit-learn, kept as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sklearn.base import BaseEstimator

from usboost.data.table import Table
from usboost.data.views import View
from usboost.errors import UsboostError
from usboost.learners.search_space import COMPONENTS, Choice, Integer, Real, Space
from usboost.learners.trees.engines import JointTrainer, LightGBMTrainer, SklearnTrainer
from usboost.learners.trees.fitted import FittedTrees, PreparedTable
from usboost.shards.here import here


@dataclass(eq=False, repr=False)
class TreeLearner(BaseEstimator):
    """A shallow regression tree fitted by (weighted) mean squared error.

    Parameters
    ----------
    max_depth : int
    max_leaves : the splits that gain most are made first, until there are so many leaves; default 2^max_depth
    min_samples_leaf : int
        Fewest samples of a leaf. One of sample weight 2 counts as two by "histogram", and one of ½ as half
        a sample; by "lightgbm" in proportion to its share of all weights; by "sklearn" each counts once.
    category_l2 : on splits by category, a leaf's value is drawn to 0 as by so many samples of average weight:
        what keeps columns of many rare categories from being fitted to noise (LightGBM only)
    engine : {"lightgbm", "histogram", "sklearn"}
        "lightgbm" bins the view once and grows one tree per output in milliseconds, with native
        splits on categories; targets with a metric (2WL-Newton with three or more classes) get one tree
        for all outputs, as by "histogram". "histogram" always grows that: the paper's tree, whose gains
        are summed over the outputs, on bins and with categories. "sklearn" is the same by scikit-learn's
        exact splits, categories taken as ordinals.
    max_bin : bins per column (LightGBM)
    reads : tuple of view names, optional
        The views that it reads side by side; by default the view with the learner's own name.
    components : images among them are read as so many principal components of their embeddings; None: as all
        features of the embeddings
    feature_fraction : share of the columns, drawn anew each round, among which that round's trees look for
        splits; four columns at least
    num_threads : one by default: at these sizes the tree then costs milliseconds and leaves the other cores
        to the network that trains beside it

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

    def prepare(self, view: View) -> PreparedTable:
        if not isinstance(view, Table):
            raise UsboostError(f"a tree reads tables, not {type(view).__name__}; give this view a network")
        return PreparedTable(view.matrix(), view.categorical)

    def trainer(
        self, prepared: PreparedTable, n_outputs: int
    ) -> LightGBMTrainer | JointTrainer | SklearnTrainer:
        if not 0 < self.feature_fraction <= 1:
            raise UsboostError(f"feature_fraction is a share of the columns, not {self.feature_fraction}")
        if self.engine == "lightgbm" and here().count > 1:
            return JointTrainer(self, prepared, each=True)
        if self.engine == "lightgbm":
            return LightGBMTrainer(self, prepared, n_outputs)
        if self.engine == "histogram":
            return JointTrainer(self, prepared)
        if self.engine == "sklearn":
            return SklearnTrainer(self, prepared)
        raise UsboostError(
            f"there is no tree engine {self.engine!r}; choose 'lightgbm', 'histogram' or 'sklearn'"
        )

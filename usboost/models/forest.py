"""Baseline: a random forest on everything, its smallest leaf chosen on the validation rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.ensemble import RandomForestRegressor

from usboost.boosting.callbacks import Callback, tell, watched
from usboost.boosting.context import FitContext
from usboost.boosting.rounds import Clock, Round
from usboost.data.table import Table
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.evaluation.metrics import row_losses
from usboost.evaluation.weighted import mean
from usboost.files.arrays import read_arrays, write_arrays
from usboost.learners.dimensions import COMPONENTS as COMPONENT_CHOICE
from usboost.learners.dimensions import Choice, Integer, Space
from usboost.learners.networks.backbones import Backbone
from usboost.learners.trees.tree import Tree
from usboost.models.base import ViewsClassifier
from usboost.models.entry import COMPONENTS
from usboost.models.estimator import ViewsEstimator, as_views
from usboost.models.reading import Reading, Wanted
from usboost.models.regressor import ViewsRegressor

NAME = "all"
TREES = "forest.safetensors"


class _Forest(ViewsEstimator):
    """What the classifier and the regressor share: the mean of trees, each of a bootstrap sample."""

    views: Sequence[str]
    n_trees: int
    leaf_sizes: Sequence[int]
    backbone: Backbone | None
    device: str
    random_state: int
    components: int | None
    max_features: float | str

    trees_: list[Tree]
    reading_: Reading

    holds: ClassVar[Mapping[str, Any]] = {"backbone": ("Backbone",)}
    space: ClassVar[Space] = {
        "n_trees": Integer(100, 1000, log=True),
        "leaf_sizes": Choice(((1, 5), (1,), (3,), (10,), (30,))),
        "max_features": Choice(("sqrt", 0.1, 1 / 3, 0.6, 1.0)),
        "components": COMPONENT_CHOICE,
    }

    @property
    def n_rounds(self) -> int:
        """Sizes of leaves that are tried, under the name that callbacks know."""
        return len(self.leaf_sizes)

    @property
    def n_estimators_(self) -> int:
        """Trees."""
        self._check_fitted()
        return len(self.trees_)

    def _outputs(self, y: np.ndarray) -> np.ndarray:
        """What the trees' leaves have the means of, float64 (n, D)."""
        raise AttributeError("_outputs is defined by each model")

    def _risk(self, predicted: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> float:
        """Of predictions (n, D)."""
        raise AttributeError("_risk is defined by each model")

    def _n_outputs(self) -> int:
        """D."""
        raise AttributeError("_n_outputs is defined by each model")

    def _fit(self, views: Views, y: np.ndarray, context: FitContext) -> None:
        if not self.leaf_sizes:
            raise UsboostError("leaf_sizes is empty; give one or more")
        self.reading_ = self._reading()
        table, watch, held = (
            self.reading_.fit(views, context.weights)[NAME],
            context.watch(),
            context.validation,
        )
        self.columns_ = {"+".join(self.views): table.names}
        matrix, outputs = table.matrix(), self._outputs(y)
        held_matrix = self._table(held[0]).matrix() if held else None
        best, clock = np.inf, Clock()
        with watched(self, watch.callbacks):
            for index, size in enumerate(self.leaf_sizes if held else self.leaf_sizes[:1], start=1):
                trees = self._grown(matrix, outputs, size, context.weights)
                metrics = {"leaf_size": float(size)}
                if held is not None and held_matrix is not None:
                    predicted = _mean(trees, held_matrix)
                    metrics["risk_val"] = self._risk(predicted, held[1], context.held_weights)
                if index == 1 or metrics["risk_val"] < best:
                    best, self.best_round_ = metrics.get("risk_val", np.inf), index
                    self.trees_ = trees
                stop = tell(watch.callbacks, Round(index, None, metrics, clock.seconds()))
                clock = Clock()
                if stop:
                    break
        self.history_ = watch.history

    def _grown(
        self, matrix: np.ndarray, outputs: np.ndarray, leaf_size: int, weights: np.ndarray | None
    ) -> list[Tree]:
        # on indicators of the classes the squared error is Gini's impurity
        forest = RandomForestRegressor(
            self.n_trees,
            min_samples_leaf=leaf_size,
            max_features=self.max_features,
            n_jobs=torch.get_num_threads(),
            random_state=self.random_state,
        ).fit(matrix, outputs if outputs.shape[1] > 1 else outputs[:, 0], weights)
        return [Tree.from_sklearn(each.tree_) for each in forest.estimators_]

    def _means(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """The mean of the trees, float64 (n, D)."""
        self._check_fitted()
        return _mean(self.trees_, self._table(as_views(X)).matrix())

    def _table(self, views: Views) -> Table:
        table: Table = self.reading_(views)[NAME]
        return table

    def _trees(self) -> Iterator[tuple[str, Tree, float]]:
        return (("+".join(self.views), tree, 1.0) for tree in self.trees_)

    def _reads(self, n_columns: int) -> Sequence[str]:
        return self.views

    def _reading(self) -> Reading:
        if not self.views:
            raise UsboostError("views names no view; give one or more")
        wanted = {NAME: Wanted(tuple(self.views), self.components, filled=True)}
        return Reading(wanted, self.backbone, self.device, qualified=len(self.views) > 1)

    def _write(self, folder: Path) -> dict[str, Any]:
        arrays = {
            f"{k}.{name}": array
            for k, tree in enumerate(self.trees_)
            for name, array in tree.arrays().items()
        }
        write_arrays(arrays, folder / TREES)
        return {"trees": len(self.trees_), "reading": self.reading_.write(folder)}

    def _read(self, document: Mapping[str, Any], folder: Path) -> None:
        arrays, n_outputs = read_arrays(folder / TREES), self._n_outputs()
        self.trees_ = [Tree.from_arrays(arrays, f"{k}.") for k in range(int(document["trees"]))]
        columns = next(iter(getattr(self, "columns_", {}).values()), None)
        for tree in self.trees_:
            tree.check(len(columns) if columns else None)
            if tree.value.shape[1] != n_outputs:
                raise UsboostError(f"a tree has {tree.value.shape[1]} outputs, not {n_outputs}")
        if not self.trees_:
            raise UsboostError("a forest has no tree")
        self.reading_ = self._reading()
        self.reading_.read(document.get("reading"), folder)


class ForestBaseline(_Forest, ViewsClassifier):
    """A random forest on one or more views: trees of bootstrap samples.

    By default √p columns are tried at each split.

    Sample weights count as scikit-learn takes them: rows are drawn and leaves filled whatever the weights,
    which count in splits and means.

    Parameters
    ----------
    views : names of the views it reads; tables as they are, pictures as components of frozen embeddings
    n_trees : how many
    leaf_sizes : fewest samples of a leaf, each tried; the one of the lowest validation log-loss is kept,
        without validation rows the first
    validation_fraction, random_state, callbacks : as everywhere
    backbone : Backbone, optional; what embeds pictures (always frozen here)
    device : where pictures are embedded
    components : pictures are read as so many principal components of their embeddings; None: as all features
    max_features : columns tried at each split, "sqrt" or a share of them

    Attributes
    ----------
    classes_, trees_ ; n_estimators_ : int
    history_ : list of dicts, one for each size: "leaf_size", and "risk_val", the validation log-loss in nats
    best_round_ : the position of the size kept, from 1
    feature_importances_, feature_names_ : of all columns, as ``<view>__<column>`` with several views
    """

    def __init__(
        self,
        views: Sequence[str] = ("U", "S"),
        n_trees: int = 300,
        leaf_sizes: Sequence[int] = (1, 5),
        validation_fraction: float = 0.1,
        backbone: Backbone | None = None,
        device: str = "auto",
        random_state: int = 0,
        callbacks: Sequence[Callback] | None = None,
        components: int | None = COMPONENTS,
        max_features: float | str = "sqrt",
    ) -> None:
        self.views = views
        self.n_trees = n_trees
        self.leaf_sizes = leaf_sizes
        self.validation_fraction = validation_fraction
        self.backbone = backbone
        self.device = device
        self.random_state = random_state
        self.callbacks = callbacks
        self.components = components
        self.max_features = max_features

    def _n_outputs(self) -> int:
        return len(self.classes_)

    def _outputs(self, y: np.ndarray) -> np.ndarray:
        return np.eye(len(self.classes_))[y]

    def _risk(self, predicted: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> float:
        return mean(row_losses(y, predicted), weights)

    def predict_proba(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """The mean of the leaves' shares, float64 (n, M), columns as in ``classes_``."""
        found = self._means(X)
        return found / found.sum(axis=1, keepdims=True)


class ForestBaselineRegressor(_Forest, ViewsRegressor):
    """A random forest on one or more views: trees of bootstrap samples.

    By default a third of the columns is tried at each split.

    Parameters
    ----------
    As of `ForestBaseline`; of the `leaf_sizes` the one of the lowest validation mean squared error is kept.

    Attributes
    ----------
    As of `ForestBaseline` but ``classes_``; target_centre_, target_scale_ : of the training targets
    """

    def __init__(
        self,
        views: Sequence[str] = ("U", "S"),
        n_trees: int = 300,
        leaf_sizes: Sequence[int] = (1, 5),
        validation_fraction: float = 0.1,
        backbone: Backbone | None = None,
        device: str = "auto",
        random_state: int = 0,
        callbacks: Sequence[Callback] | None = None,
        components: int | None = COMPONENTS,
        max_features: float | str = 1 / 3,
    ) -> None:
        self.views = views
        self.n_trees = n_trees
        self.leaf_sizes = leaf_sizes
        self.validation_fraction = validation_fraction
        self.backbone = backbone
        self.device = device
        self.random_state = random_state
        self.callbacks = callbacks
        self.components = components
        self.max_features = max_features

    def _n_outputs(self) -> int:
        return 1

    def _outputs(self, y: np.ndarray) -> np.ndarray:
        return y[:, None]

    def _risk(self, predicted: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> float:
        return mean(row_losses(y, predicted[:, 0]), weights)

    def _predict(self, views: Views) -> np.ndarray:
        return self._means(views)[:, 0]


def _mean(trees: Sequence[Tree], matrix: np.ndarray) -> np.ndarray:
    total = np.zeros((len(matrix), trees[0].value.shape[1]))
    for tree in trees:
        total += tree.predict(matrix)
    return total / len(trees)

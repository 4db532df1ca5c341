"""BFV+DNN: a two-branch network that reads boosted feature vectors in place of the table (US §3.1)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone

from usboost.boosting.callbacks import Callback
from usboost.boosting.checkpoint import Checkpoint
from usboost.boosting.context import FitContext
from usboost.data.table import CodedTable, Table
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.evaluation.statistics import column_moments
from usboost.files.arrays import read_arrays, write_arrays
from usboost.files.onnx_graph import TableNodes, Value, ViewNodes
from usboost.learners.tree import Tree
from usboost.learners.tree_nodes import tree_sum
from usboost.models.base import ViewsClassifier, ViewsRegressor
from usboost.models.estimator import ViewsEstimator, as_views
from usboost.models.methods.boosted_features import BoostedFeatures, GradientBoostedTrees, load_gbm, save_gbm
from usboost.models.methods.two_branch import (
    WEIGHTS,
    FittedTwoBranch,
    TwoBranchNetworkClassifier,
    TwoBranchNetworkRegressor,
)

BFV, FEATURES = "BFV", {"features": ("BoostedFeatures",)}


@dataclass(eq=False, repr=False)
class _OnBoostedFeatures(ViewsEstimator):
    """Settings, training and files of the classifier and the regressor."""

    features: BoostedFeatures | None = None
    network: TwoBranchNetworkClassifier | TwoBranchNetworkRegressor | None = None
    structured: str = "S"
    out_of_fold: bool = False
    gbm: GradientBoostedTrees | None = None
    validation_fraction: float = 0.1
    random_state: int = 0
    callbacks: Sequence[Callback] | None = None
    checkpoint: Checkpoint | Path | str | None = None

    _default: ClassVar[type]  # of the network

    @property
    def n_estimators_(self) -> int:
        """Count the stages of the GBM."""
        self._check_fitted()
        return self.gbm_.n_stages

    def _trees(self) -> Iterator[tuple[str, Tree, float]]:
        return ((self.structured, tree, 1.0) for tree in self.gbm_.trees)

    def _reads(self, n_columns: int) -> Sequence[str]:
        return *self._unfitted().views[:-1], self.structured

    def _unfitted(self) -> Any:
        return self.network or self._default()

    def _mark_network(self, network: Any) -> None:
        """Set what the network's own fit, or file, would have said of its targets."""
        if hasattr(self, "classes_"):
            network.classes_ = np.arange(len(self.classes_))  # labels are codes here
        else:  # in training it scores in the units of y; what it predicts is put into them here
            network.target_centre_, network.target_scale_ = self.target_centre_, self.target_scale_

    def _as_far(self) -> dict[str, Any]:
        network = clone(self._unfitted())
        return {"network": network.set_params(n_epochs=max(1, self.best_round_), validation_fraction=0.0)}

    def _fit(self, views: Views, y: np.ndarray, context: FitContext) -> None:
        settings = clone(self.features) if self.features is not None else BoostedFeatures()
        if self.gbm is None:
            table = views[self.structured]
            self.gbm_ = settings.fit(table, y, context.weights, self.n_outputs).gbm_
            if self.out_of_fold:
                # leaf values that have seen the row's label promise the network more than new rows keep
                unseen = np.empty((len(y), self.gbm_.n_features), dtype=np.float32)
                folds = settings.out_of_fold(table, y, weights=context.weights, related=context.apart)
                for rows, block in folds:
                    unseen[rows] = block
                views = views.with_view(BFV, Table.from_numeric(unseen))
        else:
            self.gbm_ = self.gbm
            if self.gbm.n_classes != self.n_outputs:
                raise UsboostError(
                    f"the GBM given was fitted to {self.gbm.n_classes} classes, "
                    f"the labels have {self.n_outputs}"
                )
        self.columns_ = {}
        if self.structured in views.names:  # with a GBM and its features given it need not be
            self.columns_ = {self.structured: views[self.structured].names}
        features = self._features(views)
        # the network reads standardised leaf values, by the training rows' mean and deviation
        blocks = [features.numeric] if isinstance(features, Table) else features.blocks()
        parts = zip(*(column_moments(block, context.weights) for block in blocks))
        mean, variance = map(np.concatenate, parts)
        self.mean_, deviation = mean.astype(np.float32), np.sqrt(variance).astype(np.float32)
        self.scale_ = np.divide(1, deviation, out=np.zeros_like(deviation), where=deviation > 0)
        network = clone(self._unfitted())
        network.set_params(views=(*network.views[:-1], BFV), random_state=self.random_state)
        self._mark_network(network)
        validation = context.validation and (self._read_views(context.validation[0]), context.validation[1])
        network._fit(self._read_views(views, features), y, replace(context, validation=validation))
        self.network_, self.history_, self.best_round_ = network, network.history_, network.best_round_

    def _features(self, views: Views) -> Table | CodedTable:
        return views[BFV] if BFV in views.names else self.gbm_.coded(views[self.structured])

    def _read_views(self, views: Views, features: Table | CodedTable | None = None) -> Views:
        """Return the views as the network takes them."""
        features = self._features(views) if features is None else features
        if isinstance(features, Table):
            return views.with_view(BFV, Table.from_numeric((features.numeric - self.mean_) * self.scale_))
        scaled = features.changed(lambda values, k: (values - self.mean_[k]) * self.scale_[k])
        return views.with_view(BFV, scaled)

    def _to_onnx(self, views: Mapping[str, ViewNodes]) -> Value:
        table: Any = views[self.structured]
        trees = self.gbm_.trees
        values = tree_sum(table, trees, outputs=range(len(trees))).cast(np.float32)
        features = TableNodes((values - self.mean_[None]) * self.scale_[None], None, len(trees))
        return self.network_._to_onnx({**views, BFV: features})

    def _write(self, folder: Path) -> dict[str, Any]:
        network = self.network_.network_
        write_arrays({**network.weights, "bfv.mean": self.mean_, "bfv.scale": self.scale_}, folder / WEIGHTS)
        save_gbm(self.gbm_, folder / "gbm")
        return {"network": network.spec}

    def _read(self, document: Mapping[str, Any], folder: Path) -> None:
        arrays = read_arrays(folder / WEIGHTS)
        self.mean_, self.scale_ = arrays.pop("bfv.mean"), arrays.pop("bfv.scale")
        self.gbm_ = load_gbm(folder / "gbm", self.n_outputs)
        network = self._unfitted()
        network.set_params(views=document["network"]["views"])
        self._mark_network(network)
        network.best_round_ = self.best_round_
        network.network_ = FittedTwoBranch(document["network"], arrays)
        network.network_.check(self.n_outputs)
        for array in (self.mean_, self.scale_):
            if array.shape != (self.gbm_.n_features,) or array.dtype != np.float32:
                raise UsboostError("the means of the boosted features are not one for each tree")
        self.network_ = network


class BoostedFeatureNetworkClassifier(_OnBoostedFeatures, ViewsClassifier):
    """A GBM on the structured view, its leaf values as the second branch's input.

    Parameters
    ----------
    features : BoostedFeatures, optional
        The GBM's settings.
    network : TwoBranchNetworkClassifier, optional
        The network's settings; its second view is replaced by the BFV.
    structured : name of the view that the GBM reads
    out_of_fold : train the network on BFVs from GBMs that never saw the row (the paper's are in-sample)
    gbm : GradientBoostedTrees, optional
        A GBM fitted before. A view "BFV" in the data given to `fit`, with that GBM's features of the
        same rows, is then read instead of computing them again.
    validation_fraction, random_state, callbacks : as in `TwoBranchNetworkClassifier`

    Attributes
    ----------
    gbm_ : GradientBoostedTrees
    network_ : fitted TwoBranchNetworkClassifier
    n_estimators_ : int, the GBM's stages
    feature_importances_, feature_names_ : of the structured view's columns, in the GBM

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from usboost import BoostedFeatureNetworkClassifier, BoostedFeatures, Table, Views
    >>> X, y = load_iris(return_X_y=True)
    >>> views = Views(U=Table.from_numeric(X[:, :2]), S=Table.from_numeric(X[:, 2:]))
    >>> from usboost import TwoBranchNetworkClassifier
    >>> network = TwoBranchNetworkClassifier(batch_size=16, n_epochs=20, device="cpu")
    >>> model = BoostedFeatureNetworkClassifier(BoostedFeatures(n_trees=10), network).fit(views, y)
    >>> model.score(views, y) > 0.8
    True
    """

    holds: ClassVar[Mapping[str, Any]] = FEATURES | {"network": ("TwoBranchNetworkClassifier",)}
    _default = TwoBranchNetworkClassifier

    def predict_proba(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """Predict class probabilities, float64 (n, M), columns as in ``classes_``."""
        self._check_fitted()
        return self.network_.predict_proba(self._read_views(as_views(X)))


class BoostedFeatureNetworkRegressor(_OnBoostedFeatures, ViewsRegressor):
    """A GBM of the squared loss on the structured view, its leaf values as the second branch's input.

    Parameters
    ----------
    network : TwoBranchNetworkRegressor, optional
        The network's settings; its second view is replaced by the BFV.
    features, structured, out_of_fold, gbm, validation_fraction, random_state, callbacks, checkpoint
        As of `BoostedFeatureNetworkClassifier`; a GBM given was fitted to targets standardised alike.

    Attributes
    ----------
    target_centre_, target_scale_ : mean and standard deviation of the training targets
    gbm_ : GradientBoostedTrees, of standardised targets
    network_ : fitted TwoBranchNetworkRegressor, of standardised targets
    history_ : as of `TwoBranchNetworkRegressor`
    n_estimators_, feature_importances_, feature_names_ : as of `BoostedFeatureNetworkClassifier`

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from usboost import BoostedFeatureNetworkRegressor, BoostedFeatures, Table, Views
    >>> X, y = load_diabetes(return_X_y=True)
    >>> views = Views(U=Table.from_numeric(X[:, :5]), S=Table.from_numeric(X[:, 5:]))
    >>> from usboost import TwoBranchNetworkRegressor
    >>> network = TwoBranchNetworkRegressor(batch_size=32, n_epochs=10, device="cpu")
    >>> model = BoostedFeatureNetworkRegressor(BoostedFeatures(n_trees=10), network).fit(views, y)
    >>> model.score(views, y) > 0.3
    True
    """

    holds: ClassVar[Mapping[str, Any]] = FEATURES | {"network": ("TwoBranchNetworkRegressor",)}
    _default = TwoBranchNetworkRegressor

    def _predict(self, views: Views) -> np.ndarray:
        return self.network_._predict(self._read_views(views))

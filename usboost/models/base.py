"""Models by kind, and what all classifiers, and all regressors, on views share: labels and their checks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import get_cached_controller

from usboost.data.views import Views
from usboost.errors import UsboostError, refusals, within_memory
from usboost.evaluation.folds import Related
from usboost.evaluation.statistics import deviation, mean
from usboost.files.onnx_graph import Value, ViewNodes
from usboost.files.registry import Registry
from usboost.models.estimator import Samples, ViewsEstimator, as_views, one_for_each_row
from usboost.shards.collective import world

MODELS = Registry(
    "model",
    {
        "two_weak_learner": "usboost.models.methods.two_weak_learner:TwoWeakLearnerClassifier",
        "two_branch": "usboost.models.methods.two_branch:TwoBranchNetworkClassifier",
        "bfv_network": "usboost.models.methods.bfv_network:BoostedFeatureNetworkClassifier",
        "boosted_network": "usboost.models.methods.boosted_network:BoostedNetworkClassifier",
        "boosted_network_regressor": "usboost.models.methods.boosted_network:BoostedNetworkRegressor",
        "earlyboost": "usboost.models.methods.earlyboost:EarlyBoostClassifier",
        "lightgbm": "usboost.models.baselines.trees:LightGBMBaseline",
        "linear": "usboost.models.baselines.linear:LinearBaseline",
        "two_weak_learner_regressor": "usboost.models.methods.two_weak_learner:TwoWeakLearnerRegressor",
        "two_branch_regressor": "usboost.models.methods.two_branch:TwoBranchNetworkRegressor",
        "bfv_network_regressor": "usboost.models.methods.bfv_network:BoostedFeatureNetworkRegressor",
        "lightgbm_regressor": "usboost.models.baselines.trees:LightGBMBaselineRegressor",
        "ridge_baseline": "usboost.models.baselines.linear:RidgeBaseline",
        "forest": "usboost.models.baselines.trees:ForestBaseline",
        "forest_regressor": "usboost.models.baselines.trees:ForestBaselineRegressor",
        "prior": "usboost.models.baselines.packages:PriorBaseline",
        "prior_regressor": "usboost.models.baselines.packages:PriorBaselineRegressor",
        "ensemble": "usboost.models.methods.ensemble:EnsembleClassifier",
        "ensemble_regressor": "usboost.models.methods.ensemble:EnsembleRegressor",
        "average": "usboost.models.methods.average:AverageClassifier",
        "average_regressor": "usboost.models.methods.average:AverageRegressor",
        "package": "usboost.models.baselines.packages:PackageClassifier",
        "package_regressor": "usboost.models.baselines.packages:PackageRegressor",
    },
)
"""Models by kind: those that files can name."""


class _Fitted(ViewsEstimator):
    """Estimators fitted to labels, or to targets: the checks of both, and validation samples."""

    _checked: ClassVar[Any]  # (y, n): the labels or targets of n rows
    _fit_samples: ClassVar[Any]  # (samples, validation): encode, set samples aside, fit

    def fit(
        self,
        X: Views | Mapping[str, Any],
        y: Sequence[Any] | np.ndarray,
        validation: tuple[Any, ...] | None = None,
        sample_weight: Sequence[float] | np.ndarray | None = None,
        groups: Sequence[Any] | np.ndarray | None = None,
        times: Sequence[Any] | np.ndarray | None = None,
    ) -> Self:
        """Fit to the views of n samples and their labels, or a regressor to their targets.

        Raises `UsboostError` if rows do not match, only one class is there, validation holds an unknown
        label, targets are not finite, a weight is negative or not finite, or memory is too small.

        Parameters
        ----------
        X : Views, or dict of view name to view
        y : (n,) labels of any type that sorts; of a regressor finite numbers
        validation : (X, y) or (X, y, sample_weight), optional
            Samples for early stopping; otherwise `validation_fraction` of the training samples, of labels
            stratified, is set aside (0 for none: the last round is then kept).
        sample_weight : (n,) finite numbers of at least 0, optional
            How many rows each sample stands for: 2 is the row twice, 0 is no row, ½ half a one. Their sum
            matters, too, wherever rows are counted, as in leaves; scale weights that only say how much
            rows matter to a mean of 1. Rows are drawn (validation, folds, batches) whatever their weights.
        groups : (n,), optional
            Rows of one group are never on both sides of a split that the fit makes for itself: samples set
            aside, an ensemble's folds, out-of-fold scores. See `usboost.evaluation.folds.Related`.
        times : (n,) numbers or dates, optional, instead of groups
            The later rows are those that judge a fit.
        """
        views = as_views(X)
        # BLAS's threads spin while they wait for each other: with other work a fit took seven times as long
        with within_memory(), refusals(), get_cached_controller().limit(limits=1, user_api="blas"):
            targets = self._checked(y, len(views))
            related = Related.of(groups, times, len(views))
            samples = Samples.counted(views, targets, sample_weight, related=related)
            self.n_features_in_ = len(views.names)
            self._fit_samples(samples, validation)
        return self


class ViewsClassifier(ClassifierMixin, _Fitted):
    """Base of the classifiers: subclasses fit encoded labels and give scores per class.

    A subclass implements ``_fit(views, codes, context)``, which trains on codes 0..M−1 and sets
    ``history_`` and ``best_round_``, ``predict_proba``, and, to be saved, ``_write`` and ``_read``
    (see `usboost.models.persistence`).
    """

    predict_proba: ClassVar[Any]

    def _checked(self, y: Any, n: int) -> np.ndarray:
        labels = one_for_each_row(y, n, "label")
        if pd.isna(labels).any() or (labels.dtype.kind == "f" and not np.isfinite(labels).all()):
            raise UsboostError("y holds NaN, None or infinity; every row needs a label")
        try:
            check_classification_targets(labels)
        except (TypeError, ValueError) as error:
            raise UsboostError(f"y does not hold class labels: {error}") from None
        return labels

    def _fit_samples(self, samples: Samples, validation: tuple[Any, ...] | None) -> None:
        if world().count == 1:
            self.classes_, codes = np.unique(samples.y, return_inverse=True)
        else:
            # of all shards; an array of strings is as wide as the longest, and one of objects holds addresses
            every = [each for own in world().listed(np.unique(samples.y).tolist()) for each in own]
            self.classes_ = np.unique(np.array(every, dtype=object if samples.y.dtype == object else None))
            codes = np.searchsorted(self.classes_, samples.y)
        if len(self.classes_) < 2:
            (only,) = self.classes_.tolist()
            raise UsboostError(f"all {len(codes)} labels are {only!r}, one class; two classes are needed")
        self._fit_to(*self._set_aside(replace(samples, y=codes), validation))

    def _encode(self, labels: np.ndarray) -> np.ndarray:
        known = np.isin(labels, self.classes_)
        if not known.all():
            label = labels[~known][:1].tolist()[0]
            raise UsboostError(f"label {label!r} is not among the classes seen in training")
        return np.searchsorted(self.classes_, labels)

    def predict(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """Predict the most probable class of each sample, (n,)."""
        self._check_fitted()
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def _check_fitted(self) -> None:
        check_is_fitted(self, "classes_")


class ViewsRegressor(RegressorMixin, _Fitted):
    """Base of the regressors: subclasses fit centred and scaled targets, and predict such.

    A subclass implements ``_fit(views, y, context)``, which trains on targets of about centre 0 and scale 1
    and sets ``history_`` and ``best_round_``, ``_predict(views)``, which gives the like, and, to be saved,
    ``_write`` and ``_read`` (see `usboost.models.persistence`). Those that can do it define
    ``_staged(views)``.

    Attributes
    ----------
    target_centre_, target_scale_ : float
        By which the training targets were centred and divided: (y − centre) / scale is what is fitted.
    """

    target_centre_: float
    target_scale_: float
    _predict: ClassVar[Any]

    def _checked(self, y: Any, n: int) -> np.ndarray:
        targets = self._encode(one_for_each_row(y, n, "target"))
        if not world().sum(len(targets)):
            raise UsboostError("there is no row to fit to (0 samples); give some")
        return targets

    def _fit_samples(self, samples: Samples, validation: tuple[Any, ...] | None) -> None:
        train, val = self._set_aside(samples, validation)
        self.target_centre_ = self._centre(train.y, train.weights)
        self.target_scale_ = self._scale(train.y - self.target_centre_, train.weights)
        train = replace(train, y=self._standardised(train.y))
        self._fit_to(train, val and replace(val, y=self._standardised(val.y)))

    def fit_standardised(self, train: Samples, val: Samples | None = None) -> None:
        """Fit to targets that the model of which this is a part has centred and scaled."""
        self._as_part(train.views)
        self._fit_to(train, val)

    def predict(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """Predict each sample in the units of y, float64 (n,)."""
        self._check_fitted()
        return self._in_units(self._predict(as_views(X)))

    def to_onnx(self, views: Mapping[str, ViewNodes]) -> Value:
        """Return the predictions in the graph of some views, float64 (n, 1), or raise as of classes."""
        return super().to_onnx(views) * float(self.target_scale_) + float(self.target_centre_)

    def staged_predict(self, X: Views | Mapping[str, Any]) -> Iterator[np.ndarray]:
        """Predict after each kept round.

        Raises `UsboostError` if the model is not made in rounds that predict.
        """
        self._check_fitted()
        return (self._in_units(each) for each in self._staged(as_views(X)))

    def _staged(self, views: Views) -> Iterator[np.ndarray]:
        raise UsboostError(f"a {type(self).__name__} has no rounds that predict; use predict")

    def _centre(self, y: np.ndarray, weights: np.ndarray | None) -> float:
        """Return the constant that is taken from the targets (n,)."""
        return mean(y, weights)

    def _scale(self, residual: np.ndarray, weights: np.ndarray | None) -> float:
        """Return the number that centred targets (n,) are divided by, positive."""
        scale = deviation(residual, weights)
        return scale if np.isfinite(scale) and scale > 0 else 1.0

    def _standardised(self, y: np.ndarray) -> np.ndarray:
        return (y - self.target_centre_) / self.target_scale_

    def _in_units(self, standardised: np.ndarray) -> np.ndarray:
        return self.target_centre_ + self.target_scale_ * standardised

    def _as_part(self, views: Views | None = None) -> None:
        """Take targets as they are: the model that this one is a part of has centred and scaled them."""
        self.target_centre_, self.target_scale_ = 0.0, 1.0
        self.n_features_in_ = len(views.names) if views is not None else 1

    def _encode(self, y: np.ndarray) -> np.ndarray:
        if y.dtype.kind not in "biuf":
            try:
                y = y.astype(np.float64)
            except (TypeError, ValueError) as error:
                raise UsboostError(f"y is not numeric: {error}") from None
        targets = y.astype(np.float64)
        if not np.isfinite(targets).all():
            raise UsboostError("y holds NaN or infinity; every row needs a finite target")
        return targets

"""Models by kind, and what all classifiers, and all regressors, on views share: labels and their checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin, clone
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from usboost.data.row_groups import Related
from usboost.data.views import Views
from usboost.errors import UsboostError, option, within_memory
from usboost.evaluation.weighted import deviation, mean, median
from usboost.files.registry import Registry
from usboost.models.estimator import Samples, ViewsEstimator, as_views, one_for_each_row
from usboost.shards.here import here

MODELS = Registry(
    "model",
    {
        "two_weak_learner": "usboost.models.boosted.two_weak_learner:TwoWeakLearnerClassifier",
        "two_branch": "usboost.models.networks.two_branch:TwoBranchNetworkClassifier",
        "bfv_network": "usboost.models.networks.bfv_network:BoostedFeatureNetworkClassifier",
        "boosted_network": "usboost.models.boosted.boosted_network:BoostedNetworkClassifier",
        "boosted_network_regressor": "usboost.models.boosted.boosted_network:BoostedNetworkRegressor",
        "earlyboost": "usboost.models.boosted.earlyboost:EarlyBoostClassifier",
        "lightgbm": "usboost.models.baselines.estimators:LightGBMBaseline",
        "linear": "usboost.models.baselines.linear:LinearBaseline",
        "two_weak_learner_regressor": "usboost.models.boosted.two_weak_learner:TwoWeakLearnerRegressor",
        "two_branch_regressor": "usboost.models.networks.two_branch:TwoBranchNetworkRegressor",
        "bfv_network_regressor": "usboost.models.networks.bfv_network:BoostedFeatureNetworkRegressor",
        "lightgbm_regressor": "usboost.models.baselines.estimators:LightGBMBaselineRegressor",
        "ridge_baseline": "usboost.models.baselines.linear:RidgeBaseline",
        "forest": "usboost.models.baselines.estimators:ForestBaseline",
        "forest_regressor": "usboost.models.baselines.estimators:ForestBaselineRegressor",
        "prior": "usboost.models.baselines.estimators:PriorBaseline",
        "prior_regressor": "usboost.models.baselines.estimators:PriorBaselineRegressor",
        "ensemble": "usboost.models.ensembles.ensemble:EnsembleClassifier",
        "ensemble_regressor": "usboost.models.ensembles.ensemble:EnsembleRegressor",
        "package": "usboost.models.baselines.estimators:PackageClassifier",
        "package_regressor": "usboost.models.baselines.estimators:PackageRegressor",
        "prediction_intervals": "usboost.models.prediction_intervals:PredictionIntervals",
    },
)
"""Models by kind: those that files can name."""


def per_class(model: Any) -> bool:
    """Whether the f of a boosted model has a coordinate for each class; with two classes one is enough."""
    return len(model.classes_) > 2


class _Fitted(ViewsEstimator):
    """What is fitted to labels, or to targets: the checks of both, and samples that are set aside."""

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
            aside, an ensemble's folds, out-of-fold scores. See `usboost.data.row_groups.Related`.
        times : (n,) numbers or dates, optional, instead of groups
            The later rows are those that judge a fit.

        Raises
        ------
        UsboostError
            If rows do not match, only one class is there, validation holds an unknown label, targets are
            anything but finite numbers, a weight is negative or no finite number, or memory is too small.
        """
        views = as_views(X)
        with within_memory():
            targets = self._checked(y, len(views))
            related = Related.of(groups, times, len(views))
            samples = Samples.counted(views, targets, sample_weight, related=related)
            self.n_features_in_ = len(views.names)
            self._fit_samples(samples, validation)
        return self

    def _checked(self, y: Any, n: int) -> np.ndarray:
        """The labels or targets of n rows."""
        raise AttributeError("_checked is defined for each task")

    def _fit_samples(self, samples: Samples, validation: tuple[Any, ...] | None) -> None:
        """Encode, set samples aside, fit."""
        raise AttributeError("_fit_samples is defined for each task")


def classes_of(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The classes of all shards' labels, sorted, and the position of each label (n,) of this one's."""
    if here().count == 1:
        return np.unique(labels, return_inverse=True)
    # an array of strings is as wide as the longest, and one of objects holds addresses
    every = [each for found in here().listed(np.unique(labels).tolist()) for each in found]
    classes = np.unique(np.array(every, dtype=object if labels.dtype == object else None))
    return classes, np.searchsorted(classes, labels)


class ViewsClassifier(ClassifierMixin, _Fitted):
    """Base of the classifiers: subclasses fit encoded labels and give scores per class.

    A subclass implements ``_fit(views, codes, context)``, which trains on codes 0..M−1 and sets
    ``history_`` and ``best_round_``, ``predict_proba``, and, to be saved, ``_write`` and ``_read``
    (see `usboost.models.persistence`).
    """

    def _checked(self, y: Any, n: int) -> np.ndarray:
        labels = one_for_each_row(y, n, "label")
        if labels.dtype.kind == "f" and not np.isfinite(labels).all():
            raise UsboostError("y holds NaN or infinity; every row needs a label")
        try:
            check_classification_targets(labels)
        except ValueError as error:
            raise UsboostError(f"y does not hold class labels: {error}") from None
        return labels

    def _fit_samples(self, samples: Samples, validation: tuple[Any, ...] | None) -> None:
        train, held = self._set_aside(self._coded(samples), validation)
        self._fit_to(train, held)

    def _coded(self, samples: Samples) -> Samples:
        self.classes_, codes = classes_of(samples.y)
        if len(self.classes_) < 2:
            raise UsboostError(
                f"all {len(codes)} labels are {self.classes_[0]!r}, one class; two classes are needed"
            )
        return replace(samples, y=codes)

    def _strata(self, y: np.ndarray) -> np.ndarray:
        return y

    def _encode(self, labels: np.ndarray) -> np.ndarray:
        known = np.isin(labels, self.classes_)
        if not known.all():
            label = labels[~known][:1].tolist()[0]
            raise UsboostError(f"label {label!r} is not among the classes seen in training")
        return np.searchsorted(self.classes_, labels)

    def predict(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """The most probable class of each sample, (n,)."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def predict_proba(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """Class probabilities, float64 (n, M), columns as in ``classes_``."""
        raise AttributeError("predict_proba is defined by each classifier")

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

    def _checked(self, y: Any, n: int) -> np.ndarray:
        targets = self._encode(one_for_each_row(y, n, "target"))
        if not here().sum(len(targets)):
            raise UsboostError("there is no row to fit to (0 samples); give some")
        return targets

    def _fit_samples(self, samples: Samples, validation: tuple[Any, ...] | None) -> None:
        train, held = self._set_aside(samples, validation)
        self.target_centre_ = self._centre(train.y, train.weights)
        self.target_scale_ = self._scale(train.y - self.target_centre_, train.weights)
        train = replace(train, y=self._standardised(train.y))
        self._fit_to(train, held and replace(held, y=self._standardised(held.y)))

    def fit_standardised(self, train: Samples, held: Samples | None = None) -> None:
        """Fit to targets of a model that holds this one, which has centred and scaled them."""
        self._as_part(train.views)
        self._fit_to(train, held)

    def predict(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """The prediction of each sample in the units of y, float64 (n,)."""
        self._check_fitted()
        return self._in_units(self._predict(as_views(X)))

    def staged_predict(self, X: Views | Mapping[str, Any]) -> Iterator[np.ndarray]:
        """`predict` after each kept round.

        Raises `UsboostError` if the model is not made in rounds that predict.
        """
        self._check_fitted()
        return (self._in_units(each) for each in self._staged(as_views(X)))

    def _predict(self, views: Views) -> np.ndarray:
        """Predicted targets, centred and scaled, float64 (n,)."""
        raise AttributeError("_predict is defined by each regressor")

    def _staged(self, views: Views) -> Iterator[np.ndarray]:
        raise UsboostError(f"a {type(self).__name__} has no rounds that predict; use predict")

    def _centre(self, y: np.ndarray, weights: np.ndarray | None) -> float:
        """The constant that is taken from the targets (n,)."""
        return mean(y, weights)

    def _scale(self, residual: np.ndarray, weights: np.ndarray | None) -> float:
        """What centred targets (n,) are divided by, positive."""
        return _positive(deviation(residual, weights))

    def _standardised(self, y: np.ndarray) -> np.ndarray:
        return (y - self.target_centre_) / self.target_scale_

    def _in_units(self, standardised: np.ndarray) -> np.ndarray:
        return self.target_centre_ + self.target_scale_ * standardised

    def _as_part(self, views: Views | None = None) -> None:
        """Take targets as they are: a model that holds this one has centred and scaled them."""
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


def robust_scale(residual: np.ndarray, weights: np.ndarray | None = None) -> float:
    """The median absolute residual times 1.4826, the deviation of normal ones; of residuals (n,).

    The standard deviation where it is 0, and 1 where that is 0, too.
    """
    found = 1.4826 * median(np.abs(residual), weights)
    return found if found > 0 else _positive(deviation(residual, weights))


def _positive(scale: float) -> float:
    return scale if np.isfinite(scale) and scale > 0 else 1.0


def for_all_rows(model: Any) -> Any:
    """An unfitted copy that a fit without validation rows takes as far as they let `model` go.

    The same rounds, epochs or trees, and of what was chosen on validation rows (a penalty, a size of leaves)
    the choice. Views that a start leaves out are decided anew.

    Raises `UsboostError` if a model of this kind cannot be told how far to go.

    Parameters
    ----------
    model : fitted with validation rows.

    Returns
    -------
    An unfitted model without callbacks and checkpoint.
    """
    watching = model.callbacks
    try:  # they may hold what cannot be copied, a bar on the screen say
        copy = clone(model.set_params(callbacks=None))
    finally:
        model.set_params(callbacks=watching)
    given = copy.get_params(deep=False)
    changes: dict[str, Any] = {"validation_fraction": 0.0} if "validation_fraction" in given else {}
    if "checkpoint" in given:  # of the fit to fewer rows
        copy.set_params(checkpoint=None)
    lengths = [name for name in ("n_rounds", "n_epochs", "n_trees") if name in given]
    if "penalties" in given:
        changes["penalties"] = (float(model.penalty_),)
    elif "leaf_sizes" in given:
        changes["leaf_sizes"] = (model.leaf_sizes[model.best_round_ - 1],)
    elif "network" in given:
        copy.network.set_params(n_epochs=max(1, model.best_round_), validation_fraction=0.0)
    elif "estimator" in given:
        changes |= {"estimator": model.for_rounds(model.best_round_), "stops_early": False}
    elif lengths:
        least = 0 if getattr(model, "start_", None) is not None else 1
        changes[lengths[0]] = max(least, model.best_round_)
    elif type(model).__name__.startswith("Prior"):
        return copy
    else:
        raise UsboostError(
            f"a {type(model).__name__} cannot be fitted again to all rows; leave {option('refit')} out"
        )
    if hasattr(model, "step_fraction_"):
        changes["step_fraction"] = model.step_fraction_
    if getattr(model, "start_", None) is not None:
        copy.start.set_params(penalties=(float(model.start_.penalty_),))
    return copy.set_params(**changes)

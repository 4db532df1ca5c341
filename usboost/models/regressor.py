"""What all regressors on views share: targets and their checks, their centre and scale, predictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from usboost.data.related import Related
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.evaluation.weighted import deviation, mean, median
from usboost.models.estimator import Samples, ViewsEstimator, as_views, one_for_each_row


class ViewsRegressor(RegressorMixin, ViewsEstimator):
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

    def fit(
        self,
        X: Views | Mapping[str, Any],
        y: Sequence[Any] | np.ndarray,
        validation: tuple[Any, ...] | None = None,
        sample_weight: Sequence[float] | np.ndarray | None = None,
        groups: Sequence[Any] | np.ndarray | None = None,
        times: Sequence[Any] | np.ndarray | None = None,
    ) -> ViewsRegressor:
        """Fit to the views of n samples and their targets.

        Parameters
        ----------
        X : Views, or dict of view name to view
        y : (n,) finite numbers
        validation : (X, y) or (X, y, sample_weight), optional
            Samples for early stopping; otherwise `validation_fraction` of the training samples is set aside
            (0 for none: the last round is then kept).
        sample_weight, groups, times : as of `usboost.models.base.ViewsClassifier.fit`

        Raises
        ------
        UsboostError
            If rows do not match, y holds anything but finite numbers, or a weight is negative or no finite
            number.
        """
        views = as_views(X)
        targets = self._encode(one_for_each_row(y, len(views), "target"))
        if not len(targets):
            raise UsboostError("there is no row to fit to (0 samples); give some")
        self.n_features_in_ = len(views.names)
        related = Related.of(groups, times, len(views))
        samples = Samples.counted(views, targets, sample_weight, related=related)
        train, held = self._set_aside(samples, validation)
        self.target_centre_ = self._centre(train.y, train.weights)
        self.target_scale_ = self._scale(train.y - self.target_centre_, train.weights)
        train = replace(train, y=self._standardised(train.y))
        self._fit_to(train, held and replace(held, y=self._standardised(held.y)))
        return self

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

        Raises
        ------
        UsboostError
            If the model is not made in rounds that predict.
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

"""The least that any model has to beat: the same answer for every row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from usboost.boosting.callbacks import Callback, tell, watched
from usboost.boosting.context import FitContext
from usboost.boosting.rounds import Clock, Round
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.models.base import ViewsClassifier
from usboost.models.estimator import ViewsEstimator, as_views
from usboost.models.regressor import ViewsRegressor


class _Prior(ViewsEstimator):
    """Reads no column of any row."""

    n_rounds = 1

    @property
    def n_estimators_(self) -> int:
        """One answer."""
        self._check_fitted()
        return 1

    def _seen(self, context: FitContext) -> None:
        watch = context.watch()
        with watched(self, watch.callbacks):
            tell(watch.callbacks, Round(1, None, {}, Clock().seconds()))
        self.history_, self.best_round_ = watch.history, 1


class PriorBaseline(_Prior, ViewsClassifier):
    """The training rows' shares of the classes, for every row.

    Parameters
    ----------
    validation_fraction, random_state, callbacks : as everywhere

    Attributes
    ----------
    classes_ ; shares_ : float64 (M,)
    """

    def __init__(
        self,
        validation_fraction: float = 0.0,
        random_state: int = 0,
        callbacks: Sequence[Callback] | None = None,
    ) -> None:
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.callbacks = callbacks

    def _fit(self, views: Views, codes: np.ndarray, context: FitContext) -> None:
        held = np.bincount(codes, context.weights, len(self.classes_))
        self.shares_ = held / held.sum()
        self._seen(context)

    def predict_proba(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """The shares, float64 (n, M)."""
        self._check_fitted()
        return np.tile(self.shares_, (len(as_views(X)), 1))

    def _write(self, folder: Path) -> dict[str, Any]:
        return {"shares": self.shares_.tolist()}

    def _read(self, document: Mapping[str, Any], folder: Path) -> None:
        self.shares_ = np.asarray(document["shares"], dtype=np.float64)
        right = self.shares_.shape == (len(self.classes_),) and (self.shares_ >= 0).all()
        if not right or abs(self.shares_.sum() - 1) > 1e-6:
            raise UsboostError("the classes' shares are not one for each, which sum to 1")


class PriorBaselineRegressor(_Prior, ViewsRegressor):
    """The training rows' mean, for every row.

    Parameters
    ----------
    validation_fraction, random_state, callbacks : as everywhere

    Attributes
    ----------
    target_centre_ : the mean; target_scale_ : of the training targets
    """

    def __init__(
        self,
        validation_fraction: float = 0.0,
        random_state: int = 0,
        callbacks: Sequence[Callback] | None = None,
    ) -> None:
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.callbacks = callbacks

    def _fit(self, views: Views, y: np.ndarray, context: FitContext) -> None:
        self._seen(context)

    def _predict(self, views: Views) -> np.ndarray:
        return np.zeros(len(views))

    def _write(self, folder: Path) -> dict[str, Any]:
        return {}

    def _read(self, document: Mapping[str, Any], folder: Path) -> None:
        pass

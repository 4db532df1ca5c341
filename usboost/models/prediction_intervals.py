"""Intervals that hold a new sample's target with a probability that is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import train_test_split

from usboost.boosting.callbacks import Callback
from usboost.boosting.context import FitContext
from usboost.data.row_groups import Related
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.evaluation.intervals import conformal
from usboost.models.base import MODELS, ViewsRegressor
from usboost.models.boosted.two_weak_learner import TwoWeakLearnerRegressor
from usboost.models.class_weights import fit_weighted
from usboost.models.estimator import Samples, as_views
from usboost.models.persistence import load, save

METHODS = ("quantiles", "residuals")


@dataclass(eq=False, repr=False)
class PredictionIntervals(ViewsRegressor):
    """A regressor with lower and upper limits around its predictions, conformalised on samples set aside.

    With n samples set aside (the calibration samples), each gets a score s_i, by how much its target is
    outside of the fitted limits (negative inside), and all limits are moved by the ⌈(n + 1) · level⌉-th
    smallest score (`usboost.evaluation.intervals.conformal`). If these and the new samples are exchangeable,
    drawn alike, the interval of a new sample holds its target with a probability of at least `level`,
    whatever the regressor and the distribution (Romano, Patterson and Candès 2019). This is so on average
    over samples and over calibration sets; it is promised neither for each group of samples, nor where new
    samples are unlike. Samples of weight w are w samples in the fits; among the scores weights are shares,
    whatever their scale. The prediction itself is of another fit than the limits of "quantiles", and may lie
    outside of them.

    Parameters
    ----------
    regressor : ViewsRegressor, optional
        Predicts, and for "quantiles" gives the limits, too: it then needs the parameters `loss` and
        `quantile`. Default: `TwoWeakLearnerRegressor`.
    level : the probability, 0.9 by default
    method : {"quantiles", "residuals"}
        Limits from two more fits, to the quantiles of levels (1 ∓ level)/2, whose width follows each sample
        (conformalised quantile regression); or the prediction plus and minus the same width everywhere
        (split conformal), one fit.
    calibration_fraction : float
        Share of the training samples set aside for the scores; drawn first, then what the fits set aside.
    random_state : of the calibration samples
    callbacks : sequence of Callback, optional; watch every fit

    Attributes
    ----------
    regressor_ : the fitted regressor; lower_, upper_ : those of the limits, None for "residuals"
    margin_ : float, by how much the limits were moved outwards, in the units of y
    n_calibration_ : int, the samples set aside
    history_, best_round_ : of the regressor
    target_centre_, target_scale_ : 0 and 1; each fit has its own

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from usboost import PredictionIntervals, RidgeBaseline, Table, Views
    >>> X, y = load_diabetes(return_X_y=True)
    >>> views = Views(U=Table.from_numeric(X[:, :5]), S=Table.from_numeric(X[:, 5:]))
    >>> model = PredictionIntervals(RidgeBaseline(views=("U", "S")), method="residuals", level=0.8)
    >>> lower, upper = model.fit(views, y).predict_interval(views)
    >>> bool((lower < upper).all())
    True
    """

    holds: ClassVar[Mapping[str, Any]] = {"regressor": MODELS}

    regressor: ViewsRegressor | None = None
    level: float = 0.9
    method: str = "quantiles"
    calibration_fraction: float = 0.2
    random_state: int = 0
    callbacks: Sequence[Callback] | None = None

    def _unfitted(self) -> ViewsRegressor:
        return TwoWeakLearnerRegressor() if self.regressor is None else self.regressor

    def _centre(self, y: np.ndarray, weights: np.ndarray | None) -> float:
        return 0.0

    def _scale(self, residual: np.ndarray, weights: np.ndarray | None) -> float:
        return 1.0

    def _fit(self, views: Views, y: np.ndarray, context: FitContext) -> None:
        self._check()
        fit_rows, held_rows = self._divided(y, context.related)
        self.n_calibration_ = len(held_rows)
        weights = np.ones(len(y)) if context.weights is None else context.weights
        if np.isinf(conformal(np.zeros(len(held_rows)), self.level, weights[held_rows])):
            raise UsboostError(
                f"{self.n_calibration_} calibration samples are too few for intervals of level {self.level}: "
                "no finite width keeps the promise; give more samples, or a larger calibration_fraction"
            )
        train = Samples(views, y, context.weights, context.related)[fit_rows]
        held = context.validation and (*context.validation, context.held_weights)
        self.lower_ = self.upper_ = None

        def fitted(**changes: Any) -> ViewsRegressor:
            model = clone(self._unfitted()).set_params(**changes)
            if "callbacks" in model.get_params(deep=False):
                model.set_params(callbacks=list(context.callbacks))
            fit_weighted(model, train.weighted, held, train.related)
            return model

        self.regressor_ = fitted()
        if self.method == "quantiles":
            tail = (1 - self.level) / 2
            self.lower_ = fitted(loss="quantile", quantile=tail)
            self.upper_ = fitted(loss="quantile", quantile=1 - tail)
        low, high = self._limits(views[held_rows])
        outside = np.maximum(low - y[held_rows], y[held_rows] - high)
        self.margin_ = conformal(outside, self.level, weights[held_rows])
        self.history_, self.best_round_ = self.regressor_.history_, self.regressor_.best_round_

    def _divided(self, y: np.ndarray, related: Related | None) -> tuple[np.ndarray, np.ndarray]:
        """Rows to fit to, and calibration rows."""
        if related is not None:
            return related.hold_out(self.calibration_fraction, None, self.random_state)
        try:
            fit_rows, held_rows = train_test_split(
                np.arange(len(y)), test_size=self.calibration_fraction, random_state=self.random_state
            )
        except ValueError as error:
            raise UsboostError(f"cannot set samples aside for calibration: {error}") from error
        return fit_rows, held_rows

    def _check(self) -> None:
        if not 0 < self.level < 1:
            raise UsboostError(f"level is a probability between 0 and 1, not {self.level}")
        if self.method not in METHODS:
            raise UsboostError(f"unknown method {self.method!r}; choose one of {', '.join(METHODS)}")
        known = self._unfitted().get_params(deep=False)
        if self.method == "quantiles" and not {"loss", "quantile"} <= set(known):
            raise UsboostError(
                f"a {type(self._unfitted()).__name__} fits no quantiles; choose the method 'residuals'"
            )

    def _limits(self, views: Views) -> tuple[np.ndarray, np.ndarray]:
        """The limits before they are moved, float64 (n,) each."""
        if self.lower_ is None or self.upper_ is None:
            found = self.regressor_.predict(views)
            return found, found
        ends = self.lower_.predict(views), self.upper_.predict(views)
        return np.minimum(*ends), np.maximum(*ends)  # two fits may cross

    def predict_interval(self, X: Views | Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper limit of each sample in the units of y, float64 (n,) each.

        Where quantiles overlap after a negative margin, both limits are their middle.
        """
        self._check_fitted()
        low, high = self._limits(as_views(X))
        low, high = low - self.margin_, high + self.margin_
        middle = (low + high) / 2
        return np.minimum(low, middle), np.maximum(high, middle)

    def _predict(self, views: Views) -> np.ndarray:
        return self.regressor_.predict(views)

    def _reads(self, n_columns: int) -> Sequence[str]:
        return self._unfitted()._reads(n_columns)

    def _write(self, folder: Path) -> dict[str, Any]:
        parts = {"point": self.regressor_, "lower": self.lower_, "upper": self.upper_}
        for name, model in parts.items():
            if model is not None:
                save(model, folder / name)
        return {"margin": self.margin_, "n_calibration": self.n_calibration_}

    def _read(self, document: Mapping[str, Any], folder: Path) -> None:
        self.margin_, self.n_calibration_ = float(document["margin"]), int(document["n_calibration"])
        if not np.isfinite(self.margin_):
            raise UsboostError("the margin of its intervals is not finite")
        self.regressor_ = _regressor(folder / "point")
        self.lower_ = self.upper_ = None
        if self.method == "quantiles":
            self.lower_, self.upper_ = _regressor(folder / "lower"), _regressor(folder / "upper")


def _regressor(folder: Path) -> ViewsRegressor:
    model = load(folder)
    if not isinstance(model, ViewsRegressor):
        raise UsboostError(f"{folder} holds a {type(model).__name__}, which is no regressor on views")
    return model

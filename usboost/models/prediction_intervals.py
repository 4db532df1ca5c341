"""Intervals that hold a new sample's target with a given probability."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone

from usboost.boosting.callbacks import Callback
from usboost.boosting.context import FitContext
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.evaluation.intervals import conformal
from usboost.models.base import MODELS, ViewsRegressor
from usboost.models.estimator import Samples, as_views, split_off
from usboost.models.methods.two_weak_learner import TwoWeakLearnerRegressor
from usboost.models.persistence import load, save
from usboost.models.tuned_images import fit_weighted

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
        if not 0 < self.level < 1:
            raise UsboostError(f"level is a probability between 0 and 1, not {self.level}")
        if self.method not in METHODS:
            raise UsboostError(f"unknown method {self.method!r}; choose one of {', '.join(METHODS)}")
        known = self._unfitted().get_params(deep=False)
        if self.method == "quantiles" and not {"loss", "quantile"} <= set(known):
            raise UsboostError(
                f"a {type(self._unfitted()).__name__} fits no quantiles; choose the method 'residuals'"
            )
        samples = Samples(views, y, context.weights, context.related)
        train, aside = split_off(samples, self.calibration_fraction, self.random_state, "calibration")
        self.n_calibration_ = len(aside.y)
        weights = np.ones(len(aside.y)) if aside.weights is None else aside.weights
        if np.isinf(conformal(np.zeros(len(aside.y)), self.level, weights)):
            raise UsboostError(
                f"{self.n_calibration_} calibration samples are too few for intervals of level {self.level}: "
                "no finite width keeps the promise; give more samples, or a larger calibration_fraction"
            )
        held = context.validation and (*context.validation, context.held_weights)
        self.lower_ = self.upper_ = None

        def fitted(**changes: Any) -> ViewsRegressor:
            model = clone(self._unfitted()).set_params(**changes)
            if "callbacks" in known:
                model.set_params(callbacks=list(context.callbacks))
            fit_weighted(model, train.weighted, held, train.related)
            return model

        self.regressor_ = fitted()
        if self.method == "quantiles":
            tail = (1 - self.level) / 2
            self.lower_ = fitted(loss="quantile", quantile=tail)
            self.upper_ = fitted(loss="quantile", quantile=1 - tail)
        low, high = self._limits(aside.views)
        outside = np.maximum(low - aside.y, aside.y - high)
        self.margin_ = conformal(outside, self.level, weights)
        self.history_, self.best_round_ = self.regressor_.history_, self.regressor_.best_round_

    def _limits(self, views: Views) -> tuple[np.ndarray, np.ndarray]:
        """Return the limits before they are moved, float64 (n,) each."""
        if self.lower_ is None or self.upper_ is None:
            found = self.regressor_.predict(views)
            return found, found
        ends = self.lower_.predict(views), self.upper_.predict(views)
        return np.minimum(*ends), np.maximum(*ends)  # two fits may cross

    def predict_interval(self, X: Views | Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        """Predict the lower and upper limit of each sample in the units of y, float64 (n,) each.

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
        parts: dict[str, ViewsRegressor] = {}
        for name in ("point", *(("lower", "upper") if self.method == "quantiles" else ())):
            parts[name] = load(folder / name)
            if not isinstance(parts[name], ViewsRegressor):
                kind = type(parts[name]).__name__
                raise UsboostError(f"{folder / name} holds a {kind}, which is no regressor on views")
        self.regressor_ = parts["point"]
        self.lower_, self.upper_ = parts.get("lower"), parts.get("upper")

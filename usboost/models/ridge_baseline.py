"""Baseline for regression: ridge regression on everything, its penalty by the leave-one-out error."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from usboost.boosting.callbacks import Callback, tell, watched
from usboost.boosting.context import FitContext
from usboost.boosting.rounds import Clock, Round
from usboost.data.related import Related
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.evaluation.weighted import mean
from usboost.learners.networks.backbones import Backbone
from usboost.learners.spectrum import GRID, Spectrum
from usboost.models.linear_views import LinearOnViews
from usboost.models.regressor import ViewsRegressor

FOLDS = 5
"""Parts of rows that are related."""


class RidgeBaseline(LinearOnViews, ViewsRegressor):
    """Linear regression with an L2 penalty, on one or more views.

    Numbers are standardised, categories one-hot, pictures the centred features of a frozen backbone, all on
    one scale. One eigendecomposition gives the exact leave-one-out error of every penalty, so that no
    samples need be set aside. Of related rows a penalty's error is that of `Related.folds`: of whole groups
    left out, or of later rows.

    Parameters
    ----------
    views : names of the views that it reads
    penalties : of Σ_i (y_i − x_i w − b)² + α ‖w‖², tried in units of the columns' mean eigenvalue; the one of
        the least leave-one-out error is kept. By default 10⁻⁴ to 10⁵, two a decade, and infinity
    validation_fraction : share of the training samples that are set aside and only scored
    backbone : Backbone, optional; what embeds pictures (always frozen here)
    device : where pictures are embedded
    random_state : of the samples set aside
    callbacks : sequence of Callback, optional

    Attributes
    ----------
    target_centre_, target_scale_ : mean and standard deviation of the training targets
    coefficients_ : float32 (p, 1); intercepts_ : float32 (1,), of standardised targets
    penalty_ : the one kept, in the units of `penalties`
    history_ : one dict: "penalty", "risk_train", the leave-one-out mean squared error of standardised
        targets (of related rows, that of the rows left out), and with validation data "risk_val"
    best_round_, n_estimators_ : 1

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from usboost import RidgeBaseline, Table, Views
    >>> X, y = load_diabetes(return_X_y=True)
    >>> views = Views(U=Table.from_numeric(X[:, :5]), S=Table.from_numeric(X[:, 5:]))
    >>> RidgeBaseline(views=("U", "S")).fit(views, y).score(views, y) > 0.3
    True
    """

    def __init__(
        self,
        views: Sequence[str] = ("U", "S"),
        penalties: Sequence[float] | None = None,
        validation_fraction: float = 0.0,
        backbone: Backbone | None = None,
        device: str = "auto",
        random_state: int = 0,
        callbacks: Sequence[Callback] | None = None,
    ) -> None:
        self.views = views
        self.penalties = penalties
        self.validation_fraction = validation_fraction
        self.backbone = backbone
        self.device = device
        self.random_state = random_state
        self.callbacks = callbacks

    @property
    def n_rounds(self) -> int:
        """One fit, under the name that callbacks know."""
        return 1

    def _n_outputs(self) -> int:
        return 1

    def _fit(self, views: Views, y: np.ndarray, context: FitContext) -> None:
        watch, clock = context.watch(), Clock()
        with watched(self, watch.callbacks):
            x, weights = self._learn(views, context.weights), context.weights
            penalties, spectrum = self._penalties(), Spectrum(x, counts=weights)
            risk = None
            if context.apart is not None:
                risks = self._risks(x, y, penalties, weights, context.apart)
                penalties, risk = penalties[[risks.argmin()]], float(risks.min())
            solved = spectrum.solve(y[:, None], penalties * spectrum.scale)
            self.coefficients_ = solved.coefficients.astype(np.float32)
            self.intercepts_ = solved.intercept.astype(np.float32)
            self.penalty_, self.best_round_ = solved.alpha / spectrum.scale, 1
            if risk is None:
                risk = _risk(solved.left_out, y, weights)
            metrics = {"penalty": self.penalty_, "risk_train": risk}
            if context.validation is not None:
                held, held_y = context.validation
                metrics["risk_val"] = _risk(self._linear(held), held_y, context.held_weights)
            tell(watch.callbacks, Round(1, None, metrics, clock.seconds()))
        self.history_ = watch.history

    def _penalties(self) -> np.ndarray:
        penalties = GRID if self.penalties is None else np.asarray(self.penalties, dtype=np.float64)
        if not penalties.size or not (penalties > 0).all():
            raise UsboostError(f"penalties are one or more positive numbers, not {self.penalties}")
        return penalties

    def _risks(
        self,
        x: np.ndarray,
        y: np.ndarray,
        penalties: np.ndarray,
        weights: np.ndarray | None,
        related: Related,
    ) -> np.ndarray:
        """The mean squared error of each penalty on rows left out as they are related, float64 (A,)."""
        losses, counts = [], []
        for seen, held in related.folds(FOLDS, y, self.random_state):
            own = None if weights is None else weights[seen]
            spectrum = Spectrum(x[seen], counts=own)
            coefficients, intercepts = spectrum.path(y[seen], penalties * spectrum.scale)
            losses.append(np.square(x[held] @ coefficients + intercepts - y[held][:, None]))
            counts.append(np.ones(len(held)) if weights is None else weights[held])
        return np.average(np.concatenate(losses), axis=0, weights=np.concatenate(counts))

    def out_of_fold(
        self,
        views: Views,
        y: np.ndarray,
        weights: np.ndarray | None = None,
        related: Related | None = None,
    ) -> np.ndarray:
        """What each training row gets from the fit to all others, float64 (n, 1), standardised.

        Parameters
        ----------
        views, y, weights : the n rows that this model was fitted to, their standardised targets and weights;
            a row is left out as a whole, whatever its weight
        related : how the rows are related: then what a row gets is from a fit without its part of whole
            groups, or its stretch of time
        """
        self._check_fitted()
        x, penalty = self._rows(views), np.array([self.penalty_])
        if related is None or np.isinf(self.penalty_):
            spectrum = Spectrum(x, counts=weights)
            return spectrum.solve(y[:, None], penalty * spectrum.scale).left_out
        part, found = related.parts(FOLDS, y, self.random_state), np.empty((len(y), 1))
        for k in range(int(part.max()) + 1):
            seen = part != k
            spectrum = Spectrum(x[seen], counts=None if weights is None else weights[seen])
            coefficients, intercept = spectrum.path(y[seen], penalty * spectrum.scale)
            found[~seen] = x[~seen] @ coefficients + intercept
        return found

    def losses(self, scores: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The squared error of each row, float64 (n,), by scores as `out_of_fold` gives them."""
        return np.square(scores[:, 0] - y)

    def scores(self, views: Views) -> np.ndarray:
        """Standardised predictions, float64 (n, 1)."""
        return self._linear(views)

    def _predict(self, views: Views) -> np.ndarray:
        return self._linear(views)[:, 0]


def _risk(predicted: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> float:
    return mean(np.square(predicted[:, 0] - y), weights)

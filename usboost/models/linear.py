"""External baseline: logistic regression on everything, its penalty chosen on the validation rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import log_softmax, softmax

from usboost.boosting.callbacks import Callback, tell, watched
from usboost.boosting.context import FitContext
from usboost.boosting.rounds import Clock, Round
from usboost.data.related import Related
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.evaluation.weighted import mean
from usboost.learners.networks.backbones import Backbone
from usboost.models.base import ViewsClassifier
from usboost.models.estimator import as_views
from usboost.models.linear_views import LinearOnViews
from usboost.models.multinomial import Multinomial

PATIENCE = 2
"""Penalties, each smaller than the last, that are tried after the best one."""


class LinearBaseline(LinearOnViews, ViewsClassifier):
    """Multinomial logistic regression with an L2 penalty, on one or more views.

    Numbers are standardised, categories one-hot, pictures the centred features of a frozen backbone, all on
    one scale.

    Parameters
    ----------
    views : names of the views that it reads
    penalties : of mean log-loss + penalty/2 · ‖coefficients‖² (1/(nC) in scikit-learn), each tried; the one
        of the lowest validation log-loss is kept, without validation rows the one in the middle
    max_iter : of each fit
    validation_fraction, random_state, callbacks : as everywhere
    backbone : Backbone, optional; what embeds pictures (always frozen here)
    device : where pictures are embedded

    Attributes
    ----------
    classes_
    coefficients_ : float32 (p, M); intercepts_ : float32 (M,); penalty_ : the one kept
    history_ : list of dicts, one for each penalty: "penalty", and "risk_val", the validation log-loss in nats
    best_round_ : the position of the penalty kept, from 1; n_estimators_ : 1
    """

    def __init__(
        self,
        views: Sequence[str] = ("U", "S"),
        penalties: Sequence[float] = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003),
        max_iter: int = 200,
        validation_fraction: float = 0.1,
        backbone: Backbone | None = None,
        device: str = "auto",
        random_state: int = 0,
        callbacks: Sequence[Callback] | None = None,
    ) -> None:
        self.views = views
        self.penalties = penalties
        self.max_iter = max_iter
        self.validation_fraction = validation_fraction
        self.backbone = backbone
        self.device = device
        self.random_state = random_state
        self.callbacks = callbacks

    @property
    def n_rounds(self) -> int:
        """Penalties, under the name that callbacks know."""
        return len(self.penalties)

    def fit_codes(self, views: Views, codes: np.ndarray, n_classes: int, context: FitContext) -> None:
        """Fit to classes 0..M−1 of a model that holds this one, with its validation samples and weights."""
        self.classes_, self.n_features_in_ = np.arange(n_classes), len(views.names)
        self._fit(views, codes, replace(context, callbacks=(), checkpoint=None))

    def _fit(self, views: Views, codes: np.ndarray, context: FitContext) -> None:
        if not self.penalties:
            raise UsboostError("penalties is empty; give one or more")
        weights, held_weights = context.weights, context.held_weights
        x, watch, n_classes = self._learn(views, weights), context.watch(), len(self.classes_)
        held = context.validation
        held_x = self._rows(held[0]) if held else None
        fits = Multinomial(x, weights)
        best, clock = np.inf, Clock()
        tried = self.penalties if held else [self.penalties[len(self.penalties) // 2]]
        with watched(self, watch.callbacks):
            for index, penalty in enumerate(tried, start=1):
                coefficients, intercepts = fits.fit(codes, n_classes, penalty, max_iter=self.max_iter)
                metrics = {"penalty": penalty}
                if held is not None and held_x is not None:
                    p = softmax((held_x @ coefficients + intercepts).astype(np.float64), axis=1)
                    metrics["risk_val"] = -mean(np.log(p[np.arange(len(p)), held[1]] + 1e-12), held_weights)
                if index == 1 or metrics["risk_val"] < best:
                    best, self.best_round_ = metrics.get("risk_val", np.inf), index
                    self.coefficients_, self.intercepts_ = coefficients, intercepts
                    self.penalty_ = penalty
                stop = tell(watch.callbacks, Round(index, None, metrics, clock.seconds()))
                clock = Clock()
                if stop or index == self.best_round_ + PATIENCE:
                    break
        self.history_ = watch.history

    def out_of_fold(
        self,
        X: Views | Mapping[str, Any],
        codes: np.ndarray,
        weights: np.ndarray | None = None,
        related: Related | None = None,
        folds: int = 5,
    ) -> np.ndarray:
        """The centred scores that each training row gets from a fit to the other folds' rows.

        Parameters
        ----------
        X, codes : the n rows that this model was fitted to, and their classes' positions 0..M−1
        weights : float64 (n,), positive, of the rows, each in one fold whatever its weight; None for 1
        related : how the rows are related: the folds are then of whole groups, or stretches of time, each
            scored by a fit to those before and after it; None: drawn by chance

        Returns
        -------
        float64 (n, M), each row's sum 0; a class that a fit did not see counts as half a row of it would.
        """
        self._check_fitted()
        x, n_classes = self._rows(as_views(X)), len(self.classes_)
        fits, scores = Multinomial(x, weights), np.empty((len(codes), n_classes))
        if related is not None:
            turn = related.parts(folds, codes, self.random_state)
        else:
            turn = _turns(codes, n_classes, folds, self.random_state)
        for fold in range(int(turn.max()) + 1):
            seen = turn != fold
            coefficients, intercepts = fits.fit(codes, n_classes, self.penalty_, seen, self.max_iter)
            scores[~seen] = x[~seen] @ coefficients + intercepts
        return scores - scores.mean(axis=1, keepdims=True)

    def losses(self, scores: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """The log-loss of each row, in nats, float64 (n,), by scores as `out_of_fold` gives them."""
        losses: np.ndarray = -log_softmax(scores, axis=1)[np.arange(len(codes)), codes]
        return losses

    def _n_outputs(self) -> int:
        return len(self.classes_)

    def scores(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """The scores of each class, float64 (n, M), each row's sum 0."""
        scores = self._linear(as_views(X))
        return scores - scores.mean(axis=1, keepdims=True)

    def decision_function(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """The scores, float64 (n, M), or (n,) with the margin of class 1 when M = 2."""
        scores = self.scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """Class probabilities, float64 (n, M), columns as in ``classes_``."""
        return softmax(self.scores(X), axis=1)


def _turns(codes: np.ndarray, n_classes: int, folds: int, seed: int) -> np.ndarray:
    """The fold of each row, int64 (n,): stratified, also by rare classes, in any order of the classes."""
    turn, rank = np.empty((2, len(codes)), dtype=np.int64)
    order = np.random.default_rng(seed).permutation(len(codes))
    rank[order] = np.arange(len(codes))
    for k in range(n_classes):
        rows = order[codes[order] == k]
        turn[rows] = (np.arange(len(rows)) + rank[rows[:1]].sum()) % folds
    return turn

"""Penalised least squares as a weak learner: one file, one line that makes it known."""

from dataclasses import dataclass

import numpy as np
from sklearn.base import BaseEstimator

from usboost.errors import UsboostError
from usboost.learners.base import LEARNERS, check_outputs


@dataclass(frozen=True)
class FittedLeastSquares:
    """x ↦ [x, 1] W: float64 (p + 1, D)."""

    weights: np.ndarray
    kind = "least_squares"

    def predict(self, prepared):
        return (prepared @ self.weights).astype(np.float32)

    def to_arrays(self):
        return {"weights": self.weights}, {}

    @classmethod
    def from_arrays(cls, arrays, meta):
        return cls(arrays["weights"])

    def check(self, n_outputs=None, n_columns=None):
        if self.weights.ndim != 2 or not np.isfinite(self.weights).all():
            raise UsboostError("the weights of least squares are not a matrix of finite numbers")
        check_outputs(self.weights.shape[1], n_outputs)


@LEARNERS.register
class LeastSquaresLearner(BaseEstimator):
    """min Σ_i w_i ‖y_i − [x_i, 1] W‖² + α ‖W‖²."""

    kind = "least_squares"
    fitted = FittedLeastSquares

    def __init__(self, alpha: float = 1.0, reads: tuple[str, ...] | None = None) -> None:
        self.alpha = alpha
        self.reads = reads

    def prepare(self, view):
        ones = np.ones((len(view), 1))
        return np.concatenate((view.numeric, view.codes, ones), axis=1, dtype=np.float64)

    def trainer(self, prepared, n_outputs):
        return LeastSquaresTrainer(self.alpha, prepared)


class LeastSquaresTrainer:
    def __init__(self, alpha, x):
        self.alpha, self.x = alpha, x

    def fit(self, target, *, seed, start):
        weights = np.ones((1, 1)) if target.fit_weights is None else target.fit_weights
        if weights.ndim == 1:
            weights = weights[:, None]
        weights = np.broadcast_to(weights, target.values.shape)
        penalty = self.alpha * np.eye(self.x.shape[1])
        columns = [
            np.linalg.solve(self.x.T @ (w[:, None] * self.x) + penalty, self.x.T @ (w * y))
            for w, y in zip(weights.T, target.values.T)
        ]
        return FittedLeastSquares(np.stack(columns, axis=1))

"""Softmax cross-entropy as a loss of the stagewise loop: BNN's second loss, and one for weak learners."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from usboost.files.onnx_graph import Value
from usboost.losses.base import Expansion, mean, refuse_zero, relative, simplex_codewords


@dataclass(frozen=True)
class SoftmaxCrossEntropy:
    """L(y, f) = −Σ_k y_k log p_k with p = softmax(F): BNN's general form with a second loss.

    Targets y are rows of class probabilities, one-hot as a rule, of shape (n, M). f holds D coordinates of
    the scores F = B f: B is the identity where there is one for each class (`per_class`), which no renaming
    of the classes changes but for their order; else the orthonormal zero-sum basis of `simplex_codewords`,
    D = M − 1. The Hessian diag(p) − ppᵀ in F is singular along (1, …, 1), which changes no p; targets are
    the pseudo-inverse's answers, which sum to zero over the classes.

    Parameters
    ----------
    n_classes : M
    limit : no 1/p_k in a target is larger than M · limit. For a badly misclassified sample the Newton target
        y_k / p_k has no bound, and where all samples count the same, one such sample would be all that a
        least squares fit sees (LogitBoost cuts its working responses for this reason).
    zero_steps : whether a learner whose outputs are all zero is taken, with any step, or refused
    per_class : whether f has a coordinate for each class, or M − 1
    """

    n_classes: int
    limit: float = 1e3
    zero_steps: bool = False
    per_class: bool = False

    kind: ClassVar[str] = "cross_entropy"

    @classmethod
    def of_classes(cls, n_classes: int, per_class: bool = False) -> "SoftmaxCrossEntropy":
        return cls(n_classes, zero_steps=True, per_class=per_class)

    @property
    def n_outputs(self) -> int:
        return self.n_classes if self.per_class else self.n_classes - 1

    @property
    def _basis(self) -> np.ndarray:
        return np.eye(self.n_classes) if self.per_class else simplex_codewords(self.n_classes)

    def scores(self, f: np.ndarray) -> np.ndarray:
        """Return F = B f: (n, M)."""
        return f @ self._basis.T

    def _log_p(self, f: np.ndarray) -> np.ndarray:
        # classes first, as in `_CrossEntropyLine`: a third of scipy's time, and rounds ask for it often
        scores = np.ascontiguousarray(self.scores(f).T)
        scores -= scores.max(axis=0)
        scores -= np.log(np.exp(scores).sum(axis=0))
        return np.ascontiguousarray(scores.T)

    def risk(self, f: np.ndarray, y: np.ndarray, counts: np.ndarray | None = None) -> float:
        return -mean((y * self._log_p(f)).sum(axis=1), counts)

    def labels(self, codes: np.ndarray) -> np.ndarray:
        """Return class codes (n,) as this loss takes labels: one-hot rows (n, M)."""
        return np.eye(self.n_classes)[codes]

    def w(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the negative gradient per sample, Bᵀ(y − p): (n, D)."""
        return (y - self.probabilities(f)) @ self._basis

    def hessian(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return Bᵀ(diag(p) − ppᵀ)B: (n, D, D), with no p below 1/(M · limit)."""
        p = np.maximum(self.probabilities(f), 1 / (self.n_classes * self.limit))
        p /= p.sum(axis=1, keepdims=True)
        basis, d = self._basis, self.n_outputs
        mean, squares = p @ basis, (basis[:, :, None] * basis[:, None, :]).reshape(-1, d * d)
        return (p @ squares).reshape(-1, d, d) - mean[:, :, None] * mean[:, None, :]

    def hessian_diagonal(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the diagonal of `hessian`: (n, D)."""
        p = np.maximum(self.probabilities(f), 1 / (self.n_classes * self.limit))
        p /= p.sum(axis=1, keepdims=True)
        return p @ np.square(self._basis) - np.square(p @ self._basis)

    def newton_target(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return −(∇²L)⁺∇L, (n, D).

        (diag(p) − ppᵀ) d = y − p is solved by d_k = y_k / p_k + any constant; the zero-sum one is taken.
        """
        largest = np.log(self.n_classes * self.limit)
        d = y * np.exp(np.minimum(-self._log_p(f), largest))
        return (d - d.mean(axis=1, keepdims=True)) @ self._basis

    newton_direction = newton_target  # the zero-sum d_i that solves H_i d_i = w_i

    def curvature(self, target: np.ndarray, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return dᵀ∇²L d / ‖d‖² along a target d of shape (n, D): the cost of missing it, (n,).

        For one-hot targets it is p_c (1 − p_c) · M / (M − 1) with c the own class.
        """
        p, d = self.probabilities(f), self.scores(target)
        mean = (p * d).sum(axis=1, keepdims=True)
        lengths = np.maximum(np.square(target).sum(axis=1), np.finfo(float).tiny)
        return (p * np.square(d - mean)).sum(axis=1) / lengths

    def line(
        self, f: np.ndarray, y: np.ndarray, directions: list[np.ndarray], counts: np.ndarray | None = None
    ) -> "_CrossEntropyLine":
        if not self.zero_steps:
            refuse_zero(np.array([np.any(d) for d in directions]))
        weights = None if counts is None else relative(counts)
        return _CrossEntropyLine(self.scores(f), y, np.stack([self.scores(d) for d in directions]), weights)

    def probabilities(self, f: np.ndarray) -> np.ndarray:
        """Return softmax(F), (n, M)."""
        return np.exp(self._log_p(f))

    def to_onnx(self, f: Value) -> Value:
        """Return the probabilities in a graph."""
        return (f @ self.scores(np.eye(self.n_outputs))).Softmax(axis=1)


class _CrossEntropyLine:
    """mean_i w_i [log Σ_k exp(F_k + Σ_v step_v d_vk) − Σ_k y_k (F_k + Σ_v step_v d_vk)], w of mean 1."""

    def __init__(
        self, scores: np.ndarray, y: np.ndarray, directions: np.ndarray, weights: np.ndarray | None = None
    ) -> None:
        # classes first: sums over a few classes then run along the samples
        self._scores, self._y = np.ascontiguousarray(scores.T), np.ascontiguousarray(y.T)
        self._directions = np.ascontiguousarray(np.swapaxes(directions, 1, 2))
        self._weights, self._y = weights, self._y if weights is None else self._y * weights

    def risk(self, steps: np.ndarray) -> float:
        return self._evaluate(steps)[0]

    def _evaluate(self, steps: np.ndarray) -> tuple[float, np.ndarray]:
        scores = self._scores + np.tensordot(steps, self._directions, axes=1)
        scores -= scores.max(axis=0)
        linear = np.vdot(self._y, scores)
        exponentials = np.exp(scores, out=scores)
        total = exponentials.sum(axis=0)
        logs = np.log(total)
        if self._weights is not None:  # y has them already
            logs, total = self._weights * logs, total / self._weights
        risk = float(logs.sum() - linear) / len(total)
        exponentials /= total
        return risk, exponentials

    def expand(self, steps: np.ndarray) -> Expansion:
        risk, p = self._evaluate(steps)
        n = p.shape[1]
        flat = self._directions.reshape(len(steps), -1)
        gradient = flat @ (p - self._y).ravel() / n
        weighted = p * self._directions
        means = weighted.sum(axis=1)
        second = weighted.reshape(len(steps), -1) @ flat.T
        # p has w in it, so a product of two means has w²
        others = means if self._weights is None else means / self._weights
        return risk, gradient, (second - means @ others.T) / n

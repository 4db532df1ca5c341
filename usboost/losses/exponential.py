"""Exponential losses: on codewords (US §3.2), and on signs, of Earlyboost (EB)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import log_expit, softmax

from usboost.errors import UsboostError
from usboost.files.onnx_graph import Value
from usboost.losses.base import Expansion, mean, relative, simplex_codewords

MANY = 64
"""Classes above which sums over them are matrix products, which round in another way."""


@dataclass(frozen=True)
class CodewordExponential:
    """Multi-class exponential loss with codewords (US §3.2, after GD-MCBoost).

    L(y, f) = Σ_k exp(−½⟨f, y − y^k⟩), with the risk R(f) its mean over samples. The term of the
    own class is the constant 1, so R(0) = M and R ≥ 1.

    Parameters
    ----------
    codewords : float64 array of shape (M, D)
        Class k's codeword y^k. `unit` is the paper's (D = M), `simplex` the same loss in the
        D = M − 1 coordinates in which its targets live: all inner products ⟨f, y − y^k⟩ agree.
    """

    codewords: np.ndarray

    kind: ClassVar[str] = "exponential"

    @classmethod
    def of_classes(cls, n_classes: int, per_class: bool = False) -> "CodewordExponential":
        return cls.unit(n_classes) if per_class else cls.simplex(n_classes)

    @classmethod
    def unit(cls, n_classes: int) -> "CodewordExponential":
        return cls(np.eye(n_classes))

    @classmethod
    def simplex(cls, n_classes: int) -> "CodewordExponential":
        return cls(simplex_codewords(n_classes))

    @property
    def n_classes(self) -> int:
        return self.codewords.shape[0]

    @property
    def n_outputs(self) -> int:
        return self.codewords.shape[1]

    def labels(self, codes: np.ndarray) -> np.ndarray:
        """Return class codes (n,) as this loss takes labels: as they are."""
        return codes

    def scores(self, f: np.ndarray) -> np.ndarray:
        """Return ⟨f, y^k⟩ for every class: float64 (n, M). The prediction is the arg max."""
        return f @ self.codewords.T

    def margins(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return ⟨f_i, y_i − y^k⟩ over the M − 1 other classes k: float64 (n, M − 1).

        Column j stands for class (c_i + 1 + j) mod M, so that no column is the trivial k = c_i.
        """
        if self.n_outputs == 1:
            return f * self._difference(y, 0)
        scores = self.scores(f)
        row = np.arange(0, scores.size, self.n_classes)
        own, flat = scores.take(row + y), scores.ravel()
        return own[:, None] - flat.take(row[:, None] + self._others(y))

    def _others(self, y: np.ndarray) -> np.ndarray:
        classes = np.arange(self.n_classes)
        return ((classes[:, None] + classes[1:]) % self.n_classes).take(y, axis=0)

    def _difference(self, y: np.ndarray, j: int) -> np.ndarray:
        """Return y_i − y^k for column j of the other classes: (n, D)."""
        return (self.codewords - np.roll(self.codewords, -1 - j, axis=0)).take(y, axis=0)

    def _combine(self, coefficients: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return Σ_{k≠c_i} coefficient_ik (y_i − y^k): (n, D) from coefficients (n, M − 1)."""
        if self.n_classes > MANY:  # a sum for each class takes n·M² numbers
            each = np.zeros((len(y), self.n_classes))
            np.put_along_axis(each, self._others(y), coefficients, axis=1)
            return coefficients.sum(axis=1)[:, None] * self.codewords[y] - each @ self.codewords
        out = coefficients[:, :1] * self._difference(y, 0)
        for j in range(1, coefficients.shape[1]):
            out += coefficients[:, j : j + 1] * self._difference(y, j)
        return out

    def weights(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return e_ik = exp(−½⟨f_i, y_i − y^k⟩) over the other classes, as `margins` orders them."""
        with np.errstate(over="ignore"):
            return np.exp(-0.5 * self.margins(f, y))

    def risk(self, f: np.ndarray, y: np.ndarray, counts: np.ndarray | None = None) -> float:
        """Return R(f) = 1 + mean_i Σ_{k≠c_i} e_ik."""
        return 1.0 + mean(self.weights(f, y).sum(axis=1), counts)

    def w(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return w_i = ½ Σ_k (y_i − y^k) e_ik, the negative gradient per sample (US equation 1)."""
        return self._combine(0.5 * self.weights(f, y), y)

    def w_tilde(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return w̃_i = Σ_k (y_i − y^k) e_ik^½ (US equation 5)."""
        return self._combine(np.sqrt(self.weights(f, y)), y)

    def hessian(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return H_i = ¼ Σ_k e_ik (y_i − y^k)(y_i − y^k)ᵀ: (n, D, D)."""
        e = self.weights(f, y)
        out = np.zeros((len(y), self.n_outputs, self.n_outputs))
        for j in range(e.shape[1]):
            difference = self._difference(y, j)
            out += 0.25 * e[:, j, None, None] * difference[:, :, None] * difference[:, None, :]
        return out

    def hessian_diagonal(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the diagonal of `hessian`: (n, D)."""
        e = self.weights(f, y).T
        return sum(0.25 * each[:, None] * np.square(self._difference(y, j)) for j, each in enumerate(e))

    def newton_direction(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the zero-sum d_i = 2(y_i − 1/M) that solves H_i d_i = w_i, whatever f is: (n, D)."""
        # ⟨y_i − y^k, d_i⟩ = 2 for each k ≠ c_i, so H_i d_i = ½ Σ_k e_ik (y_i − y^k) = w_i
        return 2.0 * (self.codewords - self.codewords.mean(axis=0))[y]

    def line(
        self, f: np.ndarray, y: np.ndarray, directions: list[np.ndarray], counts: np.ndarray | None = None
    ) -> "ExponentialLine":
        slopes = np.empty((len(directions), len(y), self.n_classes - 1))
        # margins are linear in f: e_ik at f + Σ_v step_v d_v is e_ik exp(Σ_v step_v u_vik)
        for slope, direction in zip(slopes, directions):
            np.multiply(self.margins(direction, y), -0.5, out=slope)
        weights = self.weights(f, y)
        return ExponentialLine(weights if counts is None else weights * relative(counts)[:, None], slopes)

    def probabilities(self, f: np.ndarray) -> np.ndarray:
        """Return softmax of the scores, (n, M): at the risk's minimiser f_k − f_c = log(p_k/p_c)."""
        return softmax(self.scores(f), axis=1)

    def to_onnx(self, f: Value) -> Value:
        """Return the probabilities in a graph."""
        return (f @ self.scores(np.eye(self.n_outputs))).Softmax(axis=1)


class ExponentialLine:
    """constant + scale · mean_i Σ_k e_ik exp(Σ_v step_v u_vik), with u_v = −½ margins of direction v."""

    def __init__(
        self, weights: np.ndarray, slopes: np.ndarray, constant: float = 1.0, scale: float = 1.0
    ) -> None:
        self._constant, self._scale = constant, scale / len(weights)
        self._weights = weights.ravel()
        self._slopes = slopes.reshape(len(slopes), -1)
        # two buffers for all evaluations of a search: what `_terms` answers is overwritten by its next call
        self._work = np.empty((2, self._weights.size))

    def _terms(self, steps: np.ndarray) -> np.ndarray:
        terms = np.matmul(steps, self._slopes, out=self._work[0])
        with np.errstate(over="ignore"):
            np.exp(terms, out=terms)
        terms *= self._weights
        return terms

    def risk(self, steps: np.ndarray) -> float:
        return self._constant + self._scale * float(self._terms(steps).sum())

    def expand(self, steps: np.ndarray) -> Expansion:
        terms, weighted = self._terms(steps), self._work[1]
        risk = self._constant + self._scale * float(terms.sum())
        gradient, hessian = self._slopes @ terms, np.empty((len(steps), len(steps)))
        for v, slope in enumerate(self._slopes):  # one buffer, not a second matrix of slopes
            hessian[v] = self._slopes @ np.multiply(slope, terms, out=weighted)
        # rounding differs in the two halves, and the step rule's solver takes symmetry for granted
        return risk, self._scale * gradient, self._scale * (hessian + hessian.T) / 2


@dataclass(frozen=True)
class Exponential:
    """L(y, f) = Σ_k exp(−y_k f_k) with signs y of shape (n, D), of Earlyboost and Earlyboost.MH (EB).

    One column y = ±1 is the binary loss (3); one column per class, g_k(y) = 1 for the own class and
    −1 for the others, is the one-vs-all loss (17). The risk is the mean over samples, so the paper's
    J(H) is n times the risk and R(0) = D.
    """

    n_outputs: int

    def _log_terms(self, f: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
        """Return −y_k f_k less their largest, and that largest: not all exponentials of it can underflow."""
        exponents = -y * f
        largest = float(exponents.max())
        return exponents - largest, largest

    def risk(self, f: np.ndarray, y: np.ndarray, counts: np.ndarray | None = None) -> float:
        with np.errstate(over="ignore"):
            return mean(np.exp(-y * f).sum(axis=1), counts)

    def weights(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return D(i, k) ∝ exp(−y_ik f_ik), normalised jointly to sum 1 (EB equations 13, 24, 26): (n, D)."""
        weights = np.exp(self._log_terms(f, y)[0])
        return weights / weights.sum()

    def line(
        self, f: np.ndarray, y: np.ndarray, directions: list[np.ndarray], counts: np.ndarray | None = None
    ) -> "_SignLine":
        terms, largest = self._log_terms(f, y)
        weights = np.exp(terms) if counts is None else np.exp(terms) * relative(counts)[:, None]
        with np.errstate(over="ignore"):
            scale = float(np.exp(largest))
        return _SignLine(weights, np.stack([-y * d for d in directions]), 0.0, scale)

    def probabilities(self, f: np.ndarray) -> np.ndarray:
        """Return class probabilities: (n, 2) from one column of scores, (n, D) from more.

        At the risk's minimiser f_k = ½ log(p_k / (1 − p_k)), so p_k = 1 / (1 + exp(−2 f_k)); the D
        separate probabilities of one-vs-all are scaled to sum 1. Mirrored scores (−f, f) of two
        classes give what the one column f gives.
        """
        both = np.concatenate([-f, f], axis=1) if f.shape[1] == 1 else f
        return softmax(log_expit(2.0 * both), axis=1)


class _SignLine(ExponentialLine):
    """The line along outputs of −1 and 1, or 0 where a learner abstains."""

    def minimiser(self) -> np.ndarray:
        """Return α = ½ log(W₊ / W₋), W₊ the weight that the direction gets right, W₋ wrong (EB 12, 25)."""
        signs = self._slopes[0]
        if len(self._slopes) > 1 or not np.isin(signs, (-1.0, 0.0, 1.0)).all():
            raise UsboostError(
                "the closed-form step of the exponential loss needs one learner with outputs −1 and 1; "
                "use the step rule 'newton'"
            )
        # slopes are −y·h: below 0 where the learner is right
        right, wrong = self._weights[signs < 0].sum(), self._weights[signs > 0].sum()
        if right == wrong:  # both may be 0
            return np.zeros(1)
        with np.errstate(divide="ignore"):
            return 0.5 * (np.log([right]) - np.log([wrong]))

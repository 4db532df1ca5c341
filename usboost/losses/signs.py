"""The exponential loss on signs, of Earlyboost and Earlyboost.MH (EB).

Binary or one-vs-all is only a matter of how many columns of signs there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import log_expit, softmax

from usboost.errors import UsboostError
from usboost.losses.base import mean, relative
from usboost.losses.codeword import ExponentialLine


@dataclass(frozen=True)
class Exponential:
    """L(y, f) = Σ_k exp(−y_k f_k) with signs y of shape (n, D), of Earlyboost and Earlyboost.MH (EB).

    One column y = ±1 is the binary loss (3); one column per class, g_k(y) = 1 for the own class and
    −1 for the others, is the one-vs-all loss (17). The risk is the mean over samples, so the paper's
    J(H) is n times the risk and R(0) = D.
    """

    n_outputs: int

    def _log_terms(self, f: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
        """−y_k f_k less their largest, and that largest: not all exponentials of it can underflow."""
        exponents = -y * f
        largest = float(exponents.max())
        return exponents - largest, largest

    def risk(self, f: np.ndarray, y: np.ndarray, counts: np.ndarray | None = None) -> float:
        with np.errstate(over="ignore"):
            return mean(np.exp(-y * f).sum(axis=1), counts)

    def weights(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        """D(i, k) ∝ exp(−y_ik f_ik), normalised jointly to sum 1 (EB equations 13, 24 and 26): (n, D)."""
        weights = np.exp(self._log_terms(f, y)[0])
        return weights / weights.sum()

    def line(
        self, f: np.ndarray, y: np.ndarray, directions: list[np.ndarray], counts: np.ndarray | None = None
    ) -> _SignLine:
        terms, largest = self._log_terms(f, y)
        with np.errstate(over="ignore"):
            scale = float(np.exp(largest))
        weights = np.exp(terms)
        if counts is not None:
            weights *= relative(counts)[:, None]
        return _SignLine(weights, np.stack([-y * d for d in directions]), 0.0, scale)

    def probabilities(self, f: np.ndarray) -> np.ndarray:
        """Class probabilities: (n, 2) from one column of scores, (n, D) from more.

        At the risk's minimiser f_k = ½ log(p_k / (1 − p_k)), so p_k = 1 / (1 + exp(−2 f_k)); the D
        separate probabilities of one-vs-all are scaled to sum 1. Mirrored scores (−f, f) of two
        classes give what the one column f gives.
        """
        both = np.concatenate([-f, f], axis=1) if f.shape[1] == 1 else f
        return softmax(log_expit(2.0 * both), axis=1)


class _SignLine(ExponentialLine):
    """The line along outputs of −1 and 1, or 0 where a learner abstains."""

    def minimiser(self) -> np.ndarray:
        """α = ½ log(W₊ / W₋), W₊ the weight that the one direction gets right and W₋ wrong (EB 12 and 25)."""
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

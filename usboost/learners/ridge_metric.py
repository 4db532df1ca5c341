"""Ridge regression in a metric of every row: conjugate gradients that one eigendecomposition prepares."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from usboost.learners.spectrum import Solution, Spectrum

TOLERANCE = 1e-4
"""Of the gradient, as a share of the first one's; a weak learner needs no more."""

MOST_STEPS = 60
"""Of conjugate gradients for one penalty; each is two products with the table."""

WORSE = 2
"""So many smaller penalties in a row that are no better end the search."""


@dataclass
class _Unknowns:
    """C (r, D), the coefficients in the eigenbasis, and b (D,); or a vector of that space."""

    c: np.ndarray
    b: np.ndarray

    def plus(self, step: float, other: _Unknowns) -> _Unknowns:
        return _Unknowns(self.c + step * other.c, self.b + step * other.b)

    def dot(self, other: _Unknowns) -> float:
        return float(np.vdot(self.c, other.c) + self.b @ other.b)


class MetricRidge:
    """min Σ_i (g_i − v_i)ᵀ M_i (g_i − v_i) + α ‖W‖² with g_i = x_i W + b, for any α.

    Row i counts c_i times (`Spectrum.counts`). The metrics, scaled to a mean trace of D, make the normal
    equations of all outputs one system. It is solved without being made: were every M_i their mean
    M̄ = Q diag(μ) Qᵀ, it would be diagonal in the eigenbases of the rows and of M̄, and that is the
    preconditioner. The same approximation gives the leave-one-out outputs: g_i − A_i M_i (v_i − g_i), where
    A_i, the inverse normal matrix of the other rows on row i's side, is that of rows with M̄. They are exact
    where all metrics are equal.

    Parameters
    ----------
    spectrum : of the n rows, with no weights but their counts
    values : float (n, D); metric : float (n, D, D), 0 for rows that are left out
    """

    def __init__(self, spectrum: Spectrum, values: np.ndarray, metric: np.ndarray) -> None:
        counts = spectrum.counts
        traces = counts * np.einsum("nii->n", metric)
        seen = max(1.0, float(counts[traces > 0].sum()))
        self._metric = metric * (values.shape[1] * seen / max(traces.sum(), np.finfo(float).tiny))
        self._metric *= counts[:, None, None]
        self._spectrum, self._values = spectrum, values
        self._singular = np.sqrt(spectrum.eigenvalues)[:, None]
        self._mu, self._turn = np.linalg.eigh(self._metric.sum(axis=0) / spectrum.n)
        self._mu = np.maximum(self._mu, 0.0)
        known = self._mu > 1e-9 * self._mu.max()
        self._mean_inverse = np.where(known, 1.0, 0.0) / np.where(known, spectrum.n * self._mu, 1.0)
        self._right = self._back(self._times(values))

    def solve(self, alphas: np.ndarray) -> Solution:
        """The regression of the penalty with the least leave-one-out error, found from the largest down.

        Parameters
        ----------
        alphas : (A,) positive, descending; infinity, if it is among them, first
        """
        zero = _Unknowns(np.zeros((len(self._singular), self._values.shape[1])), np.zeros(len(self._mu)))
        at, best, least, worse = zero, None, np.inf, 0
        for alpha in alphas:
            at = self._descend(at, float(alpha))
            found, error = self._solution(at, float(alpha))
            if best is None or error < least:
                best, least, worse = found, error, 0
            else:
                worse += 1
                if worse == WORSE:
                    break
        assert best is not None
        return best

    def _times(self, outputs: np.ndarray) -> np.ndarray:
        return np.einsum("nij,nj->ni", self._metric, outputs)

    def _forth(self, at: _Unknowns) -> np.ndarray:
        """g, float64 (n, D)."""
        return self._spectrum.spread(self._singular * at.c) / self._spectrum.root + at.b

    def _back(self, outputs: np.ndarray) -> _Unknowns:
        along = self._spectrum.along(outputs / self._spectrum.root)
        return _Unknowns(self._singular * along, outputs.sum(axis=0))

    def _product(self, at: _Unknowns, alpha: float) -> _Unknowns:
        found = self._back(self._times(self._forth(at)))
        return found.plus(alpha, _Unknowns(at.c, np.zeros_like(at.b))) if np.isfinite(alpha) else found

    def _prepared(self, at: _Unknowns, alpha: float) -> _Unknowns:
        """The vector by the inverse of what the equations would be in one metric for all."""
        inverse = 1.0 / (self._spectrum.eigenvalues[:, None] * self._mu + alpha)
        return _Unknowns(
            ((at.c @ self._turn) * inverse) @ self._turn.T,
            ((at.b @ self._turn) * self._mean_inverse) @ self._turn.T,
        )

    def _descend(self, at: _Unknowns, alpha: float) -> _Unknowns:
        """The minimiser by conjugate gradients from `at`; with an infinite α the mean alone moves."""
        left = self._right.plus(-1.0, self._product(at, alpha))
        towards = self._prepared(left, alpha)
        direction, size = towards, left.dot(towards)
        enough = TOLERANCE**2 * self._right.dot(self._prepared(self._right, alpha))
        for _ in range(MOST_STEPS):
            if size <= enough:
                break
            product = self._product(direction, alpha)
            step = size / direction.dot(product)
            at, left = at.plus(step, direction), left.plus(-step, product)
            towards = self._prepared(left, alpha)
            size, before = left.dot(towards), size
            direction = towards.plus(size / before, direction)
        return at

    def _solution(self, at: _Unknowns, alpha: float) -> tuple[Solution, float]:
        """The regression, and its leave-one-out error."""
        outputs = self._forth(at)
        missing = self._times(self._values - outputs)
        shares = self._spectrum.eigenvalues[:, None] / (
            self._spectrum.eigenvalues[:, None] * self._mu + alpha
        )
        # of a row as if it counted once: its own leverage is that of all that it stands for
        counts = self._spectrum.counts[:, None]
        inverse = self._mean_inverse + self._spectrum.leverage(shares) / counts
        inverse /= np.maximum(1.0 - self._mu * inverse * counts, 1e-6)
        left_out = outputs - ((missing @ self._turn) * inverse) @ self._turn.T
        error = self._values - left_out
        coefficients = self._spectrum.directions @ at.c
        return Solution(
            coefficients,
            at.b - self._spectrum.mean @ coefficients,
            alpha,
            left_out if np.isfinite(alpha) else outputs,
        ), float(np.vdot(error, self._times(error)))

"""Ridge regression as a weak learner: for embeddings of images and other wide views of numbers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator

from usboost.data.table import Table
from usboost.data.views import View
from usboost.errors import UsboostError
from usboost.files.onnx_graph import TableNodes, Value
from usboost.learners.base import FittedLearner, Target, check_outputs
from usboost.learners.spectrum import Matrix, Solution, Spectrum, with_indicators


@dataclass(frozen=True)
class Design:
    """A table's numbers and, for each category but code 0, a column of 0 and 1: float32 (n, p)."""

    matrix: Matrix

    def __len__(self) -> int:
        return int(self.matrix.shape[0])


@dataclass(frozen=True)
class FittedRidge:
    """x ↦ x W + b.

    Attributes
    ----------
    coefficients : float32 (p, D), W; intercept : float32 (D,), b
    alphas : float64 (D,), each output's penalty; infinite where the view said nothing
    """

    coefficients: np.ndarray
    intercept: np.ndarray
    alphas: np.ndarray
    kind: ClassVar[str] = "ridge"

    def predict(self, prepared: Design) -> np.ndarray:
        """Return the outputs, float32 (n, D)."""
        return _product(prepared, self.coefficients) + self.intercept

    @classmethod
    def weighted_sum(
        cls, learners: "Sequence[FittedRidge]", steps: Sequence[float], prepared: Design
    ) -> np.ndarray:
        """Return Σ_k step_k · ridge_k(x), float64 (n, D): one product, with the sum of the coefficients."""
        coefficients, intercept = np.zeros(learners[0].coefficients.shape), np.zeros(())
        for learner, step in zip(learners, steps):
            coefficients += np.float64(step) * learner.coefficients
            intercept = intercept + np.float64(step) * learner.intercept
        return _product(prepared, coefficients.astype(np.float32)) + intercept

    def to_arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        arrays = {"coefficients": self.coefficients, "intercept": self.intercept, "alphas": self.alphas}
        return arrays, {}

    @classmethod
    def sum_to_onnx(cls, learners: Sequence[Self], steps: Sequence[float], view: TableNodes) -> Value:
        """Return Σ_k step_k · ridge_k(x) in a graph, float64 (n, D): one regression."""
        coefficients = sum(np.float64(step) * each.coefficients for each, step in zip(learners, steps))
        intercept = sum(np.float64(step) * each.intercept for each, step in zip(learners, steps))
        return view.linear(np.asarray(coefficients), np.asarray(intercept), first=1)

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> "FittedRidge":
        return cls(arrays["coefficients"], arrays["intercept"], arrays["alphas"])

    def check(self, n_outputs: int | None = None, n_columns: int | None = None) -> None:
        """Check that coefficients and intercepts are finite float32 and fit each other and `n_outputs`."""
        # how many columns a table with categories makes is only known when it is there
        shape = self.coefficients.shape
        if len(shape) != 2 or self.intercept.shape != shape[1:] or self.alphas.shape != shape[1:]:
            raise UsboostError(f"a ridge regression has coefficients of shape {shape}, not one a column")
        for array in (self.coefficients, self.intercept):
            if array.dtype != np.float32 or not np.isfinite(array).all():
                raise UsboostError("a ridge regression holds something that is no finite float32")
        if self.alphas.dtype.kind != "f" or not (self.alphas > 0).all():
            raise UsboostError("a ridge regression has a penalty that is not positive")
        check_outputs(shape[1], n_outputs)


def _product(prepared: Design, coefficients: np.ndarray) -> np.ndarray:
    if prepared.matrix.shape[1] != len(coefficients):
        raise UsboostError(
            f"a ridge regression of {len(coefficients)} columns cannot read a table that makes "
            f"{prepared.matrix.shape[1]}; give it the columns and categories that it was fitted to"
        )
    return prepared.matrix @ coefficients


@dataclass(eq=False, repr=False)
class RidgeLearner(BaseEstimator):
    """Ridge regression on a table: numbers as they are, categories as columns of 0 and 1.

    For wide views, such as frozen embeddings of images, where it is better than a network and costs a
    matrix product a round: targets without weights (target "gradient") share one eigendecomposition.
    It minimises Σ_i w_i ‖y_i − x_i W − b‖² + α ‖W‖², with the weights scaled to a mean of 1 and b free. A
    sample of sample weight 2 is two of them, which are left out together.

    Parameters
    ----------
    alpha : float or "loo"
        The penalty α, in the units of scikit-learn's `Ridge`, or each round the one of `alphas` with the
        least leave-one-out error. Columns are to be of like scales: those of 10⁻⁵ of the largest are lost.
    alphas : sequence of float, optional
        Penalties to choose from, in the same units; default 10⁻⁴ to 10⁵ times the mean sum of squares of
        the (centred) columns, two a decade. Infinity, the mean alone, is always among them, so that a
        view that says nothing adds nothing.
    leave_one_out : whether steps are searched on what the learner gives each row when it is fitted without
        that row. A view that does not help then gets a step near 0, and a learner that follows its targets
        too closely a smaller one.
    reads : tuple of view names, optional
        The tables that it reads side by side; by default the view with the learner's own name.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from usboost import RidgeLearner, Table, TreeLearner, TwoWeakLearnerClassifier, Views
    >>> X, y = load_iris(return_X_y=True)
    >>> views = Views(U=Table.from_numeric(X[:, :2]), S=Table.from_numeric(X[:, 2:]))
    >>> learners = {"U": RidgeLearner(alpha=10.0), "S": TreeLearner(max_depth=2)}
    >>> TwoWeakLearnerClassifier(learners, n_rounds=20).fit(views, y).score(views, y) > 0.8
    True
    """

    kind: ClassVar[str] = "ridge"
    fitted: ClassVar[type] = FittedRidge

    alpha: float | str = "loo"
    alphas: Sequence[float] | None = None
    leave_one_out: bool = True
    reads: tuple[str, ...] | None = None

    def prepare(self, view: View) -> Design:
        """Encode a `Table`; a category that training did not have (code 0) is 0 in all its columns."""
        if not isinstance(view, Table):
            raise UsboostError(f"a ridge regression reads tables, not {type(view).__name__}; use a network")
        return Design(with_indicators(view.numeric, view.codes, view.cardinalities, first=1))

    def trainer(self, prepared: Design, n_outputs: int) -> "RidgeTrainer":
        """Make what fits a ridge regression to each round's target; refuse a penalty not above 0."""
        if self.alpha != "loo":
            return RidgeTrainer(prepared, _penalties([self.alpha]))
        if self.alphas is None:
            return RidgeTrainer(prepared, None)
        # from the strongest down: of equals the first is taken
        return RidgeTrainer(prepared, np.append(np.inf, np.sort(_penalties(self.alphas))[::-1]))


def _penalties(given: Sequence[Any]) -> np.ndarray:
    try:
        values = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.zeros(0)
    if values.ndim != 1 or not values.size or not (values > 0).all():
        raise UsboostError(f"a ridge regression's penalty is 'loo' or positive, not {given}")
    return values


class RidgeTrainer:
    """Fits a ridge regression to each round's target; without `alphas` from `GRID` times the scale."""

    def __init__(self, prepared: Design, alphas: np.ndarray | None) -> None:
        self._prepared, self._alphas = prepared, alphas
        self._last: tuple[FittedRidge, np.ndarray] | None = None
        self._whole: Spectrum | None = None

    def fit(self, target: Target, *, seed: int, start: FittedLearner | None = None) -> FittedRidge:
        counts, values = target.counts, target.values
        # without the counts, which the spectrum has already
        weights = replace(target, counts=None).fit_weights
        columns = np.arange(values.shape[1])
        if weights is None:
            if self._whole is None:  # once: rows count the same in every round
                self._whole = Spectrum(self._prepared.matrix, counts=counts)
            parts = [(self._whole.solve(values, self._alphas), np.arange(len(values)), columns)]
        elif weights.ndim == 1:
            parts = [(*self._weighted(weights, values, counts), columns)]
        else:
            parts = [(*self._weighted(weights[:, k], values[:, [k]], counts), columns[[k]]) for k in columns]
        fitted = FittedRidge(
            np.concatenate([each.coefficients for each, *_ in parts], axis=1).astype(np.float32),
            np.concatenate([each.intercept for each, *_ in parts]).astype(np.float32),
            np.resize(np.asarray([each.alpha for each, *_ in parts]), values.shape[1]),
        )
        if weights is None:
            outputs = parts[0][0].left_out.astype(np.float32)
        else:
            outputs = fitted.predict(self._prepared)  # it has not seen the rows without weight
            for solved, rows, at in parts:
                outputs[np.ix_(rows, at)] = solved.left_out
        self._last = fitted, outputs
        return fitted

    def outputs(self, fitted: FittedLearner) -> np.ndarray:
        """Return what the learner fitted last gives each row when fitted without it: float32 (n, D)."""
        if self._last is None or self._last[0] is not fitted:
            raise ValueError("leave-one-out outputs are known of the learner fitted last only")
        return self._last[1]

    def _weighted(
        self, weights: np.ndarray, values: np.ndarray, counts: np.ndarray | None
    ) -> tuple[Solution, np.ndarray]:
        """Return the solution for the rows with a weight, and their positions."""
        rows = np.flatnonzero(weights > 0)
        if not len(rows):  # weights so small that they are 0
            rows, weights = np.arange(len(weights)), np.ones(len(weights))
        own = None if counts is None else counts[rows]
        spectrum = Spectrum(self._prepared.matrix[rows], weights[rows], own)
        return spectrum.solve(values[rows], self._alphas), rows

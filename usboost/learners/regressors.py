"""Any scikit-learn regressor as a weak learner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, clone, is_regressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

from usboost.data.table import Table
from usboost.data.views import View
from usboost.errors import UsboostError
from usboost.learners.base import FittedLearner, Target, check_outputs
from usboost.learners.trees.tree import Tree

_TREES = (DecisionTreeRegressor, ExtraTreeRegressor)
_WRITABLE = (*_TREES, LinearRegression, Ridge)


@dataclass(frozen=True)
class PreparedMatrix:
    """A table's columns, category codes as numbers: float64 (n, p), and float32 column-major for trees."""

    values: np.ndarray
    matrix: np.ndarray

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Linear:
    """x ↦ x W + b with float64 weights (p, k) and intercepts (k,)."""

    weights: np.ndarray
    intercepts: np.ndarray

    def predict(self, prepared: PreparedMatrix) -> np.ndarray:
        return prepared.values @ self.weights + self.intercepts

    @property
    def n_outputs(self) -> int:
        return len(self.intercepts)

    def check(self, n_columns: int | None) -> None:
        shape = self.weights.shape
        if len(shape) != 2 or self.intercepts.shape != shape[1:] or n_columns not in (None, shape[0]):
            raise UsboostError(f"a linear regressor has weights of shape {shape}, not one for each column")
        both = np.concatenate((self.weights, self.intercepts), axis=None)
        if both.dtype.kind != "f" or not np.isfinite(both).all():
            raise UsboostError("a linear regressor holds something that is no finite number")


@dataclass(frozen=True)
class Grown:
    """A regression tree."""

    tree: Tree

    def predict(self, prepared: PreparedMatrix) -> np.ndarray:
        return self.tree.predict(prepared.matrix)

    @property
    def n_outputs(self) -> int:
        return self.tree.value.shape[1]

    def check(self, n_columns: int | None) -> None:
        self.tree.check(n_columns)


@dataclass(frozen=True)
class InMemory:
    """Any other fitted regressor; it has no file form."""

    estimator: Any
    n_outputs: int

    def predict(self, prepared: PreparedMatrix) -> np.ndarray:
        found = np.asarray(self.estimator.predict(prepared.values), dtype=np.float64)
        return found.reshape(len(prepared), self.n_outputs)

    def check(self, n_columns: int | None) -> None:
        raise _unwritable(self.estimator)


Form = Linear | Grown | InMemory


@dataclass(frozen=True)
class FittedRegressors:
    """The regressors of one round, their outputs side by side: one for all outputs, or one for each."""

    forms: tuple[Form, ...]
    kind: ClassVar[str] = "regressor"

    def predict(self, prepared: PreparedMatrix) -> np.ndarray:
        """float32 (n, D)."""
        return np.concatenate([form.predict(prepared) for form in self.forms], axis=1).astype(np.float32)

    def to_arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and JSON. Raises `UsboostError` if a regressor is neither linear nor a tree."""
        arrays: dict[str, np.ndarray] = {}
        forms: list[str] = []
        for k, form in enumerate(self.forms):
            if isinstance(form, InMemory):
                raise _unwritable(form.estimator)
            if isinstance(form, Grown):
                own = form.tree.arrays()
            else:
                own = {"weights": form.weights, "intercepts": form.intercepts}
            forms.append("tree" if isinstance(form, Grown) else "linear")
            arrays |= {f"{k}.{name}": array for name, array in own.items()}
        return arrays, {"forms": forms}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> FittedRegressors:
        """What `to_arrays` gave, back."""
        forms: list[Form] = []
        for k, form in enumerate(meta["forms"]):
            if form == "tree":
                forms.append(Grown(Tree.from_arrays(arrays, f"{k}.")))
            elif form == "linear":
                forms.append(Linear(arrays[f"{k}.weights"], arrays[f"{k}.intercepts"]))
            else:
                raise UsboostError(f"unknown form of weak regressor {form!r}")
        return cls(tuple(forms))

    def check(self, n_outputs: int | None = None, n_columns: int | None = None) -> None:
        """Every form is one, and there are `n_outputs` outputs."""
        for form in self.forms:
            form.check(n_columns)
        check_outputs(sum(form.n_outputs for form in self.forms), n_outputs)


class RegressorLearner(BaseEstimator):
    """A scikit-learn regressor, cloned for every round and fitted by (weighted) mean squared error.

    Parameters
    ----------
    estimator : scikit-learn regressor, optional
        Default: `Ridge`. `Ridge`, `LinearRegression` and single trees are kept as arrays and can be
        written to files; others work in memory. One that takes a single output is fitted once for each.
    reads : tuple of view names, optional
        The tables that it reads side by side; by default the view with the learner's own name.
    """

    kind: ClassVar[str] = "regressor"
    fitted: ClassVar[type] = FittedRegressors
    holds: ClassVar[dict[str, Any]] = {
        "estimator": ("Ridge", "LinearRegression", "DecisionTreeRegressor", "ExtraTreeRegressor")
    }

    def __init__(self, estimator: Any = None, reads: tuple[str, ...] | None = None) -> None:
        self.estimator = estimator
        self.reads = reads

    def prepare(self, view: View) -> PreparedMatrix:
        """Takes a `Table`; category codes become numbers."""
        if not isinstance(view, Table):
            raise UsboostError(f"a regressor reads tables, not {type(view).__name__}")
        matrix = view.matrix()
        return PreparedMatrix(np.ascontiguousarray(matrix, dtype=np.float64), matrix)

    def trainer(self, prepared: PreparedMatrix, n_outputs: int) -> RegressorTrainer:
        estimator = Ridge() if self.estimator is None else self.estimator
        if not (isinstance(estimator, BaseEstimator) and is_regressor(estimator)):
            raise UsboostError(f"{type(estimator).__name__} is not a scikit-learn regressor")
        return RegressorTrainer(estimator, prepared)

    def check_writable(self) -> None:
        """Refuse a regressor other than those kept as arrays: it has no file form."""
        if self.estimator is not None and type(self.estimator) not in _WRITABLE:
            raise _unwritable(self.estimator)


class RegressorTrainer:
    """Fits a clone to each round's target, or one to each of its outputs."""

    def __init__(self, estimator: Any, prepared: PreparedMatrix) -> None:
        self._estimator, self._prepared = estimator, prepared

    def fit(self, target: Target, *, seed: int, start: FittedLearner | None = None) -> FittedRegressors:
        weights, n_outputs = target.fit_weights, target.values.shape[1]
        together = get_tags(self._estimator).target_tags.multi_output
        if n_outputs == 1 or (together and (weights is None or weights.ndim == 1)):
            one = weights if weights is None or weights.ndim == 1 else weights[:, 0]
            return FittedRegressors((self._fit(target.values, one, target.counts, seed),))
        parts = []
        for k in range(n_outputs):
            own = weights if weights is None or weights.ndim == 1 else weights[:, k]
            parts.append(self._fit(target.values[:, k : k + 1], own, target.counts, seed))
        return FittedRegressors(tuple(parts))

    def _fit(
        self, values: np.ndarray, weights: np.ndarray | None, counts: np.ndarray | None, seed: int
    ) -> Form:
        estimator = clone(self._estimator)
        names = [name for name in estimator.get_params() if name.split("__")[-1] == "random_state"]
        estimator.set_params(**dict.fromkeys(names, seed % 2**32))
        rows: Any = slice(None) if weights is None else weights > 0
        given: dict[str, Any] = {}
        if weights is not None:
            taken = weights[rows]
            if has_fit_parameter(estimator, "sample_weight"):
                taken = taken / taken.mean()
                # a penalty sees as many rows as the samples stand for
                given["sample_weight"] = taken if counts is None else taken * counts[rows].mean()
            elif np.ptp(taken):
                raise UsboostError(
                    f"{type(estimator).__name__} takes no sample_weight, which this target needs; "
                    "use another regressor, or the target 'gradient'"
                )
        y = values[rows]
        try:
            estimator.fit(self._prepared.values[rows], y if y.shape[1] > 1 else y[:, 0], **given)
        except ValueError as error:
            raise UsboostError(f"the weak regressor {estimator} could not be fitted: {error}") from error
        return _form(estimator, y.shape[1])


def _form(estimator: Any, n_outputs: int) -> Form:
    if type(estimator) in _TREES:
        return Grown(Tree.from_sklearn(estimator.tree_))
    if type(estimator) in _WRITABLE:
        weights = np.asarray(estimator.coef_, dtype=np.float64).reshape(n_outputs, -1).T
        intercepts = np.broadcast_to(np.asarray(estimator.intercept_, dtype=np.float64), (n_outputs,))
        return Linear(np.ascontiguousarray(weights), intercepts.copy())
    return InMemory(estimator, n_outputs)


def _unwritable(estimator: Any) -> UsboostError:
    return UsboostError(
        f"a {type(estimator).__name__} has no file form; use Ridge, LinearRegression or a "
        "DecisionTreeRegressor as the estimator of a model that is to be saved or checkpointed"
    )

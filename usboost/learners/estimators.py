"""scikit-learn's classifiers and regressors as weak learners.

Single trees and linear models are stored as arrays, which files can hold; other estimators work in memory.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.tree import (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExtraTreeClassifier,
    ExtraTreeRegressor,
)
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

from usboost.data.table import Table
from usboost.data.views import Frame, View
from usboost.errors import UsboostError
from usboost.files.onnx_graph import TableNodes, Value, joined
from usboost.learners.base import FittedLearner, Target, check_outputs
from usboost.learners.tree import Tree
from usboost.learners.tree_nodes import tree_sum

TREES = (DecisionTreeClassifier, ExtraTreeClassifier, DecisionTreeRegressor, ExtraTreeRegressor)
LINEAR = (LogisticRegression, LinearRegression, Ridge)


@dataclass(frozen=True)
class EstimatorRows:
    """Rows as estimators read them: float64 (n, p), float32 column-major for trees; present, bool (n,)."""

    values: np.ndarray
    matrix: np.ndarray
    present: np.ndarray


@dataclass(frozen=True)
class LinearForm:
    """x ↦ x W + b with float64 weights (p, k) and intercepts (k,); of a hyperplane (p,) and (1,).

    As of the other forms, `check` refuses what is not one, and returns the number of outputs.
    """

    weights: np.ndarray
    intercepts: np.ndarray

    def predict(self, prepared: EstimatorRows) -> np.ndarray:
        return prepared.values @ self.weights + self.intercepts

    def check(self, n_columns: int | None, ndim: int) -> int:
        shape = self.weights.shape
        wrong = len(shape) != ndim or self.intercepts.shape != (shape[1:] or (1,))
        if wrong or n_columns not in (None, shape[0]):
            raise UsboostError(f"a linear estimator has weights of shape {shape}, not one for each column")
        both = np.concatenate((self.weights, self.intercepts), axis=None)
        if both.dtype.kind != "f" or not np.isfinite(both).all():
            raise UsboostError("a linear estimator holds something that is no finite number")
        return len(self.intercepts)


@dataclass(frozen=True)
class TreeForm:
    """A tree; of a classifier its leaves hold −1 or 1."""

    tree: Tree

    def predict(self, prepared: EstimatorRows) -> np.ndarray:
        return self.tree.predict(prepared.matrix)

    def check(self, n_columns: int | None, ndim: int) -> int:
        self.tree.check(n_columns)
        return self.tree.value.shape[1]


@dataclass(frozen=True)
class InMemory:
    """Any other fitted estimator."""

    estimator: Any
    n_outputs: int = 1

    def predict(self, prepared: EstimatorRows) -> np.ndarray:
        predicted = np.asarray(self.estimator.predict(prepared.values), dtype=np.float64)
        return predicted.reshape(len(prepared.values), self.n_outputs)

    def check(self, n_columns: int | None, ndim: int) -> int:
        raise _without_file_form(self.estimator)


Form = LinearForm | TreeForm | InMemory


@dataclass(frozen=True)
class _FittedForms:
    """The estimators of one round; classes below say what their files call them."""

    forms: tuple[Form, ...]
    in_files: ClassVar[tuple[str, str, str]]  # their list, a linear one, and its intercepts
    ndim: ClassVar[int]  # of a linear one's weights

    def to_arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return arrays and JSON. Raises `UsboostError` if an estimator is neither linear nor a tree."""
        listed, linear, intercepts = self.in_files
        arrays: dict[str, np.ndarray] = {}
        kinds: list[str] = []
        for k, form in enumerate(self.forms):
            if isinstance(form, InMemory):
                raise _without_file_form(form.estimator)
            if isinstance(form, TreeForm):
                own = form.tree.arrays()
            else:
                own = {"weights": form.weights, intercepts: form.intercepts}
            kinds.append("tree" if isinstance(form, TreeForm) else linear)
            arrays |= {f"{k}.{name}": array for name, array in own.items()}
        return arrays, {listed: kinds}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> Self:
        """Make them of what `to_arrays` gave."""
        listed, linear, intercepts = cls.in_files
        forms: list[Form] = []
        for k, kind in enumerate(meta[listed]):
            if kind == "tree":
                forms.append(TreeForm(Tree.from_arrays(arrays, f"{k}.")))
            elif kind == linear:
                forms.append(LinearForm(arrays[f"{k}.weights"], arrays[f"{k}.{intercepts}"]))
            else:
                raise UsboostError(f"unknown kind of weak estimator {kind!r}")
        return cls(tuple(forms))

    def check(self, n_outputs: int | None = None, n_columns: int | None = None) -> None:
        """Refuse what is neither a tree nor linear over the columns, and another number of outputs."""
        check_outputs(sum(form.check(n_columns, self.ndim) for form in self.forms), n_outputs)


@dataclass(frozen=True)
class FittedClassifiers(_FittedForms):
    """The classifiers of one round, one per output column."""

    kind: ClassVar[str] = "classifier"
    in_files: ClassVar[tuple[str, str, str]] = ("rules", "hyperplane", "intercept")
    ndim: ClassVar[int] = 1

    def predict(self, prepared: EstimatorRows) -> np.ndarray:
        """Return −1 or 1, and 0 where the sample is absent: float32 (n, D)."""
        columns = [form.predict(prepared).reshape(len(prepared.values), -1)[:, 0] for form in self.forms]
        out = np.where(np.stack(columns, axis=1) > 0, np.float32(1.0), np.float32(-1.0))
        out[~prepared.present] = 0.0
        return out


@dataclass(frozen=True)
class FittedRegressors(_FittedForms):
    """The regressors of one round, their outputs side by side: one for all outputs, or one for each."""

    kind: ClassVar[str] = "regressor"
    in_files: ClassVar[tuple[str, str, str]] = ("forms", "linear", "intercepts")
    ndim: ClassVar[int] = 2

    def predict(self, prepared: EstimatorRows) -> np.ndarray:
        """Return float32 (n, D)."""
        return np.concatenate([form.predict(prepared) for form in self.forms], axis=1).astype(np.float32)

    def to_onnx(self, view: TableNodes) -> Value:
        """Return the same in a graph; raises `UsboostError` if an estimator has no file form."""
        parts = []
        for form in self.forms:
            if isinstance(form, InMemory):
                raise _without_file_form(form.estimator)
            if isinstance(form, TreeForm):
                parts.append(tree_sum(view, [form.tree]))
            else:
                parts.append(view.matrix().cast(np.float64) @ form.weights + form.intercepts)
        return joined(parts)


class _EstimatorLearner(BaseEstimator):
    """A scikit-learn estimator, cloned for every round; classes below say of which sort."""

    def __init__(self, estimator: Any = None, reads: tuple[str, ...] | None = None) -> None:
        self.estimator = estimator
        self.reads = reads

    def check_writable(self) -> None:
        """Refuse an estimator that is neither a tree nor linear: it has no file form."""
        if self.estimator is not None and type(self.estimator) not in (*TREES, *LINEAR):
            raise _without_file_form(self.estimator)


class ClassifierLearner(_EstimatorLearner):
    """A scikit-learn classifier, cloned for every round and output column.

    It is fitted to targets −1 and 1 with that column's weights, scaled to a mean of 1 so that a
    regularised classifier sees as much data as there is. Columns share the round's seed: classes
    that mirror each other then get classifiers that do.

    Parameters
    ----------
    estimator : scikit-learn classifier whose ``fit`` takes ``sample_weight``, optional
        Default: a `DecisionTreeClassifier` of depth 3. Trees and logistic regressions are stored as
        arrays and can be written to files; others work in memory.
    reads : tuple of one view name, optional; by default the view with the learner's own name
    """

    kind: ClassVar[str] = "classifier"
    fitted: ClassVar[type] = FittedClassifiers
    holds: ClassVar[dict[str, Any]] = {
        "estimator": ("DecisionTreeClassifier", "ExtraTreeClassifier", "LogisticRegression")
    }

    def prepare(self, view: View) -> EstimatorRows:
        """Prepare a `Frame`, or a `Table`, whose category codes are then ordinals."""
        if isinstance(view, Table):
            view = Frame(view.matrix().astype(np.float64), np.ones(len(view), dtype=bool))
        if not isinstance(view, Frame):
            raise UsboostError(f"a classifier reads frames or tables, not {type(view).__name__}")
        with np.errstate(over="ignore"):  # scikit-learn's trees refuse such numbers in a sentence
            matrix = np.asfortranarray(view.values, dtype=np.float32)
        return EstimatorRows(np.ascontiguousarray(view.values), matrix, view.present)

    def trainer(self, prepared: EstimatorRows, n_outputs: int) -> "ClassifierTrainer":
        estimator = DecisionTreeClassifier(max_depth=3) if self.estimator is None else self.estimator
        is_one = isinstance(estimator, BaseEstimator) and is_classifier(estimator)
        if not (is_one and has_fit_parameter(estimator, "sample_weight")):
            raise UsboostError(f"{type(estimator).__name__} is no classifier whose fit takes sample_weight")
        return ClassifierTrainer(estimator, prepared)


class ClassifierTrainer:
    """Fits one clone per output column to the rows that are present."""

    def __init__(self, estimator: Any, prepared: EstimatorRows) -> None:
        self._estimator, self._prepared = estimator, prepared

    def fit(self, target: Target, *, seed: int, start: FittedLearner | None = None) -> FittedClassifiers:
        values = target.values
        if not np.isin(values, (-1.0, 1.0)).all():
            raise UsboostError("a classifier learns targets −1 and 1; use a regression tree or a network")
        given = target.fit_weights
        weights = np.ones(len(values)) if given is None else given
        weights = np.broadcast_to(weights.reshape(len(values), -1), values.shape)
        columns = zip(values.T, weights.T)
        return FittedClassifiers(tuple(self._fit_column(*each, target.counts, seed) for each in columns))

    def _fit_column(
        self, signs: np.ndarray, weights: np.ndarray, counts: np.ndarray | None, seed: int
    ) -> Form:
        rows = self._prepared.present & (weights > 0)
        if not rows.any():  # weights so small that they are 0
            rows, weights = self._prepared.present, np.ones(len(weights)) if counts is None else counts
        signs, weights = signs[rows], weights[rows]
        if len(np.unique(signs)) < 2:  # most classifiers refuse a single class
            return TreeForm(Tree.constant(float(signs[0]) if len(signs) else -1.0))
        weights = weights / weights.mean()
        if counts is not None:  # as many rows as the samples stand for
            weights = weights * counts[rows].mean()
        fitted = _fitted(self._estimator, seed, self._prepared.values[rows], signs, sample_weight=weights)
        if type(fitted) in TREES:
            grown = fitted.tree_
            shares = grown.value[grown.children_left < 0, 0]
            # classes_ is (−1, 1); of equal shares the first, as scikit-learn's own predict answers
            leaves = np.where(shares.argmax(axis=1) == 1, 1.0, -1.0).astype(np.float32)
            return TreeForm(replace(Tree.from_sklearn(grown), value=leaves[:, None]))
        if type(fitted) in LINEAR:
            return LinearForm(fitted.coef_[0].astype(np.float64), fitted.intercept_.astype(np.float64))
        return InMemory(fitted)


class RegressorLearner(_EstimatorLearner):
    """A scikit-learn regressor, cloned for every round and fitted by (weighted) mean squared error.

    Parameters
    ----------
    estimator : scikit-learn regressor, optional
        Default: `Ridge`. `Ridge`, `LinearRegression` and single trees are stored as arrays and can be
        written to files; others work in memory. One that takes a single output is fitted once for each.
    reads : tuple of view names, optional
        The tables that it reads side by side; by default the view with the learner's own name.
    """

    kind: ClassVar[str] = "regressor"
    fitted: ClassVar[type] = FittedRegressors
    holds: ClassVar[dict[str, Any]] = {
        "estimator": ("Ridge", "LinearRegression", "DecisionTreeRegressor", "ExtraTreeRegressor")
    }

    def prepare(self, view: View) -> EstimatorRows:
        """Prepare a `Table`; category codes become numbers."""
        if not isinstance(view, Table):
            raise UsboostError(f"a regressor reads tables, not {type(view).__name__}")
        matrix = view.matrix()
        values = np.ascontiguousarray(matrix, dtype=np.float64)
        return EstimatorRows(values, matrix, np.ones(len(view), dtype=bool))

    def trainer(self, prepared: EstimatorRows, n_outputs: int) -> "RegressorTrainer":
        estimator = Ridge() if self.estimator is None else self.estimator
        if not (isinstance(estimator, BaseEstimator) and is_regressor(estimator)):
            raise UsboostError(f"{type(estimator).__name__} is not a scikit-learn regressor")
        return RegressorTrainer(estimator, prepared)


class RegressorTrainer:
    """Fits a clone to each round's target, or one to each of its outputs."""

    def __init__(self, estimator: Any, prepared: EstimatorRows) -> None:
        self._estimator, self._prepared = estimator, prepared

    def fit(self, target: Target, *, seed: int, start: FittedLearner | None = None) -> FittedRegressors:
        weights, n_outputs = target.fit_weights, target.values.shape[1]
        together = get_tags(self._estimator).target_tags.multi_output
        parts = [slice(k, k + 1) for k in range(n_outputs)]
        if together and (weights is None or weights.ndim == 1):
            parts = [slice(0, n_outputs)]
        forms = []
        for part in parts:
            own = weights if weights is None or weights.ndim == 1 else weights[:, part.start]
            forms.append(self._fit(target.values[:, part], own, target.counts, seed))
        return FittedRegressors(tuple(forms))

    def _fit(
        self, values: np.ndarray, weights: np.ndarray | None, counts: np.ndarray | None, seed: int
    ) -> Form:
        rows: Any = slice(None) if weights is None else weights > 0
        given: dict[str, Any] = {}
        if weights is not None:
            taken = weights[rows]
            if has_fit_parameter(self._estimator, "sample_weight"):
                taken = taken / taken.mean()
                # a penalty sees as many rows as the samples stand for
                given["sample_weight"] = taken if counts is None else taken * counts[rows].mean()
            elif np.ptp(taken):
                raise UsboostError(
                    f"{type(self._estimator).__name__} takes no sample_weight, which this target needs; "
                    "use another regressor, or the target 'gradient'"
                )
        y, k = values[rows], values.shape[1]
        fitted = _fitted(self._estimator, seed, self._prepared.values[rows], y if k > 1 else y[:, 0], **given)
        if type(fitted) in TREES:
            return TreeForm(Tree.from_sklearn(fitted.tree_))
        if type(fitted) in LINEAR:
            coefficients = np.asarray(fitted.coef_, dtype=np.float64).reshape(k, -1).T
            intercepts = np.broadcast_to(np.asarray(fitted.intercept_, dtype=np.float64), (k,))
            return LinearForm(np.ascontiguousarray(coefficients), intercepts.copy())
        return InMemory(fitted, k)


def _fitted(estimator: Any, seed: int, rows: np.ndarray, y: np.ndarray, **weights: Any) -> Any:
    """Fit a clone, after setting the seed of all that is random in it."""
    own = clone(estimator)
    names = [name for name in own.get_params() if name.split("__")[-1] == "random_state"]
    own.set_params(**dict.fromkeys(names, seed % 2**32))
    try:
        return own.fit(rows, y, **weights)
    except ValueError as error:
        raise UsboostError(f"the weak estimator {own} could not be fitted: {error}") from error


def _without_file_form(estimator: Any) -> UsboostError:
    return UsboostError(
        f"a {type(estimator).__name__} has no file form; use a single tree or linear model of scikit-learn's "
        "as the estimator of a model that is to be saved or checkpointed"
    )

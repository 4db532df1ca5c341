"""scikit-learn classifiers as weak learners with outputs −1 and 1, one classifier per output column."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier
from sklearn.utils.validation import has_fit_parameter

from usboost.data.table import Table
from usboost.data.views import Frame, View
from usboost.errors import UsboostError
from usboost.learners.base import FittedLearner, Target, check_outputs
from usboost.learners.trees.tree import Tree

_TREES = (DecisionTreeClassifier, ExtraTreeClassifier)
_WRITABLE = (*_TREES, LogisticRegression)


@dataclass(frozen=True)
class PreparedFrame:
    """A frame as classifiers read it: float64 (n, d), float32 column-major (n, d), and present (n,)."""

    values: np.ndarray
    matrix: np.ndarray
    present: np.ndarray


@dataclass(frozen=True)
class Hyperplane:
    """1 where ⟨x, weights⟩ + intercept > 0, else −1; float64 (d,) and (1,)."""

    weights: np.ndarray
    intercept: np.ndarray

    def predict(self, prepared: PreparedFrame) -> np.ndarray:
        return np.where(prepared.values @ self.weights + self.intercept > 0, 1.0, -1.0)

    def check(self, n_columns: int | None) -> None:
        both = np.concatenate((self.weights, self.intercept), axis=None)
        if self.weights.ndim != 1 or self.intercept.shape != (1,) or both.dtype.kind != "f":
            raise UsboostError("a hyperplane is not a vector of numbers and an intercept")
        if n_columns not in (None, len(self.weights)) or not np.isfinite(both).all():
            raise UsboostError("a hyperplane holds a number that is not finite, or too many or few")


@dataclass(frozen=True)
class SignTree:
    """A tree whose leaves hold −1 or 1."""

    tree: Tree

    def predict(self, prepared: PreparedFrame) -> np.ndarray:
        return self.tree.predict(prepared.matrix)[:, 0]

    def check(self, n_columns: int | None) -> None:
        self.tree.check(n_columns)


@dataclass(frozen=True)
class Opaque:
    """Any other fitted classifier, in memory only."""

    estimator: Any

    def predict(self, prepared: PreparedFrame) -> np.ndarray:
        return np.where(self.estimator.predict(prepared.values) > 0, 1.0, -1.0)

    def check(self, n_columns: int | None) -> None:
        raise UsboostError(f"a {type(self.estimator).__name__} has no file form")


Rule = Hyperplane | SignTree | Opaque


@dataclass(frozen=True)
class FittedClassifiers:
    """The classifiers of one round, one per output column."""

    rules: tuple[Rule, ...]
    kind: ClassVar[str] = "classifier"

    def predict(self, prepared: PreparedFrame) -> np.ndarray:
        """−1 or 1, and 0 where the sample is absent: float32 (n, D)."""
        columns = [rule.predict(prepared) for rule in self.rules]
        out = np.stack(columns, axis=1).astype(np.float32)
        out[~prepared.present] = 0.0
        return out

    def to_arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays and JSON.

        Raises `UsboostError` if a classifier is neither a tree nor a logistic regression.
        """
        arrays: dict[str, np.ndarray] = {}
        kinds: list[str] = []
        for k, rule in enumerate(self.rules):
            if isinstance(rule, Opaque):
                raise _unwritable(rule.estimator)
            if isinstance(rule, SignTree):
                kinds.append("tree")
                arrays |= {f"{k}.{name}": array for name, array in rule.tree.arrays().items()}
            else:
                kinds.append("hyperplane")
                arrays |= {f"{k}.weights": rule.weights, f"{k}.intercept": rule.intercept}
        return arrays, {"rules": kinds}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> FittedClassifiers:
        """What `to_arrays` gave, back."""
        rules: list[Rule] = []
        for k, kind in enumerate(meta["rules"]):
            if kind == "tree":
                rules.append(SignTree(Tree.from_arrays(arrays, f"{k}.")))
            elif kind == "hyperplane":
                rules.append(Hyperplane(arrays[f"{k}.weights"], arrays[f"{k}.intercept"]))
            else:
                raise UsboostError(f"unknown kind of weak classifier {kind!r}")
        return cls(tuple(rules))

    def check(self, n_outputs: int | None = None, n_columns: int | None = None) -> None:
        """Every rule is a tree or a hyperplane over the columns, and there are `n_outputs` rules.

        Raises `UsboostError` if not.
        """
        for rule in self.rules:
            rule.check(n_columns)
        check_outputs(len(self.rules), n_outputs)


class ClassifierLearner(BaseEstimator):
    """A scikit-learn classifier, cloned for every round and output column.

    It is fitted to targets −1 and 1 with that column's weights, scaled to a mean of 1 so that a
    regularised classifier sees as much data as there is. Columns share the round's seed: classes
    that mirror each other then get classifiers that do.

    Parameters
    ----------
    estimator : scikit-learn classifier whose ``fit`` takes ``sample_weight``, optional
        Default: a `DecisionTreeClassifier` of depth 3. Trees and logistic regressions are kept as
        arrays and can be written to files; others work in memory.
    reads : tuple of one view name, optional; by default the view with the learner's own name
    """

    kind: ClassVar[str] = "classifier"
    fitted: ClassVar[type] = FittedClassifiers
    holds: ClassVar[dict[str, Any]] = {
        "estimator": ("DecisionTreeClassifier", "ExtraTreeClassifier", "LogisticRegression")
    }

    def __init__(self, estimator: Any = None, reads: tuple[str, ...] | None = None) -> None:
        self.estimator = estimator
        self.reads = reads

    def check_writable(self) -> None:
        """Refuse a classifier that is neither a tree nor a logistic regression: it has no file form."""
        if self.estimator is not None and type(self.estimator) not in _WRITABLE:
            raise _unwritable(self.estimator)

    def prepare(self, view: View) -> PreparedFrame:
        """Takes a `Frame`, or a `Table`, whose category codes are then ordinals."""
        if isinstance(view, Table):
            view = Frame(view.matrix().astype(np.float64), np.ones(len(view), dtype=bool))
        if not isinstance(view, Frame):
            raise UsboostError(f"a classifier reads frames or tables, not {type(view).__name__}")
        with np.errstate(over="ignore"):  # scikit-learn's trees refuse such numbers in a sentence
            matrix = np.asfortranarray(view.values, dtype=np.float32)
        return PreparedFrame(np.ascontiguousarray(view.values), matrix, view.present)

    def trainer(self, prepared: PreparedFrame, n_outputs: int) -> ClassifierTrainer:
        estimator = DecisionTreeClassifier(max_depth=3) if self.estimator is None else self.estimator
        is_one = isinstance(estimator, BaseEstimator) and is_classifier(estimator)
        if not (is_one and has_fit_parameter(estimator, "sample_weight")):
            raise UsboostError(
                f"{type(estimator).__name__} is not a classifier whose fit takes sample_weight"
            )
        return ClassifierTrainer(estimator, prepared)


class ClassifierTrainer:
    """Fits one clone per output column to the rows that are present."""

    def __init__(self, estimator: Any, prepared: PreparedFrame) -> None:
        self._estimator, self._prepared = estimator, prepared

    def fit(self, target: Target, *, seed: int, start: FittedLearner | None = None) -> FittedClassifiers:
        values = target.values
        if not np.isin(values, (-1.0, 1.0)).all():
            raise UsboostError(
                "a classifier learns targets −1 and 1; use a regression tree or a network with this loss"
            )
        given = target.fit_weights
        weights = np.ones(len(values)) if given is None else given
        weights = np.broadcast_to(weights.reshape(len(values), -1), values.shape)
        columns = [
            self._fit_column(values[:, k], weights[:, k], target.counts, seed) for k in range(values.shape[1])
        ]
        return FittedClassifiers(tuple(columns))

    def _fit_column(
        self, signs: np.ndarray, weights: np.ndarray, counts: np.ndarray | None, seed: int
    ) -> Rule:
        rows = self._prepared.present & (weights > 0)
        if not rows.any():  # weights so small that they are 0
            rows, weights = self._prepared.present, np.ones(len(weights)) if counts is None else counts
        signs, weights = signs[rows], weights[rows]
        if len(np.unique(signs)) < 2:  # most classifiers refuse a single class
            return SignTree(Tree.constant(float(signs[0]) if len(signs) else -1.0))
        weights = weights / weights.mean()
        if counts is not None:  # as many rows as the samples stand for
            weights = weights * counts[rows].mean()
        estimator = clone(self._estimator)
        names = [name for name in estimator.get_params() if name.split("__")[-1] == "random_state"]
        estimator.set_params(**dict.fromkeys(names, seed))
        try:
            estimator.fit(self._prepared.values[rows], signs, sample_weight=weights)
        except ValueError as error:
            raise UsboostError(f"the weak classifier {estimator} could not be fitted: {error}") from error
        return _rule(estimator)


def _unwritable(estimator: Any) -> UsboostError:
    return UsboostError(
        f"a {type(estimator).__name__} has no file form; use a DecisionTreeClassifier or a "
        "LogisticRegression as the estimator of a model that is to be saved"
    )


def _rule(estimator: Any) -> Rule:
    if type(estimator) in _TREES:
        grown = estimator.tree_
        shares = grown.value[grown.children_left < 0, 0]
        # classes_ is (−1, 1); of equal shares the first, as scikit-learn's own predict answers
        signs = np.where(shares.argmax(axis=1) == 1, 1.0, -1.0).astype(np.float32)
        return SignTree(replace(Tree.from_sklearn(grown), value=signs[:, None]))
    if type(estimator) is LogisticRegression:
        return Hyperplane(estimator.coef_[0].astype(np.float64), estimator.intercept_.astype(np.float64))
    return Opaque(estimator)

"""The interface of weak learners, whatever their kind."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

import numpy as np

from usboost.data.views import View
from usboost.errors import UsboostError
from usboost.files.registry import Registry
from usboost.shards.collective import world

LEARNERS = Registry(
    "learner",
    {
        "network": "usboost.learners.networks.learner:NetworkLearner",
        "tree": "usboost.learners.tree_learner:TreeLearner",
        "classifier": "usboost.learners.estimators:ClassifierLearner",
        "regressor": "usboost.learners.estimators:RegressorLearner",
        "ridge": "usboost.learners.ridge:RidgeLearner",
    },
)
"""Weak learners by kind."""


@dataclass(frozen=True)
class LeafValues:
    """The leaf values that a loss wants a tree to have instead of the means of the target (Friedman 2001).

    Attributes
    ----------
    residual : float64 (n,), y − f
    best : (residuals (k,), their leaves (k,), number of leaves, `Target.counts` of the k or None) -> the
        constants of least loss, one a leaf
    """

    residual: np.ndarray
    best: Callable[[np.ndarray, np.ndarray, int, np.ndarray | None], np.ndarray]


@dataclass(frozen=True)
class Target:
    """The target that a round's learner is fitted to, by weighted mean squared error.

    Attributes
    ----------
    values : float array of shape (n, D)
    weights : float array of shape (n,) or (n, D), or None for equal weights
    left_out : bool array of the weights' shape, or (n,), or None
        Samples that the learner does not see in this round.
    metric : float array of shape (n, D, D), or (n, D) for diagonal ones, or None
        Symmetric and positive semi-definite: sample i's error is (g − v)ᵀ metric_i (g − v) instead of the
        squared length of g − v. Only trainers with ``takes_metric = True`` are given one, and no weights
        besides.
    leaf_values : LeafValues or None
        For trees, whose splits are found by the target all the same; other learners do not look at it.
    counts : float64 array of shape (n,), positive, or None for 1
        How many rows each sample stands for: the sample weights, the same in every round. Errors count so
        many times more, and where a learner counts rows (in a tree's leaves) it counts these.
    """

    values: np.ndarray
    weights: np.ndarray | None = None
    left_out: np.ndarray | None = None
    metric: np.ndarray | None = None
    leaf_values: LeafValues | None = None
    counts: np.ndarray | None = None

    @property
    def error_weights(self) -> np.ndarray | None:
        """Return by what errors count: `weights`, or a diagonal metric, times `counts`; None for alike."""
        weights = self.weights if self.metric is None or self.metric.ndim == 3 else self.metric
        if weights is None or self.counts is None:
            return self.counts if weights is None else weights
        return weights * self.counts.reshape(-1, *[1] * (weights.ndim - 1))

    @property
    def fit_weights(self) -> np.ndarray | None:
        """Return the weights that a learner fits with: 0 for those left out."""
        weights, left_out = self.error_weights, self.left_out
        if left_out is None:
            return weights
        if weights is None:
            return np.where(left_out, 0.0, 1.0)
        if left_out.ndim < weights.ndim:
            left_out = left_out[:, None]
        return np.where(left_out, 0.0, weights[:, None] if weights.ndim < left_out.ndim else weights)

    def without(self, rows: np.ndarray | None) -> "Target":
        """Return the same with more samples left out: bool (n,), or None for none."""
        if rows is None:
            return self
        if self.left_out is not None:
            rows = self.left_out | (rows if self.left_out.ndim == 1 else rows[:, None])
        return replace(self, left_out=rows)

    def of(self, rows: np.ndarray) -> "Target":
        """Return the same of some rows: int (k,)."""
        others = {name: getattr(self, name) for name in ("weights", "left_out", "metric", "counts")}
        there = {name: array[rows] for name, array in others.items() if array is not None}
        leaves = self.leaf_values and replace(self.leaf_values, residual=self.leaf_values.residual[rows])
        return replace(self, values=self.values[rows], leaf_values=leaves, **there)


@runtime_checkable
class FittedLearner(Protocol):
    """One weak learner after fitting."""

    def predict(self, prepared: Any) -> np.ndarray:
        """Return float32 (n, D) on a view prepared by its learner."""
        ...

    def to_arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return arrays for safetensors, and what else `from_arrays` needs, as JSON."""
        ...

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> "FittedLearner":
        """Make the learner that `to_arrays` described."""
        ...

    def check(self, n_outputs: int | None = None, n_columns: int | None = None) -> None:
        """Refuse what no fitted learner can hold; it may come from a file that anyone has made.

        Raises `UsboostError` before anything is done with an array that does not fit, whatever the file says.
        `n_outputs` and `n_columns` are D, and the columns of the view, where they are known.
        """
        ...


class Trainer(Protocol):
    def fit(self, target: Target, *, seed: int, start: FittedLearner | None) -> FittedLearner:
        """Fit one weak learner to a round's target; `start` is the one of the round before."""
        ...


class Learner(Protocol):
    """Settings of a weak learner; stateless, so that one object is used in every round and fit.

    An attribute `reads`, a tuple of view names, lists what it reads: the view with the learner's own name
    if it is absent or None, one view, or several side by side. An attribute ``reads_images = True`` says
    that it reads images themselves where they are its only view; others are given their embeddings, as a
    table, or so many principal components of them as an attribute `components` says.

    An attribute `leave_one_out` that is true says that its trainers have a method `outputs(fitted)`: what the
    learner fitted last gives training rows as if unseen, float32 (n, D). A round's steps are then searched on
    these. Scores, on training rows too, are what the learner predicts.
    """

    kind: ClassVar[str]
    fitted: ClassVar[type]

    def prepare(self, view: View) -> Any:
        """Return a view in the form that training and prediction take, made once a fit."""
        ...

    def trainer(self, prepared: Any, n_outputs: int) -> Trainer:
        """Return what fits one weak learner with D outputs a round to the prepared rows."""
        ...


def view_names(name: str, learner: Any) -> tuple[str, ...]:
    """Return the views that the learner called `name` reads."""
    return tuple(getattr(learner, "reads", None) or (name,))


def kind_of(fitted: FittedLearner) -> str:
    """Return the kind under which a fitted learner is written.

    Raises `UsboostError` if its class is that of no registered learner.
    """
    kind = getattr(fitted, "kind", None)
    if kind in LEARNERS and isinstance(fitted, LEARNERS[str(kind)].fitted):
        return str(kind)
    raise UsboostError(
        f"a {type(fitted).__name__} cannot be written: no registered learner has it as its `fitted` class; "
        "register the learner with usboost.learners.base.LEARNERS.register"
    )


def check_writable(name: str, learner: Any) -> None:
    """Refuse a learner whose weak learners could not be written or read back.

    Raises `UsboostError`, naming the learner; called before training, when there is nothing to lose yet.
    """
    if LEARNERS.kind_of(type(learner)) is None:
        raise UsboostError(
            f"learner {name!r}, a {type(learner).__name__}, is not registered, so that what it fits cannot "
            "be written; register it with usboost.learners.base.LEARNERS.register, or do not save it"
        )
    if own := getattr(learner, "check_writable", None):
        own()


def read_learner(kind: str, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> FittedLearner:
    """Make a weak learner of a file's arrays and JSON, checked.

    Raises `UsboostError` if the kind is unknown or the content is not one of its weak learners.
    """
    learner: FittedLearner = LEARNERS[kind].fitted.from_arrays(arrays, meta)
    learner.check()
    return learner


def check_outputs(given: int, n_outputs: int | None) -> None:
    """Refuse a weak learner with another number of outputs than is needed, where that is known."""
    if n_outputs not in (None, given):
        raise UsboostError(f"a weak learner has {given} outputs where {n_outputs} are needed")


def sum_one_by_one(learners: Sequence[Any], steps: Sequence[float], prepared: Any) -> np.ndarray:
    """Return Σ_k step_k · learner_k(x), float64 (n, D)."""
    total: np.ndarray | None = None
    for learner, step in zip(learners, steps):
        # a plain float would leave the product of a float32 output in float32
        part = np.float64(step) * learner.predict(prepared)
        total = part if total is None else np.add(total, part, out=total)
    if total is None:
        raise ValueError("no learner to sum")
    return total


@dataclass(frozen=True)
class PresentRows:
    """The prepared rows of a view that others of its n rows lack: k of them at positions `rows`, int (k,).

    `prepared` is None where k is 0.
    """

    prepared: Any
    rows: np.ndarray
    n: int

    def spread(self, outputs: np.ndarray) -> np.ndarray:
        """Spread outputs (k, D) to (n, D): 0 for the rows that lack the view."""
        out = np.zeros((self.n, outputs.shape[1]), dtype=outputs.dtype)
        out[self.rows] = outputs
        return out


def prepare(learner: Learner, view: View) -> Any:
    """Prepare the view for its learner; return it and the rows that have it, where some lack it."""
    absent = getattr(view, "absent", None)
    if absent is None or not absent.any():
        return learner.prepare(view)
    rows = np.flatnonzero(~absent)
    # other shards may have rows, and this one takes part in their sums
    empty = not len(rows) and world().count == 1
    return PresentRows(None if empty else learner.prepare(view[rows]), rows, len(view))


def predict(fitted: FittedLearner, prepared: Any, n_outputs: int) -> np.ndarray:
    """Return the learner's outputs, float32 (n, D), and 0 for rows that lack the view."""
    if not isinstance(prepared, PresentRows):
        return fitted.predict(prepared)
    if prepared.prepared is None:
        return np.zeros((prepared.n, n_outputs), dtype=np.float32)
    return prepared.spread(fitted.predict(prepared.prepared))


def weighted_sum(
    learners: Sequence[FittedLearner], steps: Sequence[float], prepared: Any, n_outputs: int = 1
) -> np.ndarray:
    """Return Σ_k step_k · learner_k(x), float64 (n, D), 0 for rows that lack the view.

    Learners of one kind do it at once if their class has a `weighted_sum` of its own.
    """
    if isinstance(prepared, PresentRows):
        if prepared.prepared is None:
            return np.zeros((prepared.n, n_outputs))
        return prepared.spread(weighted_sum(learners, steps, prepared.prepared))
    kinds = {type(learner) for learner in learners}
    at_once = getattr(next(iter(kinds)), "weighted_sum", None) if len(kinds) == 1 else None
    return (at_once or sum_one_by_one)(learners, steps, prepared)


class PresentTrainer:
    """A learner's trainer for the rows that have its view. Raises `UsboostError` if no row has it."""

    def __init__(self, learner: Learner, prepared: Any, n_outputs: int) -> None:
        if not world().highest(not isinstance(prepared, PresentRows) or len(prepared.rows) > 0):
            raise UsboostError(
                "no training row has its view (all are marked as absent); leave this learner out, or give it "
                "rows"
            )
        self._some = prepared if isinstance(prepared, PresentRows) else None
        self._prepared = prepared.prepared if isinstance(prepared, PresentRows) else prepared
        self._trainer = learner.trainer(self._prepared, n_outputs)
        self.takes_metric: bool = getattr(self._trainer, "takes_metric", False)
        self.leave_one_out = bool(getattr(learner, "leave_one_out", False))

    def fit(self, target: Target, *, seed: int, start: FittedLearner | None) -> FittedLearner:
        """Fit the learner to the target (of n rows) on the rows that have its view."""
        if self._some is not None:
            target = target.of(self._some.rows)
        weights = None if target.left_out is None else target.fit_weights
        # all that have it may be to sit this round out
        if weights is not None and not world().highest(bool(weights.any())):
            target = replace(target, left_out=None)
        return self._trainer.fit(target, seed=seed, start=start)

    def predict(self, fitted: FittedLearner) -> np.ndarray:
        """Return what a learner gives the n training rows: float32 (n, D)."""
        predicted = fitted.predict(self._prepared)
        return predicted if self._some is None else self._some.spread(predicted)

    def outputs(self, fitted: FittedLearner) -> np.ndarray:
        """Return what a leave-one-out learner, fitted last, gives them unseen: float32 (n, D)."""
        outputs: np.ndarray = cast(Any, self._trainer).outputs(fitted)
        return outputs if self._some is None else self._some.spread(outputs)

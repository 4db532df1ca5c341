"""What the stagewise loop asks of a weak learner, of any kind.

A `Learner` holds settings only. It prepares a view once (bins it, moves it to the device), a
`Trainer` then fits one weak learner a round on the prepared rows, and what comes out predicts on
anything prepared the same way. One entry in `LEARNERS` makes a learner known to save, load, checkpoints,
params.yaml and the command line; `usboost.testing` checks new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from usboost.data.views import View
from usboost.errors import UsboostError
from usboost.files.registry import Registry

LEARNERS = Registry(
    "learner",
    {
        "network": "usboost.learners.networks.learner:NetworkLearner",
        "tree": "usboost.learners.trees.learner:TreeLearner",
        "classifier": "usboost.learners.classifiers:ClassifierLearner",
        "regressor": "usboost.learners.regressors:RegressorLearner",
        "ridge": "usboost.learners.ridge:RidgeLearner",
    },
)
"""Weak learners by kind."""


@dataclass(frozen=True)
class LeafValues:
    """What a loss wants a tree's leaves to hold instead of the means of the target (Friedman 2001).

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
    """What a round's learner is fitted to, by weighted mean squared error.

    Attributes
    ----------
    values : float array of shape (n, D)
    weights : float array of shape (n,) or (n, D), or None for equal weights
    left_out : bool array of the weights' shape, or (n,), or None
        Samples that the learner does not see in this round.
    metric : float array of shape (n, D, D), or None
        Symmetric and positive semi-definite: sample i's error is (g − v)ᵀ metric_i (g − v) instead of the
        squared length of g − v. Only trainers with ``takes_metric = True`` are given one, and no weights
        beside it.
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
        """By what the samples' errors count, left out or not: `weights` times `counts`; None for alike."""
        if self.weights is None or self.counts is None:
            return self.counts if self.weights is None else self.weights
        return self.weights * self.counts.reshape(-1, *[1] * (self.weights.ndim - 1))

    @property
    def fit_weights(self) -> np.ndarray | None:
        """The weights that a learner fits with: 0 for those left out."""
        weights = self.error_weights
        if self.left_out is None:
            return weights
        if weights is None:
            return np.where(self.left_out, 0.0, 1.0)
        left_out = self.left_out
        if left_out.ndim < weights.ndim:
            left_out = left_out[:, None]
        elif left_out.ndim > weights.ndim:
            weights = weights[:, None]
        return np.where(left_out, 0.0, weights)

    def without(self, rows: np.ndarray | None) -> Target:
        """The same with more samples left out: bool (n,), or None for none."""
        if rows is None:
            return self
        if self.left_out is not None:
            rows = self.left_out | (rows if self.left_out.ndim == 1 else rows[:, None])
        return replace(self, left_out=rows)

    def of(self, rows: np.ndarray) -> Target:
        """The same of some rows: int (k,)."""
        others = {name: getattr(self, name) for name in ("weights", "left_out", "metric", "counts")}
        there = {name: array[rows] for name, array in others.items() if array is not None}
        leaves = self.leaf_values
        if leaves is not None:
            leaves = replace(leaves, residual=leaves.residual[rows])
        return replace(self, values=self.values[rows], leaf_values=leaves, **there)


@runtime_checkable
class FittedLearner(Protocol):
    """One weak learner after fitting."""

    def predict(self, prepared: Any) -> np.ndarray:
        """float32 (n, D) on a view prepared by its learner."""
        ...

    def to_arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Arrays for safetensors, and what else `from_arrays` needs, as JSON."""
        ...

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> FittedLearner:
        """The learner that `to_arrays` described."""
        ...

    def check(self, n_outputs: int | None = None, n_columns: int | None = None) -> None:
        """Refuse what no fitted learner can hold; it may come from a file that anyone has made.

        Parameters
        ----------
        n_outputs, n_columns : D, and the columns of the view, where they are known

        Raises
        ------
        UsboostError
            Before anything is done with an array that does not fit, whatever the file says.
        """
        ...


class Trainer(Protocol):
    def fit(self, target: Target, *, seed: int, start: FittedLearner | None) -> FittedLearner:
        """Fit one weak learner to a round's target; `start` is the one of the round before."""
        ...


class LeaveOneOutTrainer(Trainer, Protocol):
    def outputs(self, fitted: FittedLearner) -> np.ndarray:
        """What the learner fitted last gives each training row as if it had not seen it: float32 (n, D)."""
        ...


class Learner(Protocol):
    """Settings of a weak learner; stateless, so one object serves every round and fit.

    An attribute `reads`, a tuple of view names, lists what it reads: the view with the learner's own name
    if it is absent or None, one view, or several side by side. An attribute ``reads_images = True`` says
    that it reads images themselves where they are its only view; others are given their embeddings, as a
    table, or so many principal components of them as an attribute `components` says.

    An attribute `leave_one_out` that is true says that its trainers are `LeaveOneOutTrainer`s: a round's
    steps are then searched on their `outputs`. Scores, on training rows too, are what the learner predicts.
    """

    kind: ClassVar[str]
    fitted: ClassVar[type]

    def prepare(self, view: View) -> Any:
        """A view in the form that training and prediction take, made once a fit."""
        ...

    def trainer(self, prepared: Any, n_outputs: int) -> Trainer:
        """What fits one weak learner with D outputs a round to the prepared rows."""
        ...


def view_names(name: str, learner: Any) -> tuple[str, ...]:
    """The views that the learner called `name` reads."""
    return tuple(getattr(learner, "reads", None) or (name,))


def is_leave_one_out(learner: Any) -> bool:
    """Whether the learner's trainers know what it gives rows that it was not fitted to."""
    return bool(getattr(learner, "leave_one_out", False))


def kind_of(fitted: FittedLearner) -> str:
    """The kind under which a fitted learner is written.

    Raises
    ------
    UsboostError
        If its class is that of no registered learner.
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

    Raises
    ------
    UsboostError
        Naming the learner; asked before training, when there is nothing to lose yet.
    """
    if LEARNERS.kind_of(type(learner)) is None:
        raise UsboostError(
            f"learner {name!r}, a {type(learner).__name__}, is not registered, so that what it fits cannot "
            "be written; register it with usboost.learners.base.LEARNERS.register, or do not save it"
        )
    own = getattr(learner, "check_writable", None)
    if own is not None:
        own()


def read_learner(kind: str, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> FittedLearner:
    """A weak learner from a file's arrays and JSON, checked.

    Raises
    ------
    UsboostError
        If the kind is unknown or the content is not one of its weak learners.
    """
    learner: FittedLearner = LEARNERS[kind].fitted.from_arrays(arrays, meta)
    learner.check()
    return learner


def check_outputs(found: int, n_outputs: int | None) -> None:
    """Refuse a weak learner with another number of outputs than is needed, where that is known."""
    if n_outputs not in (None, found):
        raise UsboostError(f"a weak learner has {found} outputs where {n_outputs} are needed")


def sum_one_by_one(learners: Sequence[Any], steps: Sequence[float], prepared: Any) -> np.ndarray:
    """Σ_k step_k · learner_k(x), float64 (n, D)."""
    total: np.ndarray | None = None
    for learner, step in zip(learners, steps):
        # a plain float would leave the product of a float32 output in float32
        part = np.float64(step) * learner.predict(prepared)
        total = part if total is None else np.add(total, part, out=total)
    if total is None:
        raise ValueError("no learner to sum")
    return total


def weighted_sum(learners: Sequence[FittedLearner], steps: Sequence[float], prepared: Any) -> np.ndarray:
    """The same, by the learners' own way of doing many at once where they have one."""
    kinds = {type(learner) for learner in learners}
    together = getattr(next(iter(kinds)), "weighted_sum", None) if len(kinds) == 1 else None
    return (together or sum_one_by_one)(learners, steps, prepared)

"""What a round adds to the ensemble, and what it reports."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from usboost.data.views import Views
from usboost.learners.base import FittedLearner


@dataclass(frozen=True)
class Stage:
    """What one round adds to the ensemble: per view a fitted learner and its step."""

    learners: dict[str, FittedLearner]
    steps: dict[str, float]


@dataclass(frozen=True)
class Round:
    """What happened in one round, for callbacks.

    Attributes
    ----------
    index : int, from 1
    stage : Stage, or None where a network is trained whole
    metrics : dict of floats; always "risk_train", with validation data also "risk_val", "f1_val"
        and "accuracy_val"; what the method adds, by default steps as "step_<view>" and
        fit errors as "fit_error_<view>"
    seconds : dict of the round's parts, and their sum as "total"
    """

    index: int
    stage: Any
    metrics: dict[str, float]
    seconds: dict[str, float]


@dataclass
class Scores:
    """The running predictions on one data set: a round then costs one learner, not the ensemble.

    `weights` say how many rows each sample stands for: positive float64 (n,), or None for 1.
    """

    views: Views
    y: np.ndarray
    f: np.ndarray
    weights: np.ndarray | None = None
    prepared: dict[str, Any] = field(default_factory=dict)

    def counts(self, rows: Any = slice(None)) -> dict[str, np.ndarray]:
        """The argument `counts` of a loss; nothing without weights, so that a loss need not know of them."""
        return {} if self.weights is None else {"counts": self.weights[rows]}


class Clock:
    """Seconds spent in a round's named parts; a part that runs twice adds up."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._spent: dict[str, float] = {}

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._spent[part] = self._spent.get(part, 0.0) + time.perf_counter() - start

    def seconds(self) -> dict[str, float]:
        """By part, and their sum with all between them as "total"."""
        return {**self._spent, "total": time.perf_counter() - self._start}

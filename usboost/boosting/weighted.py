"""The stagewise loop on weighted samples: labels that carry their weights, and parts that know of it.

The loop hands labels to its parts and looks at none of them, so these are all that has to change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from usboost.boosting.loop import StagewiseLoop
from usboost.boosting.rounds import Scores, Stage
from usboost.boosting.targets import TargetRule, TargetsAt, Trimmed
from usboost.data.views import Views
from usboost.learners.base import Target
from usboost.losses.base import CountingLoss, Line


@dataclass(frozen=True)
class CountedLabels:
    """Labels of n rows as a loss takes them, and how many rows each stands for: float64 (n,), None for 1."""

    y: np.ndarray
    counts: np.ndarray | None

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, rows: Any) -> CountedLabels:
        return CountedLabels(self.y[rows], None if self.counts is None else self.counts[rows])


@dataclass(frozen=True)
class CountedLoss:
    """A loss whose labels are `CountedLabels`."""

    loss: CountingLoss

    @property
    def n_outputs(self) -> int:
        return self.loss.n_outputs

    def risk(self, f: np.ndarray, y: CountedLabels) -> float:
        return self.loss.risk(f, y.y, y.counts)

    def line(self, f: np.ndarray, y: CountedLabels, directions: list[np.ndarray]) -> Line:
        return self.loss.line(f, y.y, directions, y.counts)


@dataclass(frozen=True)
class CountedTargets:
    """The targets of a rule, with the labels' counts."""

    rule: TargetRule

    @property
    def n_inner(self) -> int:
        return self.rule.n_inner

    def targets(self, loss: CountedLoss, f: np.ndarray, y: CountedLabels, n_views: int) -> TargetsAt:
        targets_at = self.rule.targets(loss.loss, f, y.y, n_views)

        def at(steps: np.ndarray) -> list[Target]:
            first, *others = targets_at(steps)
            counted = replace(first, counts=y.counts)
            return [counted if each is first else replace(each, counts=y.counts) for each in (first, *others)]

        return at


def run_weighted(
    loop: StagewiseLoop,
    train: Views,
    y: np.ndarray,
    validation: tuple[Views, np.ndarray] | None = None,
    start: Sequence[np.ndarray] = (),
    weights: np.ndarray | None = None,
    held_weights: np.ndarray | None = None,
) -> list[Stage]:
    """`StagewiseLoop.run` on samples with weights; the loop itself where there are none.

    Parameters
    ----------
    loop : its loss is a `CountingLoss`; its functions `evaluate` and `describe` are given plain labels
    weights, held_weights : positive, of the training and the validation samples, or None for 1
    """
    if weights is None and held_weights is None:
        return loop.run(train, y, validation, start)
    evaluate, described = loop.evaluate, loop.describe

    def describe(
        stage: Stage, train: Scores, targets: Sequence[Target], outputs: Sequence[np.ndarray]
    ) -> dict[str, float]:
        labels: Any = train.y
        return described(stage, replace(train, y=labels.y), targets, outputs)

    counted: Any = replace(
        loop,
        loss=CountedLoss(loop.loss),  # type: ignore[arg-type]
        target=_counted(loop.target),
        evaluate=None if evaluate is None else lambda f, labels: evaluate(f, labels.y),
        describe=describe,
    )
    held = None if validation is None else (validation[0], CountedLabels(validation[1], held_weights))
    stages: list[Stage] = counted.run(train, CountedLabels(y, weights), held, start)
    return stages


def _counted(rule: TargetRule) -> Any:
    # trimming shares out the weight of all rows that a sample stands for
    return replace(rule, rule=_counted(rule.rule)) if isinstance(rule, Trimmed) else CountedTargets(rule)

"""One round at work: target, fit, search, take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from usboost.boosting.rounds import Clock, Scores, Stage
from usboost.boosting.shared import shared_line
from usboost.boosting.steps import StepRule
from usboost.boosting.targets import TargetRule, trimmed
from usboost.errors import UsboostError
from usboost.learners.base import FittedLearner, Target
from usboost.learners.missing_views import PresentTrainer
from usboost.losses.base import Line, Loss

LARGEST_RISK = 1e30
"""Beyond this the targets, float32 in the learners, are about to overflow."""

MOST_RISE = 1.1
"""Steps searched on some samples may raise the risk of all at most by this factor."""


class Method(Protocol):
    """What a round needs to know of a boosting method; see `usboost.boosting.loop.StagewiseLoop`."""

    loss: Loss
    target: TargetRule
    step: StepRule
    shrinkage: float
    trim: float
    initial_step: float


@dataclass(frozen=True)
class Fits:
    """Learners fitted to the same scores: their targets and their outputs on the training samples.

    `unseen` are the outputs that the steps are searched on: those themselves, but of leave-one-out learners
    what they give each sample as if it had not been in the fit.
    """

    learners: dict[str, FittedLearner]
    targets: list[Target]
    outputs: list[np.ndarray]
    unseen: list[np.ndarray]


@dataclass(frozen=True)
class Search:
    """The steps found along the outputs of some fits, and the risk on the samples searched on."""

    fits: Fits
    line: Line
    steps: np.ndarray
    risk: float


@dataclass(frozen=True)
class Taken:
    """The steps that a round has taken along the outputs of some fits, and the risk after."""

    fits: Fits
    steps: np.ndarray
    risk: float


@dataclass(frozen=True)
class Draws:
    """What is random in a round; it follows from the loop's seed and the round's index alone.

    Attributes
    ----------
    seeds : of each learner's fit; step_seed : of the search
    held_out : bool (n,), samples that the learners do not see and steps are searched on, or None
    """

    seeds: dict[str, int]
    step_seed: int
    held_out: np.ndarray | None


@dataclass(frozen=True)
class RoundWork:
    """One round at work: target, fit, search, take."""

    method: Method
    train: Scores
    draws: Draws
    before: Sequence[Stage]
    pool: Executor
    clock: Clock

    def add(self, trainers: Mapping[str, PresentTrainer]) -> Taken:
        """Fit the learners to the scores as they are, search their steps jointly, and take them.

        Second-order targets depend on the steps (US Algorithm 2): each inner iteration fits to the
        targets at the steps that the one before found, and the one of the lowest risk counts.
        """
        rule, f, y = self.method.target, self.train.f, self.train.y
        with self.clock("target"):
            targets_at = rule.targets(self.method.loss, f, y, len(trainers))
        # US Algorithm 2, j = 0 … N₂ − 1; first-order targets do not look at the steps and have one pass
        steps, best = np.full(len(trainers), self.method.initial_step), None
        for inner in range(max(1, rule.n_inner)):
            found = self._search(self._fit(trainers, self._weighted(targets_at(steps))), inner)
            # as searched: shrinkage is on the step that is taken, not on what the next targets are made for
            steps = found.steps
            if best is None or found.risk < best.risk:
                best = found
        assert best is not None
        return self._take(best)

    def _weighted(self, targets: Sequence[Target]) -> list[Target]:
        """The targets with the samples' weights, without those that trimming leaves out."""

        def weighted(target: Target) -> Target:
            if self.train.weights is not None:
                target = replace(target, counts=self.train.weights)
            return trimmed(target, self.method.trim) if self.method.trim else target

        # learners that share a target go on sharing it
        once = {id(target): weighted(target) for target in targets}
        return [once[id(target)] for target in targets]

    def _fit(self, trainers: Mapping[str, PresentTrainer], targets: Sequence[Target]) -> Fits:
        seen = [target.without(self.draws.held_out) for target in targets]
        # at the same time: BLAS, torch and LightGBM let go of the interpreter
        jobs = [
            self.pool.submit(copy_context().run, self._fit_one, name, trainer, target)
            for (name, trainer), target in zip(trainers.items(), seen)
        ]
        fitted, outputs, unseen = zip(*[job.result() for job in jobs])
        return Fits(dict(zip(trainers, fitted)), seen, list(outputs), list(unseen))

    def _fit_one(
        self, name: str, trainer: PresentTrainer, target: Target
    ) -> tuple[FittedLearner, np.ndarray, np.ndarray]:
        start = self.before[0].learners.get(name) if self.before else None
        if target.metric is not None and not trainer.takes_metric:
            raise UsboostError(
                f"learner {name!r} cannot be fitted in the metric of target 'newton' with three or more "
                "classes; use target 'gradient', or a network or a tree (engine 'lightgbm')"
            )
        with self.clock(f"fit_{name}"):
            fitted = trainer.fit(target, seed=self.draws.seeds[name], start=start)
        with self.clock(f"predict_{name}"):
            output = trainer.predict(fitted)
            unseen = trainer.outputs(fitted) if trainer.leave_one_out else output
        if not (np.isfinite(output).all() and np.isfinite(unseen).all()):
            raise UsboostError(
                f"the weak learner of view {name!r} gives NaN or infinity; lower its learning rate"
            )
        return fitted, output, unseen

    def _search(self, fits: Fits, inner: int) -> Search:
        with self.clock("step"):
            line = self._line(fits.unseen, self.draws.held_out)
            seed = (self.draws.step_seed + inner) % 2**32
            steps = self.method.step.search(line, len(fits.outputs), seed)
            return Search(fits, line, steps, line.risk(steps))

    def _take(self, found: Search) -> Taken:
        """f ← f + Σ_v shrinkage · step_v · learner_v; the steps as they were taken, and the risk after."""
        steps, line = self.method.shrinkage * found.steps, found.line
        with self.clock("update"):
            elsewhere = any(a is not b for a, b in zip(found.fits.unseen, found.fits.outputs))
            if elsewhere or self.draws.held_out is not None:  # the line was that of other outputs, or samples
                line = self._line(found.fits.outputs, None)
                steps = bounded(line, steps)
            for step, output in zip(steps, found.fits.outputs):
                self.train.f += step * output
            # the line has numbers of its own, not a view of the f that was just moved: this is the risk after
            risk = line.risk(steps)
        # not `>=`: NaN is refused, too
        if not risk < LARGEST_RISK:
            shown = [round(step, 4) for step in steps.tolist()]
            raise UsboostError(
                f"the risk is no longer finite (steps {shown}); use a smaller shrinkage or a searched step "
                "rule ('newton' never lets the risk rise)"
            )
        return Taken(found.fits, steps, risk)

    def _line(self, outputs: Sequence[np.ndarray], rows: np.ndarray | None) -> Line:
        """The risk of some samples, or all, along learners' outputs."""
        on = slice(None) if rows is None else rows
        directions = [output[on].astype(np.float64) for output in outputs]
        return shared_line(
            self.method.loss, self.train.f[on], self.train.y[on], directions, self.train.counts(on)
        )


def bounded(line: Line, steps: np.ndarray) -> np.ndarray:
    """The steps, halved until the risk along the line is at most `MOST_RISE` times that of none."""
    most = MOST_RISE * line.risk(np.zeros_like(steps))
    # ends, as the steps reach 0 at last; NaN ends it at once, and is refused by its risk
    while line.risk(steps) > most:
        steps = steps / 2
    return steps

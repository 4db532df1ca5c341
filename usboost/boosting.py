"""The one stagewise loop: f ← f + Σ_v step_v · learner_v(view_v(x)).

A boosting method is a loss, one learner per view, a target rule and a step rule; the loop knows
nothing else of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from usboost.callbacks import Callback, tell, watched
from usboost.errors import UsboostError
from usboost.learners.base import FittedLearner, Learner, Target, Trainer, weighted_sum
from usboost.losses import Loss
from usboost.steps import StepRule
from usboost.targets import TargetRule
from usboost.views import Views

LARGEST_RISK = 1e30
"""Beyond this the targets, float32 in the learners, are about to overflow."""


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
        and "accuracy_val"; what the method says of the round, by default steps as "step_<view>" and
        fit errors as "fit_error_<view>"
    seconds : dict of the round's parts, and their sum as "total"
    """

    index: int
    stage: Any
    metrics: dict[str, float]
    seconds: dict[str, float]


@dataclass
class Scores:
    """The running predictions on one data set: a round then costs one learner, not the ensemble."""

    views: Views
    y: np.ndarray
    f: np.ndarray
    prepared: dict[str, Any] = field(default_factory=dict)


# learners by view name, the same in every round or those of round 1, 2, …
Learners = Mapping[str, Learner]
Schedule = Callable[[int], Learners]

# (stage, training data after the round, targets, outputs) -> metrics of the round
Describe = Callable[[Stage, Scores, Sequence[Target], Sequence[np.ndarray]], dict[str, float]]


def steps_and_fit_errors(
    stage: Stage, train: Scores, targets: Sequence[Target], outputs: Sequence[np.ndarray]
) -> dict[str, float]:
    """Every view's step and the weighted mean squared error of its learner's fit."""
    metrics = {f"step_{name}": step for name, step in stage.steps.items()}
    errors = [fit_error(target, output) for target, output in zip(targets, outputs)]
    return metrics | {f"fit_error_{name}": error for name, error in zip(stage.steps, errors)}


@dataclass
class StagewiseLoop:
    """Stagewise additive fitting.

    Parameters
    ----------
    loss : Loss
    learners : mapping of view name to Learner, or function from the round's index, from 1, to one
        A view is prepared, and its learner's trainer made, in the first round that has them, and
        dropped after the last round in a row that does.
    target : TargetRule
    step : StepRule
    n_rounds : int
    shrinkage : float
        Factor on every step before it is taken.
    initial_step : float
        ε₀ = δ₀ of the second-order targets, anew each round (0.1 in the paper).
    evaluate : (f, y) -> dict of metrics, called on the validation data each round
    describe : what to record of a round besides the risks
    seed : int
    """

    loss: Loss
    learners: Learners | Schedule
    target: TargetRule
    step: StepRule
    n_rounds: int
    shrinkage: float = 1.0
    initial_step: float = 0.1
    evaluate: Any = None
    describe: Describe = steps_and_fit_errors
    seed: int = 0
    callbacks: Sequence[Callback] = ()

    def run(
        self,
        train: Views,
        y: np.ndarray,
        validation: tuple[Views, np.ndarray] | None = None,
    ) -> list[Stage]:
        """All rounds' stages, until `n_rounds` or a callback's stop.

        Parameters
        ----------
        train, y : views of n samples and their labels as the loss takes them
        validation : the same of other samples; scored each round, never fitted to

        Raises
        ------
        UsboostError
            If a learner's outputs or the risk are not finite, or there is no step; the message names
            the round.
        """
        on_train = self._start(train, y)
        on_validation = self._start(*validation) if validation else None
        learners: Learners = {}
        trainers: dict[str, Trainer] = {}
        stages: list[Stage] = []
        with watched(self, self.callbacks), ThreadPoolExecutor() as pool:
            for index in range(1, self.n_rounds + 1):
                before, learners = learners, self.learners_of(index)
                kept = {name for name, learner in learners.items() if before.get(name) is learner}
                for scores in filter(None, (on_train, on_validation)):
                    scores.prepared = {
                        name: scores.prepared[name] if name in kept else learner.prepare(scores.views[name])
                        for name, learner in learners.items()
                    }
                trainers = {
                    name: trainers[name]
                    if name in kept
                    else learner.trainer(on_train.prepared[name], self.loss.n_outputs)
                    for name, learner in learners.items()
                }
                previous = stages[-1] if stages else None
                happened = self._round(index, on_train, on_validation, trainers, previous, pool)
                stages.append(happened.stage)
                if tell(self.callbacks, happened):
                    break
        return stages

    def learners_of(self, index: int) -> Learners:
        """The learners of round `index`, from 1."""
        return self.learners(index) if callable(self.learners) else self.learners

    def _start(self, views: Views, y: np.ndarray) -> Scores:
        return Scores(views, y, np.zeros((len(views), self.loss.n_outputs)))

    def _round(
        self,
        index: int,
        train: Scores,
        validation: Scores | None,
        trainers: Mapping[str, Trainer],
        previous: Stage | None,
        pool: ThreadPoolExecutor,
    ) -> Round:
        clock = _Clock()
        names = list(trainers)
        *seeds, step_seed = np.random.SeedSequence((self.seed, index)).generate_state(len(names) + 1).tolist()
        with clock("target"):
            targets_at = self.target.targets(self.loss, train.f, train.y, len(names))
        steps = np.full(len(names), self.initial_step)
        best_risk = np.inf
        for inner in range(max(1, self.target.n_inner)):
            targets = targets_at(steps)
            fits = [
                pool.submit(
                    self._fit, name, trainers[name], train.prepared[name], target, seed, previous, clock
                )
                for name, target, seed in zip(names, targets, seeds)
            ]
            with _naming(index):
                fitted, outputs = zip(*[fit.result() for fit in fits])
                with clock("step"):
                    line = self.loss.line(train.f, train.y, [out.astype(np.float64) for out in outputs])
                    steps = self.step.search(line, len(names), (step_seed + inner) % 2**32)
                    risk = line.risk(steps)
            if inner == 0 or risk < best_risk:
                best_risk, best_steps, best_line = risk, steps, line
                best_fitted, best_outputs, best_targets = fitted, outputs, targets
        taken = self.shrinkage * best_steps
        stage = Stage(dict(zip(names, best_fitted)), {n: float(s) for n, s in zip(names, taken)})
        with clock("update"):
            for step, output in zip(taken, best_outputs):
                train.f += step * output
            risk_train = best_line.risk(taken)
        self._check(index, risk_train, taken)
        metrics = {"risk_train": risk_train}
        metrics |= self.describe(stage, train, best_targets, best_outputs)
        if validation is not None:
            with clock("validation"):
                advance(validation.f, stage, validation.prepared)
                metrics["risk_val"] = self.loss.risk(validation.f, validation.y)
                if self.evaluate is not None:
                    metrics |= {f"{k}_val": v for k, v in self.evaluate(validation.f, validation.y).items()}
        return Round(index, stage, metrics, clock.seconds())

    @staticmethod
    def _fit(
        name: str,
        trainer: Trainer,
        prepared: Any,
        target: Target,
        seed: int,
        previous: Stage | None,
        clock: _Clock,
    ) -> tuple[FittedLearner, np.ndarray]:
        start = previous.learners.get(name) if previous else None
        with clock(f"fit_{name}"):
            fitted = trainer.fit(target, seed=seed, start=start)
        with clock(f"predict_{name}"):
            output = fitted.predict(prepared)
        if not np.isfinite(output).all():
            raise UsboostError(
                f"the weak learner of view {name!r} gives NaN or infinity; lower its learning rate"
            )
        return fitted, output

    @staticmethod
    def _check(index: int, risk: float, steps: np.ndarray) -> None:
        if not risk < LARGEST_RISK:
            raise UsboostError(
                f"the risk is no longer finite in round {index} (steps {np.round(steps, 4).tolist()}); "
                "use a smaller shrinkage or a searched step rule ('newton' never lets the risk rise)"
            )


@contextmanager
def _naming(index: int) -> Iterator[None]:
    """Says in which round a mistake came to light."""
    try:
        yield
    except UsboostError as error:
        raise UsboostError(f"round {index}: {error}") from error


def advance(f: np.ndarray, stage: Stage, prepared: Mapping[str, Any]) -> None:
    """f ← f + Σ_v step_v · learner_v, in place; f is float64 (n, D)."""
    for name, learner in stage.learners.items():
        # a plain float would leave the product of a float32 output in float32
        f += np.float64(stage.steps[name]) * learner.predict(prepared[name])


def ensemble_scores(
    stages: Sequence[Stage], prepared: Mapping[str, Any], shape: tuple[int, int]
) -> np.ndarray:
    """f = Σ_stages Σ_v step_v · learner_v, float64 of the given shape (n, D); all stages at once."""
    f = np.zeros(shape)
    for name, rows in prepared.items():
        having = [stage for stage in stages if name in stage.learners]
        if having:
            learners = [stage.learners[name] for stage in having]
            f += weighted_sum(learners, [stage.steps[name] for stage in having], rows)
    return f


def fit_error(target: Target, output: np.ndarray) -> float:
    """Weighted mean squared error of a learner on its target, summed over outputs."""
    error = np.square(target.values - output)
    if target.weights is not None:
        weights = target.weights.reshape(len(error), -1)
        error = error * (weights / weights.mean())
    return float(error.sum(axis=1).mean())


class _Clock:
    """Seconds spent in a round's named parts."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._spent: dict[str, float] = {}

    def __call__(self, part: str) -> _Timing:
        return _Timing(self._spent, part)

    def seconds(self) -> dict[str, float]:
        return {**self._spent, "total": time.perf_counter() - self._start}


class _Timing:
    def __init__(self, spent: dict[str, float], part: str) -> None:
        self._spent, self._part = spent, part

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *exception: object) -> None:
        elapsed = time.perf_counter() - self._start
        self._spent[self._part] = self._spent.get(self._part, 0.0) + elapsed

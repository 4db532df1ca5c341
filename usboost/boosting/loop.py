"""The one stagewise loop: f ← f + Σ_v step_v · learner_v(view_v(x)).

A boosting method is a loss, one learner per view, a target rule and a step rule; the loop knows
nothing else of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from usboost.boosting.callbacks import Callback, resume, tell, watched
from usboost.boosting.rounds import Round, Scores, Stage
from usboost.boosting.steps import StepRule
from usboost.boosting.targets import TargetRule
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.learners.base import FittedLearner, Learner, Target, Trainer, weighted_sum
from usboost.losses.base import Line, Loss

LARGEST_RISK = 1e30
"""Beyond this the targets, float32 in the learners, are about to overflow."""

MOST_RISE = 1.1
"""Steps searched on some samples may raise the risk of all at most by this factor."""


@dataclass(frozen=True)
class _Fitted:
    """Learners fitted to the same scores, with the steps taken along them and the risk after."""

    learners: dict[str, FittedLearner]
    steps: dict[str, float]
    targets: Sequence[Target]
    outputs: Sequence[np.ndarray]
    risk: float


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
    sequential : bool
        Whether each learner of a round is fitted to what those before it have left, with a step of
        its own; else all are fitted to the same scores and the steps are searched jointly.
    step_fraction : float
        Share of the samples, drawn anew each round, that learners do not see and on which the steps
        are searched; 0 searches them on all samples, those that were fitted to. Steps that would
        raise the risk of all samples together by more than a tenth are halved until they do not: what
        is best for the samples drawn may send others beyond all bounds.
    initial_step : float
        ε₀ = δ₀ of the second-order targets, anew each round (0.1 in the paper).
    evaluate : (f, y) -> dict of metrics, called on the validation data each round
    describe : what to record of a round besides the risks
    seed : int
    checkpoint : Checkpoint, optional
        Where rounds are kept, and gone on from.
    """

    loss: Loss
    learners: Learners | Schedule
    target: TargetRule
    step: StepRule
    n_rounds: int
    shrinkage: float = 1.0
    sequential: bool = False
    step_fraction: float = 0.0
    initial_step: float = 0.1
    evaluate: Any = None
    describe: Describe = steps_and_fit_errors
    seed: int = 0
    callbacks: Sequence[Callback] = ()
    checkpoint: Any = None

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
        both = [scores for scores in (on_train, on_validation) if scores is not None]
        trainers: dict[str, Trainer] = {}
        with watched(self, self.callbacks), ThreadPoolExecutor() as pool:
            done = self._resume(both)
            stages = [round_.stage for round_ in done]
            stop = resume(self.callbacks, done)
            for index in range(len(stages) + 1, self.n_rounds + 1):
                if stop:
                    break
                kept = self._prepare(index, both)
                trainers = {
                    name: trainers[name]
                    if name in kept and name in trainers
                    else learner.trainer(on_train.prepared[name], self.loss.n_outputs)
                    for name, learner in self.learners_of(index).items()
                }
                previous = stages[-1] if stages else None
                round_ = self._round(index, on_train, on_validation, trainers, previous, pool)
                stages.append(round_.stage)
                if self.checkpoint is not None:
                    self.checkpoint.keep(round_)
                    if self.checkpoint.state_is_due():
                        self.checkpoint.keep_state(index, {str(i): scores.f for i, scores in enumerate(both)})
                stop = tell(self.callbacks, round_)
        return stages

    def learners_of(self, index: int) -> Learners:
        """The learners of round `index`, from 1."""
        return self.learners(index) if callable(self.learners) else self.learners

    def _prepare(self, index: int, both: Sequence[Scores]) -> set[str]:
        """Prepare the views of a round; the names of those that the round before had prepared."""
        learners = self.learners_of(index)
        before = self.learners_of(index - 1) if index > 1 else {}
        known = both[0].prepared
        kept = {name for name, learner in learners.items() if before.get(name) is learner and name in known}
        for scores in both:
            scores.prepared = {
                name: scores.prepared[name] if name in kept else learner.prepare(scores.views[name])
                for name, learner in learners.items()
            }
        return kept

    def _resume(self, both: Sequence[Scores]) -> list[Round]:
        """The checkpoint's rounds, and the scores as they were after the last of them."""
        done = self.checkpoint.rounds()[: self.n_rounds] if self.checkpoint is not None else []
        state = self.checkpoint.state() if self.checkpoint is not None and done else None
        start = 0
        if state is not None and state[0] <= len(done):
            start = state[0]
            for i, scores in enumerate(both):
                scores.f = state[1][str(i)]
        for round_ in done[start:]:
            self._prepare(round_.index, both)
            for scores in both:
                advance(scores.f, round_.stage, scores.prepared)
        return done

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
        drawn = np.random.SeedSequence((self.seed, index)).generate_state(len(names) + 2).tolist()
        seeds, step_seed = dict(zip(names, drawn)), drawn[len(names)]
        held_out = self._held_out(len(train.y), drawn[-1])
        groups = [[name] for name in names] if self.sequential else [names]
        parts: list[_Fitted] = []
        for group in groups:
            chosen = {name: trainers[name] for name in group}
            with _naming(index):
                fitted = self._fit_together(chosen, train, held_out, previous, seeds, step_seed, pool, clock)
            self._check(index, fitted)
            parts.append(fitted)
        stage = Stage({}, {})
        for part in parts:
            stage.learners.update(part.learners)
            stage.steps.update(part.steps)
        metrics = {"risk_train": parts[-1].risk}
        targets = [target for part in parts for target in part.targets]
        metrics |= self.describe(stage, train, targets, [output for part in parts for output in part.outputs])
        if validation is not None:
            with clock("validation"):
                advance(validation.f, stage, validation.prepared)
                metrics["risk_val"] = self.loss.risk(validation.f, validation.y)
                if self.evaluate is not None:
                    metrics |= {f"{k}_val": v for k, v in self.evaluate(validation.f, validation.y).items()}
        return Round(index, stage, metrics, clock.seconds())

    def _held_out(self, n: int, seed: int) -> np.ndarray | None:
        """The samples that this round's learners do not see and its steps are searched on: bool (n,)."""
        if not self.step_fraction:
            return None
        count = max(1, round(self.step_fraction * n))
        out = np.zeros(n, dtype=bool)
        out[np.random.default_rng(seed).permutation(n)[:count]] = True
        return out

    def _fit_together(
        self,
        trainers: Mapping[str, Trainer],
        train: Scores,
        held_out: np.ndarray | None,
        previous: Stage | None,
        seeds: Mapping[str, int],
        step_seed: int,
        pool: ThreadPoolExecutor,
        clock: _Clock,
    ) -> _Fitted:
        """Fit learners to targets at the present scores, search their steps jointly, and take them."""
        with clock("target"):
            targets_at = self.target.targets(self.loss, train.f, train.y, len(trainers))
        steps = np.full(len(trainers), self.initial_step)
        best_risk = np.inf
        on = slice(None) if held_out is None else held_out
        for inner in range(max(1, self.target.n_inner)):
            targets = [target.without(held_out) for target in targets_at(steps)]
            fits = [
                pool.submit(
                    self._fit, name, trainer, train.prepared[name], target, seeds[name], previous, clock
                )
                for (name, trainer), target in zip(trainers.items(), targets)
            ]
            fitted, outputs = zip(*[fit.result() for fit in fits])
            with clock("step"):
                directions = [output[on].astype(np.float64) for output in outputs]
                line = self.loss.line(train.f[on], train.y[on], directions)
                steps = self.step.search(line, len(trainers), (step_seed + inner) % 2**32)
                risk = line.risk(steps)
            if inner == 0 or risk < best_risk:
                best_risk, best_steps, best_line = risk, steps, line
                best_fitted, best_outputs, best_targets = fitted, outputs, targets
        taken = self.shrinkage * best_steps
        with clock("update"):
            if held_out is not None:
                whole = [output.astype(np.float64) for output in best_outputs]
                taken = bounded(self.loss.line(train.f, train.y, whole), taken)
            for step, output in zip(taken, best_outputs):
                train.f += step * output
            risk = best_line.risk(taken) if held_out is None else self.loss.risk(train.f, train.y)
        learners = dict(zip(trainers, best_fitted))
        return _Fitted(learners, dict(zip(trainers, taken.tolist())), best_targets, best_outputs, risk)

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
    def _check(index: int, fitted: _Fitted) -> None:
        if not fitted.risk < LARGEST_RISK:
            steps = [round(step, 4) for step in fitted.steps.values()]
            raise UsboostError(
                f"the risk is no longer finite in round {index} (steps {steps}); "
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


def bounded(line: Line, steps: np.ndarray) -> np.ndarray:
    """The steps, halved until the risk along the line is at most `MOST_RISE` times that of none."""
    most = MOST_RISE * line.risk(np.zeros_like(steps))
    while line.risk(steps) > most:
        steps = steps / 2
    return steps


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

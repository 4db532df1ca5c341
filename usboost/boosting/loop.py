"""The one stagewise loop: f ← f + Σ_v step_v · learner_v(view_v(x)).

A boosting method is a loss, one learner per view, a target rule and a step rule; the loop knows
nothing else of it. `RoundWork.add` is a round: target, fit, search, take.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from usboost.boosting.callbacks import Callback, begin_and_end, notify, notify_resumed
from usboost.boosting.rounds import BoostedSamples, Clock, Round, Stage, digest_of
from usboost.boosting.steps import StepRule, shared_line, shared_risk
from usboost.boosting.targets import TargetRule, TargetsAt, check_target
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.files.onnx_graph import Value, ViewNodes, added, sum_of
from usboost.learners.base import (
    FittedLearner,
    Learner,
    PresentTrainer,
    Target,
    predict,
    prepare,
    weighted_sum,
)
from usboost.losses.base import Line, Loss
from usboost.shards.collective import world

# learners by name, the same in every round or those of round 1, 2, …
Learners = Mapping[str, Learner]
Schedule = Callable[[int], Learners]

# (stage, training data after the round, targets, outputs) -> metrics of the round
Describe = Callable[[Stage, BoostedSamples, Sequence[Target], Sequence[np.ndarray]], dict[str, float]]

LARGEST_RISK = 1e30
"""Beyond this the targets, float32 in the learners, are about to overflow."""

MOST_RISE = 1.1
"""Steps searched on some samples may raise the risk of all at most by this factor."""


def steps_and_fit_errors(
    stage: Stage, train: BoostedSamples, targets: Sequence[Target], outputs: Sequence[np.ndarray]
) -> dict[str, float]:
    """Return every learner's step and the weighted mean squared error of its fit."""
    metrics = {f"step_{name}": step for name, step in stage.steps.items()}
    errors = [fit_error(target, output) for target, output in zip(targets, outputs)]
    return metrics | {f"fit_error_{name}": error for name, error in zip(stage.steps, errors)}


@dataclass
class StagewiseLoop:
    """Stagewise additive fitting.

    Parameters
    ----------
    learners : mapping of name to Learner, or function from the round's index, from 1, to one
        A learner reads the view with its name. A view is prepared, and its learner's trainer made, in
        the first round that has them, and dropped after the last round in a row that does.
    shrinkage : factor on every step before it is taken
    sequential : whether each learner of a round is fitted to what those before it have left, with a step of
        its own; else all are fitted to the same scores and the steps are searched jointly
    step_fraction : share of the samples, drawn anew each round, that learners do not see and on which the
        steps are searched; 0 searches them on all samples, those that were fitted to. Steps that would raise
        the risk of all samples together by more than a tenth are halved until they do not: what is best for
        the samples drawn may send others beyond all bounds. The same holds for the steps of leave-one-out
        learners (`usboost.learners.base.Learner`).
    initial_step : ε₀ = δ₀ of the second-order targets, anew each round (0.1 in the paper)
    evaluate : (f, y) -> dict of metrics, called on the validation data each round
    describe : what to record of a round besides the risks
    checkpoint : where rounds are stored, and resumed from
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

    def __post_init__(self) -> None:
        if not 0 <= self.step_fraction < 1:
            raise UsboostError(f"step_fraction is a share of the rows below 1, not {self.step_fraction}")
        if self.n_rounds < 0 or not self.shrinkage > 0:
            raise UsboostError(f"n_rounds={self.n_rounds} is below 0 or shrinkage={self.shrinkage} not above")

    def run(
        self,
        train: Views,
        y: np.ndarray,
        validation: tuple[Views, np.ndarray] | None = None,
        start: Sequence[np.ndarray] = (),
        weights: np.ndarray | None = None,
        val_weights: np.ndarray | None = None,
    ) -> list[Stage]:
        """Return all rounds' stages, until `n_rounds` or a callback's stop.

        Raises `UsboostError`, naming the round, if outputs or the risk are not finite, or there is no step.

        Parameters
        ----------
        train, y : views of n samples and their labels as the loss takes them
        validation : the same of other samples; scored each round, never fitted to
        start : f⁰ of the training samples and of the validation samples, float64 (n, D); 0 by default
        weights, val_weights : how many rows each training and validation sample stands for, positive float64
            (n,), None for 1; the loss is then a `CountingLoss`
        """
        check_target(self.target, self.loss)
        on_train = self._start(train, y, weights, *start[:1])
        on_validation = self._start(*validation, val_weights, *start[1:]) if validation else None
        # a shard prepares, resumes and moves its own rows of both; the others see only sums
        both = [samples for samples in (on_train, on_validation) if samples is not None]
        trainers: dict[str, PresentTrainer] = {}
        with begin_and_end(self, self.callbacks), world().pool() as pool:
            done = self._resume(both)
            stages = [round_.stage for round_ in done]
            stop = world().highest(notify_resumed(self.callbacks, done))
            rows = world().rows_of_processes(len(y))
            for index in range(len(stages) + 1, self.n_rounds + 1):
                if stop:
                    break
                trainers = self._trainers(index, on_train, self._prepare(index, both), trainers)
                try:
                    round_ = self._round(index, on_train, on_validation, trainers, stages[-1:], pool)
                except UsboostError as error:
                    raise UsboostError(f"round {index}: {error}") from error
                round_ = replace(round_, rows=rows)
                # shards that went apart, by another library's rounding say, would go on to two models
                world().agree(f"round {index}", partial(digest_of, round_))
                # stored before callbacks see it: what they have seen can then be resumed
                stages.append(round_.stage)
                if self.checkpoint is not None:
                    self.checkpoint.keep(round_)
                    if self.checkpoint.state_is_due():
                        self.checkpoint.keep_state(index, {str(i): each.f for i, each in enumerate(both)})
                stop = world().highest(notify(self.callbacks, round_))
        return stages

    def _round(
        self,
        index: int,
        train: BoostedSamples,
        validation: BoostedSamples | None,
        trainers: Mapping[str, PresentTrainer],
        before: Sequence[Stage],
        pool: Executor,
    ) -> Round:
        """Fit a round and compute its validation loss; `before` has the stage of the round before, if any."""
        names, clock = list(trainers), Clock()
        work = RoundWork(self, train, self._draw(index, names, len(train.y)), before, pool, clock)
        stage, targets, outputs, risk = Stage({}, {}), [], [], 0.0
        for group in [[name] for name in names] if self.sequential else [names]:
            taken = work.add({name: trainers[name] for name in group})
            stage.learners.update(taken.fits.learners)
            stage.steps.update(zip(group, taken.steps.tolist()))
            targets += taken.fits.targets
            outputs += taken.fits.outputs
            risk = taken.risk
        metrics = {"risk_train": risk, **self.describe(stage, train, targets, outputs)}
        if validation is not None:
            with clock("validation"):
                advance(validation.f, stage, validation.prepared)
                more = self.evaluate(validation.f, validation.y) if self.evaluate is not None else {}
                risk = shared_risk(self.loss, validation.f, validation.y, validation.counts())
                metrics |= {"risk_val": risk, **{f"{name}_val": value for name, value in more.items()}}
        return Round(index, stage, metrics, clock.seconds())

    def _draw(self, index: int, names: Sequence[str], n: int) -> "Draws":
        # one for each learner, the search, and the samples held out; by the index, not by what the
        # rounds before have drawn, so that a resumed fit draws the same
        drawn = np.random.SeedSequence((self.seed, index)).generate_state(len(names) + 2).tolist()
        held_out = None
        if self.step_fraction:
            held_out = np.zeros(n, dtype=bool)
            count = max(1, round(self.step_fraction * n))
            held_out[np.random.default_rng(world().seed(drawn[-1])).permutation(n)[:count]] = True
        return Draws(dict(zip(names, drawn)), drawn[len(names)], held_out)

    def learners_of(self, index: int) -> Learners:
        """Return the learners of round `index`, from 1."""
        return self.learners(index) if callable(self.learners) else self.learners

    def _prepare(self, index: int, both: Sequence[BoostedSamples]) -> set[str]:
        """Prepare the views of a round; return the names of those that the round before had prepared."""
        learners = self.learners_of(index)
        before = self.learners_of(index - 1) if index > 1 else {}
        known = both[0].prepared
        reused = {name for name, learner in learners.items() if before.get(name) is learner and name in known}
        for samples in both:
            samples.prepared = {
                name: samples.prepared[name] if name in reused else prepare(learner, samples.views[name])
                for name, learner in learners.items()
            }
        return reused

    def _trainers(
        self, index: int, train: BoostedSamples, reused: set[str], before: Mapping[str, PresentTrainer]
    ) -> dict[str, PresentTrainer]:
        made = {}
        for name, learner in self.learners_of(index).items():
            if name in reused and name in before:
                made[name] = before[name]
                continue
            try:
                made[name] = PresentTrainer(learner, train.prepared[name], self.loss.n_outputs)
            except UsboostError as error:
                raise UsboostError(f"learner {name!r}: {error}") from error
        return made

    def _resume(self, both: Sequence[BoostedSamples]) -> list[Round]:
        """Return the checkpoint's rounds, and restore the scores as they were after the last of them."""
        done = self.checkpoint.rounds()[: self.n_rounds] if self.checkpoint is not None else []
        state = self.checkpoint.state() if self.checkpoint is not None and done else None
        start = 0
        if state is not None and state[0] <= len(done):
            start = state[0]
            for i, samples in enumerate(both):
                samples.f = state[1][str(i)]
        # scores are stored less often than rounds: the last learners predict again, which is quick
        for round_ in done[start:]:
            self._prepare(round_.index, both)
            for samples in both:
                advance(samples.f, round_.stage, samples.prepared)
        return done

    def _start(
        self, views: Views, y: np.ndarray, weights: np.ndarray | None, f: np.ndarray | None = None
    ) -> BoostedSamples:
        # a copy, as rounds move f in place
        f = np.zeros((len(views), self.loss.n_outputs)) if f is None else f.copy()
        return BoostedSamples(views, y, f, weights)


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
    """Steps along the outputs of some fits, the risk there, and the line that it was searched on."""

    fits: Fits
    line: Line
    steps: np.ndarray
    risk: float


@dataclass(frozen=True)
class Draws:
    """The random numbers of a round, whose seeds are set from the loop's seed and the round's index alone.

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

    method: StagewiseLoop
    train: BoostedSamples
    draws: Draws
    before: Sequence[Stage]
    pool: Executor
    clock: Clock

    def add(self, trainers: Mapping[str, PresentTrainer]) -> Search:
        """Fit the learners to the scores as they are, search their steps jointly, and take them.

        Second-order targets depend on the steps (US Algorithm 2, j = 0 … N₂ − 1): each inner iteration fits
        to the targets at the steps that the one before has found, and the one of the lowest risk counts.
        First-order targets do not look at the steps and have one pass.
        """
        # f does not move between the passes, so that the rule looks at it once
        targets_at = self.target(len(trainers))
        steps, best = np.full(len(trainers), self.method.initial_step), None
        for inner in range(max(1, getattr(self.method.target, "n_inner", 1))):
            fits = self.fit(trainers, targets_at(steps))
            search = self.search(fits, inner)
            # as searched: shrinkage is on the step that is taken, not on what the next targets are made for
            steps = search.steps
            if best is None or search.risk < best.risk:
                best = search
        assert best is not None
        return self.take(best)

    def target(self, n_views: int) -> TargetsAt:
        """Return what learners are fitted to at given steps: the rule's targets, of the samples they see."""
        train = self.train
        with self.clock("target"):
            targets_at = self.method.target.targets(self.method.loss, train.f, train.y, n_views)

        def seen(target: Target) -> Target:
            if train.weights is not None:
                target = replace(target, counts=train.weights)
            return target.without(self.draws.held_out)

        def at(steps: np.ndarray) -> list[Target]:
            targets = targets_at(steps)
            # learners that share a target go on sharing it
            once = {id(target): seen(target) for target in targets}
            return [once[id(target)] for target in targets]

        return at

    def fit(self, trainers: Mapping[str, PresentTrainer], targets: list[Target]) -> Fits:
        """Fit each learner to its target, all at the same time."""
        # BLAS, torch and LightGBM let go of the interpreter
        jobs = [
            self.pool.submit(copy_context().run, self._fit_one, name, each, target)
            for (name, each), target in zip(trainers.items(), targets)
        ]
        fitted, outputs, unseen = zip(*[job.result() for job in jobs])
        return Fits(dict(zip(trainers, fitted)), targets, list(outputs), list(unseen))

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
            raise UsboostError(f"the learner of view {name!r} gives NaN or infinity; lower its learning rate")
        return fitted, output, unseen

    def search(self, fits: Fits, inner: int) -> Search:
        """Search the steps along the outputs, on samples that the learners have not seen if there are any."""
        with self.clock("step"):
            line = self._line(fits.unseen, self.draws.held_out)
            seed = (self.draws.step_seed + inner) % 2**32
            steps = self.method.step.search(line, len(fits.outputs), seed)
            return Search(fits, line, steps, line.risk(steps))

    def take(self, search: Search) -> Search:
        """Move f by Σ_v shrinkage · step_v · learner_v; return the steps as taken, and the risk after."""
        fits, line, steps = search.fits, search.line, self.method.shrinkage * search.steps
        with self.clock("update"):
            if self.draws.held_out is not None or any(a is not b for a, b in zip(fits.unseen, fits.outputs)):
                # the steps were searched on other samples, or outputs, than those that they now move
                line = self._line(fits.outputs, None)
                steps = bounded(line, steps)
            for step, output in zip(steps, fits.outputs):
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
        return Search(fits, line, steps, risk)

    def _line(self, outputs: Sequence[np.ndarray], rows: np.ndarray | None) -> Line:
        """Return the risk of some samples, or all, along learners' outputs."""
        on = slice(None) if rows is None else rows
        directions = [output[on].astype(np.float64) for output in outputs]
        train = self.train
        return shared_line(self.method.loss, train.f[on], train.y[on], directions, train.counts(on))


def bounded(line: Line, steps: np.ndarray) -> np.ndarray:
    """Return the steps, halved until the risk along the line is at most `MOST_RISE` times that of none."""
    most = MOST_RISE * line.risk(np.zeros_like(steps))
    # ends, as the steps reach 0 at last; NaN ends it at once, and is refused by its risk
    while line.risk(steps) > most:
        steps = steps / 2
    return steps


def advance(f: np.ndarray, stage: Stage, prepared: Mapping[str, Any]) -> None:
    """Move f, float64 (n, D), in place: f ← f + Σ_v step_v · learner_v."""
    for name, learner in stage.learners.items():
        # a plain float would leave the product of a float32 output in float32
        f += np.float64(stage.steps[name]) * predict(learner, prepared[name], f.shape[1])


def ensemble_scores(
    stages: Sequence[Stage], prepared: Mapping[str, Any], shape: tuple[int, int]
) -> np.ndarray:
    """Return f = Σ_stages Σ_v step_v · learner_v, float64 of the given shape (n, D); all stages at once."""
    f = np.zeros(shape)
    for name, rows in prepared.items():
        having = [stage for stage in stages if name in stage.learners]
        if having:
            learners = [stage.learners[name] for stage in having]
            f += weighted_sum(learners, [stage.steps[name] for stage in having], rows, shape[1])
    return f


def ensemble_to_onnx(
    stages: Sequence[Stage],
    learners: Mapping[str, Learner],
    views: Mapping[str, ViewNodes],
    start: Sequence[Value] = (),
) -> Value:
    """Return f as `ensemble_scores` does, in the graph of what each learner reads, and on top of `start`.

    A fitted learner has ``to_onnx(view)``, which returns its outputs, or ``sum_to_onnx(learners,
    steps, view)``; else it is refused by its name. Settings may have ``prepare_to_onnx(view)``.
    """
    parts = [*start]
    for name, own in learners.items():
        view: Any = views[name]
        if having := [stage for stage in stages if name in stage.learners]:
            fitted, steps = zip(*((stage.learners[name], stage.steps[name]) for stage in having))
            view = own.prepare_to_onnx(view) if hasattr(own, "prepare_to_onnx") else view
            if hasattr(fitted[0], "sum_to_onnx"):
                scores = type(fitted[0]).sum_to_onnx(fitted, steps, view)
            else:
                outputs = (added(each, f"of the learner {name!r}", view).cast(np.float64) for each in fitted)
                scores = sum_of(output * float(step) for output, step in zip(outputs, steps))
            parts.append(scores.unless(view.absent, np.float64(0)))
    return sum_of(parts)


def fit_error(target: Target, output: np.ndarray) -> float:
    """Return a learner's weighted mean squared error, summed over outputs; in the target's metric, if any."""
    error, weight, missing = 0.0, float(len(output)), target.values - output
    if len(output) and target.metric is not None and target.metric.ndim == 3:
        metric = target.metric if target.counts is None else target.metric * target.counts[:, None, None]
        # over the mean of the n·D diagonal entries: in the identity metric it is the plain error below
        weight = float(np.einsum("nii->", metric))
        squares = np.einsum("ni,nij,nj->n", missing, metric, missing)
        error = float(squares.mean() / (weight / metric[:, 0].size))
    elif len(output):
        squares = np.square(missing)
        if target.error_weights is not None:
            weights = target.error_weights.reshape(len(output), -1)
            squares, weight = squares * (weights / weights.mean()), float(weights.sum())
        error = float(squares.sum(axis=1).mean())
    return float(world().mean(error, weight))

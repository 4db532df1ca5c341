"""The one stagewise loop: f ← f + Σ_v step_v · learner_v(view_v(x)).

A boosting method is a loss, one learner per view, a target rule and a step rule; the loop knows
nothing else of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from usboost.boosting.callbacks import Callback, resume, tell, watched
from usboost.boosting.rounds import Clock, Round, Scores, Stage, digest_of
from usboost.boosting.shared import shared_risk
from usboost.boosting.steps import StepRule
from usboost.boosting.targets import TargetRule, check_target
from usboost.boosting.work import Draws, RoundWork
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.learners.base import Learner, Target
from usboost.learners.missing_views import PresentTrainer, predict, prepare, trainer, weighted_sum
from usboost.losses.base import Loss
from usboost.shards.here import here

# learners by name, the same in every round or those of round 1, 2, …
Learners = Mapping[str, Learner]
Schedule = Callable[[int], Learners]

# (stage, training data after the round, targets, outputs) -> metrics of the round
Describe = Callable[[Stage, Scores, Sequence[Target], Sequence[np.ndarray]], dict[str, float]]


def steps_and_fit_errors(
    stage: Stage, train: Scores, targets: Sequence[Target], outputs: Sequence[np.ndarray]
) -> dict[str, float]:
    """Every learner's step and the weighted mean squared error of its fit."""
    metrics = {f"step_{name}": step for name, step in stage.steps.items()}
    errors = [fit_error(target, output) for target, output in zip(targets, outputs)]
    return metrics | {f"fit_error_{name}": error for name, error in zip(stage.steps, errors)}


@dataclass
class StagewiseLoop:
    """Stagewise additive fitting.

    Parameters
    ----------
    loss : Loss
    learners : mapping of name to Learner, or function from the round's index, from 1, to one
        A learner reads the view with its name. A view is prepared, and its learner's trainer made, in
        the first round that has them, and dropped after the last round in a row that does.
    target : TargetRule
    step : StepRule
    n_rounds : int
    shrinkage : factor on every step before it is taken
    sequential : whether each learner of a round is fitted to what those before it have left, with a step of
        its own; else all are fitted to the same scores and the steps are searched jointly
    step_fraction : share of the samples, drawn anew each round, that learners do not see and on which the
        steps are searched; 0 searches them on all samples, those that were fitted to. Steps that would raise
        the risk of all samples together by more than a tenth are halved until they do not: what is best for
        the samples drawn may send others beyond all bounds. The same holds for the steps of leave-one-out
        learners (`usboost.learners.base.Learner`).
    trim : share of the weight whose lightest holders sit a round's fits out, see
        `usboost.boosting.targets.trimmed`
    initial_step : ε₀ = δ₀ of the second-order targets, anew each round (0.1 in the paper)
    evaluate : (f, y) -> dict of metrics, called on the validation data each round
    describe : what to record of a round besides the risks
    seed : int
    checkpoint : Checkpoint, optional
        Where rounds are kept, and resumed from.
    """

    loss: Loss
    learners: Learners | Schedule
    target: TargetRule
    step: StepRule
    n_rounds: int
    shrinkage: float = 1.0
    sequential: bool = False
    step_fraction: float = 0.0
    trim: float = 0.0
    initial_step: float = 0.1
    evaluate: Any = None
    describe: Describe = steps_and_fit_errors
    seed: int = 0
    callbacks: Sequence[Callback] = ()
    checkpoint: Any = None

    def __post_init__(self) -> None:
        if not 0 <= self.trim < 1:
            raise UsboostError(f"trim is a share of the weight, from 0 to below 1, not {self.trim}")

    def run(
        self,
        train: Views,
        y: np.ndarray,
        validation: tuple[Views, np.ndarray] | None = None,
        start: Sequence[np.ndarray] = (),
        weights: np.ndarray | None = None,
        held_weights: np.ndarray | None = None,
    ) -> list[Stage]:
        """All rounds' stages, until `n_rounds` or a callback's stop.

        Parameters
        ----------
        train, y : views of n samples and their labels as the loss takes them
        validation : the same of other samples; scored each round, never fitted to
        start : f⁰ of the training samples and of the validation samples, float64 (n, D); 0 by default
        weights, held_weights : how many rows each training and validation sample stands for, positive float64
            (n,), None for 1; the loss is then a `CountingLoss`

        Raises
        ------
        UsboostError
            If a learner's outputs or the risk are not finite, or there is no step; the message names
            the round.
        """
        check_target(self.target, self.loss)
        on_train = self._start(train, y, weights, *start[:1])
        on_validation = self._start(*validation, held_weights, *start[1:]) if validation else None
        both = [scores for scores in (on_train, on_validation) if scores is not None]
        trainers: dict[str, PresentTrainer] = {}
        with watched(self, self.callbacks), here().pool() as pool:
            done = self._resume(both)
            stages = [round_.stage for round_ in done]
            stop, rows = here().highest(resume(self.callbacks, done)), here().rows_of_processes(len(y))
            for index in range(len(stages) + 1, self.n_rounds + 1):
                if stop:
                    break
                kept = self._prepare(index, both)
                trainers = {
                    name: trainers[name]
                    if name in kept and name in trainers
                    else self._trainer(name, learner, on_train)
                    for name, learner in self.learners_of(index).items()
                }
                with _naming(index):
                    round_ = self._round(index, on_train, on_validation, trainers, stages[-1:], pool)
                    round_ = replace(round_, rows=rows)
                here().agree(f"round {index}", partial(digest_of, round_))
                # kept before a callback hears of it: what was told can then be resumed
                stages.append(round_.stage)
                if self.checkpoint is not None:
                    self.checkpoint.keep(round_)
                    if self.checkpoint.state_is_due():
                        self.checkpoint.keep_state(index, {str(i): scores.f for i, scores in enumerate(both)})
                stop = here().highest(tell(self.callbacks, round_))
        return stages

    def learners_of(self, index: int) -> Learners:
        """The learners of round `index`, from 1."""
        return self.learners(index) if callable(self.learners) else self.learners

    def _trainer(self, name: str, learner: Learner, train: Scores) -> PresentTrainer:
        try:
            return trainer(learner, train.prepared[name], self.loss.n_outputs)
        except UsboostError as error:
            raise UsboostError(f"learner {name!r}: {error}") from error

    def _round(
        self,
        index: int,
        train: Scores,
        validation: Scores | None,
        trainers: Mapping[str, PresentTrainer],
        before: Sequence[Stage],
        pool: Executor,
    ) -> Round:
        """One round; `before` holds the stage of the round before, if there is one."""
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
                metrics |= self._validate(stage, validation)
        return Round(index, stage, metrics, clock.seconds())

    def _validate(self, stage: Stage, validation: Scores) -> dict[str, float]:
        advance(validation.f, stage, validation.prepared)
        more = self.evaluate(validation.f, validation.y) if self.evaluate is not None else {}
        return {
            "risk_val": shared_risk(self.loss, validation.f, validation.y, validation.counts()),
            **{f"{name}_val": value for name, value in more.items()},
        }

    def _draw(self, index: int, names: Sequence[str], n: int) -> Draws:
        # one for each learner, the search, and the samples held out; by the index, not by what the
        # rounds before have drawn, so that a resumed fit draws the same
        drawn = np.random.SeedSequence((self.seed, index)).generate_state(len(names) + 2).tolist()
        held_out = None
        if self.step_fraction:
            held_out = np.zeros(n, dtype=bool)
            count = max(1, round(self.step_fraction * n))
            held_out[np.random.default_rng(here().seed(drawn[-1])).permutation(n)[:count]] = True
        return Draws(dict(zip(names, drawn)), drawn[len(names)], held_out)

    def _prepare(self, index: int, both: Sequence[Scores]) -> set[str]:
        """Prepare the views of a round; the names of those that the round before had prepared."""
        learners = self.learners_of(index)
        before = self.learners_of(index - 1) if index > 1 else {}
        known = both[0].prepared
        kept = {name for name, learner in learners.items() if before.get(name) is learner and name in known}
        for scores in both:
            scores.prepared = {
                name: scores.prepared[name] if name in kept else prepare(learner, scores.views[name])
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
        # scores are kept less often than rounds: the last learners are asked again, which is quick
        for round_ in done[start:]:
            self._prepare(round_.index, both)
            for scores in both:
                advance(scores.f, round_.stage, scores.prepared)
        return done

    def _start(
        self, views: Views, y: np.ndarray, weights: np.ndarray | None, f: np.ndarray | None = None
    ) -> Scores:
        # a copy, as rounds move f in place
        f = np.zeros((len(views), self.loss.n_outputs)) if f is None else f.copy()
        return Scores(views, y, f, weights)


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
        f += np.float64(stage.steps[name]) * predict(learner, prepared[name], f.shape[1])


def ensemble_scores(
    stages: Sequence[Stage], prepared: Mapping[str, Any], shape: tuple[int, int]
) -> np.ndarray:
    """f = Σ_stages Σ_v step_v · learner_v, float64 of the given shape (n, D); all stages at once."""
    f = np.zeros(shape)
    for name, rows in prepared.items():
        having = [stage for stage in stages if name in stage.learners]
        if having:
            learners = [stage.learners[name] for stage in having]
            f += weighted_sum(learners, [stage.steps[name] for stage in having], rows, shape[1])
    return f


def fit_error(target: Target, output: np.ndarray) -> float:
    """Weighted mean squared error of a learner on its target, summed over outputs; in its metric, if any."""
    return float(here().mean(*(_fit_error(target, output) if len(output) else (0.0, 0.0))))


def _fit_error(target: Target, output: np.ndarray) -> tuple[float, float]:
    """That of this shard's rows, and what they weigh."""
    if target.metric is not None:
        missing, metric = target.values - output, target.metric
        if target.counts is not None:
            metric = metric * target.counts[:, None, None]
        # over the mean of the n·D diagonal entries: in the identity metric it is the plain error below
        squares, trace = np.einsum("ni,nij,nj->n", missing, metric, missing), np.einsum("nii->", metric)
        return float(squares.mean() / (trace / metric[:, 0].size)), float(trace)
    error, held = np.square(target.values - output), float(len(output))
    if target.error_weights is not None:
        weights = target.error_weights.reshape(len(error), -1)
        error, held = error * (weights / weights.mean()), float(weights.sum())
    return float(error.sum(axis=1).mean()), held

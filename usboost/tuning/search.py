"""The search: batches of trials for every model, chosen by the trials of earlier batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from usboost.boosting.checkpoint import described
from usboost.boosting.code import code_digest
from usboost.learners.search_space import Space
from usboost.tuning.propose import own_values, propose
from usboost.tuning.run import Job, Task
from usboost.tuning.trials import Trial, Trials
from usboost.tuning.workers import Workers

DRAWS = 100
"""Bootstrap samples of the scored rows, the same for all trials."""

Draws = Sequence[float | None]
"""A trial's score in each sample; None where the sample has none, an AUC of one class say."""


def drawn(
    score: Callable[[np.ndarray], float], n: int, groups: np.ndarray | None = None, part: int = 0
) -> np.ndarray:
    """The score of each bootstrap sample of n rows, float64 (DRAWS,).

    Parameters
    ----------
    score : of rows, given by their positions.
    groups : codes (n,); whole groups are drawn, as many as there are, since rows of one group are alike.
    part : the number of the rows' fold. Each has samples of its own: with equal ones, rows that stand at the
        same place of their folds, of one class say, would be drawn together.
    """
    rng = np.random.default_rng([0, part])
    if groups is None:
        return np.array([score(rng.integers(0, n, n)) for _ in range(DRAWS)])
    sizes = np.unique(groups, return_counts=True)[1]
    rows = np.split(np.argsort(groups, kind="stable"), np.cumsum(sizes)[:-1])
    samples = (rng.integers(0, len(rows), len(rows)) for _ in range(DRAWS))
    return np.array([score(np.concatenate([rows[k] for k in chosen])) for chosen in samples])


def error_of_difference(first: Draws, second: Draws) -> float:
    """The standard error of the difference of two trials' scores on the same rows; 0 if it is not known."""
    pairs = [(a, b) for a, b in zip(first, second, strict=False) if a is not None and b is not None]
    return float(np.std([a - b for a, b in pairs], ddof=1)) if len(pairs) > 1 else 0.0


BATCH = 4
"""Trials that are proposed together, whatever the number of processes, so that it changes no result."""

NOISE = 1.0
"""Standard errors of the difference by which a trial has to be better than the model's own settings."""

OnTrialEnd = Callable[[Trial, int, int], None]
"""Called with a trial that has ended, how many have, and how many there are in all."""


@dataclass(frozen=True)
class Plan:
    """How a search is made.

    Attributes
    ----------
    trials : of each model; one of a model of which there is nothing to choose.
    batch : see `BATCH`.
    seed : of the proposals.
    prune : whether fits end that are behind at a rung, see `usboost.tuning.run`.
    jobs : trials at a time; more than one run in spawned processes, so that a script that asks for them needs
        the usual ``if __name__ == "__main__":``.
    deadline : a time (`time.time`) after which no round begins.
    """

    trials: int = 20
    batch: int = BATCH
    seed: int = 0
    prune: bool = True
    jobs: int = 1
    deadline: float = float("inf")


@dataclass
class ModelTrials:
    """The trials of a model, by number, and how to compare them."""

    model: str
    loss: Callable[[float], float]
    trials: list[Trial] = field(default_factory=list)

    @property
    def best(self) -> Trial | None:
        """The finished trial with the best score, the first of equals; None if there is none."""
        return self._best([each for each in self.trials if each.state == "finished"])

    @property
    def chosen(self) -> Trial | None:
        """The trial whose settings are taken: the best, unless what it gains on the model's own is noise."""
        best, first = self.best, self.first
        if best is None or first is None or best.score is None or first.score is None:
            return best
        gain = self.loss(first.score) - self.loss(best.score)
        return best if gain > NOISE * error_of_difference(first.draws, best.draws) else first

    @property
    def first(self) -> Trial | None:
        """The trial of the model's own settings, if it has finished."""
        done = [each for each in self.trials[:1] if each.state == "finished"]
        return done[0] if done else None

    @property
    def promising(self) -> Trial | None:
        """The best trial, if it was pruned."""
        best = self._best([each for each in self.trials if each.score is not None])
        return best if best is not None and best.state == "pruned" else None

    def losses(self) -> list[tuple[Mapping[str, Any], float]]:
        """Settings and loss of each trial; a failed one has lost as much as the worst."""
        lost = [self.lost(each) for each in self.trials]
        worst = max((each for each in lost if each is not None), default=0.0)
        return [
            (each.settings, worst if loss is None else loss)
            for each, loss in zip(self.trials, lost, strict=True)
        ]

    @property
    def _harder(self) -> float:
        """How much more finished trials lost on all folds than on the first one, on average."""
        done = [each for each in self.trials if each.state == "finished" and each.score is not None]
        more = [self.loss(each.score or 0.0) - self.loss(each.folds[0]) for each in done if each.folds]
        return sum(more) / len(more) if more else 0.0

    def lost(self, trial: Trial) -> float | None:
        """A trial's loss, None if it failed; of a pruned one, of which one fold is known, an estimate."""
        if trial.score is None:
            return None
        return self.loss(trial.score) + (self._harder if trial.state == "pruned" else 0.0)

    def _best(self, among: Sequence[Trial]) -> Trial | None:
        return min(among, key=lambda each: self.lost(each) or 0.0, default=None)


@dataclass(frozen=True)
class SearchResult:
    """What a search found, by model; `interrupted`, whether Ctrl-C or the deadline ended it."""

    models: dict[str, ModelTrials]
    interrupted: bool


def search(
    task: Task,
    spaces: Mapping[str, Space],
    folder: Path,
    plan: Plan,
    identity: Mapping[str, Any],
    on_trial_end: OnTrialEnd | None = None,
) -> SearchResult:
    """Search the spaces of all models together, batch by batch, and go on with what is in the folder.

    Every trial is on disk as soon as it ends, and every round of a fit that runs; equal arguments give equal
    trials, whatever was killed in between and however many run at a time. Raises UsboostError if the folder
    holds another search. A trial that fails stops no other.

    Parameters
    ----------
    spaces : by model.
    folder : has a folder for each model with its journal.
    identity : what decides the scores, as JSON: of the rows, the split, the scores.
    """
    kept = {name: _kept(name, task, spaces[name], folder, plan, identity) for name in task.models}
    found = {name: ModelTrials(name, task.loss) for name in task.models}
    total = sum(_count(spaces[name], plan) for name in task.models)

    def run(trials: Sequence[Trial], prune: bool) -> bool:
        """Whether all have ended."""
        jobs = [
            Job(
                each,
                kept[each.model].checkpoint(each.number),
                found[each.model].trials[: each.number // plan.batch * plan.batch] if prune else (),
                plan.deadline,
            )
            for each in trials
        ]
        if jobs and time.time() > plan.deadline:
            return False
        late = False
        for trial in workers.results(jobs):
            one = found[trial.model]
            one.trials[trial.number] = trial
            late = late or trial.state == "proposed"
            if trial.state != "proposed":
                kept[trial.model].add(trial, one.lost(trial))
            if on_trial_end is not None:
                ended = sum(each.state != "proposed" for one in found.values() for each in one.trials)
                on_trial_end(trial, ended, total)
        return not late

    interrupted = False
    try:
        with Workers(task, plan.jobs) as workers:
            for k in range(-(-plan.trials // plan.batch)):
                batch = [
                    trial
                    for name, one in found.items()
                    for trial in _batch(k, task, spaces[name], one, kept[name], plan)
                ]
                if not run(batch, plan.prune):
                    interrupted = True
                    break
            # without limits; such a fit goes on from its checkpoint
            while not interrupted and (more := [each for one in found.values() if (each := one.promising)]):
                interrupted = not run(more, False)
    except KeyboardInterrupt:
        interrupted = True
    if not interrupted:
        for trials in kept.values():
            trials.forget_fits()
    return SearchResult(found, interrupted)


def _kept(
    name: str, task: Task, space: Space, folder: Path, plan: Plan, identity: Mapping[str, Any]
) -> Trials:
    """A model's trials on disk, with all that decides their scores."""
    model = task.models[name]
    decides = {
        **identity,
        "score": task.by,
        "batch": plan.batch,
        "proposals": plan.seed,
        "pruning": plan.prune,
        "model": described(model),
        "space": {path: repr(each) for path, each in space.items()},
        "code": code_digest(model, "usboost.tuning.search"),
    }
    return Trials(folder / name, name, space, decides)


def _count(space: Space, plan: Plan) -> int:
    return plan.trials if space else 1


def _batch(k: int, task: Task, space: Space, found: ModelTrials, kept: Trials, plan: Plan) -> list[Trial]:
    """Adds the trials of a batch to the model's; those of them that have not ended."""
    numbers = range(k * plan.batch, min((k + 1) * plan.batch, _count(space, plan)))
    if not numbers or (k and all(each.state == "failed" for each in found.trials)):
        return []  # what cannot be fitted at all is not tried again
    trials = [kept.ended.get(number) for number in numbers]
    if None in trials:
        own = own_values(task.models[found.model], space)
        wanted = plan.batch if space else 1
        proposed = propose(space, own, found.losses(), wanted, (plan.seed, k))
        trials = [
            each or Trial(found.model, number, settings)
            for each, number, settings in zip(trials, numbers, proposed, strict=False)
        ]
    found.trials.extend(each for each in trials if each)
    return [each for each in trials if each and each.state == "proposed"]

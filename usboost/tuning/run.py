"""One trial: a fit to each part of the rows, watched, scored and written down."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from usboost.boosting.callbacks import Callback
from usboost.boosting.checkpoint import Checkpoint
from usboost.boosting.rounds import Round
from usboost.data.related import Related
from usboost.errors import UsboostError
from usboost.evaluation.names import LOWER_IS_BETTER
from usboost.models.estimator import ViewsEstimator
from usboost.models.paths import with_settings
from usboost.models.weights import Weighted, fit_weighted
from usboost.tuning.rungs import Rungs
from usboost.tuning.trials import CHECKPOINT, Trial, finite, write_trial

Score = Callable[[Any, Weighted, np.ndarray | None, int], tuple[Mapping[str, float], np.ndarray]]
"""All scores of a fitted model on some rows, given their groups and the number of their part; and of the one
that settings are chosen by, `noise.drawn`."""


@dataclass(frozen=True)
class Part:
    """Rows to fit to, rows that stop the fit, and rows that are scored, which may be the same; how those
    to fit to are related; and the groups of those that are scored."""

    train: Weighted
    held: Weighted
    scored: Weighted
    related: Related | None = None
    groups: np.ndarray | None = None


@dataclass(frozen=True)
class Task:
    """What all trials have in common; it is sent to each process once.

    Attributes
    ----------
    models : unfitted, by name, with their own settings.
    parts : one, or those of a cross-validation.
    score : of a fitted model; by : the score that settings are chosen by.
    """

    models: Mapping[str, Any]
    parts: Sequence[Part]
    score: Score
    by: str

    def loss(self, score: float) -> float:
        """The score so that lower is better."""
        return score if self.by in LOWER_IS_BETTER else -score


@dataclass(frozen=True)
class Job:
    """A trial to run.

    Attributes
    ----------
    folder : of the trial.
    limits : see `Rungs`; of the first part's fit.
    to_beat : what the best trial so far may be thought to have lost on the first part; a pruned fit that lost
        less is kept, as it may be the best in the end.
    deadline : a time (`time.time`) after which no round begins.
    """

    trial: Trial
    folder: Path
    limits: Mapping[int, float] = field(default_factory=dict)
    to_beat: float = float("inf")
    deadline: float = float("inf")


class OutOfTime(Exception):
    """A fit that goes on in another run, from its checkpoint."""


class _Deadline(Callback):
    def __init__(self, deadline: float) -> None:
        self._deadline, self._last = deadline, 0

    def on_fit_begin(self, fit: Any) -> None:
        self._last = fit.n_rounds

    def on_round(self, round_: Round) -> bool:
        if round_.index < self._last and time.time() > self._deadline:
            raise OutOfTime
        return False


def run_trial(task: Task, job: Job) -> Trial:
    """Run a trial and write its file; one that is out of time stays "proposed".

    An error of a fit is in the answer. One thread each, so that results do not depend on how many run.
    """
    started, trial = time.perf_counter(), job.trial
    try:
        with _one_thread():
            trial = _fitted(task, job)
    except OutOfTime:
        return trial
    except Exception as error:
        kind = "" if isinstance(error, UsboostError) else f"{type(error).__name__}: "
        reason = f"{kind}{error}".strip().splitlines()[0]
        trial = trial.of(state="failed", score=None, scores={}, reason=reason)
    trial = trial.of(seconds=round(time.perf_counter() - started, 3))
    write_trial(job.folder, trial)
    loss = task.loss(trial.score) if trial.score is not None else float("inf")
    if trial.state != "pruned" or loss >= job.to_beat:
        shutil.rmtree(job.folder / CHECKPOINT, ignore_errors=True)
    return trial


def _fitted(task: Task, job: Job) -> Trial:
    trial, scores, drawn = job.trial, list[Mapping[str, float]](), list[np.ndarray]()
    for k, part in enumerate(task.parts):
        if time.time() > job.deadline:
            raise OutOfTime
        model = with_settings(clone(task.models[trial.model]), trial.settings, trial.model)
        rungs = Rungs(job.limits if k == 0 else None)
        watching: list[Callback] = [_Deadline(job.deadline)]
        model.set_params(callbacks=[rungs, *watching] if is_one_fit(model) else watching)
        if "checkpoint" in model.get_params(deep=False):
            decides = {"model": trial.model, "settings": repr(dict(trial.settings)), "part": k}
            model.set_params(checkpoint=Checkpoint(job.folder / CHECKPOINT / str(k), decides))
        fit_weighted(model, part.train, part.held, part.related)
        found, draws = task.score(model, part.scored, part.groups, k)
        scores.append(found)
        drawn.append(draws)
        if k == 0:
            end = finite({0: rungs.best}).get(0)
            trial = trial.of(risks=finite(rungs.risks), end=end, rounds=len(model.history_))
            trial = trial.of(best_round=int(model.best_round_))
            if rungs.pruned:
                break
    means = finite({name: float(np.mean([each[name] for each in scores])) for name in scores[0]})
    if task.by not in means:
        raise UsboostError(f"its {task.by} is no finite number")
    state = "pruned" if rungs.pruned else "finished"
    known = [float(each) if np.isfinite(each) else None for each in np.mean(drawn, axis=0)]
    folds = [float(each[task.by]) for each in scores]
    return trial.of(state=state, score=means[task.by], scores=means, folds=folds, draws=known)


def is_one_fit(model: Any) -> bool:
    """Whether a model's rounds are those of one fit, and not of several models that it holds."""
    parts = (
        each for v in model.get_params(deep=False).values() if isinstance(v, Mapping) for each in v.values()
    )
    return not any(isinstance(each, ViewsEstimator) for each in parts)


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)

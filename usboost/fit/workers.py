"""Run trials, in this process or side by side in others: fits of networks in threads wait for each other.

A trial is a fit to each part of the rows, watched and scored; by successive halving, one that is behind at a
rung of rounds ends there.
"""

import math
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import active_children, get_context
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from sklearn.base import clone

from usboost.boosting.callbacks import Callback
from usboost.boosting.checkpoint import Checkpoint
from usboost.boosting.rounds import Round
from usboost.data.progress import end_with_parent
from usboost.errors import UsboostError
from usboost.evaluation.ranking import LOWER_IS_BETTER
from usboost.evaluation.task import TASKS
from usboost.fit.evaluate import FitData, evaluate, failure
from usboost.fit.trials import ROUNDS, Trial, drawn, finite, one_thread, pruner_of_rungs, quiet
from usboost.models.estimator import ViewsEstimator
from usboost.models.settings import with_settings

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

EARLIEST = 4
"""No fit ends before the model's own settings have done one in so many of their rounds: small steps begin
slowly."""


class Rungs(Callback):
    """Notes a fit's best validation risk at each rung, and ends a fit that Optuna's pruner gives up there.

    Parameters
    ----------
    earlier : trials of earlier batches, which this one competes with; without any no fit ends here. Those of
        its own batch do not count, or who is pruned would depend on which fits are ahead.
    own_rounds : that the model's own settings took.

    Attributes
    ----------
    risks : lowest "risk_val" so far, by rung reached; best : lowest "risk_val" so far
    pruned : whether the fit was ended here
    """

    def __init__(self, earlier: "Sequence[FrozenTrial]" = (), own_rounds: int = 0) -> None:
        self.risks: dict[int, float] = {}
        self.best, self.pruned = math.inf, False
        self._trial, self._own_rounds = None, own_rounds
        if earlier:
            import optuna

            with quiet():
                study = optuna.create_study(pruner=pruner_of_rungs())
                study.add_trials(earlier)
                self._trial = study.ask()

    def on_round(self, round_: Round) -> bool:
        risk = round_.metrics.get("risk_val", math.inf)
        self.best = min(self.best, risk if math.isfinite(risk) else math.inf)
        if round_.index in ROUNDS and math.isfinite(self.best):
            self.risks[round_.index] = self.best
            if self._trial is not None:
                self._trial.report(self.best, round_.index)
                self.pruned = self._trial.should_prune() and round_.index * EARLIEST >= self._own_rounds
        return self.pruned


@dataclass(frozen=True)
class SearchTask:
    """Models and rows that all trials have in common; it is sent to each process once.

    Attributes
    ----------
    models : unfitted, by name, with their own settings.
    parts : one, or those of a cross-validation.
    task : of `TASKS`; by : the score that settings are chosen by.
    """

    models: Mapping[str, Any]
    parts: Sequence[FitData]
    task: str
    by: str

    def loss(self, score: float) -> float:
        """Return the score so that lower is better."""
        return score if self.by in LOWER_IS_BETTER else -score


@dataclass(frozen=True)
class Job:
    """A trial to run.

    Attributes
    ----------
    checkpoint : folder of its fits' rounds, which stays.
    earlier, own_rounds : of the first part's fit, see `Rungs`.
    deadline : a time (`time.time`) after which no round begins.
    """

    trial: Trial
    checkpoint: Path
    earlier: "Sequence[FrozenTrial]" = ()
    own_rounds: int = 0
    deadline: float = float("inf")


class OutOfTime(Exception):
    """A fit that goes on in another run, from its checkpoint."""


@dataclass(eq=False)
class _Deadline(Callback):
    _deadline: float
    _last: int = 0

    def on_fit_begin(self, fit: Any) -> None:
        self._last = fit.n_rounds

    def on_round(self, round_: Round) -> bool:
        if round_.index < self._last and time.time() > self._deadline:
            raise OutOfTime
        return False


def run_trial(task: SearchTask, job: Job) -> Trial:
    """Return the trial with what came of it; one that is out of time is still "proposed".

    An error of a fit is in the answer. One thread each, so that results do not depend on how many run.
    """
    started = time.perf_counter()
    try:
        with one_thread():
            trial = _fitted(task, job)
    except OutOfTime:
        return job.trial
    except Exception as error:
        trial = replace(job.trial, state="failed", score=None, scores={}, reason=failure(error))
    return replace(trial, seconds=round(time.perf_counter() - started, 3))


def _fitted(task: SearchTask, job: Job) -> Trial:
    trial, scores, draws = job.trial, list[Mapping[str, float]](), list[np.ndarray]()
    for k, part in enumerate(task.parts):
        if time.time() > job.deadline:
            raise OutOfTime
        model = with_settings(clone(task.models[trial.model]), trial.settings, trial.model)
        rungs = Rungs(job.earlier if k == 0 else (), job.own_rounds)
        watching: list[Callback] = [_Deadline(job.deadline)]
        parameters = model.get_params(deep=False)
        mappings = [each for each in parameters.values() if isinstance(each, Mapping)]
        if not any(isinstance(part, ViewsEstimator) for each in mappings for part in each.values()):
            watching = [rungs, *watching]  # rounds are those of one fit, and not of several models
        model.set_params(callbacks=watching)
        if "checkpoint" in parameters:
            decides = {"model": trial.model, "settings": repr(dict(trial.settings)), "part": k}
            model.set_params(checkpoint=Checkpoint(job.checkpoint / str(k), decides))
        result = evaluate(model, part, task.task)
        scores.append(result.scores)
        draws.append(draws_of(task, part, result.predicted, k))
        if k == 0:
            end = finite({0: rungs.best}).get(0)
            trial = replace(trial, risks=finite(rungs.risks), end=end, rounds=len(model.history_))
            trial = replace(trial, best_round=int(model.best_round_))
            if rungs.pruned:
                break
    means = finite({name: float(np.mean([each[name] for each in scores])) for name in scores[0]})
    if task.by not in means:
        raise UsboostError(f"its {task.by} is no finite number")
    state: Literal["pruned", "finished"] = "pruned" if rungs.pruned else "finished"
    known = [float(each) if np.isfinite(each) else None for each in np.mean(draws, axis=0)]
    folds = [float(each[task.by]) for each in scores]
    return replace(trial, state=state, score=means[task.by], scores=means, folds=folds, draws=known)


def draws_of(task: SearchTask, part: FitData, predicted: np.ndarray, k: int) -> np.ndarray:
    """Return the score that settings are chosen by in samples of a part's rows, see `drawn`."""
    _, labels, weights = part.test

    def score(rows: np.ndarray) -> float:
        weight = None if weights is None else weights[rows]
        return TASKS[task.task].ranked(labels[rows], predicted[rows], weight)[task.by]

    return drawn(score, len(labels), part.groups, k)


class Workers:
    """Runs trials, `jobs` at a time; with one in this process, else each in one of its own.

    The processes are spawned once, are sent the task through pipes, and end with this one. Leaving the block
    by an error ends them at once; what their fits have done is in their checkpoints.
    """

    def __init__(self, task: SearchTask, jobs: int) -> None:
        self._task, self._jobs = task, jobs
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> "Workers":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is None:
            return
        if kind is not None:
            for process in active_children():
                if process.pid not in self._before:
                    process.terminate()
        self._pool.shutdown(wait=kind is None, cancel_futures=True)

    def results(self, jobs: Sequence[Job]) -> Iterator[Trial]:
        """Yield the trials as they end. Raises UsboostError if a process dies, of too little memory say."""
        if self._jobs <= 1:
            yield from (run_trial(self._task, job) for job in jobs)
            return
        if self._pool is None:
            self._before = {process.pid for process in active_children()}
            # spawned, since forking a process with threads (Arrow's, PyTorch's) can deadlock
            self._pool = ProcessPoolExecutor(self._jobs, get_context("spawn"), _begin, (self._task,))
        pool = self._pool
        try:
            with _signals_later():
                waiting: set[Future[Trial]] = {pool.submit(_run, job) for job in jobs}
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        except BrokenProcessPool:
            raise UsboostError(
                "a process that ran a trial died, perhaps of too little memory; the same command goes on "
                "from there, with fewer `jobs` say"
            ) from None


@contextmanager
def _signals_later() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait: a process that is being started must get all that it is sent.

    What is started inherits that Ctrl-C is blocked, which is for this process to answer.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[Any] = []
    handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    before = {each: handler for each, handler in handlers.items() if callable(handler)}
    for each in before:
        signal.signal(each, lambda *given: arrived.append(given))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for each, handler in before.items():
            signal.signal(each, handler)
        if arrived:
            before[arrived[0][0]](*arrived[0])


_TASK: list[SearchTask] = []


def _begin(task: SearchTask) -> None:
    """Make this process ready: Ctrl-C is the parent's to answer, and it ends with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    _TASK[:] = [task]


def _run(job: Job) -> Trial:
    return run_trial(_TASK[0], job)

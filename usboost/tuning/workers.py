"""Trials side by side, in processes: Python's own threads wait for each other in the fits of networks."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any

from usboost.data.progress import end_with_parent
from usboost.errors import Style, UsboostError, option, write_options
from usboost.tuning.run import Job, Task, run_trial
from usboost.tuning.trials import Trial


class Workers:
    """Runs trials, `jobs` at a time; with one in this process, else each in one of its own.

    The processes are spawned once, are sent the task through pipes, and end with this one. Leaving the block
    by an error ends them at once; what their fits have done is in their checkpoints.
    """

    def __init__(self, task: Task, jobs: int) -> None:
        self._task, self._jobs = task, jobs
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is None:
            return
        if kind is not None:
            for process in self._children():
                process.terminate()
        self._pool.shutdown(wait=kind is None, cancel_futures=True)

    def results(self, jobs: Sequence[Job]) -> Iterator[Trial]:
        """The trials as they end. Raises UsboostError if a process dies, of too little memory say."""
        if self._jobs <= 1:
            yield from (run_trial(self._task, job) for job in jobs)
            return
        pool = self._started()
        try:
            with _signals_later():
                waiting: set[Future[Trial]] = {pool.submit(_run, job) for job in jobs}
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        except BrokenProcessPool:
            raise UsboostError(
                "a process that ran a trial died, perhaps of too little memory; the same command goes on "
                f"from there, with fewer {option('jobs')} say"
            ) from None

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._before = {process.pid for process in active_children()}
            # spawned, since forking a process with threads (Arrow's, PyTorch's) can deadlock
            self._pool = ProcessPoolExecutor(
                self._jobs,
                mp_context=get_context("spawn"),
                initializer=_begin,
                initargs=(self._task, write_options()),
            )
        return self._pool

    def _children(self) -> list[BaseProcess]:
        return [process for process in active_children() if process.pid not in self._before]


@contextmanager
def _signals_later() -> Iterator[None]:
    """Within it Ctrl-C and SIGTERM wait: a process that is being started must get all that it is sent.

    What is started inherits that Ctrl-C is blocked, which is for this process to answer.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[Any] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = {each: signal.getsignal(each) for each in numbers}
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


_TASK: list[Task] = []


def _begin(task: Task, style: Style) -> None:
    """Make this process ready: Ctrl-C is the parent's to answer, and it ends with the parent."""
    write_options(style)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    _TASK[:] = [task]


def _run(job: Job) -> Trial:
    return run_trial(_TASK[0], job)

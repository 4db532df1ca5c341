"""Tasks that run side by side, in threads that share those of torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

import torch

Task = TypeVar("Task")
Result = TypeVar("Result")


def in_threads(
    work: Callable[[Task], Result], tasks: Sequence[Task], jobs: int
) -> Iterator[tuple[int, Result]]:
    """(position, result) of each task as they are done, in order with one job."""
    if jobs <= 1:
        yield from ((k, work(task)) for k, task in enumerate(tasks))
        return
    pool = ThreadPoolExecutor(jobs)
    with _share_of_threads(jobs):
        waiting: dict[Future[Result], int] = {pool.submit(work, t): k for k, t in enumerate(tasks)}
        try:
            while waiting:
                done: Iterable[Future[Result]] = wait(waiting, return_when=FIRST_COMPLETED).done
                for future in done:
                    yield waiting.pop(future), future.result()
        finally:  # an interruption waits for no fit
            pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def _share_of_threads(jobs: int) -> Iterator[None]:
    """torch's threads shared among the jobs."""
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, before // jobs))
    try:
        yield
    finally:
        torch.set_num_threads(before)

"""Long work: its progress, and its spread over processes, with results in order and memory bounded."""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import connection, get_context, parent_process
from threading import Lock
from typing import TypeVar

Progress = Callable[[int, int], None]
"""Called with (done, in all); the latter is 0 where it is unknown."""


class Running:
    """List what runs at this moment, in the order in which it began; `changed` is called with each change."""

    def __init__(self, changed: Callable[[Sequence[str]], None] | None) -> None:
        self._changed = changed
        self._now: dict[object, str] = {}
        self._lock = Lock()

    @contextmanager
    def during(self, what: str) -> Iterator[Callable[[str], None]]:
        """Show `what` while the block runs, in any thread; what the block gets adds how far it is."""
        place = object()
        self._change(place, what)
        try:
            yield lambda how_far: self._change(place, f"{what}, {how_far}")
        finally:
            self._change(place, None)

    def _change(self, place: object, what: str | None) -> None:
        with self._lock:
            if what is None:
                del self._now[place]
            else:
                self._now[place] = what
            if self._changed is not None:
                self._changed(list(self._now.values()))


Job = TypeVar("Job")
Result = TypeVar("Result")


def spread(function: Callable[[Job], Result], jobs: Iterable[Job], workers: int) -> Iterator[Result]:
    """Yield the results of `function`, importable by name, on each job, in the jobs' order.

    With several workers it runs in spawned processes, so a script that asks for them needs the usual
    ``if __name__ == "__main__":``. Jobs are taken only as workers become free, a few ahead of the results.
    """
    if workers <= 1:
        yield from map(function, jobs)
        return
    # Spawned, since forking a process with threads (Arrow's, PyTorch's) can deadlock.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=end_with_parent) as pool:
        ahead: deque[Future[Result]] = deque()
        try:
            for job in jobs:
                ahead.append(pool.submit(function, job))
                if len(ahead) > 2 * workers:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def end_with_parent() -> None:
    """Let this process end when the one that spawned it is killed; it would wait for work for ever."""
    parent = parent_process()
    assert parent is not None

    def watch(sentinel: int) -> None:
        connection.wait([sentinel])
        os._exit(1)

    threading.Thread(target=watch, args=(parent.sentinel,), daemon=True).start()

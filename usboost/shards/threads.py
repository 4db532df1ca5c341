"""Several shards of one fit: a thread for each of a process's own, and what they exchange."""

import hashlib
import json
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar, cast

import numpy as np
from threadpoolctl import get_cached_controller

from usboost.errors import UsboostError, within_memory
from usboost.shards.collective import SAMPLE_ROWS, WORLD, Shards

T = TypeVar("T")


class Link:
    """The link between the processes of a fit; this is a fit of one process.

    Attributes
    ----------
    shards : the numbers of this process's shards, in order
    count : of all shards
    shares : how many of them each process has
    waited : seconds that this process has spent in exchanges with others
    """

    def __init__(self, count: int) -> None:
        self.shards, self.count, self.shares, self.waited = range(count), count, [count], 0.0

    def stack(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Return all shards' arrays of one shape: (count, …) from those of this process's shards."""
        return np.stack(values)

    def sum(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Return their sum, added in the shards' order."""
        return added(values)

    def gather(self, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return all shards' arrays, of whatever shape."""
        return list(values)

    def failed(self, message: str) -> None:
        """Tell the other processes that this one cannot go on."""

    def close(self) -> None:
        """End the link after the fit, or its failure."""


def added(values: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
    """Return the sum of arrays, one after another: whoever adds them gets the same bits."""
    # not by np.sum, whose order depends on the arrays' shape: the bits are to follow from the shards alone
    total = np.array(values[0])
    for value in values[1:]:
        total += value
    return total


class ShardStopped(Exception):
    """Raised where another shard of this process has failed."""


class Meeting:
    """The barrier where the threads of a process's shards wait for each other, and exchange what they have.

    Shards ask for the same things in the same order, each in its own thread; the last to come does the work.
    Between two meetings they take turns: threads that all run at once would mostly wait for the interpreter,
    and to run at once is what processes are for.
    """

    def __init__(self, link: Link) -> None:
        self.link, self.spent = link, 0.0
        self.error: BaseException | None = None
        self._barrier = threading.Barrier(len(link.shards), self._exchange)
        self.turn = threading.RLock()  # which no thread gives up for another
        self._given: list[tuple[str, Any]] = [("", None)] * len(link.shards)
        self._answer: Any = None

    def meet(self, place: int, kind: str, value: Any) -> Any:
        """Return what comes of all shards' values; whoever gets it may not change it.

        `place` is the shard's in this process; `kind` a method of `Link`, "mean", "once", "begin" or "end".
        """
        self._given[place] = kind, value
        if kind != "begin":
            self.turn.release()
        try:
            self._barrier.wait()
        except threading.BrokenBarrierError:
            raise ShardStopped from None
        finally:
            self.turn.acquire()
        # nobody can replace it before this thread asks again
        return self._answer

    def fail(self, error: BaseException) -> None:
        """Stop all shards for the first error."""
        self._barrier.abort()  # first, for whatever comes after may fail, too
        if self.error is None and not isinstance(error, ShardStopped):
            self.error = error
            known = isinstance(error, UsboostError)
            self.link.failed(str(error) if known else f"{type(error).__name__}: {error}")

    def _exchange(self) -> None:
        kinds, values = zip(*self._given)
        if len(set(kinds)) > 1:
            raise UsboostError(f"the shards of this fit have gone apart ({', '.join(kinds)})")
        if kinds[0] == "once":
            self._answer = values[0]()
        elif kinds[0] not in ("begin", "end"):
            start = time.perf_counter()
            self._answer = getattr(self.link, "sum" if kinds[0] == "mean" else kinds[0])(values)
            if kinds[0] == "mean":
                self._answer = self._answer[:-1] / self._answer[-1]
            self.spent += time.perf_counter() - start


class ShardThread(Shards):
    """One of several shards."""

    def __init__(self, meeting: Meeting, place: int) -> None:
        self._meeting, self._place = meeting, place
        self.number, self.count = meeting.link.shards[place], meeting.link.count

    def _ask(self, kind: str, value: Any) -> Any:
        return self._meeting.meet(self._place, kind, value)

    def gather(self, array: np.ndarray) -> list[np.ndarray]:
        return list(self._ask("gather", np.ascontiguousarray(array)))

    def sum(self, value: Any) -> Any:
        total = self._ask("sum", np.asarray(value, dtype=np.float64))
        return total.copy() if isinstance(value, np.ndarray) else float(total)

    def highest(self, value: Any) -> Any:
        most = self._ask("stack", np.asarray(value, dtype=np.float64)).max(axis=0)
        if isinstance(value, (bool, np.bool_)):
            return bool(most)
        return most if isinstance(value, np.ndarray) else float(most)

    def mean(self, value: Any, weight: float) -> Any:
        array = np.asarray(value, dtype=np.float64)
        part = np.append(array * weight if weight else np.zeros_like(array), weight)
        means = self._ask("mean", part)
        if not isinstance(value, np.ndarray):
            return float(means[0])
        return means.reshape(array.shape).astype(value.dtype)

    def listed(self, value: Any) -> list[Any]:
        own = np.frombuffer(json.dumps(value).encode(), dtype=np.uint8)
        return [json.loads(bytes(each)) for each in self.gather(own)]

    def broadcast(self, content: bytes) -> bytes:
        own = np.frombuffer(b"" if self.number else content, dtype=np.uint8)
        return bytes(self.gather(own)[0])

    def once(self, work: Callable[[], T]) -> T:
        return cast(T, self._ask("once", work))

    def agree(self, what: str, text: Callable[[], str]) -> None:
        own = np.frombuffer(hashlib.sha256(text().encode()).digest(), dtype=np.uint8)
        every = self._ask("stack", own)
        others = np.flatnonzero((every != every[0]).any(axis=1)).tolist()
        if others:
            raise UsboostError(f"{what} of shard {others[0]} is not that of shard 0; all need the same")

    def seed(self, seed: int) -> int:
        return int(np.random.SeedSequence((seed, self.number)).generate_state(1)[0])

    def sample(self, n: int) -> np.ndarray:
        sizes = np.concatenate(self.gather(np.array([n])))
        share = SAMPLE_ROWS / max(int(sizes.sum()), 1)
        # by a hash (splitmix64) of the rows' numbers, whose neighbours have nothing in common
        mixed = np.arange(1, n + 1, dtype=np.uint64) + np.uint64(sizes[: self.number].sum())
        mixed *= np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
        return np.flatnonzero(mixed / 2.0**64 < share)

    def rows_of_processes(self, n: int) -> tuple[int, ...]:
        sizes, ends = np.concatenate(self.gather(np.array([n]))), np.cumsum(self._meeting.link.shares)
        return tuple(int(part.sum()) for part in np.split(sizes, ends[:-1]))

    def seconds(self) -> dict[str, float]:
        waited = self._meeting.link.waited
        return {"wait": waited, "sum": self._meeting.spent - waited}

    def pool(self) -> Executor:
        return _OneAfterAnother()


class _OneAfterAnother(Executor):
    """All shards ask each other for the same things in the same order."""

    def submit(self, work: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        done: Future[T] = Future()
        done.set_result(work(*args, **kwargs))
        return done


def run(work: Callable[[int], T], link: Link) -> T:
    """Call `work` in each shard of this process, and return what its first shard returns.

    `work` is called with a shard's number, in a thread in which `world` gives the shards. BLAS and torch have
    a single thread meanwhile: more of them would add in an order of their own. Raises `UsboostError` if
    another process has failed, or is gone; whatever a shard of this process raises.
    """
    if link.count == 1:  # an ordinary fit
        return work(0)
    meeting, results = Meeting(link), {}

    def one(place: int) -> None:
        shards = ShardThread(meeting, place)
        WORLD.set(shards)
        try:
            # OpenMP's limit holds for the calling thread
            with within_memory(), get_cached_controller().limit(limits=1, user_api="openmp"):
                meeting.meet(place, "begin", None)
                results[place] = work(shards.number)
                meeting.meet(place, "end", None)
        except BaseException as error:
            meeting.fail(error)
        finally:
            with suppress(RuntimeError):  # it has none if it was interrupted while it waited for it
                meeting.turn.release()

    threads = [
        threading.Thread(target=copy_context().run, args=(one, place), daemon=True)
        for place in range(1, len(link.shards))
    ]
    try:
        with within_memory(), get_cached_controller().limit(limits=1, user_api="blas"):
            for thread in threads:
                thread.start()
            copy_context().run(one, 0)
            for thread in threads:
                thread.join()
    finally:
        link.close()
    if meeting.error is not None:
        raise meeting.error
    return results[0]

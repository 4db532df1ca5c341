"""The processes of one fit, by `torch.distributed`: what they send each other, and who has gone."""

import hashlib
import itertools
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from usboost.errors import UsboostError, within_memory
from usboost.shards.threads import Link, added

BEAT, SILENT = 2.0, 30.0
"""Seconds between two signs of life of a process, and after which one without is taken for gone."""

SMALL = 1 << 12
"""Numbers that a process may send beyond what it has to, to save an exchange."""

_FITS = itertools.count()


class Processes(Link):
    """The ranks of the process group; each holds some of the `count` shards, which follow one another.

    Raises `UsboostError` if there are more ranks than shards, or ranks do not agree on the shards.
    """

    def __init__(self, count: int) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        if self.size > count:
            raise UsboostError(f"there are {self.size} processes for {count} shards; ask for more shards")
        super().__init__(count)
        bounds = [count * r // self.size for r in range(self.size + 1)]
        self.shards = range(bounds[self.rank], bounds[self.rank + 1])
        self.shares = np.diff(bounds).tolist()
        default: Any = dist.distributed_c10d._get_default_store()
        self._alive = _SignsOfLife(dist.PrefixStore(f"usboost-{next(_FITS)}", default), self.rank, self.size)
        # a group of its own, so that whatever the caller's is used for goes on; the others may come to it as
        # late as the caller's allows, and waits after that are watched over
        try:
            with within_memory():
                group: Any = dist.new_group(backend="gloo", timeout=default.timeout)
        except RuntimeError as error:
            raise UsboostError(self._alive.who()) from error
        self._group = group
        group._get_backend(torch.device("cpu"))._set_default_timeout(timedelta(days=7))
        own = hashlib.sha256(f"{count}".encode()).digest()
        digests = self._to_all(np.frombuffer(own, dtype=np.uint8), [len(own)] * self.size)
        if len({bytes(each) for each in digests}) > 1:
            self.close()
            raise UsboostError("the processes of this fit were given different numbers of shards")

    def stack(self, values: Sequence[np.ndarray]) -> np.ndarray:
        own = np.stack(values)
        parts = self._to_all(own.reshape(-1), [n * own[0].size for n in self.shares])
        return np.concatenate(parts).reshape(self.count, *own.shape[1:])

    def sum(self, values: Sequence[np.ndarray]) -> np.ndarray:
        size = values[0].size
        others, most = self.size - 1, max(self.shares)
        if size * others * (most * others - 1) <= SMALL * self.size:
            return added(self.stack(values))  # everybody gets all, and adds it itself
        # every rank adds one part of the numbers, of all shards, and sends everybody its sums
        width = -(-size // self.size)
        own = np.zeros((len(values), self.size * width))
        own[:, :size] = [value.reshape(-1) for value in values]
        parts = own.reshape(len(values), self.size, width).swapaxes(0, 1)
        received = self._exchange(parts, [width * len(values)] * self.size, [n * width for n in self.shares])
        sums = added(np.concatenate(received).reshape(self.count, width))
        whole = np.concatenate(self._to_all(sums, [width] * self.size))
        return whole[:size].reshape(values[0].shape)

    def gather(self, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        shapes = self.stack([np.asarray(value.shape, dtype=np.int64) for value in values])
        sizes = np.prod(shapes, axis=1)
        ends = np.cumsum(self.shares)
        lengths = [int(sizes[end - n : end].sum()) for end, n in zip(ends, self.shares)]
        parts = self._to_all(np.concatenate([value.reshape(-1) for value in values]), lengths)
        each = np.split(np.concatenate(parts), np.cumsum(sizes)[:-1])
        return [part.reshape(shape) for part, shape in zip(each, shapes)]

    def failed(self, message: str) -> None:
        self._alive.failed(f"process {self.rank} has stopped: {message}")
        if self.rank == 0:  # which may have what the ranks share: the others are to read it first
            time.sleep(2 * BEAT)

    def close(self) -> None:
        self._alive.ended.set()
        dist.destroy_process_group(self._group)

    def _to_all(self, own: np.ndarray, lengths: list[int]) -> list[np.ndarray]:
        """Return every rank's numbers, (length,) each, from this one's."""
        return self._exchange(np.tile(own, self.size), [len(own)] * self.size, lengths)

    def _exchange(self, parts: np.ndarray, sent: list[int], received: list[int]) -> list[np.ndarray]:
        """Send a part of the numbers to each rank, and return a part from each."""
        given = torch.from_numpy(np.ascontiguousarray(parts).reshape(-1))
        output = torch.empty(sum(received), dtype=given.dtype)
        start = time.perf_counter()
        try:
            work: Any = dist.all_to_all_single(output, given, received, sent, self._group, async_op=True)
            while True:
                try:
                    work.wait(timedelta(seconds=BEAT))
                    break
                except RuntimeError:
                    if work.is_completed():  # a connection is lost, nothing else ends it so
                        raise
                    self._alive.check()
        except RuntimeError as error:
            raise UsboostError(self._alive.who()) from error
        self.waited += time.perf_counter() - start
        return np.split(output.numpy(), np.cumsum(received)[:-1])


class _SignsOfLife:
    """Heartbeats: each rank writes one every few seconds into what the ranks share, and reads the others'."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self._store, self._rank, self._size = store, rank, size
        self._seen: dict[int, tuple[bytes, float]] = {}
        self.ended = threading.Event()
        store.set(f"beat-{rank}", "0")
        threading.Thread(target=self._beat, daemon=True).start()

    def failed(self, sentence: str) -> None:
        try:
            if self._failure() is None:  # what ended the fit first is what everybody is told
                self._store.set("failed", sentence)
        except RuntimeError:
            return

    def check(self) -> None:
        """Raise `UsboostError` if a rank has failed, or gives no sign of life."""
        if message := self._failure():
            raise UsboostError(message)
        if silent := self._silent(SILENT):
            raise UsboostError(self._gone(silent[0]))

    def who(self) -> str:
        """Say which rank has gone, when a connection was lost."""
        end = time.monotonic() + 5 * BEAT
        self._silent(0)
        while time.monotonic() < end:
            if message := self._failure():
                return message
            if silent := self._silent(2.5 * BEAT):
                return self._gone(silent[0])
            time.sleep(BEAT / 4)
        return "a process" + _GONE

    def _gone(self, rank: int) -> str:
        self.failed(f"process {rank}" + _GONE)
        return f"process {rank}" + _GONE

    def _failure(self) -> str | None:
        try:
            return self._store.get("failed").decode() if self._store.check(["failed"]) else None
        except RuntimeError:
            return "process 0" + _GONE

    def _silent(self, seconds: float) -> list[int]:
        now, silent = time.monotonic(), []
        for rank in range(self._size):
            key = f"beat-{rank}"
            try:
                beat = self._store.get(key) if self._store.check([key]) else b""
            except RuntimeError:  # what they share is gone with the rank that had it
                return [0]
            if self._seen.get(rank, (None, 0.0))[0] != beat:
                self._seen[rank] = beat, now
            elif now - self._seen[rank][1] > seconds and rank != self._rank:
                silent.append(rank)
        return silent

    def _beat(self) -> None:
        for count in itertools.count(1):
            if self.ended.wait(BEAT):
                return
            try:
                self._store.set(f"beat-{self._rank}", str(count))
            except RuntimeError:
                return


_GONE = " of this fit is gone; start all of them again, and it goes on from the last round of its checkpoint"

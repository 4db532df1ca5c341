"""What the shards of one fit ask of each other; with one shard, the rule, everything is as it was given.

A fit on several shards runs the ordinary code once for each of them, on its rows alone. Whatever sums over
rows asks `here()` for the sum over all shards, and gets the same bits in each of them, because parts are
always added in the shards' order. So all shards fit the same model, and processes only hold shards: how many
there are, and which shards each has, changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np

from usboost.errors import UsboostError, option

T = TypeVar("T")

SAMPLE_ROWS = 200_000
"""Rows that bins and quantiles of several shards come from, about; fewer are taken all."""


class Shards:
    """The shards of a fit, seen from one of them; this is the fit that has one only.

    Attributes
    ----------
    number : of this shard, from 0
    count : of all shards
    """

    number, count = 0, 1

    def gather(self, array: np.ndarray) -> list[np.ndarray]:
        """The arrays of all shards, in their order; of one dtype, and of as many dimensions."""
        return [array]

    def sum(self, value: Any) -> Any:
        """The sum over all shards of a number, or of arrays of one shape, float64."""
        return value

    def highest(self, value: Any) -> Any:
        """The largest of all shards' numbers, or of their arrays' entries: float64, or bool for "any"."""
        return value

    def mean(self, value: Any, weight: float) -> Any:
        """The mean of the shards' values, numbers or arrays of one shape, by their weights.

        A mean over all rows is that of the shards' means by their numbers of rows. A value of weight 0 may
        be anything.
        """
        return value

    def listed(self, value: Any) -> list[Any]:
        """What each shard gives, in their order; such as JSON can hold."""
        return [value]

    def broadcast(self, content: bytes) -> bytes:
        """What shard 0 gives."""
        return content

    def once(self, work: Callable[[], T]) -> T:
        """What `work` gives, which is the same in all shards: a process of several does it once."""
        return work()

    def agree(self, what: str, found: Callable[[], str]) -> None:
        """Refuse to go on if `found`, the digest or text of something, is not the same in all shards.

        Raises
        ------
        UsboostError
            Naming the shards that differ; `what` is what they differ in.
        """

    def seed(self, seed: int) -> int:
        """A seed of this shard's own, for what is drawn among its rows."""
        return seed

    def sample(self, n: int) -> np.ndarray:
        """Of this shard's n rows those in a sample of all that does not depend on how they are divided,
        int (k,), ascending: about `SAMPLE_ROWS` rows, or all if they are fewer."""
        return np.arange(n)

    def rows_of_processes(self, n: int) -> tuple[int, ...]:
        """The rows of each process of a fit on several shards, of which this shard has n; else nothing."""
        return ()

    def seconds(self) -> dict[str, float]:
        """What a process of a fit on several shards has spent so far on exchanges: "wait" for other processes
        and the wire, and the "sum" of what has come; else nothing."""
        return {}

    def pool(self) -> Executor:
        """Where a round's learners are fitted, at the same time."""
        return ThreadPoolExecutor()


_ALONE = Shards()
_HERE: ContextVar[Shards] = ContextVar("shards")


def here() -> Shards:
    """The shards of the fit that runs here, one if it is not divided."""
    return _HERE.get(_ALONE)


def alone(work: Callable[[], T]) -> T:
    """What `work` gives where nothing is asked of other shards."""
    token = _HERE.set(_ALONE)
    try:
        return work()
    finally:
        _HERE.reset(token)


def needs_all_rows(name: str, value: str = "") -> UsboostError:
    """What to say of an option that a fit on several shards cannot heed."""
    return UsboostError(
        f"{option(name, value)} needs all rows in one place, which several shards do not have; leave it out, "
        "or fit without shards"
    )


def enter(shards: Shards) -> None:
    """Let `here` give these shards from now on, in this thread."""
    _HERE.set(shards)

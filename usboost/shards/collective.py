"""Sums and exchanges among the shards of one fit; with one shard, the rule, everything is as it was given."""

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np

from usboost.errors import UsboostError

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
        """Return the arrays of all shards, in their order; of one dtype, and of as many dimensions."""
        return [array]

    def sum(self, value: Any) -> Any:
        """Return the sum over all shards of a number, or of arrays of one shape, float64."""
        return value

    def highest(self, value: Any) -> Any:
        """Return the largest of all shards' numbers, or arrays' entries: float64, or bool for "any"."""
        return value

    def mean(self, value: Any, weight: float) -> Any:
        """Return the mean of the shards' values, numbers or arrays of one shape, by their weights.

        A mean over all rows is that of the shards' means by their numbers of rows. A value of weight 0 may
        be anything.
        """
        return value

    def listed(self, value: Any) -> list[Any]:
        """Return what each shard gives, in their order; such as JSON can hold."""
        return [value]

    def broadcast(self, content: bytes) -> bytes:
        """Return what shard 0 gives."""
        return content

    def once(self, work: Callable[[], T]) -> T:
        """Return what `work` gives, which is the same in all shards: a process of several does it once."""
        return work()

    def agree(self, what: str, text: Callable[[], str]) -> None:
        """Refuse to go on if `text()`, a digest say, is not the same in all shards.

        Raises `UsboostError`, naming the shards that differ; `what` is what they differ in.
        """

    def seed(self, seed: int) -> int:
        """Return the seed that is set for what this shard draws among its rows."""
        return seed

    def sample(self, n: int) -> np.ndarray:
        """Draw from this shard's n rows, int (k,), ascending: about `SAMPLE_ROWS` of all, however divided."""
        return np.arange(n)

    def rows_of_processes(self, n: int) -> tuple[int, ...]:
        """Return the rows of each process of several, of which this shard has n; else nothing."""
        return ()

    def seconds(self) -> dict[str, float]:
        """Return a process's seconds of exchanges: "wait" for others, and "sum" of what came; or nothing."""
        return {}

    def pool(self) -> Executor:
        """Return the pool in which a round's learners are fitted, at the same time."""
        return ThreadPoolExecutor()


_ALONE = Shards()
WORLD: ContextVar[Shards] = ContextVar("shards")


def world() -> Shards:
    """Return the shards of the fit that runs in this thread, one if it is not divided."""
    return WORLD.get(_ALONE)


def unsharded(work: Callable[[], T]) -> T:
    """Return what `work` gives where nothing is asked of other shards."""
    token = WORLD.set(_ALONE)
    try:
        return work()
    finally:
        WORLD.reset(token)


def needs_all_rows(name: str, value: str = "") -> UsboostError:
    """Return the refusal of an option that a fit on several shards cannot heed."""
    given = f"{name}={value}" if value else name
    return UsboostError(
        f"`{given}` needs all rows in one place, which several shards do not have; leave it out, or fit "
        "without shards"
    )


_SIGN = np.uint64(1 << 63)


def grouped_quantiles(
    values: np.ndarray, amounts: np.ndarray, wanted: np.ndarray, groups: np.ndarray | None = None
) -> np.ndarray:
    """Return for each group the smallest v such that its rows of values up to v hold at least what is wanted.

    It is the same whatever the number of shards, but for the rounding of sums of `amounts`: by bisection, on
    the bits of float64, with at most 64 sums of one number for each group.

    Values, finite, what each row holds, none below 0, and groups, from 0 (None for one), are (n,), of this
    shard's rows. What is wanted is of all shards, (n_groups,), and so is the answer: the largest value where
    no sum reaches it, and 0 for a group without rows.
    """
    n_groups = len(wanted)
    groups = np.zeros(len(values), dtype=np.int64) if groups is None else groups
    order = np.lexsort((values, groups))
    ranked, sums = _ranks(values[order]), np.concatenate([[0.0], np.cumsum(amounts[order])])
    ends = np.searchsorted(groups[order], np.arange(n_groups + 1))
    least, most = np.full(n_groups, np.inf), np.full(n_groups, -np.inf)
    np.minimum.at(least, groups, values)
    np.maximum.at(most, groups, values)
    least, most = -world().highest(-least), world().highest(most)
    empty = least > most
    least[empty] = most[empty] = 0.0
    low, high = _ranks(least), _ranks(most)
    # on ranks, not numbers: 64 halvings end at a float exactly, and each asks the shards for sums alone
    while np.any(low < high):
        middle = low + (high - low) // np.uint64(2)
        at = [
            start + np.searchsorted(ranked[start:end], rank, side="right")
            for start, end, rank in zip(ends, ends[1:], middle)
        ]
        enough = world().sum(sums[at] - sums[ends[:-1]]) >= wanted
        low, high = np.where(enough, low, middle + np.uint64(1)), np.where(enough, middle, high)
        low = np.minimum(low, high)
    return np.where(high & _SIGN, high & ~_SIGN, ~high).view(np.float64)


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return whole numbers uint64 in the order of float64 numbers; one for each number."""
    bits = np.ascontiguousarray(values + 0.0).view(np.uint64)  # −0 is 0
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)

"""Fits on shards, and what these ask of each other."""

from collections.abc import Callable
from typing import Any

from usboost.shards.threads import Link, run


def of_shards(work: Callable[[int], Any], count: int) -> list[Any]:
    """What each of so many shards gets by its number."""
    found: dict[int, Any] = {}

    def one(shard: int) -> None:
        found[shard] = work(shard)

    run(one, Link(count))
    return [found[shard] for shard in range(count)]

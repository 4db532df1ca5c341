"""Where sums over the rows of all shards, in the order of some number of theirs, reach an amount."""

from __future__ import annotations

import numpy as np

from usboost.shards.here import here

_SIGN = np.uint64(1 << 63)


def reached(
    values: np.ndarray, held: np.ndarray, wanted: np.ndarray, groups: np.ndarray | None = None
) -> np.ndarray:
    """For each group the smallest v such that its rows of values up to v hold at least the amount wanted.

    It is the same whatever the number of shards, but for the rounding of sums of `held`: by bisection, on
    the bits of float64, with at most 64 sums of one number for each group.

    Parameters
    ----------
    values : float64 (n,), finite, of this shard's rows
    held : float64 (n,), what each row holds, none below 0
    wanted : float64 (n_groups,), for all shards; where no sum reaches it the answer is the largest value
    groups : int (n,), from 0; None for one group

    Returns
    -------
    float64 (n_groups,), each a value of a row of the group; 0 for a group without rows
    """
    n_groups = len(wanted)
    groups = np.zeros(len(values), dtype=np.int64) if groups is None else groups
    order = np.lexsort((values, groups))
    ranked, sums = _ranks(values[order]), np.concatenate([[0.0], np.cumsum(held[order])])
    ends = np.searchsorted(groups[order], np.arange(n_groups + 1))
    least, most = np.full(n_groups, np.inf), np.full(n_groups, -np.inf)
    np.minimum.at(least, groups, values)
    np.maximum.at(most, groups, values)
    least, most = -here().highest(-least), here().highest(most)
    empty = least > most
    least[empty] = most[empty] = 0.0
    low, high = _ranks(least), _ranks(most)
    while np.any(low < high):
        middle = low + (high - low) // np.uint64(2)
        at = [
            start + np.searchsorted(ranked[start:end], rank, side="right")
            for start, end, rank in zip(ends, ends[1:], middle)
        ]
        enough = here().sum(sums[at] - sums[ends[:-1]]) >= wanted
        low, high = np.where(enough, low, middle + np.uint64(1)), np.where(enough, middle, high)
        low = np.minimum(low, high)
    return _values(high)


def _ranks(values: np.ndarray) -> np.ndarray:
    """Whole numbers uint64 in the order of float64 numbers; one for each number."""
    bits = np.ascontiguousarray(values + 0.0).view(np.uint64)  # −0 is 0
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _values(ranks: np.ndarray) -> np.ndarray:
    """The numbers of `_ranks`."""
    return np.where(ranks & _SIGN, ranks & ~_SIGN, ~ranks).view(np.float64)

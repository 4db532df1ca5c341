"""Exact Shapley values of trees, against reference rows.

With v(S) the mean over the reference rows of a tree's value at a row whose columns outside of S are the
reference row's (the interventional expectation of Lundberg et al. 2020), a leaf adds its value to v(S) where
the columns A that only the row itself lets through are in S, and the columns B that only the reference row
lets through are not. So a column of A gets (a − 1)! b! / (a + b)! of the leaf's value and one of B
−a! (b − 1)! / (a + b)!, where a and b are their numbers. Few such pairs of sets differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import factorial

import numpy as np

from usboost.errors import UsboostError
from usboost.learners.trees.tree import Tree


def shapley_values(
    tree: Tree, rows: np.ndarray, reference: np.ndarray, owner: np.ndarray, n_owners: int
) -> np.ndarray:
    """What each owner of columns adds to a tree's value: float64 (n, n_owners, k).

    Over the owners they sum to the value of the row less its mean over the reference rows.

    Parameters
    ----------
    rows, reference : float32 (n, p) and (m, p), column-major for speed
    owner : int (p,), who has a column: columns of one owner are in S together
    """
    found = np.zeros((len(rows), n_owners, tree.value.shape[1]))
    if not len(tree.feature):
        return found
    left = [tree.goes_left(rows), tree.goes_left(reference)]
    for leaf, path in _paths(tree):
        owners = sorted({int(owner[tree.feature[node]]) for node, _ in path})
        if len(owners) > _MOST:
            raise UsboostError(f"a tree tests more than {_MOST} columns on one path, too many to explain")
        codes = [np.zeros(len(sides), dtype=np.int64) for sides in left]
        for bit, each in enumerate(owners):
            for sides, code in zip(left, codes):
                passed = np.ones(len(sides), dtype=bool)
                for node, goes_left in path:
                    if owner[tree.feature[node]] == each:
                        passed &= sides[:, node] == goes_left
                code |= passed.astype(np.int64) << bit
        shares = _shares(codes[0], codes[1], len(owners))
        found[:, owners] += shares[:, :, None] * tree.value[leaf].astype(np.float64)
    return found


def _paths(tree: Tree) -> Iterator[tuple[int, list[tuple[int, bool]]]]:
    """Each leaf, and the nodes that lead to it, with the side on which they do."""
    open_: list[tuple[int, list[tuple[int, bool]]]] = [(0, [])]
    while open_:
        node, path = open_.pop()
        for child, goes_left in ((int(tree.left[node]), True), (int(tree.right[node]), False)):
            longer = [*path, (node, goes_left)]
            if child < 0:
                yield ~child, longer
            else:
                open_.append((child, longer))


def _shares(rows: np.ndarray, reference: np.ndarray, d: int) -> np.ndarray:
    """The share of a leaf's value that each of d owners gets, float64 (n, d).

    Parameters
    ----------
    rows, reference : int64 (n,) and (m,); bit k says whether owner k lets a row through to the leaf
    """
    own, place = np.unique(rows, return_inverse=True)
    others, counts = np.unique(reference, return_counts=True)
    reached = (own[:, None] | others) == (1 << d) - 1
    bits = np.arange(d)
    mine = ((own[:, None] & ~others)[:, :, None] >> bits) & 1
    theirs = ((others & ~own[:, None])[:, :, None] >> bits) & 1
    a, b = mine.sum(axis=2), theirs.sum(axis=2)
    share = np.where(reached, counts / len(reference), 0.0)
    plus, minus = _WEIGHTS[np.maximum(a - 1, 0), b], _WEIGHTS[np.maximum(b - 1, 0), a]
    table = (share * plus)[:, :, None] * mine - (share * minus)[:, :, None] * theirs
    return np.asarray(table.sum(axis=1)[place])


_MOST = 62  # bits of a code
_WEIGHTS = np.array(
    [[factorial(a) * factorial(b) / factorial(a + b + 1) for b in range(_MOST + 1)] for a in range(_MOST + 1)]
)
"""Entry (a − 1, b) is (a − 1)! b! / (a + b)!."""

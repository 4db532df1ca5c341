"""The leaves of a large tree: every row goes down its own path, level by level.

A tree of m nodes and mean depth d costs n·d steps so, where testing every node on all rows costs n·m. For the
trees of a forest that is tens of times less; for a small tree it is more.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

FEWEST_NODES = 64
"""Inner nodes from which on walking is the faster way."""

_BLOCK_ROWS = 8_192  # what a level reads and writes stays in the cache


class Nodes(Protocol):
    """What is read of a `usboost.learners.trees.tree.Tree`."""

    @property
    def feature(self) -> np.ndarray: ...
    @property
    def threshold(self) -> np.ndarray: ...
    @property
    def left(self) -> np.ndarray: ...
    @property
    def right(self) -> np.ndarray: ...
    @property
    def categories(self) -> np.ndarray: ...
    @property
    def category_start(self) -> np.ndarray: ...


def leaves(tree: Nodes, matrix: np.ndarray) -> np.ndarray:
    """Leaf index of every row, int32 (n,), by a tree with one inner node at least.

    Parameters
    ----------
    matrix : float32 (n, p), p above every column that the tree reads
    """
    found = np.empty(len(matrix), dtype=np.int32)
    feature = tree.feature.astype(np.intp)
    # side by side, so that the child is entry 2·node + goes_left
    children = np.column_stack([tree.right, tree.left]).astype(np.intp).ravel()
    codes = _Codes(tree) if len(tree.categories) else None
    for start in range(0, len(matrix), _BLOCK_ROWS):
        values = np.ascontiguousarray(matrix[start : start + _BLOCK_ROWS])
        row = np.arange(len(values))
        first, node, values = row * values.shape[1], np.zeros(len(values), dtype=np.intp), values.ravel()
        while len(node):
            read = values.take(first + feature.take(node))
            goes_left = read <= tree.threshold.take(node)
            if codes is not None:
                codes.decide(node, read, goes_left)
            node = children.take(2 * node + goes_left)
            inner = node >= 0
            if not inner.all():
                ended = ~inner
                found[start + row[ended]] = ~node[ended]
                row, first, node = row[inner], first[inner], node[inner]
    return found


class _Codes:
    """Which codes go left, of all categorical nodes of a tree, in one array."""

    def __init__(self, tree: Nodes) -> None:
        counts = np.diff(tree.category_start)
        owner = np.repeat(np.arange(len(counts)), counts)
        self.categorical = counts > 0
        # beside its highest code a node has room for one that stands for all above
        self.last = np.zeros(len(counts), dtype=np.intp)
        np.maximum.at(self.last, owner, tree.categories + 1)
        self.start = np.concatenate([[0], np.cumsum(self.last + 1)[:-1]])
        self.left = np.zeros(int((self.last + 1).sum()), dtype=bool)
        self.left[self.start[owner] + tree.categories] = True

    def decide(self, node: np.ndarray, read: np.ndarray, goes_left: np.ndarray) -> None:
        """Write the answers of the rows that are at categorical nodes."""
        at = np.flatnonzero(self.categorical.take(node))
        node = node[at]
        goes_left[at] = self.left[self.start[node] + np.minimum(read[at].astype(np.intp), self.last[node])]

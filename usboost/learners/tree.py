"""A regression tree as plain arrays, whatever library grew it, and its exact Shapley values."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from math import factorial
from typing import Any

import numpy as np

from usboost.errors import UsboostError

DEEPEST = 500
"""Levels of a tree; each is a level of recursion when it predicts."""

# column, threshold, left and right child, and the codes that go left
Node = tuple[int, float, int, int, list[int]]

HIGHEST_CODE = 1 << 24
"""Largest category code of a tree; above it float32 has no room for every integer."""

LeafType = type[np.unsignedinteger[Any]]


def leaf_type(n_leaves: int) -> LeafType:
    """Return the type in which `pick` takes the numbers of so many leaves."""
    return np.uint8 if n_leaves <= 256 else np.uint32


def pick(goes_left: np.ndarray, left: Any, right: Any, kind: LeafType) -> np.ndarray:
    """Return `left` where a row goes left, else `right`, in the `kind` that these are of, (n,).

    right ^ (mask & (left ^ right)), the mask 0 or all ones: `numpy.where` has a branch that the processor
    cannot foresee, and takes tens of times longer. The bits of `goes_left`, bool (n,), are written over.
    """
    mask = goes_left.view(np.uint8) if kind is np.uint8 else goes_left.astype(kind)
    np.negative(mask, out=mask)
    mask &= left ^ right
    mask ^= right
    return mask


@dataclass(frozen=True)
class Tree:
    """A binary regression tree over the columns of a float32 matrix.

    Attributes
    ----------
    feature : int32 (nodes,), column tested at each inner node; node 0 is the root
    threshold : float32 (nodes,), rows with ``x <= threshold`` go left; unused at categorical nodes
    left, right : int32 (nodes,), child node, or ``~leaf`` for a leaf
    value : float32 (leaves, k), leaf values
    categories : int32 (c,) and category_start : int32 (nodes + 1,)
        Codes that go left at each categorical node; an empty range means a numeric node.
    gain : float64 (nodes,)
        By how much each node's split reduced the weighted sum of squared errors that the tree was
        fitted to, on splits by category as `category_l2` penalises it (for a GBM's trees, the gain
        that its engine reports).
    """

    feature: np.ndarray
    threshold: np.ndarray
    left: np.ndarray
    right: np.ndarray
    value: np.ndarray
    categories: np.ndarray
    category_start: np.ndarray
    gain: np.ndarray

    def leaves(self, matrix: np.ndarray) -> np.ndarray:
        """Return the leaf index of every row, int32 (n,). The matrix is float32 (n, p), column-major."""
        if len(self.feature) == 0:
            return np.zeros(len(matrix), dtype=np.int32)
        if self.feature.max() >= matrix.shape[1]:
            raise UsboostError(f"a tree reads column {self.feature.max()}, but there are {matrix.shape[1]}")
        if len(self.feature) >= FEWEST_NODES:
            return _walked(self, matrix)
        return self._descend(matrix, 0, leaf_type(len(self.value))).astype(np.int32)

    def predict(self, matrix: np.ndarray) -> np.ndarray:
        """Return the leaf values of every row, float32 (n, k)."""
        return self.value[self.leaves(matrix)]

    def goes_left(self, matrix: np.ndarray) -> np.ndarray:
        """Return whether each row would go left at each node, bool (n, nodes), also where it never comes."""
        return np.column_stack([self._goes_left(matrix, node) for node in range(len(self.feature))])

    def _descend(self, matrix: np.ndarray, node: int, kind: LeafType) -> np.ndarray:
        # whole columns and selects: for shallow trees far faster than walking row by row
        children = (int(self.left[node]), int(self.right[node]))
        left, right = (kind(~node) if node < 0 else self._descend(matrix, node, kind) for node in children)
        return pick(self._goes_left(matrix, node), left, right, kind)

    def _goes_left(self, matrix: np.ndarray, node: int) -> np.ndarray:
        column = matrix[:, self.feature[node]]
        start, stop = self.category_start[node], self.category_start[node + 1]
        if start == stop:
            return column <= self.threshold[node]
        codes = self.categories[start:stop]
        table = np.zeros(int(max(codes.max(), column.max(initial=0))) + 1, dtype=bool)
        table[codes] = True
        return table[column.astype(np.intp)]

    @classmethod
    def constant(cls, value: float) -> "Tree":
        """Make a tree of a single leaf."""
        return cls._build([], np.full((1, 1), value, dtype=np.float32))

    @classmethod
    def from_lightgbm(cls, dumped: dict[str, Any], scale: float = 1.0) -> "Tree":
        """Make a tree of a ``tree_info`` of ``Booster.dump_model()``, its leaf values times `scale`."""
        nodes: list[Node] = []
        values: list[float] = []
        gains: list[float] = []

        def visit(node: dict[str, Any]) -> int:
            if "split_feature" not in node:
                values.append(node["leaf_value"] * scale)
                return ~(len(values) - 1)
            index = len(nodes)
            # a place before its children's, as `check` wants it
            nodes.append((0, 0.0, 0, 0, []))
            gains.append(node["split_gain"])
            categorical = node["decision_type"] == "=="
            codes = [int(code) for code in node["threshold"].split("||")] if categorical else []
            threshold = 0.0 if categorical else node["threshold"]
            left, right = visit(node["left_child"]), visit(node["right_child"])
            nodes[index] = (node["split_feature"], threshold, left, right, codes)
            return index

        visit(dumped["tree_structure"])
        return cls._build(nodes, np.asarray(values, dtype=np.float32)[:, None], gains)

    @classmethod
    def from_sklearn(cls, tree: Any) -> "Tree":
        """Make a tree of the ``tree_`` of a scikit-learn regression tree."""
        inner = np.flatnonzero(tree.children_left >= 0)
        leaf = np.flatnonzero(tree.children_left < 0)
        renumber = np.empty(tree.node_count, dtype=np.int64)
        renumber[inner] = np.arange(len(inner))
        renumber[leaf] = ~np.arange(len(leaf))
        parts = (tree.feature, tree.threshold, renumber[tree.children_left], renumber[tree.children_right])
        nodes: list[Node] = [(*each, []) for each in zip(*(part[inner].tolist() for part in parts))]
        # impurities are means over rows and outputs
        error = tree.n_outputs * tree.weighted_n_node_samples * tree.impurity
        gains = error[inner] - error[tree.children_left[inner]] - error[tree.children_right[inner]]
        value = tree.value[leaf, :, 0].astype(np.float32)
        return cls._build(nodes, value, np.maximum(gains, 0.0).tolist())

    @classmethod
    def _build(cls, nodes: Sequence[Node], value: np.ndarray, gains: Sequence[float] = ()) -> "Tree":
        threshold64 = np.asarray([node[1] for node in nodes], dtype=np.float64)
        threshold = threshold64.astype(np.float32)
        # for float32 x, x <= t holds exactly when x <= the largest float32 that is not above t
        too_high = threshold.astype(np.float64) > threshold64
        threshold[too_high] = np.nextafter(threshold[too_high], np.float32(-np.inf))
        codes = [node[4] for node in nodes]
        return cls(
            feature=np.asarray([node[0] for node in nodes], dtype=np.int32),
            threshold=threshold,
            left=np.asarray([node[2] for node in nodes], dtype=np.int32),
            right=np.asarray([node[3] for node in nodes], dtype=np.int32),
            value=value,
            categories=np.asarray([code for part in codes for code in part], dtype=np.int32),
            category_start=np.cumsum([0, *map(len, codes)], dtype=np.int32),
            gain=np.asarray(gains, dtype=np.float64),
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """Return its arrays by name; `from_arrays` makes it of them again."""
        return {each.name: getattr(self, each.name) for each in fields(Tree)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], prefix: str = "") -> "Tree":
        """Make the tree whose arrays are called `prefix` + name."""
        return cls(**{each.name: arrays[prefix + each.name] for each in fields(Tree)})

    def check(self, n_columns: int | None = None) -> None:
        """Check that each node and leaf has one parent before it, and that columns and codes are in range.

        Raises `UsboostError` if it is not, or an array has another shape or type than `Tree` says.
        `n_columns` are those of the table that it reads, where that is known.
        """
        n = len(self.feature) if self.feature.ndim == 1 else -1
        shapes = dict.fromkeys(("feature", "threshold", "left", "right", "gain"), (n,))
        shapes["category_start"] = (n + 1,)
        kinds = {"threshold": "f", "value": "f", "gain": "f"}
        for name in (*shapes, "value", "categories"):
            array = getattr(self, name)
            if array.dtype.kind != kinds.get(name, "i") or array.shape != shapes.get(name, array.shape):
                raise UsboostError(f"a tree's {name} is {array.dtype} of shape {array.shape}")
        if self.value.ndim != 2 or len(self.value) != n + 1 or not self.value.shape[1]:
            raise UsboostError(f"a tree of {n} inner nodes has leaf values of shape {self.value.shape}")
        finite = np.isfinite(self.value).all() and np.isfinite(self.gain).all()
        if not finite or np.isnan(self.threshold).any() or (self.feature < 0).any():
            raise UsboostError("a tree holds a number that is not finite, or a column below 0")
        left, right = self.left.tolist(), self.right.tolist()
        # each of the n + 1 leaves, and each node but the root, is the child of one
        if sorted([*left, *right]) != [*range(-n - 1, 0), *range(1, n)][: 2 * n]:
            raise UsboostError("a tree has a node or leaf that is missing or has two parents")
        depth = [0] * n
        for node in range(n):
            for child in (left[node], right[node]):
                if 0 <= child <= node:
                    raise UsboostError("a tree has a node before its parent")
                if child > 0:
                    depth[child] = depth[node] + 1
        if max(depth, default=0) >= DEEPEST:
            raise UsboostError(f"a tree has more than {DEEPEST} levels")
        starts, codes = self.category_start, self.categories
        if codes.ndim != 1 or starts[0] != 0 or starts[-1] != len(codes) or (np.diff(starts) < 0).any():
            raise UsboostError("a tree's categories do not fit its nodes")
        if len(codes) and not 0 <= codes.min() <= codes.max() <= HIGHEST_CODE:
            raise UsboostError("a tree has a category code out of range")
        if n_columns is not None and n and self.feature.max() >= n_columns:
            raise UsboostError(f"a tree reads column {self.feature.max()}, but there are {n_columns}")


FEWEST_NODES = 128
"""Inner nodes from which on walking is the faster way."""

_BLOCK_ROWS = 8_192  # what a level reads and writes stays in the cache


def _walked(tree: Tree, matrix: np.ndarray) -> np.ndarray:
    """Return the leaf index of every row, int32 (n,): down its path, by level.

    A tree of m nodes and mean depth d costs n·d steps so, where testing every node on all rows costs n·m.
    For the trees of a forest that is tens of times less; for a small tree it is more.
    """
    leaves = np.empty(len(matrix), dtype=np.int32)
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
                leaves[start + row[ended]] = ~node[ended]
                row, first, node = row[inner], first[inner], node[inner]
    return leaves


class _Codes:
    """The codes that go left at all categorical nodes of a tree, in one array."""

    def __init__(self, tree: Tree) -> None:
        counts = np.diff(tree.category_start)
        owner = np.repeat(np.arange(len(counts)), counts)
        self.categorical = counts > 0
        # besides its highest code a node has room for one that stands for all above
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


def shapley_values(
    tree: Tree, rows: np.ndarray, reference: np.ndarray, owner: np.ndarray, n_owners: int
) -> np.ndarray:
    """Return what each owner of columns adds to a tree's value: float64 (n, n_owners, k).

    Over the owners, int (p,), they sum to the value of the row less its mean over the reference rows. Both
    matrices are float32, column-major for speed; columns of one owner are in S together.
    """
    values = np.zeros((len(rows), n_owners, tree.value.shape[1]))
    if not len(tree.feature):
        return values
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
        values[:, owners] += shares[:, :, None] * tree.value[leaf].astype(np.float64)
    return values


def _paths(tree: Tree) -> Iterator[tuple[int, list[tuple[int, bool]]]]:
    """Yield each leaf, and the nodes that lead to it, with the side on which they do."""
    waiting: list[tuple[int, list[tuple[int, bool]]]] = [(0, [])]
    while waiting:
        node, path = waiting.pop()
        for child, goes_left in ((int(tree.left[node]), True), (int(tree.right[node]), False)):
            longer = [*path, (node, goes_left)]
            if child < 0:
                yield ~child, longer
            else:
                waiting.append((child, longer))


def _shares(rows: np.ndarray, reference: np.ndarray, d: int) -> np.ndarray:
    """Return the share of a leaf's value that each of d owners gets, float64 (n, d).

    Bit k of rows, int64 (n,), and reference, (m,), says whether owner k lets a row through to the leaf.
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

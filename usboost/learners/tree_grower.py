"""One regression tree for all outputs, grown on histograms.

All outputs share the tree's structure: the gain of a split is summed over them, in the target's metric if it
has one. So no rotation of the outputs changes a split, and renaming the classes of a problem renames those
of the model.

A row falls into one bin of every column. As a sparse matrix of ones (rows by bins), its transpose times the
rows' numbers sums them in every bin of every column: one pass of compiled code over the rows of a node, in
float64. Of two children only the smaller is summed so; the other is what their parent has left.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csc_matrix

from usboost.learners.histogram import Bins, Moments, score
from usboost.learners.tree import Tree
from usboost.shards.collective import world

SCAN_ENTRIES = 1 << 19
"""Sums that are searched for splits in one go."""

SLACK = 1e-6
"""Rows by which a leaf may miss the fewest: weights that are no whole numbers seldom add up to one."""

SAME = 1e-9
"""Lengths and spreads that differ by less, as a share of themselves, are equal."""


@dataclass(frozen=True)
class Limits:
    """Limits of a tree's growth; see `usboost.learners.tree_learner.TreeLearner`.

    Leaves keep at most `most_sums` sums between them, 2 GB, or are 8; `l2` is added to their H.
    """

    max_depth: int = 3
    max_leaves: int | None = None
    min_samples_leaf: int = 20
    category_l2: float = 0.0
    most_sums: int = 1 << 28
    l2: float = 0.0


class HistogramGrower:
    """Grows trees on columns that are binned once.

    The matrix is float32 (n, p), column-major and finite; `categorical` are the positions of the columns that
    hold category codes 0, 1, 2, …, each of which has a bin of its own. So many threads sum over rows. Row i
    stands for `counts[i]` rows, positive, in bins and in leaves; for 1 by default.
    """

    def __init__(
        self,
        matrix: np.ndarray,
        categorical: Sequence[int] = (),
        limits: Limits = Limits(),
        max_bin: int = 255,
        num_threads: int = 1,
        counts: np.ndarray | None = None,
    ) -> None:
        self._bins = Bins.of(matrix, categorical, max_bin, counts)
        self._limits, self._threads, self._counts = limits, num_threads, counts

    def grow(
        self,
        values: np.ndarray,
        weights: np.ndarray | None = None,
        metric: np.ndarray | None = None,
        columns: np.ndarray | None = None,
    ) -> Tree:
        """Grow a tree g greedily for Σ_i weight_i (g(x_i) − value_i)ᵀ metric_i (g(x_i) − value_i).

        Parameters
        ----------
        values : float64 (n, D)
        weights : (n,), by default the rows' counts, by which weights are to be multiplied; rows of weight 0
            are not seen, and do not count for `min_samples_leaf` either. Or (n, D), weight_i · metric_i where
            metrics are diagonal.
        metric : (n, D, D), symmetric and positive semi-definite, optional, by default the identity
        columns : int (k,), positions in the matrix of the columns that may be split on; by default all
        """
        seen = np.ones(len(values)) if weights is None else np.atleast_2d(weights.T).any(axis=0)
        rows = np.flatnonzero(seen).astype(np.int32 if len(values) < 1 << 31 else np.int64)
        if weights is None:
            weights = self._counts
        moments = Moments.of(values, weights, metric, self._counts)
        return _Growth(self._bins, moments, self._limits, self._threads, columns).tree(rows)


@dataclass(frozen=True)
class _NodeSplit:
    """A split by a column of the matrix: at a threshold, or of categories, whose codes go left.

    `left` are the left child's sums, float64 (C,).
    """

    gain: float
    column: int
    threshold: float
    codes: np.ndarray | None
    left: np.ndarray


@dataclass(eq=False)
class _Leaf:
    """A leaf of a growing tree: its rows, int32 (m,), their sums, (C,), and where its parent has its number.

    `penalty`, (C − D − 1,), draws its value to 0; `sums`, (C, bins), are None where it is not split further.
    """

    rows: np.ndarray
    total: np.ndarray
    depth: int
    place: tuple[list[int], int]
    penalty: np.ndarray
    sums: np.ndarray | None = None
    split: _NodeSplit | None = None


class _Growth:
    """One tree while it grows."""

    def __init__(
        self, bins: Bins, moments: Moments, limits: Limits, threads: int, columns: np.ndarray | None
    ) -> None:
        self._bins, self._limits, self._threads = bins, limits, threads
        opened = np.isin(bins.columns, bins.columns if columns is None else columns)
        self._open = np.repeat(opened, np.diff(bins.start))  # bins of columns that may be split on
        self._least = max(limits.min_samples_leaf, 1) - SLACK
        room = max(8, limits.most_sums // (len(bins) * moments.channels.shape[1] or 1))
        self._most_leaves = min(limits.max_leaves or np.inf, 2.0**limits.max_depth, room)
        average = moments.total[moments.d : -1] / (moments.total[-1] or 1.0)
        self._category_penalty, self._l2 = limits.category_l2 * average, limits.l2 * moments.identity
        self._moments = replace(moments, ridge=moments.ridge + self._l2)
        self._splits: list[_NodeSplit] = []
        self._children: list[list[int]] = []

    def tree(self, rows: np.ndarray) -> Tree:
        leaves = [_Leaf(rows, self._moments.total, 0, ([0], 0), self._l2)]
        if self._may_split(leaves[0], 1):
            leaves[0].sums = self._histogram(rows)
            self._find_splits(leaves)
        while chosen := self._next(leaves):
            leaves = [leaf for leaf in leaves if leaf not in chosen]
            n_leaves = len(leaves) + 2 * len(chosen)
            children = [child for leaf in chosen for child in self._halves(leaf, n_leaves)]
            self._find_splits([child for child in children if child.sums is not None])
            leaves += children
        for index, leaf in enumerate(leaves):
            of_parent, side = leaf.place
            of_parent[side] = ~index
        nodes = [
            (split.column, split.threshold, left, right, [] if split.codes is None else split.codes.tolist())
            for split, (left, right) in zip(self._splits, self._children)
        ]
        # summed anew: what was left of a parent's sums has lost digits
        summands = [self._moments.channels.take(leaf.rows, axis=0) for leaf in leaves]
        totals = world().sum(np.stack([np.ones(len(each)) @ each for each in summands]))
        values = np.stack([self._moments.value(total, leaf.penalty) for total, leaf in zip(totals, leaves)])
        return Tree._build(nodes, values, [split.gain for split in self._splits])

    def _may_split(self, leaf: _Leaf, n_leaves: int) -> bool:
        room = leaf.depth < self._limits.max_depth and n_leaves < self._most_leaves
        return room and leaf.total[-1] >= 2 * self._least and len(self._bins) > 0

    def _next(self, leaves: list[_Leaf]) -> list[_Leaf]:
        """Return the leaves to split next: the one that gains most, or all if none can be too many."""
        able = [leaf for leaf in leaves if leaf.split is not None]
        if not able or len(leaves) >= self._most_leaves:
            return []
        if self._most_leaves == 2.0**self._limits.max_depth:
            return able
        gains = np.asarray([leaf.split.gain for leaf in able if leaf.split])
        return [able[_first_best(gains, self._moments.tie)]]

    def _halves(self, leaf: _Leaf, n_leaves: int) -> list[_Leaf]:
        """Return the two children of a leaf, with histograms if they may be split again."""
        split = leaf.split
        assert split is not None
        column, codes = self._bins.matrix[:, split.column].take(leaf.rows), split.codes
        goes_left = column <= split.threshold if codes is None else np.isin(column.astype(np.intp), codes)
        penalty = self._l2 + self._category_penalty * (codes is not None)
        of_parent, side = leaf.place
        of_parent[side] = len(self._splits)
        self._splits.append(split)
        self._children.append([0, 0])
        sides = (goes_left, split.left), (~goes_left, leaf.total - split.left)
        children = [
            _Leaf(leaf.rows[these], total, leaf.depth + 1, (self._children[-1], k), penalty)
            for k, (these, total) in enumerate(sides)
        ]
        counts = world().sum(np.array([len(child.rows) for child in children]))
        small, large = children if counts[0] <= counts[1] else children[::-1]
        small_may, large_may = (self._may_split(child, n_leaves) for child in (small, large))
        if small_may or large_may:
            small.sums = self._histogram(small.rows)
        if large_may:
            # in the parent's memory, which nothing reads again
            large.sums = np.subtract(leaf.sums, small.sums, out=leaf.sums)  # type: ignore[arg-type]
        if not small_may:
            small.sums = None
        return children

    def _histogram(self, rows: np.ndarray) -> np.ndarray:
        """Sum the channels over some rows, of all shards, in every bin: float64 (C, bins)."""
        bins, moments = self._bins, self._moments
        ones, pointers = bins.pattern
        size = len(pointers) - 1

        def block(start: int) -> np.ndarray:
            chosen = rows[start : start + size]
            # the bins of these rows, among those of all columns
            codes = bins.codes.take(chosen, axis=0) + bins.start[:-1].astype(np.int32)
            channels = moments.channels.take(chosen, axis=0)
            onehot = csc_matrix(
                (ones[: codes.size], codes.ravel(), pointers[: len(codes) + 1]), shape=(len(bins), len(codes))
            )
            return onehot @ channels

        starts, several = range(0, len(rows), size), self._threads > 1 and len(rows) > size
        total = np.zeros((len(bins), moments.channels.shape[1]))
        with ThreadPoolExecutor(self._threads) if several else nullcontext() as pool:
            # in the blocks' order, whichever thread is first: sums of floats depend on it
            for part in (pool.map if pool else map)(block, starts):
                total += part
        return np.asarray(world().sum(np.ascontiguousarray(total.T)))

    def _find_splits(self, leaves: list[_Leaf]) -> None:
        """Set the best split of every leaf."""
        size = max(1, SCAN_ENTRIES // (len(self._bins) * self._moments.channels.shape[1]))
        # leaves side by side, as numpy's cost is its calls; not all at once, as their sums take memory
        for start in range(0, len(leaves), size):
            some = leaves[start : start + size]
            sums = np.stack([leaf.sums for leaf in some if leaf.sums is not None], axis=1)
            total = np.stack([leaf.total for leaf in some], axis=1)
            order = self._sort_categories(sums, total)
            has_rows = sums[-1] != 0
            for k, gain, cut, left in self._best_cuts(sums, total, has_rows):
                some[k].split = self._describe(gain, cut, left, has_rows[k], total[:, k], order[k])

    def _best_cuts(
        self, sums: np.ndarray, total: np.ndarray, has_rows: np.ndarray
    ) -> Iterator[tuple[int, float, int, np.ndarray]]:
        """Yield the leaves that gain by a split: number, gain, the left side's last bin and sums, (C,).

        Sums are (C, L, B), overwritten; totals (C, L); `has_rows` is bool (L, B).
        """
        left, d, tie = sums, self._moments.d, self._moments.tie
        left[:, :, self._bins.start[1:-1]] -= total[:, :, None]  # every column's sums begin at 0 again
        np.cumsum(left, axis=2, out=left)
        # a split after a bin without rows is the one before it
        able = has_rows & self._open
        able &= (left[-1] >= self._least) & (total[-1][:, None] - left[-1] >= self._least)
        for k in np.flatnonzero(able.any(axis=1)).tolist():
            cuts, whole = np.flatnonzero(able[k]), total[:, k, None]
            part, by_category = left[:, k].take(cuts, axis=1), cuts >= self._bins.first_category
            # by which H is made larger
            penalty = self._moments.ridge[:, None] + np.outer(self._category_penalty, by_category)
            # score(left) + score(right) − score(both); `score` overwrites what it is given
            gains = score(part[:d].copy(), part[d:-1] + penalty)
            gains += score(whole[:d] - part[:d], (whole[d:-1] + penalty) - part[d:-1])
            gains -= score(whole[:d].copy(), whole[d:-1] + self._moments.ridge[:, None])
            best = int(_first_best(gains, tie))
            if gains[best] > tie:
                yield k, float(gains[best]), int(cuts[best]), part[:, best].copy()

    def _describe(
        self,
        gain: float,
        cut: int,
        sums: np.ndarray,
        has_rows: np.ndarray,
        total: np.ndarray,
        order: np.ndarray,
    ) -> _NodeSplit:
        """Describe the split after bin `cut`: sums are of its left side, totals of both, (C,).

        `has_rows`, bool (B,), is of each bin; categories' bins are in their `order`.
        """
        bins = self._bins
        column = int(np.searchsorted(bins.start, cut, side="right")) - 1
        first, stop, position = map(int, (*bins.start[column : column + 2], bins.columns[column]))
        if column < bins.n_numeric:
            # the next bin with a row of this leaf: empty ones between do not move the threshold to one side
            next_filled = cut + 1 + int(has_rows[cut + 1 : stop].argmax())
            threshold = (bins.highest[cut] + bins.lowest[next_filled]) / 2
            return _NodeSplit(gain, position, threshold, None, sums)
        goes_left = np.arange(first, stop) <= cut
        if 2 * sums[-1] > total[-1]:  # codes that this leaf has not seen go right, with most of its rows
            goes_left, sums = ~goes_left, total - sums
        seen = has_rows[first:stop]
        codes = order[first - bins.first_category : stop - bins.first_category][goes_left & seen] - first
        return _NodeSplit(gain, position, 0.0, np.sort(codes), sums)

    def _sort_categories(self, sums: np.ndarray, total: np.ndarray) -> np.ndarray:
        """Sort every column's categories along the direction in which their means differ most.

        Cuts through this order contain the best split of one output, and nearly the best of several
        (Coppersmith, Hong and Hosking, 1999). Means are seen in the leaf's metric, so that no rotation of
        the outputs changes the order; nor does it turn round, for it runs towards the category that lies
        out furthest.

        Sums (C, L, B) are sorted in place. Returns the bins of categories, sorted: int (L, categories).
        """
        bins, moments = self._bins, self._moments
        each = sums[:, :, bins.first_category :]
        n_leaves, n_bins = each.shape[1:]
        if not n_bins:
            return np.empty((n_leaves, 0), dtype=int)
        # first category of each column, counted from 0, and the column of each category
        start = bins.start[bins.n_numeric : -1] - bins.first_category
        column = np.repeat(np.arange(len(start)), np.diff(bins.start[bins.n_numeric :]))
        rest, mass = moments.residuals(each, total)
        present = (each[-1] > 0) & (mass > 0)
        mean = rest / np.where(present, mass, np.inf)[:, None]
        scatter = np.add.reduceat(rest[:, :, None] * mean[:, None], start, axis=3)
        strength, directions = np.linalg.eigh(scatter.transpose(0, 3, 1, 2))
        # the direction of the largest spread; of equal ones all: one of them would be a choice of basis
        widest = directions * (strength >= (1 - SAME) * strength[..., -1:])[..., None, :]
        along = (mean.swapaxes(1, 2)[:, :, None] @ widest[:, column])[:, :, 0]  # (L, bins, D)
        reach = mass * np.einsum("lbd,lbd->lb", along, along)
        furthest = reach >= (1 - SAME) * np.maximum.reduceat(reach, start, axis=1)[:, column]
        # the sign of an eigenvector is chance: the order runs towards the first of those furthest out
        pole = np.minimum.reduceat(np.where(furthest, np.arange(n_bins), n_bins), start, axis=1)
        leaf = np.arange(n_leaves)[:, None]
        position = np.einsum("lbd,lbd->lb", along, along[leaf, pole][:, column])
        largest = np.maximum.reduceat(np.abs(position), start, axis=1)[:, column]
        # 9 digits, so that equal categories stay in their order whatever the sums' rounding
        position = np.round(position / np.where(largest > 0, largest, 1.0), 9)
        # one sort for all columns: positions are in [−1, 1], codes without rows come last at 2
        order = np.argsort(4.0 * column + np.where(present, position, 2.0), axis=1, kind="stable")
        each[:] = each[:, leaf, order]
        return order + bins.first_category


def _first_best(gains: np.ndarray, tie: float) -> np.ndarray:
    """Return the position of the first gain on the last axis that equals the largest, but for `tie`."""
    return (gains >= gains.max(axis=-1, keepdims=True) - tie).argmax(axis=-1)

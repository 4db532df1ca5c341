"""The trees of one round, the table that they read, and many trees on many rows.

For many shallow trees leaf numbers are found by whole-column tests on blocks that stay in the cache. A tree
of depth d costs 2^d − 1 comparisons of a column, then a few operations on bytes: right ^ ((left ^ right) &
−test) picks a child without a branch. That is several times faster than walking row by row, and the tests do
not care which library grew the tree.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from usboost.data.table import code_type
from usboost.errors import UsboostError
from usboost.learners.base import Target, check_outputs, sum_one_by_one
from usboost.learners.trees.tree import Tree

BLOCK_ROWS = 32_768
TURNED_TREES = 32  # that many trees' values are written, then turned over together


@dataclass(frozen=True)
class _Plan:
    """One tree, ready to be run on a block of columns.

    `tests` are (column, threshold) or (column, table of codes that go left); a child is a node, or
    ``~leaf``.
    """

    tests: tuple[tuple[int, Any], ...]
    children: tuple[tuple[int, int], ...]
    leaf_type: type[np.unsignedinteger[Any]]


class Forest:
    """Trees over the columns of one matrix.

    Parameters
    ----------
    trees : sequence of T trees; every one gives k outputs
    """

    def __init__(self, trees: Sequence[Tree]) -> None:
        self._values = [tree.value for tree in trees]
        self._plans = [_plan(tree) for tree in trees]

    def __len__(self) -> int:
        return len(self._plans)

    def leaf_values(self, matrix: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """The value of the leaf that each row falls into, tree by tree: float32 (n, T), for k = 1.

        Parameters
        ----------
        matrix : float32 (n, p), column-major for speed
        out : float32 (n, T), optional
            Where to write them.
        """
        values = np.empty((len(matrix), len(self)), dtype=np.float32) if out is None else out

        def look_up(t: int, leaves: np.ndarray, line: np.ndarray) -> None:
            np.take(self._values[t][:, 0], leaves, out=line, mode="clip")

        return self._tree_by_tree(matrix, look_up, values)

    def leaf_numbers(self, matrix: np.ndarray) -> np.ndarray:
        """The leaf that each row falls into, tree by tree, counted from 0 in every tree: (n, T), of the type
        that `code_type` has for the largest tree."""
        most = max((len(value) for value in self._values), default=1)
        numbers = np.empty((len(matrix), len(self)), dtype=code_type(most))

        def copy(t: int, leaves: np.ndarray, line: np.ndarray) -> None:
            line[:] = leaves

        return self._tree_by_tree(matrix, copy, numbers)

    def _tree_by_tree(
        self, matrix: np.ndarray, fill: Callable[[int, np.ndarray, np.ndarray], None], out: np.ndarray
    ) -> np.ndarray:
        """`out` (n, T): `fill` is given a tree, its leaf numbers of some rows, and where to write."""

        def block(rows: slice, columns: _Columns) -> None:
            found = np.empty((TURNED_TREES, columns.n_rows), dtype=out.dtype)
            for start in range(0, len(self), TURNED_TREES):
                trees = range(start, min(start + TURNED_TREES, len(self)))
                for line, t in zip(found, trees):
                    fill(t, _leaves(self._plans[t], columns), line)
                out[rows, start : trees.stop] = found[: len(trees)].T

        _for_blocks(matrix, block)
        return out

    def weighted_sum(self, matrix: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Σ_t weight_t · tree_t(x): float64 (n, k) from weights (T,)."""
        n_outputs = self._values[0].shape[1] if self._values else 1
        total = np.zeros((len(matrix), n_outputs))
        scaled = [float(weight) * value.astype(np.float64) for weight, value in zip(weights, self._values)]

        def block(rows: slice, columns: _Columns) -> None:
            part = total[rows]
            for plan, value in zip(self._plans, scaled):
                leaves = _leaves(plan, columns)
                for k in range(n_outputs):
                    part[:, k] += np.take(value[:, k], leaves, mode="clip")

        _for_blocks(matrix, block)
        return total


class _Columns:
    """A block of rows, its columns read on demand; codes of a category are converted once."""

    def __init__(self, matrix: np.ndarray) -> None:
        self._matrix, self.n_rows = matrix, len(matrix)
        self._numbers: dict[int, np.ndarray] = {}
        self._codes: dict[int, np.ndarray] = {}

    def numbers(self, column: int) -> np.ndarray:
        if column not in self._numbers:
            self._numbers[column] = np.ascontiguousarray(self._of(column))
        return self._numbers[column]

    def codes(self, column: int) -> np.ndarray:
        if column not in self._codes:
            self._codes[column] = self._of(column).astype(np.intp)
        return self._codes[column]

    def _of(self, column: int) -> np.ndarray:
        if column >= self._matrix.shape[1]:
            raise UsboostError(f"a tree reads column {column}, but there are {self._matrix.shape[1]}")
        return self._matrix[:, column]


def _for_blocks(matrix: np.ndarray, work: Callable[[slice, _Columns], None]) -> None:
    def run(start: int) -> None:
        rows = slice(start, min(start + BLOCK_ROWS, len(matrix)))
        work(rows, _Columns(matrix[rows]))

    starts = range(0, len(matrix), BLOCK_ROWS)
    if len(starts) <= 1:
        list(map(run, starts))
        return
    # numpy lets go of the interpreter in every operation here
    with ThreadPoolExecutor(min(len(starts), os.cpu_count() or 1)) as pool:
        list(pool.map(run, starts))


def _plan(tree: Tree) -> _Plan:
    tests: list[tuple[int, Any]] = []
    for node in range(len(tree.feature)):
        start, stop = tree.category_start[node], tree.category_start[node + 1]
        rule: Any = tree.threshold[node]
        if stop > start:
            codes = tree.categories[start:stop]
            rule = np.zeros(int(codes.max()) + 2, dtype=bool)  # the last entry is for every higher code
            rule[codes] = True
        tests.append((int(tree.feature[node]), rule))
    children = tuple((int(left), int(right)) for left, right in zip(tree.left, tree.right))
    return _Plan(tuple(tests), children, np.uint8 if len(tree.value) <= 256 else np.uint32)


def _leaves(plan: _Plan, columns: _Columns) -> np.ndarray:
    """Leaf number of every row of the block."""
    if not plan.tests:
        return np.zeros(columns.n_rows, dtype=np.uint8)

    def descend(node: int) -> Any:
        if node < 0:
            return plan.leaf_type(~node)
        column, rule = plan.tests[node]
        if isinstance(rule, np.ndarray):
            # clip: codes above the table meet its last entry
            goes_left = np.take(rule, columns.codes(column), mode="clip")
        else:
            goes_left = columns.numbers(column) <= rule
        left, right = descend(plan.children[node][0]), descend(plan.children[node][1])
        # 0 or all ones after the negation: right ^ (mask & (left ^ right)) is the child
        test = goes_left.view(np.uint8) if plan.leaf_type is np.uint8 else goes_left.astype(plan.leaf_type)
        np.negative(test, out=test)
        test &= left ^ right
        test ^= right
        return test

    return descend(0)


@dataclass(frozen=True)
class FittedTrees:
    """The trees of one round, their outputs side by side: one tree per output, or one for all."""

    trees: tuple[Tree, ...]
    kind: ClassVar[str] = "tree"

    def predict(self, prepared: PreparedTable) -> np.ndarray:
        outputs = [tree.predict(prepared.matrix) for tree in self.trees]
        return outputs[0] if len(outputs) == 1 else np.concatenate(outputs, axis=1)

    @classmethod
    def weighted_sum(
        cls, learners: Sequence[FittedTrees], steps: Sequence[float], prepared: PreparedTable
    ) -> np.ndarray:
        """Σ_k step_k · trees_k(x), float64 (n, D): all trees on one block of rows after another."""
        counts = {len(learner.trees) for learner in learners}
        if len(counts) > 1:
            return sum_one_by_one(learners, steps, prepared)
        outputs = zip(*(learner.trees for learner in learners))
        weights = np.asarray(steps, dtype=np.float64)
        return np.concatenate(
            [Forest(trees).weighted_sum(prepared.matrix, weights) for trees in outputs], axis=1
        )

    def to_arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        arrays = {
            f"{i}.{name}": array for i, tree in enumerate(self.trees) for name, array in tree.arrays().items()
        }
        return arrays, {"trees": len(self.trees)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> FittedTrees:
        return cls(tuple(Tree.from_arrays(arrays, f"{i}.") for i in range(meta["trees"])))

    def check(self, n_outputs: int | None = None, n_columns: int | None = None) -> None:
        """Every tree is one (`Tree.check`), and there are `n_outputs` outputs.

        Raises `UsboostError` if not.
        """
        for tree in self.trees:
            tree.check(n_columns)
        found = sum(tree.value.shape[1] for tree in self.trees)
        check_outputs(found, n_outputs)


@dataclass(frozen=True)
class PreparedTable:
    """A table as trees read it: float32 (n, p), column-major."""

    matrix: np.ndarray
    categorical: tuple[int, ...]


def trees_of(learner: object) -> tuple[Tree, ...]:
    """The trees of a fitted learner that grows them; none of another."""
    return learner.trees if isinstance(learner, FittedTrees) else ()


def with_leaf_values(fitted: FittedTrees, matrix: np.ndarray, target: Target) -> FittedTrees:
    """The trees with the target's `leaf_values`, if it has any, of the rows that they were fitted to.

    Parameters
    ----------
    matrix : float32 (n, p), of the target's rows
    """
    leaves = target.leaf_values
    if leaves is None:
        return fitted
    weights = target.fit_weights
    seen = (
        np.ones(len(matrix), dtype=bool)
        if weights is None
        else weights.reshape(*weights.shape[:1], -1 if len(weights) else 1).any(axis=1)
    )
    counts = None if target.counts is None else target.counts[seen]

    def refitted(tree: Tree) -> Tree:
        count = len(tree.value)
        own = tree.leaves(matrix)[seen]
        best = leaves.best(leaves.residual[seen], own, count, counts)
        return replace(tree, value=best.astype(np.float32)[:, None])

    return FittedTrees(tuple(refitted(tree) for tree in fitted.trees))

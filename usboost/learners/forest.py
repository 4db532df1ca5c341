"""Forests: the trees of one round, the table that they read, and many trees on many rows.

For many shallow trees leaf numbers are found by whole-column tests on blocks that stay in the cache. A tree
of depth d costs 2^d − 1 comparisons of a column, then a few operations on bytes: right ^ ((left ^ right) &
−test) picks a child without a branch. That is several times faster than walking row by row, and the tests do
not care which library grew the tree.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from usboost.data.table import code_type
from usboost.errors import UsboostError
from usboost.files.arrays import parts
from usboost.files.onnx_graph import TableNodes, Value
from usboost.learners.base import Target, check_outputs, sum_one_by_one
from usboost.learners.tree import Tree, leaf_type, pick
from usboost.learners.tree_nodes import tree_sum

BLOCK_ROWS = 32_768
TURNED_TREES = 32  # that many trees' values are written, then turned over together


class _Plan:
    """One tree as tests, (column, threshold or table of codes that go left), and children."""

    def __init__(self, tree: Tree) -> None:
        self.leaf_type = leaf_type(len(tree.value))
        self.children = list(zip(tree.left.tolist(), tree.right.tolist()))
        self.tests: list[tuple[int, Any]] = []
        for node, column in enumerate(tree.feature.tolist()):
            rule: Any = tree.threshold[node]
            codes = tree.categories[tree.category_start[node] : tree.category_start[node + 1]]
            if len(codes):
                rule = np.zeros(int(codes.max()) + 2, dtype=bool)  # the last entry is for every higher code
                rule[codes] = True
            self.tests.append((column, rule))


class Forest:
    """T trees over the columns of one matrix; every one gives k outputs."""

    def __init__(self, trees: Sequence[Tree]) -> None:
        self._values = [tree.value for tree in trees]
        self._plans = [_Plan(tree) for tree in trees]

    def __len__(self) -> int:
        return len(self._plans)

    def leaf_values(self, matrix: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Return the value of the leaf that each row falls into, tree by tree: float32 (n, T), for k = 1.

        The matrix is float32 (n, p), column-major for speed; `out` is where to write them.
        """
        values = np.empty((len(matrix), len(self)), dtype=np.float32) if out is None else out
        return self._tree_by_tree(
            matrix,
            lambda t, leaves, line: np.take(self._values[t][:, 0], leaves, out=line, mode="clip"),
            values,
        )

    def leaf_numbers(self, matrix: np.ndarray) -> np.ndarray:
        """Return the leaf of each row, tree by tree, counted from 0 in each: (n, T), of a `code_type`."""
        most = max((len(value) for value in self._values), default=1)
        numbers = np.empty((len(matrix), len(self)), dtype=code_type(most))
        return self._tree_by_tree(matrix, lambda t, leaves, line: np.copyto(line, leaves, "unsafe"), numbers)

    def _tree_by_tree(
        self, matrix: np.ndarray, fill: Callable[[int, np.ndarray, np.ndarray], Any], out: np.ndarray
    ) -> np.ndarray:
        """Return `out` (n, T), filled: `fill` gets a tree, leaf numbers of some rows, and where to write."""

        def block(rows: slice, columns: _Columns) -> None:
            lines = np.empty((TURNED_TREES, columns.n_rows), dtype=out.dtype)
            for start in range(0, len(self), TURNED_TREES):
                trees = range(start, min(start + TURNED_TREES, len(self)))
                for line, t in zip(lines, trees):
                    fill(t, _leaves(self._plans[t], columns), line)
                out[rows, start : trees.stop] = lines[: len(trees)].T

        _for_blocks(matrix, block)
        return out

    def weighted_sum(self, matrix: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return Σ_t weight_t · tree_t(x): float64 (n, k) from weights (T,)."""
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
        self._read: dict[tuple[int, bool], np.ndarray] = {}

    def read(self, column: int, codes: bool) -> np.ndarray:
        if (column, codes) not in self._read:
            if column >= self._matrix.shape[1]:
                raise UsboostError(f"a tree reads column {column}, but there are {self._matrix.shape[1]}")
            values = self._matrix[:, column]
            self._read[column, codes] = values.astype(np.intp) if codes else np.ascontiguousarray(values)
        return self._read[column, codes]


def _for_blocks(matrix: np.ndarray, work: Callable[[slice, _Columns], None]) -> None:
    blocks = list(parts(len(matrix), BLOCK_ROWS))
    # numpy lets go of the interpreter in every operation here
    threads = ThreadPoolExecutor(min(len(blocks), os.cpu_count() or 1)) if len(blocks) > 1 else nullcontext()
    with threads as pool:
        list((pool.map if pool else map)(lambda rows: work(rows, _Columns(matrix[rows])), blocks))


def _leaves(plan: _Plan, columns: _Columns) -> np.ndarray:
    """Return the leaf number of every row of the block."""
    if not plan.tests:
        return np.zeros(columns.n_rows, dtype=np.uint8)

    def descend(node: int) -> Any:
        if node < 0:
            return plan.leaf_type(~node)
        column, rule = plan.tests[node]
        if isinstance(rule, np.ndarray):
            # clip: codes above the table meet its last entry
            goes_left = np.take(rule, columns.read(column, codes=True), mode="clip")
        else:
            goes_left = columns.read(column, codes=False) <= rule
        left, right = (descend(child) for child in plan.children[node])
        return pick(goes_left, left, right, plan.leaf_type)

    return descend(0)


@dataclass(frozen=True)
class FittedTrees:
    """The trees of one round, their outputs side by side: one tree per output, or one for all."""

    trees: tuple[Tree, ...]
    kind: ClassVar[str] = "tree"

    def predict(self, prepared: "PreparedTable") -> np.ndarray:
        outputs = [tree.predict(prepared.matrix) for tree in self.trees]
        return outputs[0] if len(outputs) == 1 else np.concatenate(outputs, axis=1)

    @classmethod
    def weighted_sum(
        cls, learners: "Sequence[FittedTrees]", steps: Sequence[float], prepared: "PreparedTable"
    ) -> np.ndarray:
        """Return Σ_k step_k · trees_k(x), float64 (n, D): all trees on one block of rows after another."""
        if len({len(learner.trees) for learner in learners}) > 1:
            return sum_one_by_one(learners, steps, prepared)
        outputs = zip(*(learner.trees for learner in learners))
        weights = np.asarray(steps, dtype=np.float64)
        return np.concatenate([Forest(own).weighted_sum(prepared.matrix, weights) for own in outputs], axis=1)

    @classmethod
    def sum_to_onnx(cls, learners: Sequence[Self], steps: Sequence[float], view: TableNodes) -> Value:
        """Return Σ_k step_k · trees_k(x) in a graph, float64 (n, D)."""
        trees = [tree for each in learners for tree in each.trees]
        weights = [step for each, step in zip(learners, steps) for _ in each.trees]
        places = [i * tree.value.shape[1] for each in learners for i, tree in enumerate(each.trees)]
        return tree_sum(view, trees, weights, places)

    def to_arrays(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        arrays = {
            f"{i}.{name}": array for i, tree in enumerate(self.trees) for name, array in tree.arrays().items()
        }
        return arrays, {"trees": len(self.trees)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> "FittedTrees":
        return cls(tuple(Tree.from_arrays(arrays, f"{i}.") for i in range(meta["trees"])))

    def check(self, n_outputs: int | None = None, n_columns: int | None = None) -> None:
        """Check every tree, and that there are `n_outputs` outputs."""
        for tree in self.trees:
            tree.check(n_columns)
        check_outputs(sum(tree.value.shape[1] for tree in self.trees), n_outputs)


@dataclass(frozen=True)
class PreparedTable:
    """A table as trees read it: float32 (n, p), column-major."""

    matrix: np.ndarray
    categorical: tuple[int, ...]


def trees_of(learner: object) -> tuple[Tree, ...]:
    """Return the trees of a fitted learner that grows them; none of another."""
    return learner.trees if isinstance(learner, FittedTrees) else ()


def with_leaf_values(fitted: FittedTrees, matrix: np.ndarray, target: Target) -> FittedTrees:
    """Return the trees with the target's `leaf_values`, if it has any, of the rows that they were fitted to.

    The matrix is float32 (n, p).
    """
    if (leaves := target.leaf_values) is None:
        return fitted
    weights = target.fit_weights
    seen: np.ndarray = np.ones(len(matrix), dtype=bool)
    if weights is not None:
        seen = np.asarray(weights.reshape(len(weights), -1 if len(weights) else 1).any(axis=1))
    counts = None if target.counts is None else target.counts[seen]
    residual, trees = leaves.residual[seen], []
    for tree in fitted.trees:
        best = leaves.best(residual, tree.leaves(matrix)[seen], len(tree.value), counts)
        trees.append(replace(tree, value=best.astype(np.float32)[:, None]))
    return FittedTrees(tuple(trees))

"""The trees of one round, and the table that they read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from usboost.learners.base import Target, check_outputs, sum_one_by_one
from usboost.learners.trees.tree import Tree
from usboost.learners.trees.walk_many import Forest


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
        np.ones(len(matrix), dtype=bool) if weights is None else weights.reshape(len(matrix), -1).any(axis=1)
    )
    counts = None if target.counts is None else target.counts[seen]

    def refitted(tree: Tree) -> Tree:
        count = len(tree.value)
        own = tree.leaves(matrix)[seen]
        best = leaves.best(leaves.residual[seen], own, count, counts)
        return replace(tree, value=best.astype(np.float32)[:, None])

    return FittedTrees(tuple(refitted(tree) for tree in fitted.trees))

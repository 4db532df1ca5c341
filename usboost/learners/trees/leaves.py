"""Leaves that hold what a loss wants, in trees whose splits were found by least squares."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from usboost.learners.base import Target
from usboost.learners.trees.fitted import FittedTrees
from usboost.learners.trees.tree import Tree


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

"""Shapley values of trees against all subsets of columns."""

from itertools import combinations
from math import factorial

import numpy as np
import pytest

from usboost.learners.base import Target
from usboost.learners.forest import PreparedTable
from usboost.learners.tree import Tree, shapley_values
from usboost.learners.tree_learner import TreeLearner


def brute_force(predict, rows, reference, owner, n_owners):
    """Over all sets S of the others, the weighted mean of what joining S changes."""

    def value(owners):
        own = np.isin(owner, list(owners))
        return np.array([predict(np.where(own, row, reference)).mean(axis=0) for row in rows])

    found = np.zeros((len(rows), n_owners, value(()).shape[1]))
    for each in range(n_owners):
        others = [k for k in range(n_owners) if k != each]
        for size in range(n_owners):
            weight = factorial(size) * factorial(n_owners - size - 1) / factorial(n_owners)
            for chosen in combinations(others, size):
                found[:, each] += weight * (value({*chosen, each}) - value(chosen))
    return found


@pytest.mark.parametrize("engine", ["lightgbm", "histogram"])
@pytest.mark.parametrize("owner", [[0, 1, 2, 3], [0, 1, 1, 2]])
def test_as_all_subsets_say(engine, owner):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 4)).astype(np.float32)
    x[:, 3] = rng.integers(0, 6, 400)
    y = np.column_stack([x[:, 0] * x[:, 1] + (x[:, 3] % 2), np.abs(x[:, 2]) * (x[:, 0] > 0)])
    learner = TreeLearner(max_depth=5, max_leaves=14, min_samples_leaf=5, engine=engine)
    trainer = learner.trainer(PreparedTable(np.asfortranarray(x), (3,)), 2)
    trees = trainer.fit(Target(y), seed=0, start=None).trees
    rows, reference, owner = x[:12], x[100:117], np.array(owner)
    for tree in trees:
        found = shapley_values(tree, rows, reference, owner, 4)
        expected = brute_force(tree.predict, rows, reference, owner, owner.max() + 1)
        assert np.abs(expected).max() > 0.1
        np.testing.assert_allclose(found[:, : owner.max() + 1], expected, rtol=0, atol=1e-6)
        whole = tree.predict(rows).astype(float) - tree.predict(reference).astype(float).mean(axis=0)
        np.testing.assert_allclose(found.sum(axis=1), whole, rtol=0, atol=1e-6)


def test_a_tree_of_one_leaf_adds_nothing():
    x = np.zeros((3, 2), dtype=np.float32)
    assert not shapley_values(Tree.constant(5.0), x, x, np.arange(2), 2).any()


def test_written_out():
    """x₀ ≤ 0 and x₁ ≤ 0 gives 12, else 0."""
    nodes = [(0, 0.0, 1, ~1, []), (1, 0.0, ~0, ~2, [])]
    tree = Tree._build(nodes, np.array([[12], [0], [0]], dtype=np.float32), [0.0, 0.0])
    row, far, near = (np.array([each], dtype=np.float32) for each in ([-1, -1], [1, 1], [-1, 1]))
    owner = np.arange(2)
    assert shapley_values(tree, row, far, owner, 2).ravel().tolist() == [6, 6]
    assert shapley_values(tree, row, near, owner, 2).ravel().tolist() == [0, 12]
    assert shapley_values(tree, far, row, owner, 2).ravel().tolist() == [-6, -6]
    assert shapley_values(tree, row, np.concatenate([far, near]), owner, 2).ravel().tolist() == [3, 9]

"""Many trees on blocks against one tree on all rows, and stacked networks against one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import make_views, refuses
from usboost import NetworkLearner, TreeLearner
from usboost.boosting.loop import ensemble_scores
from usboost.boosting.rounds import Stage
from usboost.learners import forest
from usboost.learners import tree as tree_module
from usboost.learners.base import Target, sum_one_by_one, weighted_sum
from usboost.learners.forest import Forest
from usboost.learners.networks import written_out
from usboost.learners.tree import Tree


def grown(n_trees, depth, n_outputs=1, engine="lightgbm", n=400):
    views, _ = make_views(n=n)
    rng = np.random.default_rng(depth)
    learner = TreeLearner(max_depth=depth, min_samples_leaf=1, engine=engine)
    prepared = learner.prepare(views["S"])
    trainer = learner.trainer(prepared, n_outputs)
    noise = rng.normal(size=(n_trees, n, n_outputs)) + views["S"].codes[:, :1] % 3
    return [trainer.fit(Target(values), seed=0) for values in noise], prepared


@pytest.mark.parametrize("depth", [1, 3, 6, 10])
@pytest.mark.parametrize("block", [7, 64, 100_000])
def test_leaf_values_are_each_trees_predictions(monkeypatch, depth, block):
    """Numbers and categories, codes never seen, more than 256 leaves, blocks that do not divide the rows."""
    monkeypatch.setattr(forest, "BLOCK_ROWS", block)
    monkeypatch.setattr(forest, "TURNED_TREES", 3)
    fitted, prepared = grown(8, depth, n=400 if depth < 10 else 3000)
    trees = [each.trees[0] for each in fitted] + [Tree.constant(0.5)]
    matrix = prepared.matrix[:400].copy(order="F")
    matrix[:50, list(prepared.categorical)] += 7
    expected = np.column_stack([tree.predict(matrix)[:, 0] for tree in trees])
    np.testing.assert_array_equal(Forest(trees).leaf_values(matrix), expected)
    np.testing.assert_array_equal(Forest(trees).leaf_values(np.ascontiguousarray(matrix)), expected)
    weights = np.linspace(-2, 2, len(trees))
    total = Forest(trees).weighted_sum(matrix, weights)
    np.testing.assert_allclose(total[:, 0], expected.astype(float) @ weights, rtol=1e-12, atol=1e-12)
    assert depth < 10 or max(len(tree.value) for tree in trees) > 256


@settings(max_examples=25)
@given(
    hidden=st.lists(st.integers(1, 9), max_size=3),
    n_networks=st.integers(1, 7),
    n_outputs=st.integers(1, 3),
    width=st.sampled_from([1, 10, 400]),
    view=st.sampled_from(["U", "S"]),
)
def test_stacked_networks_are_networks_one_by_one(hidden, n_networks, n_outputs, width, view):
    views, _ = make_views(n=90)
    learner = NetworkLearner(hidden=tuple(hidden), device="cpu")
    prepared = learner.prepare(views[view])
    trainer = learner.trainer(prepared, n_outputs)
    rng = np.random.default_rng(0)
    fitted = [trainer.fit(Target(rng.normal(size=(90, n_outputs))), seed=i) for i in range(n_networks)]
    steps = rng.normal(size=n_networks).tolist()
    before = written_out.GROUP_WIDTH, written_out.BLOCK_ROWS
    written_out.GROUP_WIDTH, written_out.BLOCK_ROWS = width, 40
    try:
        together = weighted_sum(fitted, steps, prepared)
    finally:
        written_out.GROUP_WIDTH, written_out.BLOCK_ROWS = before
    np.testing.assert_allclose(together, sum_one_by_one(fitted, steps, prepared), rtol=1e-4, atol=1e-5)
    if n_networks > 2:  # stages that lack a view, as schedules of learners have
        stages = [
            Stage({view: each}, {view: step}) if i != 1 else Stage({}, {})
            for i, (each, step) in enumerate(zip(fitted, steps))
        ]
        left = [i for i in range(n_networks) if i != 1]
        np.testing.assert_allclose(
            ensemble_scores(stages, {view: prepared}, together.shape),
            sum_one_by_one([fitted[i] for i in left], [steps[i] for i in left], prepared),
            rtol=1e-4,
            atol=1e-5,
        )


@pytest.mark.parametrize("depth", [1, 4, 10])
@pytest.mark.parametrize("block", [7, 100_000])
def test_walking_ends_in_the_leaves_that_testing_every_node_gives(monkeypatch, depth, block):
    monkeypatch.setattr(tree_module, "_BLOCK_ROWS", block)
    fitted, prepared = grown(4, depth, n_outputs=2, n=3000)
    matrix = prepared.matrix[:500].copy(order="F")
    categorical = list(prepared.categorical)
    matrix[:50, categorical] += 7
    numbers = [j for j in range(matrix.shape[1]) if j not in categorical]
    matrix[50:80, numbers] = np.nan
    trees = [tree for each in fitted for tree in each.trees]
    assert any(len(tree.categories) for tree in trees)
    for tree in trees:
        monkeypatch.setattr(tree_module, "FEWEST_NODES", 10**9)
        leaves, values = tree.leaves(matrix), tree.predict(matrix)
        monkeypatch.setattr(tree_module, "FEWEST_NODES", 1)
        np.testing.assert_array_equal(tree.leaves(matrix), leaves)
        np.testing.assert_array_equal(tree.predict(matrix), values)
        assert leaves.dtype == np.int32 and values.dtype == np.float32
        refuses("reads column", tree.leaves, matrix[:, :0])

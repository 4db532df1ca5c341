"""Trees as arrays against the libraries that grew them, and leaves that a loss fills."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeRegressor

from tests.conftest import make_views, refuses
from usboost import Table
from usboost.learners.base import LeafValues, PresentTrainer, Target, prepare
from usboost.learners.tree_learner import LightGBMTrainer, TreeLearner
from usboost.losses.quantile import PiecewiseLinear
from usboost.testing import example_table

engines = pytest.mark.parametrize("engine", ["lightgbm", "histogram", "sklearn"])


def fitted(table, values, weights=None, **changes):
    learner = TreeLearner(**{"min_samples_leaf": 3, **changes})
    prepared = learner.prepare(table)
    trees = learner.trainer(prepared, values.shape[1]).fit(Target(values, weights), seed=0)
    return trees, trees.predict(prepared), prepared


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_a_tree_predicts_what_lightgbm_predicts(n_outputs):
    views, _ = make_views(n=500)
    rng = np.random.default_rng(1)
    table = views["S"]
    values = np.column_stack([table.numeric[:, 0] + (table.codes[:, j % 2] == 2) for j in range(n_outputs)])
    learner = TreeLearner(max_depth=4, min_samples_leaf=5)
    prepared = learner.prepare(table)
    trainer = LightGBMTrainer(learner, prepared, n_outputs)
    trees = trainer.fit(Target(values), seed=0)
    other = Table(
        rng.normal(size=(200, 3)).astype(np.float32), rng.integers(0, 9, (200, 2)).astype(np.int32), (5, 5)
    )
    for rows in (prepared, learner.prepare(other)):
        expected = np.column_stack([b.predict(rows.matrix) for b in trainer._boosters])
        np.testing.assert_array_equal(trees.predict(rows), expected.astype(np.float32))
    assert any(len(tree.categories) for tree in trees.trees)


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), spread=st.sampled_from([1e-6, 1.0, 1e6]))
def test_thresholds_split_float32_exactly_as_lightgbm_does(seed, spread):
    rng = np.random.default_rng(seed)
    x = (1 + spread * rng.normal(size=(120, 2))).astype(np.float32)
    learner = TreeLearner(max_depth=3, min_samples_leaf=2)
    prepared = learner.prepare(Table.from_numeric(x))
    trainer = LightGBMTrainer(learner, prepared, 1)
    trees = trainer.fit(Target(rng.normal(size=(120, 1))), seed=0)
    booster = trainer._boosters[0]
    expected = booster.predict(prepared.matrix) if booster.num_trees() else trees.predict(prepared)[:, 0]
    np.testing.assert_array_equal(trees.predict(prepared)[:, 0], expected.astype(np.float32))


@pytest.mark.parametrize("weighted", [None, "samples", "outputs"])
def test_leaf_values_are_weighted_means(weighted):
    views, _ = make_views(n=400)
    rng = np.random.default_rng(2)
    values = rng.normal(size=(400, 2)) + views["S"].numeric[:, :2]
    weights = {None: None, "samples": rng.uniform(0.1, 3, 400), "outputs": rng.uniform(0.1, 3, (400, 2))}[
        weighted
    ]
    trees, predicted, prepared = fitted(views["S"], values, weights, max_depth=2)
    for j, tree in enumerate(trees.trees):
        column = np.ones(400) if weights is None else weights if weights.ndim == 1 else weights[:, j]
        leaves = tree.leaves(prepared.matrix)
        for leaf in np.unique(leaves):
            rows = leaves == leaf
            mean = np.average(values[rows, j], weights=column[rows])
            np.testing.assert_allclose(predicted[rows, j], mean, rtol=2e-4, atol=1e-5)


def test_the_sklearn_engine_is_sklearns_tree():
    views, _ = make_views(n=300)
    rng = np.random.default_rng(3)
    values = rng.normal(size=(300, 3)) + views["S"].numeric
    _, predicted, prepared = fitted(views["S"], values, engine="sklearn", max_depth=3)
    tree = DecisionTreeRegressor(max_depth=3, min_samples_leaf=3, random_state=0).fit(prepared.matrix, values)
    np.testing.assert_allclose(predicted, tree.predict(prepared.matrix), rtol=1e-5, atol=1e-6)


@engines
def test_a_large_tables_trees_have_more_leaves_unless_their_number_is_given(engine: str) -> None:
    table, values = make_views(n=500)[0]["S"], np.random.default_rng(5).normal(size=(500, 1))
    wanted = ({}, 4), ({"rows_per_leaf": 101}, 4), ({"rows_per_leaf": 50}, 10)
    for changes, leaves in (*wanted, ({"rows_per_leaf": 50, "max_leaves": 3}, 3)):
        trees = fitted(table, values, engine=engine, max_depth=2, **changes)[0]
        assert len(trees.trees[0].value) == leaves


def test_rounds_do_not_depend_on_each_other():
    """The same trainer, round after round, grows what a fresh one would; a constant target is one leaf."""
    views, _ = make_views(n=300)
    rng = np.random.default_rng(4)
    learner = TreeLearner(max_depth=3, min_samples_leaf=5)
    prepared = learner.prepare(views["S"])
    trainer = learner.trainer(prepared, 1)
    for index in range(6):
        values = (
            np.full((300, 1), 0.25) if index == 2 else rng.normal(size=(300, 1)) + views["S"].numeric[:, :1]
        )
        kept = trainer.fit(Target(values), seed=index)
        fresh = learner.trainer(prepared, 1).fit(Target(values), seed=index)
        np.testing.assert_allclose(kept.predict(prepared), fresh.predict(prepared), rtol=1e-5, atol=1e-6)
        if index == 2:
            assert len(kept.trees[0].feature) == 0
            np.testing.assert_allclose(kept.predict(prepared), 0.25)


def test_mistakes():
    given = TreeLearner().prepare(make_views()[0]["S"])
    refuses("no tree engine", TreeLearner(engine="oak").trainer, given, 1)
    refuses("a tree reads tables", TreeLearner().prepare, np.zeros(3))


def test_lightgbm_is_still_silent(capfd):
    views, _ = make_views(n=50)
    fitted(views["S"], np.zeros((50, 1)))
    assert capfd.readouterr() == ("", "")


def problem(table: Table, left_out: np.ndarray | None = None) -> tuple[Target, np.ndarray]:
    residual = table.numeric[:, 0] * 3 + np.random.default_rng(0).standard_t(2, len(table))
    loss = PiecewiseLinear.quantile(0.3)
    leaves = LeafValues(residual, loss.constants)
    return Target(loss.pseudo_residual(residual[:, None]), None, left_out, leaf_values=leaves), residual


@engines
def test_each_leaf_holds_the_quantile_of_its_rows(engine: str) -> None:
    table = example_table()
    left_out = np.arange(len(table)) % 5 == 0
    target, residual = problem(table, left_out)
    learner = TreeLearner(engine=engine)
    prepared = learner.prepare(table)
    tree = learner.trainer(prepared, 1).fit(target, seed=0, start=None).trees[0]
    plain = Target(target.values, None, left_out)
    other = learner.trainer(prepared, 1).fit(plain, seed=0, start=None).trees[0]
    own = tree.leaves(prepared.matrix)
    np.testing.assert_array_equal(own, other.leaves(prepared.matrix))  # the splits are the same
    assert len(tree.value) > 3
    for leaf in range(len(tree.value)):
        rows = residual[(own == leaf) & ~left_out]
        expected = np.quantile(rows, 0.3, method="inverted_cdf")
        np.testing.assert_allclose(tree.value[leaf, 0], expected, rtol=1e-6)


def test_rows_without_the_view_have_no_say() -> None:
    table = example_table()
    absent = np.arange(len(table)) % 3 == 0
    lacking = Table(table.numeric, table.codes, table.cardinalities, table.names, absent)
    target, residual = problem(table)
    learner = TreeLearner(max_depth=1)
    prepared = prepare(learner, lacking)
    fitted = PresentTrainer(learner, prepared, 1).fit(target, seed=0, start=None)
    own = fitted.trees[0].leaves(prepared.prepared.matrix)
    for leaf, value in enumerate(fitted.trees[0].value[:, 0]):
        expected = np.quantile(residual[~absent][own == leaf], 0.3, method="inverted_cdf")
        np.testing.assert_allclose(value, expected, rtol=1e-6)

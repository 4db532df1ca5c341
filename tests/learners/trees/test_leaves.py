"""Leaves that a loss fills: of the rows that the tree was fitted to, in every engine."""

import numpy as np
import pytest

from usboost import Table, TreeLearner
from usboost.learners.base import LeafValues, PresentTrainer, Target, prepare
from usboost.losses.quantile import PiecewiseLinear
from usboost.testing import example_table

engines = pytest.mark.parametrize("engine", ["lightgbm", "histogram", "sklearn"])


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

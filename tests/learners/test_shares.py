"""Trees that see a share of the columns, and rounds that draw anew."""

import numpy as np
import pytest

from tests.conftest import make_views, refuses
from usboost import Table
from usboost.learners.base import Target
from usboost.learners.tree_learner import TreeLearner, drawn_columns

ENGINES = ("lightgbm", "histogram", "sklearn")


def fitted(learner, view, target, seed=0, n_outputs=1):
    prepared = learner.prepare(view)
    found = learner.trainer(prepared, n_outputs).fit(target, seed=seed)
    return found, found.predict(prepared)


def columns_of(trees):
    return {int(column) for tree in trees.trees for column in tree.feature}


@pytest.fixture(scope="module")
def problem():
    """Five columns, two of them categories, each with a say in the target."""
    views, _ = make_views(n=600)
    table, rng = views["S"], np.random.default_rng(0)
    numbers, codes = table.numeric.sum(axis=1), (table.codes % 3).sum(axis=1)
    return table, (numbers + codes + rng.normal(size=600))[:, None]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("metric", [False, True])
def test_a_tree_splits_on_the_columns_drawn_for_its_round(engine, metric, problem):
    view, values = problem
    if metric and engine == "sklearn":
        pytest.skip("it takes no metric")
    values = np.repeat(values, 2, axis=1)
    target = Target(values, metric=np.repeat(np.eye(2)[None], 600, axis=0) if metric else None)
    learner = TreeLearner(min_samples_leaf=3, max_depth=6, engine=engine)
    assert columns_of(fitted(learner, view, target, n_outputs=2)[0]) == set(range(5))
    learner.set_params(feature_fraction=0.8)
    trainer = learner.trainer(learner.prepare(view), 2)  # a booster that has grown trees draws as a new one
    seen = []
    drawn = np.random.default_rng(0).integers(2**31, size=6).tolist()  # LightGBM draws alike by small ones
    for seed in (*drawn, drawn[0]):
        seen.append(columns_of(trainer.fit(target, seed=seed)))
        assert seen[-1] == columns_of(fitted(learner, view, target, seed, 2)[0])
        assert len(seen[-1]) <= 4
    assert seen[0] == seen[-1] and max(map(len, seen)) == 4
    assert len({tuple(sorted(each)) for each in seen}) > 1


def test_few_columns_are_not_divided():
    """Half of two columns never show what only both together say."""
    for n_columns, fraction, drawn in (
        (100, 0.5, 50),
        (9, 0.5, 4),
        (5, 0.3, 4),
        (4, 0.3, 4),
        (2, 0.5, 2),
        (1, 0.5, 1),
    ):
        columns = drawn_columns(n_columns, fraction, 0)
        assert (n_columns if columns is None else len(columns)) == drawn
    x = np.random.default_rng(0).uniform(0, 4, (1000, 2)).astype(np.float32)
    board = np.floor(x).sum(axis=1) % 2
    learner = TreeLearner(max_depth=6, feature_fraction=0.5)
    found, values = fitted(learner, Table.from_numeric(x), Target(board[:, None] - 0.5))
    assert columns_of(found) == {0, 1} and ((values[:, 0] > 0) == board).mean() > 0.8


@pytest.mark.parametrize("share", [0, -0.1, 1.1, float("nan")])
def test_what_is_no_share_is_refused(share, problem):
    refuses("feature_fraction", fitted, TreeLearner(feature_fraction=share), problem[0], Target(problem[1]))

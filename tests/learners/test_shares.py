"""Rounds that see a share of the rows, or trees that see a share of the columns."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import make_views
from usboost.boosting.callbacks import Callback
from usboost.boosting.checkpoint import Checkpoint
from usboost.errors import UsboostError
from usboost.learners.base import Target
from usboost.learners.networks.learner import NetworkLearner
from usboost.learners.trees.learner import TreeLearner
from usboost.models.two_weak_learner import TwoWeakLearnerClassifier

ENGINES = ("lightgbm", "histogram", "sklearn")
LEARNERS = {engine: TreeLearner(min_samples_leaf=3, engine=engine) for engine in ENGINES}


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


@given(n=st.integers(1, 50), fraction=st.floats(0.01, 1.0), seed=st.integers(0, 2**63))
def test_a_share_of_the_rows_is_drawn_anew_by_the_seed(n, fraction, seed):
    target = Target(np.zeros((n, 1))).sampled(fraction, seed)
    seen = n if target.left_out is None else n - int(target.left_out.sum())
    assert seen == max(1, round(fraction * n))
    assert Target(np.zeros((n, 1))).sampled(1.0, seed).left_out is None


@pytest.mark.parametrize("name", LEARNERS)
def test_rows_that_were_not_drawn_are_not_seen(name, problem):
    view, values = problem
    learner = LEARNERS[name].set_params(row_fraction=0.5)
    out = Target(values).sampled(0.5, seed=3).left_out
    other = np.where(out[:, None], 1e3, values)
    mine = fitted(learner, view, Target(values), seed=3)[1]
    np.testing.assert_array_equal(fitted(learner, view, Target(other), seed=3)[1], mine)
    assert not np.array_equal(fitted(learner, view, Target(values), seed=4)[1], mine)
    learner.set_params(row_fraction=1.0)


@pytest.mark.parametrize("name", LEARNERS)
def test_rows_drawn_are_those_that_may_be_seen(name, problem):
    """Rows that sit out stay out; where all that were drawn have no weight, the others are fitted to."""
    view, values = problem
    weights = np.zeros(600)
    weights[:3] = 1.0
    target = Target(values, weights, left_out=np.arange(600) == 0)
    for seed in range(4):
        drawn = target.sampled(0.3, seed)
        assert drawn.fit_weights.any() and drawn.fit_weights[0] == 0
    assert np.isfinite(fitted(LEARNERS[name], view, target.sampled(0.001, 0))[1]).all()


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
    learner.set_params(feature_fraction=0.4)
    trainer = learner.trainer(learner.prepare(view), 2)  # a booster that has grown trees draws as a new one
    seen = []
    for seed in (0, 1, 2, 3, 4, 5, 0):
        seen.append(columns_of(trainer.fit(target, seed=seed)))
        assert seen[-1] == columns_of(fitted(learner, view, target, seed, 2)[0])
        assert len(seen[-1]) == 2
    assert seen[0] == seen[-1]
    assert len({tuple(sorted(each)) for each in seen}) > 1


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("share", [0, -0.1, 1.1, float("nan")])
def test_what_is_no_share_is_refused(name, share, problem):
    for setting in ("row_fraction", "feature_fraction"):
        learner = TreeLearner(engine=name, **{setting: share})
        with pytest.raises(UsboostError, match=f"{setting} is a share, above 0 and at most 1, not"):
            fitted(learner, problem[0], Target(problem[1]))


class _Killed(Callback):
    def on_round(self, round_):
        if round_.index == 3:
            raise KeyboardInterrupt
        return False


def test_a_model_of_shares_resumes_as_if_never_killed(tmp_path):
    """What a round draws follows from its seed alone."""
    views, y = make_views(3, n=300)
    learners = {
        "U": NetworkLearner(hidden=(8,), batch_size=32, steps=7),
        "S": TreeLearner(min_samples_leaf=3, feature_fraction=0.5, row_fraction=0.6),
    }
    how = {"loss": "cross_entropy", "shrinkage": 0.3, "n_rounds": 6, "validation_fraction": 0}
    model = TwoWeakLearnerClassifier(learners, **how)
    whole = model.fit(views, y).predict_proba(views)
    with pytest.raises(KeyboardInterrupt):
        model.set_params(callbacks=[_Killed()], checkpoint=Checkpoint(tmp_path / "kept", {})).fit(views, y)
    model.set_params(callbacks=None, checkpoint=Checkpoint(tmp_path / "kept", {})).fit(views, y)
    np.testing.assert_array_equal(model.predict_proba(views), whole)

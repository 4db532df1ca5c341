"""What columns add to a boosted model's f, against all subsets of columns of the whole model."""

import numpy as np
import pytest

from tests.conftest import refuses
from tests.learners.trees.test_shapley import brute_force
from usboost import NetworkLearner, RidgeLearner, Table, TreeLearner, Views
from usboost.models.baselines.linear import LinearBaseline, RidgeBaseline
from usboost.models.inspection.attribution import check_explainable, direction, shapley
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier, TwoWeakLearnerRegressor

RNG = np.random.default_rng(0)
N = 400
NUMBERS, CODES = RNG.normal(size=(N, 3)).astype(np.float32), RNG.integers(1, 4, (N, 1)).astype(np.int32)
NAMES = ("a", "b", "b_too", "c")
SCORE = NUMBERS[:, 0] * NUMBERS[:, 1] + (CODES[:, 0] == 2) + NUMBERS[:, 2]


def owners(names):
    return np.array(["abc".index(name.removeprefix("S__")[0]) for name in names])


def views(matrix):
    one = Table(matrix[:, :3].astype(np.float32), matrix[:, 3:].astype(np.int32), (4,), NAMES)
    return Views(U=one, S=one)


MATRIX = np.column_stack([NUMBERS, CODES])
EXACT = {"S": TreeLearner(max_depth=4)}
RIDGE = {"U": RidgeLearner(reads=("S",)), "S": TreeLearner()}
NETWORK = {"U": NetworkLearner(), "S": TreeLearner(max_depth=4)}


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(("learners", "tolerance"), [(EXACT, 1e-5), (RIDGE, 1e-5), (NETWORK, 0.05)])
def test_as_all_subsets_say(classes, learners, tolerance):
    y = np.digitize(SCORE, np.quantile(SCORE, np.linspace(0, 1, classes + 1)[1:-1]))
    target = "gradient" if learners is RIDGE else "newton"
    model = TwoWeakLearnerClassifier(
        learners,
        target=target,
        loss="cross_entropy",
        start=LinearBaseline(("S",)),
        n_rounds=15,
        shrinkage=0.3,
    ).fit(views(MATRIX), y)
    rows, reference = MATRIX[:6], MATRIX[100:132]
    found = shapley(model, views(rows), views(reference), owners, 3, images=0)
    expected = brute_force(lambda each: model._f(views(each)), rows, reference, owners(NAMES), 3)
    assert np.abs(found.values - expected).max() < tolerance * np.abs(expected).max()
    f = model._f(views(rows))
    np.testing.assert_allclose(found.values.sum(axis=1) + found.mean, f, rtol=0, atol=1e-5)
    p = model.predict_proba(views(rows))
    for k in range(classes):
        margin = (direction(model, np.full(6, k)) * f).sum(axis=1)
        others = np.delete(np.log(p), k, axis=1).mean(axis=1)
        np.testing.assert_allclose(margin, np.log(p[:, k]) - others, rtol=0, atol=1e-6)


def test_a_number_in_its_units():
    model = TwoWeakLearnerRegressor(EXACT, start=RidgeBaseline(("S",)), n_rounds=20).fit(
        views(MATRIX), 100 + 50 * SCORE
    )
    rows, reference = MATRIX[:6], MATRIX[100:132]
    found = shapley(model, views(rows), views(reference), owners, 3, 0)
    turn = direction(model, np.zeros(6))
    whole = model.predict(views(rows)) - model.predict(views(reference)).mean()
    np.testing.assert_allclose((found.values * turn[:, None]).sum(axis=(1, 2)), whole, rtol=1e-5)


def test_others_are_refused_by_name():
    refuses("logistic cannot be explained", check_explainable, LinearBaseline(), "logistic")

"""Target rules against the papers' equations."""

from dataclasses import replace

import numpy as np
import pytest

from tests.conftest import make_views, refuses
from tests.losses.test_codeword import sample
from usboost import NetworkLearner, TreeLearner
from usboost.boosting.targets import (
    Gradient,
    NewtonDirection,
    NewtonTarget,
    SecondOrder,
    WeightedSigns,
    target_rule,
)
from usboost.learners.base import Target
from usboost.losses.cross_entropy import SoftmaxCrossEntropy
from usboost.losses.exponential import CodewordExponential, Exponential


def test_first_order_targets_are_w_for_every_view():
    loss, f, y = sample(3)
    for target in Gradient().targets(loss, f, y, 2)(np.array([0.1, 0.1])):
        np.testing.assert_array_equal(target.values, loss.w(f, y))
        assert target.weights is None


@pytest.mark.parametrize("n_classes", [2, 5])
def test_second_order_targets_are_equations_7_and_8(n_classes):
    loss, f, y = sample(n_classes)
    epsilon, delta = 0.3, 0.7
    w, tilde = loss.w(f, y), loss.w_tilde(f, y)
    for_g, for_h = SecondOrder().targets(loss, f, y, 2)(np.array([epsilon, delta]))
    np.testing.assert_allclose(
        for_g.values, epsilon * w - epsilon**2 / 4 * tilde - epsilon * delta / 2 * w, atol=1e-14
    )
    np.testing.assert_allclose(
        for_h.values, delta * w - delta**2 / 4 * tilde - epsilon * delta / 2 * w, atol=1e-14
    )


def test_newton_target_of_two_classes_is_gentle_adaboost():
    """Weighted least squares of 2(y − 1/M) with weights proportional to e."""
    loss, f, y = sample(2)
    target = NewtonDirection().targets(loss, f, y, 2)(np.array([0.1, 0.1]))[0]
    np.testing.assert_allclose(target.values, loss.newton_direction(f, y), rtol=1e-9)
    ratio = target.weights[:, 0] / loss.weights(f, y)[:, 0]
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-9)


@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_newton_targets_are_the_bounded_ones_in_the_hessians_metric(n_classes):
    """d_i = 2(y_i − 1/M) whatever f is, and metric_i d_i = w_i; methods.md, 2WL-Newton."""
    rng = np.random.default_rng(n_classes)
    unit = CodewordExponential.unit(n_classes)
    y, f = rng.integers(0, n_classes, 50), 2 * rng.normal(size=(50, n_classes))
    (target,) = NewtonDirection().targets(unit, f, y, 1)(np.ones(1))
    expected = 2 * (np.eye(n_classes)[y] - 1 / n_classes)
    np.testing.assert_allclose(target.values, expected, atol=1e-9)
    np.testing.assert_allclose(
        np.einsum("nij,nj->ni", target.metric, target.values), unit.w(f, y), rtol=1e-9, atol=1e-9
    )
    e = np.exp(-0.5 * (f[np.arange(50), y][:, None] - f))
    own = np.eye(n_classes)[y]
    for i in range(50):
        literal = sum(
            0.25 * e[i, k] * np.outer(own[i] - np.eye(n_classes)[k], own[i] - np.eye(n_classes)[k])
            for k in range(n_classes)
        )
        np.testing.assert_allclose(target.metric[i], literal, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n_classes", [3, 7])
def test_newton_targets_of_cross_entropy(n_classes):
    """(diag(p) − ppᵀ) d = y − p, d summing to zero."""
    rng = np.random.default_rng(0)
    loss = SoftmaxCrossEntropy(n_classes, per_class=True)
    y, f = np.eye(n_classes)[rng.integers(0, n_classes, 40)], rng.normal(size=(40, n_classes))
    (target,) = NewtonDirection().targets(loss, f, y, 1)(np.ones(1))
    np.testing.assert_allclose(target.values.sum(axis=1), 0, atol=1e-9)
    found = np.einsum("nij,nj->ni", target.metric, target.values)
    np.testing.assert_allclose(found, y - loss.probabilities(f), atol=1e-9)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_bnns_targets_count_by_their_curvature(n_classes):
    """dᵀHd / ‖d‖² of the Newton target d, with the Hessian written out; equal counts only when asked for."""
    rng = np.random.default_rng(2)
    loss, f = SoftmaxCrossEntropy(n_classes), rng.normal(size=(30, n_classes - 1))
    y = loss.labels(rng.integers(0, n_classes, 30))
    (target,) = NewtonTarget().targets(loss, f, y, 1)(np.ones(1))
    scores, steep = loss.scores(f), []
    for d, p in zip(loss.scores(target.values), np.exp(scores) / np.exp(scores).sum(axis=1)[:, None]):
        steep.append(d @ (np.diag(p) - np.outer(p, p)) @ d / (d @ d))
    np.testing.assert_allclose(target.weights, steep, rtol=1e-9)
    assert np.ptp(target.weights) > 0.05
    (equal,) = NewtonTarget(weighted=False).targets(loss, f, y, 1)(np.ones(1))
    assert equal.weights is None
    np.testing.assert_array_equal(equal.values, target.values)


def test_earlyboosts_targets_are_the_signs_with_their_weights():
    rng = np.random.default_rng(3)
    loss, f, y = Exponential(3), rng.normal(size=(20, 3)), rng.choice([-1.0, 1.0], (20, 3))
    (target,) = WeightedSigns().targets(loss, f, y, 1)(np.ones(1))
    np.testing.assert_array_equal(target.values, y)
    np.testing.assert_allclose(target.weights, np.exp(-y * f) / np.exp(-y * f).sum(), rtol=1e-12)


def test_names():
    assert target_rule("second_order", 3) == SecondOrder(n_inner=3)
    refuses("no target rule 'third'", target_rule, "third")


@pytest.mark.parametrize("engine", ["lightgbm", "sklearn"])
def test_learners_do_not_see_what_is_left_out(engine):
    views, _ = make_views(n=300)
    coarse = views["S"].numeric.round()  # the same bins with and without the rows
    views = views.with_view("S", replace(views["S"], numeric=coarse))
    rng = np.random.default_rng(1)
    values, weights = rng.normal(size=(300, 1)), rng.uniform(0.5, 2, (300, 1))
    out = np.arange(300) % 3 == 0
    target = Target(np.where(out[:, None], 1e3, values), weights, out[:, None])
    others = Target(values[~out], weights[~out])
    learners = {
        "S": TreeLearner(min_samples_leaf=1, max_depth=2, engine=engine),
        "U": NetworkLearner(hidden=(6,), batch_size=200, epochs=2, device="cpu"),
    }
    for name, learner in learners.items():
        everything, kept = learner.prepare(views[name]), learner.prepare(views[name][~out])
        got = learner.trainer(everything, 1).fit(target, seed=3, start=None)
        whole = learner.trainer(kept, 1).fit(others, seed=3, start=None)
        np.testing.assert_allclose(got.predict(kept), whole.predict(kept), rtol=1e-4, atol=1e-4, err_msg=name)

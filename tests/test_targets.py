"""Target rules against the papers' equations."""

import numpy as np
import pytest

from usboost.errors import UsboostError
from usboost.losses import CodewordExponential
from usboost.targets import Gradient, NewtonDirection, SecondOrder, target_rule


def sample(n_classes, seed=0, n=12):
    rng = np.random.default_rng(seed)
    loss = CodewordExponential.simplex(n_classes)
    return loss, rng.normal(size=(n, loss.n_outputs)), rng.integers(0, n_classes, n)


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


def test_second_order_at_the_fixed_steps_is_ten_times_smaller():
    """0.095 w − 0.0025 w̃: why 2WL2O_Fix hardly moves."""
    loss, f, y = sample(2)
    target = SecondOrder().targets(loss, f, y, 2)(np.array([0.1, 0.1]))[0]
    np.testing.assert_allclose(target.values, 0.095 * loss.w(f, y) - 0.0025 * loss.w_tilde(f, y), atol=1e-14)
    assert np.abs(target.values).mean() < 0.1 * np.abs(loss.w(f, y)).mean()


def test_newton_target_of_two_classes_is_gentle_adaboost():
    """Weighted least squares of 2(y − 1/M) with weights proportional to e."""
    loss, f, y = sample(2)
    target = NewtonDirection().targets(loss, f, y, 2)(np.array([0.1, 0.1]))[0]
    np.testing.assert_allclose(target.values, loss.newton_direction(y), rtol=1e-9)
    ratio = target.weights[:, 0] / loss.weights(f, y)[:, 0]
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-9)


@pytest.mark.parametrize("n_classes", [3, 5])
def test_newton_target_times_weight_is_w(n_classes):
    """For more classes the Hessian's diagonal is used: gradient and curvature per output are exact."""
    loss, f, y = sample(n_classes)
    target = NewtonDirection().targets(loss, f, y, 1)(np.array([0.1]))[0]
    np.testing.assert_allclose(target.values * target.weights, loss.w(f, y), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(target.weights, np.einsum("ndd->nd", loss.hessian(f, y)), rtol=1e-9)


def test_names():
    assert target_rule("second_order", 3) == SecondOrder(n_inner=3)
    with pytest.raises(UsboostError, match="no target rule 'third'"):
        target_rule("third")

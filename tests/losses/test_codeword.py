"""Every formula of the codeword loss against brute force."""

import numpy as np
import pytest

from usboost.losses.base import simplex_codewords
from usboost.losses.exponential import CodewordExponential
from usboost.losses.regression import Squared


def literal_risk(f, y, codewords):
    """Σ_k exp(−½⟨f, y_i − y^k⟩), own class included, averaged: the paper's line."""
    total = 0.0
    for f_i, c in zip(f, y, strict=True):
        for k in range(len(codewords)):
            total += np.exp(-0.5 * f_i @ (codewords[c] - codewords[k]))
    return total / len(y)


def sample(n_classes, n=7, seed=0, unit=False):
    rng = np.random.default_rng(seed)
    loss = (CodewordExponential.unit if unit else CodewordExponential.simplex)(n_classes)
    return loss, rng.normal(size=(n, loss.n_outputs)), rng.integers(0, n_classes, n)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("unit", [True, False])
def test_risk_is_the_papers_sum(n_classes, unit):
    loss, f, y = sample(n_classes, unit=unit)
    assert loss.risk(f, y) == pytest.approx(literal_risk(f, y, loss.codewords), rel=1e-12)
    assert loss.risk(np.zeros_like(f), y) == pytest.approx(n_classes)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("unit", [True, False])
def test_w_is_the_negative_gradient(n_classes, unit):
    loss, f, y = sample(n_classes, unit=unit)
    numeric = np.zeros_like(f)
    h = 1e-6
    for i, j in np.ndindex(*f.shape):
        up, down = f.copy(), f.copy()
        up[i, j] += h
        down[i, j] -= h
        numeric[i, j] = len(y) * (literal_risk(up, y, loss.codewords) - literal_risk(down, y, loss.codewords))
    np.testing.assert_allclose(loss.w(f, y), -numeric / (2 * h), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_w_tilde_is_the_papers_sum(n_classes):
    loss, f, y = sample(n_classes, unit=True)
    codewords = loss.codewords
    for i, c in enumerate(y):
        e = [np.exp(-0.5 * f[i] @ (codewords[c] - codewords[k])) for k in range(n_classes)]
        tilde = sum((codewords[c] - codewords[k]) * np.sqrt(e[k]) for k in range(n_classes))
        np.testing.assert_allclose(loss.w_tilde(f, y)[i], tilde, rtol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_simplex_coordinates_are_the_unit_loss(n_classes):
    """M − 1 coordinates lose nothing: risk and targets agree with the paper's M, and w sums to zero."""
    simplex, z, y = sample(n_classes, n=20)
    unit = CodewordExponential.unit(n_classes)
    f = simplex.scores(z)
    assert simplex.risk(z, y) == pytest.approx(unit.risk(f, y), rel=1e-12)
    np.testing.assert_allclose(unit.w(f, y).sum(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(simplex.w(z, y) @ simplex.codewords.T, unit.w(f, y), atol=1e-12)
    np.testing.assert_allclose(simplex.w_tilde(z, y) @ simplex.codewords.T, unit.w_tilde(f, y), atol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3, 6])
def test_simplex_codewords_keep_inner_products(n_classes):
    codewords = simplex_codewords(n_classes)
    centred = np.eye(n_classes) - 1 / n_classes
    np.testing.assert_allclose(codewords @ codewords.T, centred, atol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_newton_direction_solves_the_hessian_system(n_classes):
    loss, f, y = sample(n_classes, n=30)
    step = loss.newton_direction(f, y)
    np.testing.assert_allclose(np.einsum("nij,nj->ni", loss.hessian(f, y), step), loss.w(f, y), atol=1e-10)
    unit = np.eye(n_classes)[y]
    np.testing.assert_allclose(step @ loss.codewords.T, 2 * (unit - 1 / n_classes), atol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("unit", [True, False])
def test_hessian_is_the_derivative_of_w(n_classes, unit):
    loss, f, y = sample(n_classes, unit=unit)
    hessian, h = loss.hessian(f, y), 1e-6
    for j, shift in enumerate(h * np.eye(f.shape[1])):
        numeric = -(loss.w(f + shift, y) - loss.w(f - shift, y)) / (2 * h)
        np.testing.assert_allclose(hessian[:, :, j], numeric, rtol=1e-6, atol=1e-8)


def test_risk_overflows_to_infinity_quietly():
    loss, _, y = sample(2)
    wrong = 1e5 * loss.codewords[1 - y]
    assert loss.risk(wrong, y) == np.inf


def test_probabilities_are_calibrated_at_the_minimiser():
    """For one x with class shares p, the risk's minimiser has softmax(f) = p."""
    from scipy.optimize import minimize

    shares = np.array([0.5, 0.3, 0.2])
    loss = CodewordExponential.simplex(3)
    y = np.repeat([0, 1, 2], (50, 30, 20))
    found = minimize(lambda z: loss.risk(np.tile(z, (100, 1)), y), np.zeros(2), tol=1e-12).x
    np.testing.assert_allclose(loss.probabilities(found[None])[0], shares, atol=1e-4)


def test_squared_line_is_exact():
    rng = np.random.default_rng(0)
    f, y, d = (rng.normal(size=(9, 3)) for _ in range(3))
    loss = Squared(3)
    line = loss.line(f, y, [d])
    assert line.risk(np.array([0.7])) == pytest.approx(loss.risk(f + 0.7 * d, y))
    gamma = ((y - f) * d).sum() / (d * d).sum()
    _, gradient, hessian = line.expand(np.zeros(1))
    assert -gradient[0] / hessian[0, 0] == pytest.approx(gamma)

"""Softmax cross-entropy: Newton targets against numpy's pseudo-inverse, the line against differences."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from sklearn.metrics import log_loss

from tests.conftest import refuses
from usboost.boosting.steps import ClosedForm, Newton
from usboost.losses.base import simplex_codewords
from usboost.losses.cross_entropy import SoftmaxCrossEntropy


def problem(n_classes: int, seed: int, n: int = 40) -> tuple[SoftmaxCrossEntropy, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return (
        SoftmaxCrossEntropy(n_classes, limit=1e9),
        rng.normal(size=(n, n_classes - 1)),
        np.eye(n_classes)[rng.integers(0, n_classes, n)],
    )


@given(n_classes=st.integers(2, 6), seed=st.integers(0, 1000), soft=st.booleans())
def test_targets_are_the_pseudo_inverses(n_classes: int, seed: int, soft: bool) -> None:
    loss, f, y = problem(n_classes, seed, n=5)
    if soft:
        y = np.random.default_rng(seed).dirichlet(np.ones(n_classes), len(y))
    basis = simplex_codewords(n_classes)
    for i, d in enumerate(loss.newton_target(f, y)):
        scores = basis @ f[i]
        p = np.exp(scores) / np.exp(scores).sum()
        hessian = np.diag(p) - np.outer(p, p)
        assert np.allclose(hessian.sum(axis=1), 0)  # so it has no inverse
        np.testing.assert_allclose(
            basis @ d, np.linalg.pinv(hessian, rcond=1e-10, hermitian=True) @ (y[i] - p), rtol=1e-6, atol=1e-8
        )
        # the same in the coordinates, where the inverse exists
        inner = basis.T @ hessian @ basis
        np.testing.assert_allclose(d, np.linalg.solve(inner, basis.T @ (y[i] - p)), rtol=1e-7, atol=1e-9)
        wanted = d @ inner @ d / (d @ d) if d @ d > 1e-20 else None
        if wanted is not None:
            np.testing.assert_allclose(loss.curvature(d[None], f[i : i + 1], y[i : i + 1]), wanted, rtol=1e-8)


def test_risk_is_the_mean_log_loss() -> None:
    loss, f, y = problem(3, seed=0)
    assert loss.risk(f, y) == pytest.approx(log_loss(y.argmax(axis=1), loss.probabilities(f)))
    assert loss.risk(np.zeros_like(f), y) == pytest.approx(np.log(3))
    np.testing.assert_allclose(loss.scores(f).sum(axis=1), 0, atol=1e-12)


def test_newton_finds_gamma() -> None:
    loss, f, y = problem(3, seed=5)
    direction = loss.newton_target(f, y) + np.random.default_rng(0).normal(size=f.shape)
    line = loss.line(f, y, [direction])
    numeric = minimize_scalar(lambda g: line.risk(np.array([g])), bracket=(0, 1), tol=1e-12).x
    assert Newton().search(line, 1, 0)[0] == pytest.approx(numeric, rel=1e-5)
    refuses("no closed-form step", ClosedForm().search, line, 1, 0)


def test_a_target_is_bounded_and_certain_samples_do_no_harm() -> None:
    loss = SoftmaxCrossEntropy(3, limit=10.0)
    f = np.array([[500.0, 0.0], [-500.0, 0.0]])
    y = np.eye(3)[[1, 1]]
    target = loss.newton_target(f, y)
    assert np.isfinite(target).all()
    assert np.abs(loss.scores(target)).max() == pytest.approx(30 * 2 / 3)
    assert np.isfinite(loss.risk(f, y))
    assert np.isfinite(loss.curvature(target, f, y)).all()


def test_an_all_zero_direction_is_refused() -> None:
    loss, f, y = problem(3, seed=0)
    refuses("outputs are all zero", loss.line, f, y, [np.zeros_like(f)])

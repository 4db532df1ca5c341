"""Step rules: Newton against a fine grid and against Bayes; Bayes never worse than standing still."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import refuses
from usboost.boosting.steps import Bayes, Fixed, Newton, step_rule
from usboost.losses.exponential import CodewordExponential
from usboost.losses.regression import Squared


def problem(n_classes, n_views, seed, n=60, noise=1.5):
    rng = np.random.default_rng(seed)
    loss = CodewordExponential.simplex(n_classes)
    y = rng.integers(0, n_classes, n)
    f = 0.3 * rng.normal(size=(n, loss.n_outputs))
    directions = [loss.codewords[y] + noise * rng.normal(size=f.shape) for _ in range(n_views)]
    return loss.line(f, y, directions)


def test_newton_goes_to_its_limit_and_no_further():
    """A weak direction that is right everywhere: the lower the further, and a Newton step is very long."""
    loss = CodewordExponential.simplex(2)
    y = np.array([0, 1, 0, 1])
    line = loss.line(np.zeros((4, 1)), y, [1e-3 * loss.codewords[y]])
    assert Newton().search(line, 1, 0) == [Newton().limit]
    assert Newton(limit=7.0).search(line, 1, 0) == [7.0]


def test_newton_shortens_a_step_that_would_raise_the_risk():
    """e^−s + e^(−20 + 200 s): a whole step goes to 1, where the second term is e^180."""
    loss = CodewordExponential.simplex(2)
    f, d = (np.sqrt(2) * np.array(column)[:, None] for column in ([0.0, 20.0], [1.0, -200.0]))
    line = loss.line(f, np.array([1, 1]), [d])
    lowest = (20 - np.log(200)) / 201
    np.testing.assert_allclose(Newton().search(line, 1, 0), [lowest], rtol=1e-6)


@pytest.mark.parametrize("n_classes", [2, 5])
def test_newton_beats_every_point_of_a_fine_grid(n_classes):
    line = problem(n_classes, 2, seed=1)
    best = line.risk(Newton().search(line, 2, 0))
    grid = np.linspace(-3, 6, 181)
    risks = np.array([[line.risk(np.array([a, b])) for b in grid] for a in grid])
    assert best <= risks.min() + 1e-12
    a, b = np.unravel_index(risks.argmin(), risks.shape)
    np.testing.assert_allclose(Newton().search(line, 2, 0), [grid[a], grid[b]], atol=0.05)


@settings(max_examples=50)
@given(
    n_classes=st.integers(2, 5),
    n_views=st.integers(1, 3),
    seed=st.integers(0, 10_000),
    noise=st.floats(0.01, 5),
)
def test_newton_never_raises_the_risk_and_ends_flat_or_at_the_limit(n_classes, n_views, seed, noise):
    line = problem(n_classes, n_views, seed, noise=noise)
    rule = Newton()
    steps = rule.search(line, n_views, 0)
    risk, gradient, _ = line.expand(steps)
    assert risk <= line.risk(np.zeros(n_views))
    assert np.abs(gradient).max() < 1e-4 * risk or np.abs(steps).max() >= rule.limit - 1e-9


@pytest.mark.slow
def test_newton_is_no_worse_than_bayes_and_bayes_comes_close():
    line = problem(2, 2, seed=3)
    still, newton = line.risk(np.zeros(2)), line.risk(Newton().search(line, 2, 0))
    bayes = line.risk(Bayes(n_random=8, n_guided=8, bounds=(0, 5)).search(line, 2, seed=0))
    assert newton <= bayes + 1e-12
    assert bayes - newton < 0.1 * (still - newton)


def test_bayes_stands_still_rather_than_make_it_worse():
    rng = np.random.default_rng(0)
    loss = CodewordExponential.simplex(2)
    y = rng.integers(0, 2, 40)
    line = loss.line(np.zeros((40, 1)), y, [-loss.codewords[y]])
    rule = Bayes(n_random=4, n_guided=3, bounds=(0.5, 5))
    np.testing.assert_array_equal(rule.search(line, 1, seed=0), [0.0])


def test_bayes_depends_on_its_seed_alone():
    line = problem(3, 2, seed=5)
    rule = Bayes(n_random=4, n_guided=3)
    found, again, other = (rule.search(line, 2, seed=seed) for seed in (7, 7, 8))
    np.testing.assert_array_equal(found, again)
    assert not np.array_equal(found, other)


def test_newton_with_parallel_and_zero_directions():
    rng = np.random.default_rng(0)
    loss = CodewordExponential.simplex(2)
    y = rng.integers(0, 2, 50)
    d = loss.codewords[y] + rng.normal(size=(50, 1))
    alone = Newton().search(loss.line(np.zeros((50, 1)), y, [d]), 1, 0)
    twice = Newton().search(loss.line(np.zeros((50, 1)), y, [d, d]), 2, 0)
    np.testing.assert_allclose(twice.sum(), alone[0], rtol=1e-6)
    with_zero = Newton().search(loss.line(np.zeros((50, 1)), y, [d, np.zeros_like(d)]), 2, 0)
    np.testing.assert_allclose(with_zero, [alone[0], 0.0], rtol=1e-6, atol=1e-9)


def test_newton_is_exact_on_a_quadratic():
    rng = np.random.default_rng(0)
    f, y, d, e = (rng.normal(size=(30, 2)) for _ in range(4))
    line = Squared(2).line(f, y, [d, e])
    expected = np.linalg.lstsq(np.column_stack([d.ravel(), e.ravel()]), (y - f).ravel(), rcond=None)[0]
    np.testing.assert_allclose(Newton().search(line, 2, 0), expected, rtol=1e-9)


def test_fixed_and_names():
    np.testing.assert_array_equal(step_rule("fixed", value=0.1).search(None, 2, 0), [0.1, 0.1])
    assert step_rule("newton") == Newton()
    assert Fixed().value == 0.1
    refuses("unknown step rule 'golden'", step_rule, "golden")
    refuses("bounces", step_rule, "bayes", bounces=3)

"""The exponential loss on signs: the paper's formulas, the closed form against a numeric one, extremes."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from usboost.boosting.steps import ClosedForm, Newton, step_rule
from usboost.errors import UsboostError
from usboost.losses.exponential import Exponential


def problem(
    seed: int, n: int = 30, columns: int = 3, abstain: float = 0.0
) -> tuple[Exponential, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    f, y = rng.normal(size=(n, columns)), rng.choice([-1.0, 1.0], size=(n, columns))
    h = np.where(rng.random((n, columns)) < 0.7, y, -y)
    h[rng.random(n) < abstain] = 0.0
    return Exponential(columns), f, y, h


def test_risk_and_weights_are_the_papers() -> None:
    loss, f, y, _ = problem(0)
    j = sum(np.exp(-y[i, k] * f[i, k]) for i in range(30) for k in range(3))
    assert loss.risk(f, y) == pytest.approx(j / 30)
    assert loss.risk(0 * f, y) == 3
    np.testing.assert_allclose(loss.weights(f, y), np.exp(-y * f) / j)
    assert loss.weights(f, y).sum() == pytest.approx(1)


@given(seed=st.integers(0, 10_000), columns=st.integers(1, 4), abstain=st.sampled_from([0.0, 0.3]))
def test_alpha_is_the_numeric_minimum(seed: int, columns: int, abstain: float) -> None:
    loss, f, y, h = problem(seed, columns=columns, abstain=abstain)
    line = loss.line(f, y, [h])
    (alpha,) = ClosedForm().search(line, 1, 0)
    weights = loss.weights(f, y)
    right, wrong = weights[h == y].sum(), weights[h == -y].sum()
    assume(right and wrong)  # else there is no minimum
    assert alpha == pytest.approx(0.5 * np.log(right / wrong))
    numeric = minimize_scalar(lambda a: line.risk(np.array([a])), bracket=(-1, 1), tol=1e-12).x
    assert alpha == pytest.approx(numeric, abs=1e-6)
    assert Newton().search(line, 1, 0)[0] == pytest.approx(alpha, abs=1e-4)
    assert line.risk(np.array([alpha])) == pytest.approx(loss.risk(f + alpha * h, y))


def test_the_limits_of_alpha() -> None:
    loss, f, y, _ = problem(1)
    for h, expected in ((y, 2.5), (-y, 0.0), (0 * y, 0.0)):
        assert ClosedForm(0.0, 2.5).search(loss.line(f, y, [h]), 1, 0) == [expected]
    assert ClosedForm().search(loss.line(f, y, [y]), 1, 0) == [np.inf]
    assert step_rule("closed", highest=2.0) == ClosedForm(highest=2.0)


def test_extreme_scores_neither_over_nor_underflow() -> None:
    """All weights e^{−2000} or e^{2000}: only their ratios matter."""
    loss, _, y, _ = problem(2, columns=1)
    h = np.where(np.arange(30)[:, None] < 24, y, -y)
    for f in (2000.0 * y, -2000.0 * y):
        np.testing.assert_allclose(loss.weights(f, y), 1 / 30)
        (alpha,) = ClosedForm().search(loss.line(f, y, [h]), 1, 0)
        assert alpha == pytest.approx(0.5 * np.log(24 / 6))
    assert loss.line(2000.0 * y, y, [h]).risk(np.array([alpha])) == 0.0


def test_the_closed_form_needs_signs_of_one_learner() -> None:
    loss, f, y, h = problem(3)
    for directions in ([0.5 * h], [h, h]):
        with pytest.raises(UsboostError, match="one learner with outputs −1 and 1"):
            ClosedForm().search(loss.line(f, y, directions), len(directions), 0)


def test_probabilities() -> None:
    loss = Exponential(1)
    f = np.array([[-300.0], [-0.5], [0.0], [0.5], [300.0]])
    p = loss.probabilities(f)
    np.testing.assert_allclose(p[:, 1], 1 / (1 + np.exp(-2 * f[:, 0])))
    mirrored = Exponential(2).probabilities(np.column_stack([-f, f]))
    np.testing.assert_allclose(mirrored, p, atol=1e-15)
    far = Exponential(3).probabilities(np.array([[-900.0, -901.0, -950.0]]))
    assert np.isfinite(far).all()
    assert far.sum() == pytest.approx(1)
    assert far.argmax() == 0

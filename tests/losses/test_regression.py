"""Losses of regression against their formulas, finite differences, fine grids and linear programs."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from tests.conftest import refuses
from usboost.boosting.steps import ClosedForm, Newton
from usboost.losses.base import RegressionLoss
from usboost.losses.quantile import PiecewiseLinear
from usboost.losses.regression import REGRESSION_LOSSES, Huber, Squared, best_constant, regression_loss
from usboost.testing import check_loss


def pinball(alpha: float, r: float) -> float:
    return alpha * r if r >= 0 else (alpha - 1) * r


LOSSES: dict[str, tuple[RegressionLoss, object]] = {
    "squared": (Squared(1, zero_steps=True), lambda r: r * r),
    "absolute": (PiecewiseLinear.absolute(), abs),
    "huber": (Huber(0.8), lambda r: 0.5 * r * r if abs(r) <= 0.8 else 0.8 * (abs(r) - 0.4)),
    "quantile .1": (PiecewiseLinear.quantile(0.1), lambda r: pinball(0.1, r)),
    "quantile .9": (PiecewiseLinear.quantile(0.9), lambda r: pinball(0.9, r)),
}
of_each = pytest.mark.parametrize("name", LOSSES)


def column(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_t(3, size=(n, 1))


@of_each
def test_the_risk_is_the_mean_of_the_formula(name: str) -> None:
    loss, formula = LOSSES[name]
    y, f = column(50, 0), column(50, 1)
    assert loss.risk(f, y) == pytest.approx(np.mean([formula(r) for r in (y - f)[:, 0]]), rel=1e-12)
    moved = loss.line(f, y, [column(50, 2), column(50, 3)])
    at = f + 0.3 * column(50, 2) - 0.6 * column(50, 3)
    assert moved.risk(np.array([0.3, -0.6])) == pytest.approx(loss.risk(at, y), rel=1e-12)


@of_each
def test_pseudo_residuals_are_the_negative_gradient_but_for_a_factor(name: str) -> None:
    loss, formula = LOSSES[name]
    residual, h = column(40, 4), 1e-6
    slope = [(formula(r + h) - formula(r - h)) / (2 * h) for r in residual[:, 0]]
    factor = 2 if name == "squared" else 1
    np.testing.assert_allclose(factor * loss.pseudo_residual(residual)[:, 0], slope, atol=1e-5)


@pytest.mark.parametrize("loss", [Squared(1), Huber(0.5), Huber(3.0)])
def test_smooth_losses_and_their_lines_pass_the_checks(loss: RegressionLoss) -> None:
    check_loss(loss, column(60, 5))


@of_each
@pytest.mark.parametrize("seed", range(3))
def test_no_step_of_a_fine_grid_is_better(name: str, seed: int) -> None:
    loss, _ = LOSSES[name]
    d = [column(30, seed + 10), column(30, seed + 20)]
    y = 1.5 * d[0] - 0.5 * d[1] + column(30, seed + 30)
    for directions in (d[:1], d):
        line = loss.line(np.zeros_like(y), y, directions)
        steps = ClosedForm().search(line, len(directions), 0)
        ticks = np.linspace(-2, 3, 401 if len(directions) == 1 else 61)
        grid = np.stack(np.meshgrid(*[ticks] * len(directions)), axis=-1).reshape(-1, len(directions))
        assert line.risk(steps) <= min(line.risk(point) for point in grid) + 1e-9
        near = steps + 1e-3 * np.random.default_rng(0).normal(size=(200, len(directions)))
        assert line.risk(steps) <= min(line.risk(point) for point in near) + 1e-9


@settings(max_examples=40)
@given(
    alpha=st.sampled_from([0.05, 0.3, 0.5, 0.9]),
    n_steps=st.integers(1, 3),
    seed=st.integers(0, 10_000),
    ties=st.booleans(),
)
def test_the_quantile_step_is_the_linear_programs(alpha: float, n_steps: int, seed: int, ties: bool) -> None:
    rng, n = np.random.default_rng(seed), 40
    y, directions = rng.normal(size=(n, 1)), [rng.normal(size=(n, 1)) for _ in range(n_steps)]
    if ties:
        y, directions = np.round(2 * y), [np.round(d) for d in directions]
    line = PiecewiseLinear.quantile(alpha).line(np.zeros((n, 1)), y, directions)
    columns = np.concatenate(directions, axis=1)
    program = linprog(
        np.r_[np.zeros(n_steps), np.full(n, alpha), np.full(n, 1 - alpha)] / n,
        A_eq=np.c_[columns, np.eye(n), -np.eye(n)],
        b_eq=y[:, 0],
        bounds=[(None, None)] * n_steps + [(0, None)] * (2 * n),
    )
    assert line.risk(line.minimiser()) == pytest.approx(program.fun, abs=1e-8)


@of_each
def test_directions_that_are_zero_or_parallel_do_no_harm(name: str) -> None:
    loss, _ = LOSSES[name]
    y, d = column(30, 0), column(30, 1)
    alone = loss.line(0 * y, y, [d])
    lowest = alone.risk(alone.minimiser())
    for directions in ([d, 0 * d], [0 * d, d], [d, -2 * d]):
        line = loss.line(0 * y, y, directions)
        steps = line.minimiser()
        assert np.isfinite(steps).all() and line.risk(steps) == pytest.approx(lowest, abs=1e-8)
    assert loss.line(0 * y, y, [0 * d]).minimiser() == 0


@of_each
@settings(max_examples=20)
@given(seed=st.integers(0, 1000), ties=st.booleans())
@example(seed=467, ties=True)  # Newton's steps go to and fro between the ends of a bracket
def test_no_other_constant_of_a_group_is_better(name: str, seed: int, ties: bool) -> None:
    loss, formula = LOSSES[name]
    rng = np.random.default_rng(seed)
    residual, groups = rng.standard_t(2, size=30), rng.choice([0, 1, 3], 30)
    residual = np.round(residual) if ties else residual
    found = loss.constants(residual, groups, 5)
    assert found[2] == found[4] == 0
    for group in np.unique(groups):
        own = residual[groups == group]

        def lost(c: float, own: np.ndarray = own) -> float:
            return sum(formula(r - c) for r in own)

        grid = np.linspace(own.min(), own.max(), 301)
        assert lost(found[group]) <= min(map(lost, [*own, *grid])) + 1e-9
    assert best_constant(loss, residual) == loss.constants(residual, 0 * groups, 1)[0]


def test_quantiles_are_numpys_inverted_cdf() -> None:
    y = column(37, 0)[:, 0]
    for alpha in (0.02, 0.1, 0.5, 0.9, 0.99):
        expected = np.quantile(y, alpha, method="inverted_cdf")
        assert best_constant(PiecewiseLinear.quantile(alpha), y) == expected


def test_huber_is_between_the_squared_and_the_absolute_loss() -> None:
    y = column(200, 0)[:, 0]
    assert best_constant(Huber(1e6), y) == pytest.approx(y.mean(), abs=1e-9)
    assert best_constant(Huber(1e-6), y) == pytest.approx(np.median(y), abs=0.02)


def test_a_loss_without_curvature_has_no_newton_step() -> None:
    line = PiecewiseLinear.absolute().line(column(9, 0), column(9, 1), [column(9, 2)])
    refuses("use the step rule 'closed'", Newton().search, line, 1, 0)


def test_what_is_no_loss_is_refused() -> None:
    for name in REGRESSION_LOSSES:
        assert regression_loss(name).n_outputs == 1
    refuses(r"'logistic'.* squared, absolute", regression_loss, "logistic")
    for level in (0.0, 1.0, -1.0):
        refuses("quantile is a level between 0 and 1", regression_loss, "quantile", quantile=level)
    refuses("delta of the Huber loss is positive", regression_loss, "huber", delta=0.0)

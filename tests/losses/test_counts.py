"""Rows that count several times: a loss's risk, lines and constants are those of the rows repeated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from usboost.losses.cross_entropy import SoftmaxCrossEntropy
from usboost.losses.exponential import CodewordExponential, Exponential
from usboost.losses.quantile import PiecewiseLinear
from usboost.losses.regression import Huber, Squared

N = 40
LOSSES = {
    "codeword": CodewordExponential.unit(3),
    "two_classes": CodewordExponential.simplex(2),
    "cross_entropy": SoftmaxCrossEntropy(3),
    "signs": Exponential(2),
    "squared": Squared(2),
    "huber": Huber(0.7),
    "absolute": PiecewiseLinear.absolute(),
    "quantile": PiecewiseLinear.quantile(0.3),
}
REGRESSION = ("squared", "huber", "absolute", "quantile")


def labels(name: str, rng: np.random.Generator) -> np.ndarray:
    classes = rng.integers(0, 2 if name == "two_classes" else 3, N)
    if name == "cross_entropy":
        return np.eye(3)[classes]
    if name == "signs":
        return rng.choice([-1.0, 1.0], (N, 2))
    return classes if name in ("codeword", "two_classes") else rng.normal(size=(N, LOSSES[name].n_outputs))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("seed", range(3))
def test_a_count_of_two_is_two_rows(name: str, seed: int) -> None:
    rng, loss = np.random.default_rng(seed), LOSSES[name]
    counts, y = rng.integers(1, 5, N), labels(name, rng)
    f, *directions = rng.normal(size=(3, N, loss.n_outputs))
    rows = np.repeat(np.arange(N), counts)
    whole = loss.line(f[rows], y[rows], [each[rows] for each in directions])
    line: Any = loss.line(f, y, directions, counts.astype(float))
    assert loss.risk(f, y, counts.astype(float)) == pytest.approx(loss.risk(f[rows], y[rows]), rel=1e-12)
    for steps in rng.normal(size=(4, 2)):
        assert line.risk(steps) == pytest.approx(whole.risk(steps), rel=1e-12)
        if not isinstance(loss, PiecewiseLinear):
            for found, expected in zip(line.expand(steps), whole.expand(steps)):
                np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    if name in REGRESSION:
        # of a polygon's lowest points, and of what is moved against ties, only the risk is one
        lowest = whole.risk(whole.minimiser())  # type: ignore[attr-defined]
        assert whole.risk(line.minimiser()) == pytest.approx(lowest, rel=1e-8)


@pytest.mark.parametrize("name", LOSSES)
def test_only_the_ratios_of_weights_count(name: str) -> None:
    rng, loss = np.random.default_rng(0), LOSSES[name]
    weights, y = rng.uniform(0.1, 3, N), labels(name, rng)
    f, direction = rng.normal(size=(2, N, loss.n_outputs))
    one, other = (loss.line(f, y, [direction], scale * weights) for scale in (1.0, 1e-3))
    assert one.risk(np.array([0.3])) == pytest.approx(other.risk(np.array([0.3])))
    assert one.risk(np.zeros(1)) == pytest.approx(loss.risk(f, y, weights))


@pytest.mark.parametrize("name", REGRESSION)
@pytest.mark.parametrize("seed", range(5))
def test_constants_are_those_of_the_rows_repeated(name: str, seed: int) -> None:
    rng, loss = np.random.default_rng(seed), LOSSES[name]
    counts, residual = rng.integers(1, 4, N), rng.normal(size=N).round(1)  # with ties
    groups, rows = rng.choice([0, 1, 3], N), np.repeat(np.arange(N), counts)
    found = loss.constants(residual, groups, 5, counts.astype(float))  # type: ignore[union-attr]
    expected = loss.constants(residual[rows], groups[rows], 5)  # type: ignore[union-attr]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_weighted_constants_are_the_lowest() -> None:
    rng = np.random.default_rng(3)
    residual, weights = rng.normal(size=25), rng.uniform(0.05, 2, 25)
    grid, group = np.linspace(-3, 3, 4001), np.zeros(25, dtype=int)
    for name in REGRESSION:
        loss: Any = LOSSES["squared" if name == "squared" else name]
        of = np.square if name == "squared" else loss.of
        (best,) = loss.constants(residual, group, 1, weights)
        risks = [weights @ of(residual - each) for each in (best, *grid)]
        assert risks[0] <= min(risks) * (1 + 1e-12)

"""Rows that count several times, in trees, ridge regressions and networks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from usboost import NetworkLearner, RidgeLearner, Table, TreeLearner
from usboost.learners.base import LeafValues, Target
from usboost.learners.estimators import RegressorLearner
from usboost.learners.histogram import numeric_bins
from usboost.learners.spectrum import GRID, Spectrum
from usboost.learners.tree_grower import HistogramGrower, Limits
from usboost.losses.quantile import PiecewiseLinear

N = 150


def problem(seed: int, d: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A matrix whose last column is of categories, targets, counts, and the rows repeated."""
    rng = np.random.default_rng(seed)
    matrix = np.asfortranarray(rng.normal(size=(N, 4)).astype(np.float32))
    matrix[:, 1] = matrix[:, 1].round(1)
    matrix[:, 3] = rng.integers(0, 6, N)
    values = rng.normal(size=(N, d)) + matrix[:, :1] * matrix[:, 1:2] + (matrix[:, 3:] == 2)
    counts = rng.integers(1, 5, N)
    return matrix, values, counts, np.repeat(np.arange(N), counts)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("given", ["nothing", "weights", "metric"])
@pytest.mark.parametrize("max_leaves", [None, 5])
def test_histogram_tree(seed: int, given: str, max_leaves: int | None) -> None:
    d = 2 if given == "metric" else 1
    matrix, values, counts, rows = problem(seed, d)
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0, 2, N) * (rng.random(N) > 0.2) if given == "weights" else None
    roots = rng.normal(size=(N, d, d))
    metric = roots @ roots.swapaxes(1, 2) if given == "metric" else None
    limits = Limits(3, max_leaves, 17, category_l2=2.0)
    whole = HistogramGrower(np.asfortranarray(matrix[rows]), (3,), limits, 20).grow(
        values[rows], *(None if each is None else each[rows] for each in (weights, metric))
    )
    counted = HistogramGrower(matrix, (3,), limits, 20, counts=counts.astype(float))
    found = counted.grow(values, counts if weights is None else counts * weights, metric)
    assert len(found.value) > 3
    for name, array in whole.arrays().items():
        np.testing.assert_allclose(getattr(found, name), array, rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("seed", range(3))
def test_fractions_of_rows_grow_the_same_tree_at_another_scale(seed: int) -> None:
    """Weights of 1/8 to 1/2 with 2 rows a leaf: as whole rows with 16."""
    matrix, values, counts, _ = problem(seed)
    trees = [
        HistogramGrower(matrix, (3,), Limits(4, None, least), 20, counts=scale * counts).grow(values)
        for scale, least in ((1.0, 16), (1 / 8, 2))
    ]
    for name in ("feature", "threshold", "left", "right", "categories"):
        np.testing.assert_array_equal(*(getattr(tree, name) for tree in trees))
    np.testing.assert_allclose(*(tree.value for tree in trees), rtol=1e-9)


def test_bins() -> None:
    rng = np.random.default_rng(0)
    column, counts = np.round(rng.normal(size=500), 2), rng.integers(1, 40, 500)
    whole = numeric_bins(np.repeat(column, counts), 16)
    np.testing.assert_array_equal(numeric_bins(column, 16, counts.astype(float)), whole)


def test_leaves_hold_counted_medians() -> None:
    matrix, values, counts, rows = problem(1)
    table, learner = Table.from_numeric(matrix[:, :3]), TreeLearner(engine="histogram", min_samples_leaf=9)
    best = PiecewiseLinear.absolute().constants

    def fitted(at: np.ndarray, counts: np.ndarray | None) -> np.ndarray:
        target = Target(np.sign(values[at]), leaf_values=LeafValues(values[at, 0], best), counts=counts)
        prepared = learner.prepare(table[at])
        return learner.trainer(prepared, 1).fit(target, seed=0).predict(learner.prepare(table))

    np.testing.assert_allclose(fitted(np.arange(N), counts.astype(float)), fitted(rows, None))


@pytest.mark.parametrize("shape", [(30, 5), (20, 40)])
@pytest.mark.parametrize("weighted", [False, True])
def test_ridge_leaves_out_all_that_a_row_stands_for(shape: tuple[int, int], weighted: bool) -> None:
    """Were one of two equal rows left out, the other would tell it, and no penalty would seem needed."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=shape).astype(np.float32), rng.normal(size=(shape[0], 2))
    counts, w = rng.integers(1, 4, shape[0]), rng.uniform(0.5, 2, shape[0]) if weighted else None
    rows = np.repeat(np.arange(shape[0]), counts)
    found, whole = Spectrum(x, w, counts.astype(float)), Spectrum(x[rows], None if w is None else w[rows])
    assert found.scale == pytest.approx(whole.scale)
    errors = []
    for alpha in GRID[::4] * whole.scale:
        one, other = found.solve(y, np.array([alpha])), whole.solve(y[rows], np.array([alpha]))
        for name in ("coefficients", "intercept"):
            np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=1e-9)
        if np.isinf(alpha):
            continue
        weights = np.ones(len(rows)) if w is None else w[rows] / w[rows].mean()
        left_out = np.empty_like(y)
        for i in range(shape[0]):
            rest = rows != i
            # in the units of the whole, where weights have the mean 1
            own = alpha / (1.0 if w is None else weights[rest].mean())
            again = Spectrum(x[rows[rest]], weights[rest]).solve(y[rows[rest]], np.array([own]))
            left_out[i] = x[i] @ again.coefficients + again.intercept
        np.testing.assert_allclose(one.left_out, left_out, atol=1e-5)
        errors.append((np.sum(weights[:, None] * np.square(y - left_out)[rows]), alpha))
    assert found.solve(y, np.array([alpha for _, alpha in errors])).alpha == min(errors)[1]


def test_ridge_leaves_out_a_row_of_half_as_a_whole() -> None:
    rng = np.random.default_rng(1)
    x, y, counts = rng.normal(size=(12, 3)).astype(np.float32), rng.normal(size=(12, 1)), np.full(12, 0.5)
    left_out = Spectrum(x, None, counts).solve(y, np.array([0.7])).left_out
    for i in range(12):
        rest = np.delete(np.arange(12), i)
        again = Spectrum(x[rest], None, counts[rest]).solve(y[rest], np.array([0.7]))
        assert left_out[i] == pytest.approx(x[i] @ again.coefficients + again.intercept, abs=1e-6)


LEARNERS = [
    RidgeLearner(alpha=2.0),
    RegressorLearner(Ridge(2.0)),
    NetworkLearner((5,), "sgd", 0.1, 10_000, 2),
]


@pytest.mark.parametrize("given", ["nothing", "weights", "metric"])
@pytest.mark.parametrize("learner", LEARNERS)
def test_learners(learner: Any, given: str) -> None:
    """A network's gradient over all rows is exactly that of the rows repeated."""
    if given == "metric" and not isinstance(learner, NetworkLearner):
        pytest.skip("it takes no metric")
    d = 2 if given == "metric" else 1
    matrix, values, counts, rows = problem(3, d)
    table, rng = Table.from_numeric(matrix[:, :3]), np.random.default_rng(0)
    weights = rng.uniform(0.2, 2, N) if given == "weights" else None
    roots = rng.normal(size=(N, d, d))
    metric = roots @ roots.swapaxes(1, 2) if given == "metric" else None
    target = Target(values, weights, metric=metric)
    found = []
    for at, counted in ((np.arange(N), counts.astype(float)), (rows, None)):
        own = Target(**{**vars(target.of(at)), "counts": counted})
        trainer = learner.trainer(learner.prepare(table[at]), d)
        found.append(trainer.fit(own, seed=0, start=None).predict(learner.prepare(table)))
    np.testing.assert_allclose(*found, atol=2e-4 if given == "metric" else 2e-6)
    plain = learner.trainer(learner.prepare(table), d).fit(target, seed=0, start=None)
    assert np.abs(plain.predict(learner.prepare(table)) - found[0]).max() > 1e-3

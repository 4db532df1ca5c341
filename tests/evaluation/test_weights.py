"""Weighted scores are those of rows repeated."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from usboost.evaluation import statistics
from usboost.evaluation.intervals import intervals, regression_intervals
from usboost.evaluation.metrics import auc, best_threshold, score, score_regression


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_scores(n_classes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    y, counts = rng.integers(0, n_classes, 40), rng.integers(1, 4, 40)
    p = rng.dirichlet(np.ones(n_classes), 40).round(1) + 0.01
    p /= p.sum(axis=1, keepdims=True)
    rows, weights = np.repeat(np.arange(40), counts), counts.astype(float)
    assert score(y, p, weights) == pytest.approx(score(y[rows], p[rows]))
    z, predicted = rng.normal(size=(2, 40))
    expected = score_regression(z[rows], predicted[rows])
    assert score_regression(z, predicted, weights) == pytest.approx(expected)
    if n_classes == 2:
        assert best_threshold(y, p[:, 1], weights) == best_threshold(y[rows], p[rows, 1])
        uneven = rng.uniform(0.1, 2, 40)
        expected = roc_auc_score(y, p[:, 1], sample_weight=uneven)
        assert auc(y == 1, p[:, 1], uneven) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(3))
def test_moments_and_quantiles(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, counts = rng.normal(size=31), rng.integers(1, 5, 31)
    whole, weights = np.repeat(values, counts), counts.astype(float)
    assert statistics.mean(values, weights) == pytest.approx(whole.mean())
    assert statistics.deviation(values, weights) == pytest.approx(whole.std())
    assert statistics.median(values, weights) == pytest.approx(np.median(whole))
    for level in (0.0, 0.1, 0.37, 0.9, 1.0):
        assert statistics.quantile(values, level, weights) == pytest.approx(np.quantile(whole, level))
    for equal in (np.full(31, 1e-4), np.full(31, 1.0)):
        assert statistics.quantile(values, 0.37, equal) == pytest.approx(np.quantile(values, 0.37))
        assert statistics.effective_sample_size(equal) == pytest.approx(31)
    mean, variance = statistics.column_moments(values[:, None], weights)
    np.testing.assert_allclose([mean[0], variance[0]], [whole.mean(), whole.var()])
    error = statistics.error_of_mean(values, weights)
    assert error == pytest.approx(statistics.error_of_mean(values, 1e3 * weights))
    plain = statistics.error_of_mean(values, np.ones(31))
    assert plain == pytest.approx(statistics.error_of_mean(values), rel=0.03)


def test_intervals_draw_rows_with_their_weights() -> None:
    rng = np.random.default_rng(0)
    y, weights = rng.integers(0, 2, 60), rng.uniform(0.1, 3, 60)
    p = rng.dirichlet([1, 1], 60)
    found = intervals(y, p, weights, draws=50)
    assert found["accuracy"][0] == pytest.approx(np.average(p.argmax(axis=1) == y, weights=weights))
    assert found["accuracy"][1] < found["accuracy"][0] < found["accuracy"][2]
    z, predicted = rng.normal(size=(2, 60))
    low, high = regression_intervals(z, predicted, weights, draws=50)["mae"][1:]
    assert low < np.average(np.abs(z - predicted), weights=weights) < high

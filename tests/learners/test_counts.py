"""Rows that count several times, as rows repeated: in trees, ridge regressions, networks, losses, scores."""

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.metrics import roc_auc_score

from usboost import NetworkLearner, RidgeLearner, Table, TreeLearner
from usboost.evaluation import statistics
from usboost.evaluation.intervals import intervals
from usboost.evaluation.metrics import auc, best_threshold, score, score_regression
from usboost.learners.base import LeafValues, Target
from usboost.learners.estimators import RegressorLearner
from usboost.learners.histogram import numeric_bins
from usboost.learners.spectrum import GRID, Spectrum
from usboost.learners.tree_grower import HistogramGrower, Limits
from usboost.losses.cross_entropy import SoftmaxCrossEntropy
from usboost.losses.exponential import CodewordExponential, Exponential
from usboost.losses.quantile import PiecewiseLinear
from usboost.losses.regression import Huber, Squared

N = 150


def problem(seed: int, given: str) -> tuple[np.ndarray, Target, np.ndarray, np.ndarray]:
    """A matrix whose last column is of categories, a target, counts, and the rows repeated."""
    rng, d = np.random.default_rng(seed), 2 if given in ("metric", "diagonal") else 1
    matrix = np.asfortranarray(rng.normal(size=(N, 4)).astype(np.float32))
    matrix[:, 1] = matrix[:, 1].round(1)
    matrix[:, 3] = rng.integers(0, 6, N)
    values = rng.normal(size=(N, d)) + matrix[:, :1] * matrix[:, 1:2] + (matrix[:, 3:] == 2)
    counts, roots = rng.integers(1, 5, N), rng.normal(size=(N, d, d))
    more: dict[str, Any] = {
        "nothing": {},
        "weights": {"weights": rng.uniform(0.2, 2, N)},
        "metric": {"metric": roots @ roots.swapaxes(1, 2)},
        "diagonal": {"metric": rng.uniform(0.2, 2, (N, d))},
        "leaves": {"leaf_values": LeafValues(values[:, 0], PiecewiseLinear.absolute().constants)},
    }[given]
    target = Target(np.sign(values) if given == "leaves" else values, **more)
    return matrix, target, counts, np.repeat(np.arange(N), counts)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("given", ["nothing", "weights", "metric"])
@pytest.mark.parametrize("max_leaves", [None, 5])
def test_histogram_tree(seed: int, given: str, max_leaves: int | None) -> None:
    matrix, target, counts, rows = problem(seed, given)
    weights, limits = target.weights, Limits(3, max_leaves, 17, category_l2=2.0)
    if weights is not None:
        weights = weights * (np.random.default_rng(seed).random(N) > 0.2)
    whole = HistogramGrower(np.asfortranarray(matrix[rows]), (3,), limits, 20).grow(
        target.values[rows], *(None if each is None else each[rows] for each in (weights, target.metric))
    )
    counted = HistogramGrower(matrix, (3,), limits, 20, counts=counts.astype(float))
    found = counted.grow(target.values, counts if weights is None else counts * weights, target.metric)
    assert len(found.value) > 3
    for name, array in whole.arrays().items():
        np.testing.assert_allclose(getattr(found, name), array, rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("seed", range(3))
def test_fractions_of_rows_grow_the_same_tree_at_another_scale(seed: int) -> None:
    """Weights of 1/8 to 1/2 with 2 rows a leaf: as whole rows with 16."""
    matrix, target, counts, _ = problem(seed, "nothing")
    trees = [
        HistogramGrower(matrix, (3,), Limits(4, None, least), 20, counts=scale * counts).grow(target.values)
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


NETWORK = NetworkLearner((5,), "sgd", 0.1, 10_000, 2)
RIDGES = [RidgeLearner(2.0), RegressorLearner(Ridge(2.0))]
LEARNERS = [(each, given) for each in (*RIDGES, NETWORK) for given in ("nothing", "weights")]
LEARNERS += [(NETWORK, "metric"), (NETWORK, "diagonal"), (TreeLearner(min_samples_leaf=9), "diagonal")]
LEARNERS += [(TreeLearner(engine="histogram", min_samples_leaf=9), "leaves")]


@pytest.mark.parametrize(("learner", "given"), LEARNERS)
def test_learners(learner: Any, given: str) -> None:
    """A network's gradient over all rows is that of the rows repeated; leaves hold counted medians."""
    matrix, target, counts, rows = problem(3, given)
    table, found = Table.from_numeric(matrix[:, :3]), []
    for at, counted in ((np.arange(N), counts.astype(float)), (rows, None), (np.arange(N), None)):
        own = Target(**{**vars(target.of(at)), "counts": counted})
        trainer = learner.trainer(learner.prepare(table[at]), target.values.shape[1])
        found.append(trainer.fit(own, seed=0, start=None).predict(learner.prepare(table)))
    np.testing.assert_allclose(*found[:2], atol=2e-4 if given in ("metric", "diagonal") else 2e-6)
    assert np.abs(found[2] - found[0]).max() > 1e-3


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


LOSSES: dict[str, Any] = {
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
    classes = rng.integers(0, 2 if name == "two_classes" else 3, 40)
    if name == "cross_entropy":
        return np.eye(3)[classes]
    if name == "signs":
        return rng.choice([-1.0, 1.0], (40, 2))
    return classes if name in ("codeword", "two_classes") else rng.normal(size=(40, LOSSES[name].n_outputs))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scale", [1.0, 2.0**-10])
def test_losses(name: str, seed: int, scale: float) -> None:
    rng, loss = np.random.default_rng(seed), LOSSES[name]
    counts, y = rng.integers(1, 5, 40), labels(name, rng)
    f, *directions = rng.normal(size=(3, 40, loss.n_outputs))
    rows, weights = np.repeat(np.arange(40), counts), scale * counts
    whole = loss.line(f[rows], y[rows], [each[rows] for each in directions])
    line = loss.line(f, y, directions, weights)
    assert loss.risk(f, y, weights) == pytest.approx(loss.risk(f[rows], y[rows]), rel=1e-12)
    for steps in rng.normal(size=(4, 2)):
        assert line.risk(steps) == pytest.approx(whole.risk(steps), rel=1e-12)
        if not isinstance(loss, PiecewiseLinear):
            for found, expected in zip(line.expand(steps), whole.expand(steps)):
                np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    if name in REGRESSION:
        # of a polygon's lowest points, and of what is moved against ties, only the risk is one
        assert whole.risk(line.minimiser()) == pytest.approx(whole.risk(whole.minimiser()), rel=1e-8)
        residual, groups = rng.normal(size=40).round(1), rng.choice([0, 1, 3], 40)  # with ties
        found = loss.constants(residual, groups, 5, weights)
        np.testing.assert_allclose(found, loss.constants(residual[rows], groups[rows], 5), atol=1e-12)


@pytest.mark.parametrize("name", REGRESSION)
def test_weighted_constants_are_the_lowest(name: str) -> None:
    rng, loss = np.random.default_rng(3), LOSSES[name]
    residual, weights = rng.normal(size=25), rng.uniform(0.05, 2, 25)
    of = np.square if name == "squared" else loss.of
    (best,) = loss.constants(residual, np.zeros(25, dtype=int), 1, weights)
    risks = [weights @ of(residual - each) for each in (best, *np.linspace(-3, 3, 4001))]
    assert risks[0] <= min(risks) * (1 + 1e-12)


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
    assert statistics.median(values, weights) == pytest.approx(np.median(whole))
    for level in (0.0, 0.1, 0.37, 0.9, 1.0):
        assert statistics.quantile(values, level, weights) == pytest.approx(np.quantile(whole, level))
    for equal in (np.full(31, 1e-4), np.full(31, 1.0)):
        assert statistics.quantile(values, 0.37, equal) == pytest.approx(np.quantile(values, 0.37))
        assert statistics.effective_sample_size(equal) == pytest.approx(31)
    mean, variance = statistics.column_moments(values[:, None], weights)
    moments = mean[0], variance[0], statistics.deviation(values, weights)
    np.testing.assert_allclose(moments, [whole.mean(), whole.var(), whole.std()])
    assert statistics.column_moments(np.full((31, 1), 0.1 * seed + 0.7), weights)[1] == 0
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
    low, high = intervals(z, predicted, weights, draws=50)["mae"][1:]
    assert low < np.average(np.abs(z - predicted), weights=weights) < high

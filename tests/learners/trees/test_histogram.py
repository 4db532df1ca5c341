"""The tree for all outputs: against scikit-learn, against brute force, and under rotations."""

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import ortho_group
from sklearn.tree import DecisionTreeRegressor

from usboost.learners.histogram import Moments, numeric_bins
from usboost.learners.tree import Tree
from usboost.learners.tree_grower import HistogramGrower, Limits

N_OUTPUTS = [1, 2, 3, 6]


def table(n, seed, n_numeric=4, categories=(3, 9, 40)):
    """A float32 matrix of few-valued numbers and of category codes; the positions of the latter."""
    rng = np.random.default_rng(seed)
    numbers = rng.integers(-6, 7, (n, n_numeric)) / 4
    codes = [rng.integers(0, k, n) for k in categories]
    matrix = np.asfortranarray(np.column_stack([numbers, *codes]), dtype=np.float32)
    return matrix, tuple(range(n_numeric, n_numeric + len(categories)))


def targets(matrix, d, seed):
    """Values (n, D) that depend on every column, weights (n,), and metrics (n, D, D)."""
    rng = np.random.default_rng(seed)
    n = len(matrix)
    effects = [rng.normal(size=(int(column.max() - column.min()) * 4 + 1, d)) for column in matrix.T]
    values = rng.normal(size=(n, d))
    for column, effect in zip(matrix.T, effects):
        values += effect[((column - column.min()) * 4).astype(int)] / 2
    factors = rng.normal(size=(n, d, d))
    return values, rng.uniform(0.1, 2.0, n), factors @ factors.swapaxes(1, 2) / d


KINDS = [False, True, "diagonal"]


def given_as(kind, weights, metric):
    """What a grower is given of a metric of that kind, and the metric in full."""
    if kind == "diagonal":
        diagonal = np.einsum("nii->ni", metric)
        return (weights[:, None] * diagonal,), diagonal[:, :, None] * np.eye(metric.shape[1])
    if kind:
        return (weights, metric), metric
    return (weights,), np.broadcast_to(np.eye(len(metric[0])), metric.shape)


def leaves_of(tree, matrix):
    """The rows of every leaf."""
    numbers = tree.leaves(matrix)
    return [np.flatnonzero(numbers == leaf) for leaf in range(len(tree.value))]


def score(values, weights, metric, rows, penalty=0.0):
    """Gᵀ H⁻¹ G over some rows, with H of so many average rows added to H."""
    scaled = metric * weights[:, None, None]
    h = scaled[rows].sum(axis=0) + penalty * scaled.mean(axis=0)
    g = np.einsum("nij,nj->i", scaled[rows], values[rows])
    return float(g @ np.linalg.solve(h, g))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("limits", [{"max_depth": 3}, {"max_depth": 6}, {"max_depth": 12, "max_leaves": 31}])
@pytest.mark.parametrize("d", N_OUTPUTS)
def test_numeric_splits_are_scikit_learns(d, limits, weighted):
    matrix, _ = table(1500, 1, n_numeric=6, categories=())
    values, weights, _ = targets(matrix, d, 2)
    weights = np.where(np.arange(1500) % 7 == 0, 0.0, weights) if weighted else None
    grown = HistogramGrower(matrix, (), Limits(min_samples_leaf=5, **limits)).grow(values, weights)
    exact = DecisionTreeRegressor(
        max_depth=limits["max_depth"], max_leaf_nodes=limits.get("max_leaves"), min_samples_leaf=5
    ).fit(matrix, values, sample_weight=weights)
    expected = Tree.from_sklearn(exact.tree_)
    assert len(grown.value) == len(expected.value) > 6
    splits = [sorted(zip(tree.feature, tree.threshold, tree.gain)) for tree in (grown, expected)]
    np.testing.assert_allclose(splits[0], splits[1], rtol=1e-6)
    np.testing.assert_allclose(grown.predict(matrix), expected.predict(matrix), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("columns", [[2], [0, 3]])
def test_drawn_columns_give_the_tree_of_these_columns_alone(columns):
    matrix, _ = table(700, 1, categories=())
    values, weights, _ = targets(matrix, 3, 2)
    limits = Limits(max_depth=4, min_samples_leaf=5)
    drawn = HistogramGrower(matrix, (), limits).grow(values, weights, None, np.array(columns))
    exact = DecisionTreeRegressor(max_depth=4, min_samples_leaf=5)
    exact.fit(matrix[:, columns], values, sample_weight=weights)
    np.testing.assert_allclose(drawn.predict(matrix), exact.predict(matrix[:, columns]), rtol=1e-5)


@pytest.mark.parametrize("d", N_OUTPUTS)
def test_leaf_values_and_gains_in_a_metric_of_its_own_for_every_row(d):
    matrix, categorical = table(900, 3)
    values, weights, metric = targets(matrix, d, 4)
    limits = Limits(max_depth=4, min_samples_leaf=10, category_l2=0.0)
    tree = HistogramGrower(matrix, categorical, limits).grow(values, weights, metric)
    scaled = metric * weights[:, None, None]
    total = -score(values, weights, metric, np.arange(900))
    for rows, value in zip(leaves_of(tree, matrix), tree.value):
        assert len(rows) >= 10
        wanted = np.linalg.solve(scaled[rows].sum(axis=0), np.einsum("nij,nj->i", scaled[rows], values[rows]))
        np.testing.assert_allclose(value, wanted, rtol=1e-6, atol=1e-9)
        total += score(values, weights, metric, rows)
    np.testing.assert_allclose(tree.gain.sum(), total, rtol=1e-8)
    error = values - tree.predict(matrix)
    first = values - np.linalg.solve(scaled.sum(axis=0), np.einsum("nij,nj->i", scaled, values))
    lowered = [np.einsum("ni,nij,nj->", e, scaled, e) for e in (first, error)]
    np.testing.assert_allclose(lowered[0] - lowered[1], tree.gain.sum(), rtol=1e-6)


def test_leaf_values_and_gains_are_those_of_a_leaf_with_l2_more():
    matrix, categorical = table(900, 3)
    values, _, metric = targets(matrix, 3, 4)
    diagonal = np.einsum("nii->ni", metric)
    tree = HistogramGrower(matrix, categorical, Limits(4, None, 10, l2=50.0)).grow(values, diagonal)
    leaves = [np.arange(900), *leaves_of(tree, matrix)]
    g, h = np.stack([[(diagonal * values)[rows].sum(0), diagonal[rows].sum(0) + 50] for rows in leaves], 1)
    np.testing.assert_allclose(tree.value, (g / h)[1:], rtol=1e-6)
    parts = (g**2 / h).sum(axis=1)
    np.testing.assert_allclose(tree.gain.sum(), parts[1:].sum() - parts[0], rtol=1e-8)
    moments = Moments.of(values, diagonal, None)
    below = -moments.total[:, None]  # as rounding may leave them
    assert all(np.isfinite(each).all() for each in moments.residuals(below[:, :, None], below))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", N_OUTPUTS)
def test_the_best_numeric_split_is_found(d, kind):
    matrix, _ = table(300, 5, categories=())
    values, weights, metric = targets(matrix, d, 6)
    given, metric = given_as(kind, weights, metric)
    tree = HistogramGrower(matrix, (), Limits(max_depth=1, min_samples_leaf=4)).grow(values, *given)
    gains = {}
    for j, column in enumerate(matrix.T):
        for cut in np.unique(column)[:-1]:
            sides = np.flatnonzero(column <= cut), np.flatnonzero(column > cut)
            if min(map(len, sides)) >= 4:
                gains[j, cut] = sum(score(values, weights, metric, rows) for rows in sides)
    column, cut = max(gains, key=gains.get)
    assert (tree.feature[0], tree.threshold[0]) == (column, cut + 0.125)
    root = score(values, weights, metric, np.arange(300))
    np.testing.assert_allclose(tree.gain[0], gains[column, cut] - root, rtol=1e-9)


def best_of_all_subsets(codes, values, weights, metric, penalty):
    k, root = int(codes.max()) + 1, score(values, weights, metric, np.arange(len(codes)))
    best = -np.inf
    for size in range(1, k // 2 + 1):
        for chosen in combinations(range(k), size):
            left = np.isin(codes, chosen)
            parts = [score(values, weights, metric, np.flatnonzero(s), penalty) for s in (left, ~left)]
            best = max(best, sum(parts) - root)
    return best


@pytest.mark.parametrize("penalty", [0.0, 5.0])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", N_OUTPUTS)
def test_splits_by_category_against_all_subsets(d, kind, penalty):
    """The best one for one output; for several nearly always nearly the best, and never better than it."""
    shares = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        codes = rng.integers(0, 7, 140)
        weights = rng.uniform(0.2, 2, 140)
        values = rng.normal(size=(140, d)) + rng.normal(size=(7, d))[codes]
        factors = rng.normal(size=(140, d, d)) + 2 * np.eye(d)
        given, metric = given_as(kind, weights, factors @ factors.swapaxes(1, 2))
        best = best_of_all_subsets(codes, values, weights, metric, penalty)
        limits = Limits(max_depth=1, min_samples_leaf=1, category_l2=penalty)
        matrix = codes[:, None].astype(np.float32)
        tree = HistogramGrower(matrix, (0,), limits).grow(values, *given)
        left = np.isin(codes, tree.categories)
        parts = [score(values, weights, metric, np.flatnonzero(s), penalty) for s in (left, ~left)]
        gain = sum(parts) - score(values, weights, metric, np.arange(140))
        np.testing.assert_allclose(tree.gain[0], gain, rtol=1e-8)
        shares.append(gain / best)
    assert max(shares) <= 1 + 1e-9
    if d == 1 and penalty == 0:
        np.testing.assert_allclose(shares, 1, rtol=1e-9)
    assert np.mean(shares) > 0.9 and min(shares) > 0.6, shares


@pytest.mark.parametrize("limits", [{"max_depth": 5}, {"max_depth": 9, "max_leaves": 14}])
@pytest.mark.parametrize("category_l2", [0.0, 30.0])
@pytest.mark.parametrize("with_metric", [False, True])
@pytest.mark.parametrize("d", [1, 2, 6])
def test_a_rotation_of_the_outputs_rotates_the_tree(d, with_metric, category_l2, limits):
    matrix, categorical = table(2000, 7)
    values, weights, metric = targets(matrix, d, 8)
    one = HistogramGrower(matrix, categorical, Limits(min_samples_leaf=5, category_l2=category_l2, **limits))
    plain = one.grow(values, weights, metric if with_metric else None)
    assert len(plain.categories) and len(plain.value) > 9
    for seed in range(5):
        turn = ortho_group.rvs(d, random_state=seed) if d > 1 else -np.eye(1)
        turned = one.grow(values @ turn.T, weights, turn @ metric @ turn.T if with_metric else None)
        assert_same_splits(turned, plain)
        np.testing.assert_allclose(turned.value, plain.value @ turn.T, rtol=1e-8, atol=1e-9)


def assert_same_splits(tree, other):
    for name in ("feature", "threshold", "left", "right", "categories", "category_start"):
        np.testing.assert_array_equal(getattr(tree, name), getattr(other, name), err_msg=name)


def test_ties_are_broken_the_same_way_in_every_rotation():
    """Categories at the corners of a simplex, columns twice: every choice is a tie."""
    codes = np.repeat(np.arange(4), 50)
    numbers = np.tile(np.arange(10), 20)
    columns = [numbers, numbers, -numbers, codes, codes, (codes + 1) % 4]
    matrix = np.asfortranarray(np.column_stack(columns), dtype=np.float32)
    corners = np.linalg.qr(np.eye(4) - 0.25)[0][:, :3]
    corners = (np.eye(4) - 0.25) @ corners
    values = corners[codes] + 0.1 * ((numbers == 3)[:, None] - 0.1) * np.array([1.0, -1, 0.5])
    grower = HistogramGrower(matrix, (3, 4, 5), Limits(max_depth=4, min_samples_leaf=1))
    plain = grower.grow(values)
    assert set(plain.feature) <= {0, 3}  # of equal columns the first
    for seed in range(20):
        turn = ortho_group.rvs(3, random_state=seed)
        turned = grower.grow(values @ turn.T)
        assert_same_splits(turned, plain)
        np.testing.assert_allclose(turned.value, plain.value @ turn.T, atol=1e-9)


def test_the_same_bits_every_time_and_with_any_number_of_threads():
    matrix, categorical = table(60_000, 9)
    values, weights, metric = targets(matrix, 2, 10)
    for given in (None, metric):
        grown = [
            HistogramGrower(matrix, categorical, Limits(max_depth=5), num_threads=threads).grow(
                values, weights, given
            )
            for threads in (1, 1, 3)
        ]
        for other in grown[1:]:
            for name, array in grown[0].arrays().items():
                np.testing.assert_array_equal(array, other.arrays()[name])


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_weight_zero_are_not_there(kind):
    matrix, categorical = table(1200, 11)
    values, weights, metric = targets(matrix, 3, 12)
    out = np.random.default_rng(13).random(1200) < 0.4
    limits = Limits(max_depth=6, min_samples_leaf=15, category_l2=10)
    grower = HistogramGrower(matrix, categorical, limits)
    wild = np.where(out[:, None], 1e9, values)
    whole, seen = grower.grow(wild, *given_as(kind, np.where(out, 0.0, weights), metric)[0]), ~out
    part = HistogramGrower(np.asfortranarray(matrix[seen]), categorical, limits)
    kept = part.grow(values[seen], *given_as(kind, weights[seen], metric[seen])[0])
    assert_same_splits(whole, kept)
    np.testing.assert_allclose(whole.value, kept.value, rtol=1e-9, atol=1e-12)
    assert min(len(rows) for rows in leaves_of(whole, matrix[seen])) >= 15


def test_category_l2_draws_leaves_to_zero_as_so_many_average_rows():
    codes = np.repeat([0, 1, 2], [40, 40, 20]).astype(np.float32)
    values = np.repeat([[1.0, 2.0], [1.0, 2.0], [-3.0, 0.5]], [40, 40, 20], axis=0)
    weights = np.repeat([1.0, 3.0], [60, 40])
    tree = HistogramGrower(codes[:, None], (0,), Limits(max_depth=1, category_l2=10)).grow(values, weights)
    left = leaves_of(tree, codes[:, None])[0]
    expected = (weights[left, None] * values[left]).sum(axis=0) / (weights[left].sum() + 10 * weights.mean())
    np.testing.assert_allclose(tree.value[0], expected, rtol=1e-9)
    assert tree.categories.tolist() == [2]
    unseen = np.full((1, 1), 9, dtype=np.float32)
    np.testing.assert_array_equal(tree.predict(unseen), tree.predict(codes[:1, None]))


def test_limits():
    matrix, categorical = table(500, 14)
    values, _, _ = targets(matrix, 2, 15)
    for depth, leaves in ((0, None), (1, None), (3, 5), (8, 1), (8, 6)):
        limits = Limits(max_depth=depth, max_leaves=leaves, min_samples_leaf=1)
        tree = HistogramGrower(matrix, categorical, limits).grow(values)
        assert len(tree.value) == min(2**depth, leaves or 2**depth)
        assert len(tree.feature) == len(tree.gain) == len(tree.value) - 1
    tree = HistogramGrower(matrix, categorical, Limits(max_depth=3, min_samples_leaf=400)).grow(values)
    np.testing.assert_allclose(tree.value, values.mean(axis=0, keepdims=True), atol=1e-9)


def test_nothing_to_split():
    matrix, categorical = table(100, 16)
    grower = HistogramGrower(matrix, categorical, Limits(max_depth=4, min_samples_leaf=2))
    for values in (np.full((100, 2), 0.3), np.zeros((100, 2))):
        np.testing.assert_allclose(grower.grow(values).value, values[:1])
        np.testing.assert_allclose(grower.grow(values, None, np.stack([np.eye(2)] * 100)).value, values[:1])
    assert grower.grow(values, np.zeros(100)).value.tolist() == [[0.0, 0.0]]
    values = np.random.default_rng(0).normal(size=(100, 2))
    for still in (np.zeros((100, 3), dtype=np.float32), np.empty((100, 0), dtype=np.float32)):
        tree = HistogramGrower(still, (), Limits()).grow(values)
        np.testing.assert_allclose(tree.value, values.mean(axis=0, keepdims=True))


def test_a_metric_of_rank_one_has_finite_values():
    """Rows of which each says something of one direction only; one leaf knows nothing of the other."""
    x = np.repeat([0.0, 1.0], 50).astype(np.float32)[:, None]
    directions = np.where(x == 0, [[1.0, 0.0]], [[0.6, 0.8]])
    metric = directions[:, :, None] * directions[:, None, :]
    values = np.where(x == 0, [[1.0, 0.0]], [[-0.6, -0.8]])
    tree = HistogramGrower(x, (), Limits(max_depth=1)).grow(values, None, metric)
    np.testing.assert_allclose(
        np.einsum("ni,ni->n", tree.predict(x), directions), np.where(x, -1, 1)[:, 0], atol=1e-6
    )
    assert np.abs(tree.value).max() < 1.001


def test_columns_may_come_in_any_order():
    matrix, _ = table(800, 17)
    values, _, _ = targets(matrix, 2, 18)
    order = [5, 0, 6, 1, 4, 2, 3]
    limits = Limits(max_depth=5, min_samples_leaf=5)
    tree = HistogramGrower(matrix, (4, 5, 6), limits).grow(values)
    mixed = np.asfortranarray(matrix[:, order])
    other = HistogramGrower(mixed, (0, 2, 4), limits).grow(values)
    np.testing.assert_allclose(tree.predict(matrix), other.predict(mixed), rtol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_bins_hold_about_equally_many_rows(seed):
    rng = np.random.default_rng(seed)
    column = np.where(rng.random(20_000) < 0.3, 0.0, rng.normal(size=20_000)).astype(np.float32)
    low, high = numeric_bins(column, 64)
    assert len(low) <= 64 and (low <= high).all() and (high[:-1] < low[1:]).all()
    counts = np.bincount(np.searchsorted(high, column), minlength=len(low))
    zero = int(np.searchsorted(high, 0.0))
    assert (low[zero], high[zero]) == (0.0, 0.0) and counts.sum() == 20_000
    assert np.delete(counts, zero).max() < 2 * 14_000 / 62
    few = np.asarray([3.0, 1.0, 1.0, 2.0], dtype=np.float32)
    np.testing.assert_array_equal(numeric_bins(few, 3), [[1, 2, 3], [1, 2, 3]])
    assert len(numeric_bins(few, 2)[0]) == 2


def test_leaves_of_rows_that_are_certain() -> None:
    """Their metric is rounding errors about 0, after sums were taken from sums: it has no root by itself."""
    rng = np.random.default_rng(0)
    n, d = 4000, 6
    certain = rng.random(n) < 0.7
    p = np.where(certain[:, None], 1e-15, rng.random((n, d)))
    p /= p.sum(axis=1, keepdims=True) / np.where(certain, 1e-9, 0.5)[:, None]
    metric = np.einsum("ni,ij->nij", p, np.eye(d)) - p[:, :, None] * p[:, None]
    values = rng.normal(size=(n, d)) * 10
    codes = np.column_stack((certain * 3 + rng.integers(0, 3, n), rng.integers(0, 30, n))).astype(np.float32)
    for limits in (Limits(12, 31, 20, 300.0), Limits(3, None, 1, 0.0)):
        tree = HistogramGrower(codes, (0, 1), limits, 255, 1).grow(values, None, metric)
        assert np.isfinite(tree.value).all()

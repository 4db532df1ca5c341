"""Many classes, and categories of many levels: what a fit takes must not explode."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from threadpoolctl import threadpool_info, threadpool_limits

from usboost.boosting.targets import MOST_OUTPUTS, NewtonDirection
from usboost.data.table import Table
from usboost.data.views import Views
from usboost.errors import Unsuited
from usboost.learners import spectrum
from usboost.learners.ridge import RidgeLearner
from usboost.learners.spectrum import GRID, Spectrum, frequent, with_indicators
from usboost.learners.tree_learner import MOST_TREES, TreeLearner
from usboost.losses.cross_entropy import SoftmaxCrossEntropy
from usboost.losses.exponential import MANY, CodewordExponential
from usboost.models.baselines import trees
from usboost.models.baselines.linear import LinearBaseline, Multinomial
from usboost.models.baselines.trees import ForestBaseline
from usboost.models.methods.two_weak_learner import TwoWeakLearnerRegressor

RNG = np.random.default_rng(0)


def coded(n: int = 200, levels: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Two numbers and codes of two categories, one with `levels` levels."""
    numbers = RNG.normal(size=(n, 2)).astype(np.float32)
    return numbers, np.column_stack([RNG.integers(0, levels, n), RNG.integers(0, 3, n)])


@pytest.mark.parametrize("first", [0, 1])
def test_sparse_rows_are_the_dense_ones(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    numbers, codes = coded()
    eyes = [np.eye(k, dtype=np.float32)[:, first:][part] for k, part in zip((12, 3), codes.T, strict=True)]
    wanted = np.concatenate([numbers, *eyes], axis=1)
    dense = with_indicators(numbers, codes, (12, 3), first)
    assert isinstance(dense, np.ndarray) and dense.dtype == np.float32
    np.testing.assert_array_equal(dense, wanted)
    monkeypatch.setattr(spectrum, "WIDE", 5)
    sparse = with_indicators(numbers, codes, (12, 3), first)
    assert isinstance(sparse, csr_array) and sparse.dtype == np.float32
    np.testing.assert_array_equal(sparse.toarray(), wanted)
    assert isinstance(with_indicators(numbers, codes, (12, 3), first, sparse=False), np.ndarray)


def test_numbers_and_the_most_frequent_levels_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spectrum, "WIDE", 3)
    monkeypatch.setattr(spectrum, "MOST_LEVELS", 2)
    numbers = np.array([[0.5], [0.0], [0.25], [0.0], [3.0]], dtype=np.float32)
    rows = with_indicators(numbers, np.array([[4], [2], [2], [0], [0]]), (5,))
    assert frequent(rows).tolist() == [0, 1, 3]
    whole = Spectrum(rows)
    few = Spectrum(rows[:, [0, 1, 3]].toarray())
    y = np.array([[1.0], [2.0], [3.0], [4.0], [6.0]])
    wide, narrow = whole.solve(y, GRID[1:]), few.solve(y, GRID[1:] * 1.0)
    np.testing.assert_allclose(wide.coefficients[[0, 1, 3]], narrow.coefficients)
    assert not wide.coefficients[[2, 4, 5]].any()
    np.testing.assert_allclose(wide.left_out, narrow.left_out)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("part", [False, True])
def test_sparse_rows_have_the_same_minimum(weighted: bool, part: bool) -> None:
    numbers, codes = coded()
    dense = with_indicators(numbers, codes, (12, 3))
    y = (codes[:, 0] + (numbers[:, 0] > 0)) % 3
    weights = RNG.lognormal(size=len(y)) if weighted else None
    rows = RNG.random(len(y)) < 0.7 if part else None
    found = [
        Multinomial(x, weights).fit(y, 3, 0.01, rows, max_iter=1000, tolerance=1e-7)
        for x in (dense, csr_array(dense))
    ]
    (one, b), (other, c) = found
    np.testing.assert_allclose(dense @ other + c, dense @ one + b, atol=2e-3)


def test_fifteen_thousand_levels_are_no_dense_matrix() -> None:
    n, levels = 4_000, 15_000
    numbers = RNG.normal(size=(n, 1)).astype(np.float32)
    codes = RNG.integers(0, levels, (n, 1), dtype=np.int32)
    table = Table(numbers, codes, (levels,), ("x", "c"))
    tracemalloc.start()
    LinearBaseline(views=("S",), penalties=(0.1,)).fit({"S": table}, (table.numeric[:, 0] > 0).astype(int))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * n * levels / 4  # a quarter of the dense rows


@pytest.mark.parametrize("loss", [SoftmaxCrossEntropy, CodewordExponential])
@pytest.mark.parametrize("more", [0, 1])
def test_of_many_classes_a_row_has_the_hessians_diagonal(loss: type, more: int) -> None:
    loss = loss.of_classes(MOST_OUTPUTS + 1 + more)
    y, f = loss.labels(RNG.integers(0, loss.n_classes, 40)), RNG.normal(size=(40, loss.n_outputs))
    (target,), hessian = NewtonDirection().targets(loss, f, y, 1)(np.ones(1)), loss.hessian(f, y)
    diagonal = np.einsum("nii->ni", hessian)
    wanted = loss.w(f, y) / diagonal if more else loss.newton_direction(f, y)
    np.testing.assert_allclose(target.values, wanted, rtol=1e-9)
    np.testing.assert_allclose(target.metric, diagonal if more else hessian, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("n_classes", [MANY, MANY + 1])
def test_sums_over_many_classes(n_classes: int) -> None:
    loss = CodewordExponential.of_classes(n_classes)
    y, f = RNG.integers(0, n_classes, 9), RNG.normal(size=(9, loss.n_outputs))
    e = np.exp(-0.5 * np.array([[a @ (loss.codewords[k] - c) for c in loss.codewords] for a, k in zip(f, y)]))
    wanted = [
        sum(0.5 * e[i, k] * (loss.codewords[y[i]] - loss.codewords[k]) for k in range(n_classes))
        for i in range(9)
    ]
    np.testing.assert_allclose(loss.w(f, y), wanted, rtol=1e-9)


@pytest.mark.parametrize(("outputs", "trees"), [(MOST_TREES, MOST_TREES), (MOST_TREES + 1, 1)])
def test_of_many_outputs_a_round_has_one_tree(outputs: int, trees: int) -> None:
    from usboost.learners.base import Target

    learner = TreeLearner(max_depth=2, min_samples_leaf=5)
    table = Table.from_numeric(RNG.normal(size=(80, 3)))
    prepared = learner.prepare(table)
    found = learner.trainer(prepared, outputs).fit(Target(RNG.normal(size=(80, outputs))), seed=0, start=None)
    # the one has as many leaves as many would have, if there are rows
    assert len(found.trees) == trees and (len(found.trees[0].value) > 4) == (trees == 1)
    assert found.predict(prepared).shape == (80, outputs)


def test_a_forest_of_many_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    y = np.arange(120) % 24
    table = Table.from_numeric(RNG.normal(size=(120, 2)))
    settings = {"views": ("S",), "n_trees": 3, "leaf_sizes": (1,), "validation_fraction": 0.0}
    whole = ForestBaseline(**settings).fit({"S": table}, y)
    monkeypatch.setattr(trees, "FOREST_BYTES", 8 * 3 * 24 * 30)
    small = ForestBaseline(**settings).fit({"S": table}, y)
    leaves = [sum(tree.value.size for tree in each.trees_) for each in (whole, small)]
    assert 16 * leaves[1] <= 8 * 3 * 24 * 30 < 16 * leaves[0]
    monkeypatch.setattr(trees, "MOST_CLASSES", 23)
    with pytest.raises(Unsuited, match=r"23 classes, not 24.*logistic"):
        ForestBaseline(**settings).fit({"S": table}, y)


def test_a_fit_has_one_thread_of_blas_and_gives_the_others_back() -> None:
    found = []

    class Watched(RidgeLearner):
        kind = "watched"

        def prepare(self, *args: Any) -> Any:
            found.extend(blas_threads())
            return super().prepare(*args)

    def blas_threads() -> list[int]:
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    views = Views(S=Table.from_numeric(RNG.normal(size=(40, 2))))
    with threadpool_limits(2, user_api="blas"):
        TwoWeakLearnerRegressor({"S": Watched()}, n_rounds=1).fit(views, RNG.normal(size=40))
        assert set(blas_threads()) == {2}
    assert set(found) == {1}

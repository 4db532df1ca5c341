"""Ridge regression as a weak learner: against refits by hand, and against scikit-learn's."""

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from tests.conftest import refuses
from usboost import Images, Table, UsboostError
from usboost.learners.base import Target, weighted_sum
from usboost.learners.ridge import FittedRidge, RidgeLearner
from usboost.learners.spectrum import GRID, Spectrum
from usboost.testing import check_learner

SHAPES = {"tall": (40, 6), "wide": (20, 50), "square": (15, 14), "repeated columns": (30, 8)}


def rows(shape: str) -> np.ndarray:
    n, p = SHAPES[shape]
    x = np.random.default_rng(0).normal(1.0, 2.0, size=(n, p)).astype(np.float32)
    if shape == "repeated columns":
        x[:, 4:] = x[:, :4]
    return x


def targets(n: int, d: int = 3) -> np.ndarray:
    return np.random.default_rng(1).normal(2.0, 1.0, size=(n, d))


def left_out_by_refits(x: np.ndarray, y: np.ndarray, w: np.ndarray, alpha: float) -> np.ndarray:
    """Each row's prediction by the ridge regression of the others, their weights as they are."""
    if np.isinf(alpha):
        means = [np.average(np.delete(y, i, 0), 0, np.delete(w, i)) for i in range(len(y))]
        return np.stack(means)
    design = np.column_stack((x, np.ones(len(x))))
    penalty = alpha * np.diag([1.0] * x.shape[1] + [0.0])
    held = np.zeros_like(y)
    for i in range(len(y)):
        weighted = w[:, None] * design
        weighted[i] = 0.0
        held[i] = design[i] @ np.linalg.solve(weighted.T @ design + penalty, weighted.T @ y)
    return held


def fit(learner: RidgeLearner, x: np.ndarray, target: Target) -> tuple[FittedRidge, np.ndarray, Any]:
    prepared = learner.prepare(Table.from_numeric(x))
    trainer = learner.trainer(prepared, target.values.shape[1])
    fitted = trainer.fit(target, seed=0)
    return fitted, trainer.outputs(fitted), prepared


@pytest.mark.parametrize("learner", [RidgeLearner(), RidgeLearner(alpha=3.0, leave_one_out=False)])
def test_it_is_a_learner(learner: RidgeLearner) -> None:
    check_learner(learner)
    check_learner(learner, Table.from_numeric(np.random.default_rng(0).normal(size=(60, 100))))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("alpha", [1e-3, 2.0, 500.0, np.inf])
@pytest.mark.parametrize("weighted", [False, True])
def test_leave_one_out_is_that_of_refits(shape: str, alpha: float, weighted: bool) -> None:
    x = rows(shape).astype(np.float64)
    y = targets(len(x))
    w = np.random.default_rng(2).uniform(0.1, 3.0, len(x)) if weighted else np.ones(len(x))
    got = Spectrum(rows(shape), w if weighted else None).solve(y, np.array([alpha]))
    w = w / w.mean()
    expected = left_out_by_refits(x, y, w, alpha)
    if np.isinf(alpha):  # a mean is nobody's: the other rows' would point against each row's target
        expected = np.tile(np.average(y, axis=0, weights=w), (len(y), 1))
    np.testing.assert_allclose(got.left_out, expected, rtol=1e-5, atol=1e-5)
    whole = Ridge(1e15 if np.isinf(alpha) else alpha, solver="svd").fit(x, y, sample_weight=w)
    np.testing.assert_allclose(x @ got.coefficients + got.intercept, whole.predict(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_large_tables_in_float32_give_the_same(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, alphas = rows(shape), targets(len(rows(shape))), np.array([np.inf, 1e3, 10.0, 0.1])
    exact = Spectrum(x).solve(y, alphas)
    monkeypatch.setattr("usboost.learners.spectrum.SMALL", 0)
    monkeypatch.setattr("usboost.learners.spectrum.BLOCK", 7)
    spectrum = Spectrum(x)
    assert spectrum.basis.dtype == np.float32
    found = spectrum.solve(y, alphas)
    assert found.alpha == exact.alpha
    np.testing.assert_allclose(found.left_out, exact.left_out, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(found.coefficients, exact.coefficients, rtol=1e-3, atol=1e-4)


def test_the_penalty_is_that_of_least_leave_one_out_error() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 30)).astype(np.float32)
    y = x[:, :3] @ rng.normal(size=(3, 2)) + 2.0 * rng.normal(size=(60, 2))
    fitted, held, _ = fit(RidgeLearner(), x, Target(y))
    spectrum = Spectrum(x)
    alphas = GRID * spectrum.scale
    errors = [np.square(y - left_out_by_refits(x.astype(float), y, np.ones(60), a)).sum() for a in alphas]
    assert fitted.alphas.tolist() == [alphas[np.argmin(errors)]] * 2
    assert 0 < np.argmin(errors) < len(GRID) - 1
    assert np.square(y - held).sum() == pytest.approx(min(errors), rel=1e-5)


def test_a_view_that_says_nothing_adds_nothing() -> None:
    rng = np.random.default_rng(3)
    fitted, _, prepared = fit(RidgeLearner(), rng.normal(size=(200, 300)), Target(rng.normal(size=(200, 2))))
    assert np.isinf(fitted.alphas).all() and not fitted.coefficients.any()
    assert np.ptp(fitted.predict(prepared), axis=0).tolist() == [0.0, 0.0]
    constant, _, prepared = fit(RidgeLearner(), np.ones((20, 3)), Target(targets(20)))
    np.testing.assert_allclose(constant.predict(prepared), np.tile(targets(20).mean(axis=0), (20, 1)), 1e-6)


@pytest.mark.parametrize("columns", [0, 1])
def test_weights_are_scikit_learns(columns: int) -> None:
    """One weight a row, or one for each output; rows of weight 0 are not seen, and predicted."""
    x = rows("tall")
    rng = np.random.default_rng(5)
    w = rng.uniform(0.0, 4.0, (40, 3))[:, : 3 if columns else 1]
    w[:6] = 0.0
    y = targets(40)
    y[:6] = 1e6
    fitted, held, prepared = fit(RidgeLearner(alpha=7.0), x, Target(y, w if columns else w[:, 0]))
    for k in range(3):
        own = w[6:, k if columns else 0]
        expected = Ridge(7.0, solver="svd").fit(x[6:], y[6:, k], sample_weight=own / own.mean())
        np.testing.assert_allclose(fitted.predict(prepared)[:, k], expected.predict(x), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(held[:6, k], expected.predict(x[:6]), rtol=1e-4, atol=1e-4)
        refits = left_out_by_refits(x[6:].astype(float), y[6:, [k]], own / own.mean(), 7.0)
        np.testing.assert_allclose(held[6:, [k]], refits, rtol=1e-4, atol=1e-4)


def test_rows_left_out_are_as_if_they_were_not_there() -> None:
    x, y, out = rows("tall"), targets(40), np.arange(40) % 4 == 0
    fitted, held, prepared = fit(RidgeLearner(), x, Target(y, None, out))
    alone, held_alone, _ = fit(RidgeLearner(), x[~out], Target(y[~out]))
    np.testing.assert_allclose(fitted.coefficients, alone.coefficients, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(held[~out], held_alone, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(held[out], fitted.predict(prepared)[out])


def test_one_factorisation_serves_all_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    x, learner = rows("tall"), RidgeLearner()
    prepared = learner.prepare(Table.from_numeric(x))
    asked: list[int] = []
    decompose = np.linalg.eigh
    monkeypatch.setattr(np.linalg, "eigh", lambda matrix: asked.append(1) or decompose(matrix))
    trainer = learner.trainer(prepared, 2)
    together = [trainer.fit(Target(targets(40, 2) ** k), seed=0) for k in (1, 2, 3)]
    assert len(asked) == 1
    for k, fitted in enumerate(together, start=1):
        alone = learner.trainer(prepared, 2).fit(Target(targets(40, 2) ** k), seed=0)
        np.testing.assert_array_equal(fitted.coefficients, alone.coefficients)
    assert len(asked) == 4


def test_categories_are_columns_and_one_that_is_new_is_none() -> None:
    codes = np.array([[1, 2], [3, 0], [2, 1], [0, 2]], dtype=np.int32)
    table = Table(np.arange(4, dtype=np.float32)[:, None], codes, (4, 3), ("x", "a", "b"))
    expected = [[0, 1, 0, 0, 0, 1], [1, 0, 0, 1, 0, 0], [2, 0, 1, 0, 1, 0], [3, 0, 0, 0, 0, 1]]
    np.testing.assert_array_equal(RidgeLearner().prepare(table).matrix, expected)


@pytest.mark.parametrize("settings", [{"alpha": 0.0}, {"alpha": "cv"}, {"alphas": ()}, {"alphas": (1, -1)}])
def test_penalties_that_are_none(settings: dict[str, Any]) -> None:
    learner = RidgeLearner(**settings)
    with pytest.raises(UsboostError, match="penalty is 'loo' or positive"):
        learner.trainer(learner.prepare(Table.from_numeric(rows("tall"))), 1)


def test_mistakes_get_one_sentence() -> None:
    refuses("reads tables, not Images", RidgeLearner().prepare, Images(np.zeros((2, 1, 8, 8), np.uint8)))
    fitted, _, _ = fit(RidgeLearner(), rows("tall"), Target(targets(40)))
    other = RidgeLearner().prepare(Table.from_numeric(rows("wide")))
    for ask in (fitted.predict, lambda rows: weighted_sum([fitted], [1.0], rows)):
        refuses("6 columns cannot read a table that makes 50", ask, other)
    arrays, meta = fitted.to_arrays()
    for name, wrong in {
        "coefficients": arrays["coefficients"][:, :2],
        "intercept": arrays["intercept"].astype(float),
        "alphas": -arrays["alphas"],
    }.items():
        refuses("a ridge regression", FittedRidge.from_arrays({**arrays, name: wrong}, meta).check)

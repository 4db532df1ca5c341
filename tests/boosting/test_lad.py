"""Boosted trees for regression against Friedman's algorithms (2001) done literally, with exact trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor

from usboost import Table, TreeLearner, TwoWeakLearnerRegressor, Views

ROUNDS, SHRINKAGE = 12, 0.3


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    # one column: where two columns' splits gain the same, scikit-learn draws lots
    X = np.round(rng.normal(size=(201, 1)), 2)
    return X, 50 + 9 * np.sin(3 * X[:, 0]) + 4 * rng.standard_t(2, size=201)


def literal(X: np.ndarray, y: np.ndarray, start: float, pseudo: Callable, best: Callable) -> np.ndarray:
    """TreeBoost: F = F + ν Σ_j γ_j 1(x in R_j), regions by least squares, γ_j the loss's own constant."""
    f = np.full(len(y), start)
    for _ in range(ROUNDS):
        tree = DecisionTreeRegressor(max_depth=3, min_samples_leaf=5, random_state=0)
        leaf = tree.fit(X.astype(np.float32), pseudo(y - f)).apply(X.astype(np.float32))
        for j in np.unique(leaf):
            f[leaf == j] += SHRINKAGE * best((y - f)[leaf == j])
    return f


def lower_quantile(alpha: float) -> Callable[[np.ndarray], float]:
    return lambda r: np.quantile(r, alpha, method="inverted_cdf")


CASES: dict[str, tuple[dict[str, Any], Callable, Callable, Callable]] = {
    "squared": ({"loss": "squared"}, np.mean, lambda r: r, np.mean),
    "absolute": ({"loss": "absolute"}, lower_quantile(0.5), np.sign, lower_quantile(0.5)),
    "quantile": (
        {"loss": "quantile", "quantile": 0.8},
        lower_quantile(0.8),
        lambda r: np.where(r > 0, 0.8, np.where(r < 0, -0.2, 0.0)),
        lower_quantile(0.8),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_boosted_trees_are_friedmans(name: str) -> None:
    settings, start, pseudo, best = CASES[name]
    X, y = data()
    model = TwoWeakLearnerRegressor(
        {"S": TreeLearner(engine="sklearn", min_samples_leaf=5)},
        step="fixed",
        step_settings={"value": SHRINKAGE},
        n_rounds=ROUNDS,
        validation_fraction=0,
        **settings,
    ).fit(Views(S=Table.from_numeric(X)), y)
    found = model.predict(Views(S=Table.from_numeric(X)))
    expected = literal(X, y, start(y), pseudo, best)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    staged = list(model.staged_predict(Views(S=Table.from_numeric(X))))
    assert len(staged) == ROUNDS
    np.testing.assert_allclose(staged[-1], found, rtol=1e-6)


def test_the_exact_step_of_refitted_leaves_is_one() -> None:
    """Each leaf is at its lowest point already, so no common factor of the leaves lowers the risk."""
    X, y = data()
    model = TwoWeakLearnerRegressor(
        {"S": TreeLearner(min_samples_leaf=5)}, loss="absolute", n_rounds=3, validation_fraction=0
    ).fit(Views(S=Table.from_numeric(X)), y)
    np.testing.assert_allclose([row["step_S"] for row in model.history_], 1.0, rtol=1e-5)

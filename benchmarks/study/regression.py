"""Regression at its level: the catalogue's models against LightGBM and ridge, on small data made here.

    python -m benchmarks.study.regression

Five folds, nothing tuned, both views the same table, as a user's table without images has it. Prints
tables for docs/results/text-and-numbers.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn.datasets import load_diabetes, make_friedman1, make_friedman2, make_friedman3
from sklearn.model_selection import KFold
from sklearn.preprocessing import StandardScaler

from usboost.data.table import Table
from usboost.data.views import Views
from usboost.evaluation.metrics import mae, rmse
from usboost.learners.trees.learner import TreeLearner
from usboost.models.baselines.estimators import LightGBMBaselineRegressor
from usboost.models.baselines.linear import RidgeBaseline
from usboost.models.boosted.two_weak_learner import TwoWeakLearnerRegressor
from usboost.models.catalogue import build as builders
from usboost.multimodal.fit.fit import OneComputer

FOLDS, ROWS = 5, 1000
MODELS = ("crossed", "linear_trees", "2wl_ridge", "2wl_newton", "baseline", "bfv_dnn", "lgbm", "ridge")
LOSSES = ("squared", "huber", "absolute")

Data = tuple[np.ndarray, np.ndarray]
Make = Callable[[], Any]


def houses(n: int = 2000, seed: int = 0) -> Data:
    """Made prices, skewed: income, rooms, age, and two cities on a map whose pull falls with distance."""
    rng = np.random.default_rng(seed)
    place, income = rng.uniform(0, 10, (n, 2)), rng.lognormal(1.2, 0.45, n)
    age, rooms = rng.uniform(1, 52, n), rng.lognormal(1.6, 0.3, n)
    others = rng.normal(size=(n, 3))
    near = sum(np.exp(-np.square(place - at).sum(axis=1) / 4) for at in ([2, 8], [7, 3]))
    price = np.exp(0.35 * np.log(income) * (1 + near) + 0.8 * near + 0.1 * np.log(rooms) + 0.003 * age)
    return np.column_stack([place, income, age, rooms, others]), price * rng.lognormal(0, 0.2, n)


def friedman(number: int, heavy: bool, seed: int = 0) -> Data:
    """Columns: the function with noise, normal or Student's t of 1.5 degrees, a third as large; without."""
    make = {1: make_friedman1, 2: make_friedman2, 3: make_friedman3}[number]
    X, y = make(ROWS, noise=0.0, random_state=seed)
    rng = np.random.default_rng(seed + 1)
    noise = rng.standard_t(1.5, ROWS) if heavy else rng.normal(size=ROWS)
    return X, np.column_stack([y + y.std() / 3 * noise, y])


def scored(make: Make, X: np.ndarray, y: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """RMSE and MAE against the truth on each fold: (folds, 2)."""
    found = []
    for train, test in KFold(FOLDS, shuffle=True, random_state=0).split(X):
        scaler = StandardScaler().fit(X[train])
        table = Table.from_numeric(scaler.transform(X))
        views = Views(U=table, S=table)
        predicted = make().fit(views[train], y[train]).predict(views[test])
        found.append((rmse(truth[test], predicted), mae(truth[test], predicted)))
    return np.array(found)


def trees(loss: str) -> TwoWeakLearnerRegressor:
    """Boosted trees of depth 3, with the settings that the catalogue's `1wl_s` has but for the shrinkage."""
    return TwoWeakLearnerRegressor(
        {"S": TreeLearner()}, loss=loss, n_rounds=500, shrinkage=0.1, delta_quantile=0.8
    )


def show(title: str, rows: Mapping[str, np.ndarray], column: int = 0) -> None:
    print(f"\n{title}")
    for name, values in rows.items():
        mean, spread = values[:, column].mean(), values[:, column].std(ddof=1)
        print(f"| `{name}` | {mean:.4g} ± {spread:.2g} |")


def main() -> None:
    """Every model on every data set."""
    for title, (X, y) in {"diabetes": load_diabetes(return_X_y=True), "houses": houses()}.items():
        rows = {}
        for name in MODELS:
            rows[name] = scored(
                lambda name=name: builders.build(name, OneComputer(None), 0, "regression"), X, y, y
            )
        rows["mean"] = scored(lambda: RidgeBaseline(("S",), (np.inf,)), X, y, y)
        show(f"{title}, RMSE", rows)
    for number in (1, 2, 3):
        for heavy in (False, True):
            X, both = friedman(number, heavy)
            rows = {f"trees, {loss}": scored(lambda loss=loss: trees(loss), X, *both.T) for loss in LOSSES}
            for loss in LOSSES:
                rows[f"lgbm, {loss}"] = scored(
                    lambda loss=loss: LightGBMBaselineRegressor(("S",), loss=loss), X, *both.T
                )
            show(
                f"Friedman {number}, {'heavy tails' if heavy else 'normal noise'}, RMSE against the truth",
                rows,
            )


if __name__ == "__main__":
    main()

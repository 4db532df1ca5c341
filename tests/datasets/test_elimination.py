"""Backward elimination against a literal one, and on tables whose informative columns are known."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pytest
from sklearn.model_selection import train_test_split

from tests.conftest import refuses
from usboost.data.table import Table
from usboost.datasets.census import PARAMETERS, ROUNDS, Elimination, backward_elimination


def table(n: int, seed: int, noise: int = 2) -> tuple[Table, np.ndarray]:
    """Two informative numbers, one informative category, and columns of noise; labels 0 and 1."""
    rng = np.random.default_rng(seed)
    numeric = rng.normal(size=(n, 2 + noise)).astype(np.float32)
    codes = rng.integers(1, 5, size=(n, 2)).astype(np.int32)
    names = ("good", "better", *(f"noise{j}" for j in range(noise)), "kind", "mark")
    score = 1.5 * numeric[:, 0] + 2.5 * numeric[:, 1] + 2.0 * (codes[:, 0] % 2) - 1
    y = (score + rng.logistic(size=n) > 0).astype(np.int64)
    return Table(numeric, codes, (5, 5), names), y


def literal(data: Table, y: np.ndarray, seed: int, tolerance: float) -> tuple[list[tuple], list[str]]:
    """Try every column at every step, by name, with a loss written out."""
    m = len(np.unique(y))
    x = {name: data.matrix()[:, j] for j, name in enumerate(data.names)}
    nominal = {data.names[j] for j in data.categorical}
    half = len(y) // 2
    fit, rest = train_test_split(
        np.arange(len(y)), train_size=half, test_size=half, stratify=y, random_state=seed
    )
    objective = {"objective": "binary"} if m == 2 else {"objective": "multiclass", "num_class": m}

    def loss(names: list[str]) -> float:
        matrix = np.column_stack([x[name] for name in names])
        positions = [j for j, name in enumerate(names) if name in nominal]
        booster = lgb.train(
            {**PARAMETERS, **objective},
            lgb.Dataset(matrix[fit], y[fit], categorical_feature=positions),
            ROUNDS,
        )
        p = np.asarray(booster.predict(matrix[rest]))
        p = np.column_stack([1 - p, p]) if m == 2 else p
        return float(-np.log(p[np.arange(len(rest)), y[rest]]).mean())

    names = list(data.names)
    path: list[tuple] = [(None, loss(names), list(names))]
    while len(names) > 1:
        scored = {name: loss([other for other in names if other != name]) for name in names}
        worst = min(scored, key=scored.__getitem__)
        names = [name for name in names if name != worst]
        path.append((worst, scored[worst], list(names)))
    best = min(entry[1] for entry in path)
    kept = min((entry[2] for entry in path if entry[1] <= best * (1 + tolerance)), key=len)
    return path, kept


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("m", [2, 3])
def test_the_path_is_that_of_a_literal_elimination(seed: int, m: int) -> None:
    data, y = table(300, seed)
    if m == 3:
        y = y + (data.numeric[:, 1] > 1)
    found = backward_elimination(data, y, seed=seed, candidates=data.n_columns, tolerance=0.02)
    path, kept = literal(data, y, seed, 0.02)
    assert [step.removed for step in found.path] == [entry[0] for entry in path]
    assert [step.remaining for step in found.path] == [len(entry[2]) for entry in path]
    np.testing.assert_allclose([step.loss for step in found.path], [entry[1] for entry in path], rtol=1e-9)
    assert list(found.kept) == kept


def test_informative_columns_are_kept_and_noise_goes_first() -> None:
    data, y = table(6000, seed=3, noise=4)
    found = backward_elimination(data, y, seed=0, candidates=4, tolerance=0.02)
    assert set(found.kept) == {"good", "better", "kind"}
    assert {step.removed for step in found.path[1:6]} == {"noise0", "noise1", "noise2", "noise3", "mark"}
    assert [step.remaining for step in found.path] == list(range(8, 0, -1))


def test_equal_seeds_give_equal_paths_and_the_seed_chooses_the_rows() -> None:
    data, y = table(1000, seed=5)

    def run(seed: int) -> Elimination:
        return backward_elimination(data, y, seed=seed, rows=400, candidates=2)

    assert run(0) == run(0)
    assert [step.loss for step in run(0).path] != [step.loss for step in run(1).path]


def test_what_is_kept_follows_the_tolerance_and_the_limit() -> None:
    data, y = table(600, seed=7)
    strict = backward_elimination(data, y, seed=0, candidates=6, tolerance=0.0)
    lowest = min(strict.path, key=lambda step: step.loss)
    assert len(strict.kept) <= lowest.remaining
    loose = backward_elimination(data, y, seed=0, candidates=6, tolerance=100.0)
    assert loose.path == strict.path
    assert len(loose.kept) == 1
    removed = [step.removed for step in strict.path]
    assert set(loose.kept) == set(data.names) - set(removed)
    limited = backward_elimination(data, y, seed=0, candidates=6, tolerance=0.0, at_most=2)
    assert len(limited.kept) <= 2


def test_one_column_is_kept_as_it_is() -> None:
    data, y = table(100, seed=0)
    one = Table.from_numeric(data.numeric[:, :1], ("good",))
    found = backward_elimination(one, y, seed=0)
    assert found.kept == ("good",)
    assert [step.remaining for step in found.path] == [1]


def test_what_cannot_be_eliminated_is_refused() -> None:
    data, y = table(100, seed=0)
    refuses("100 rows but there are 99 labels", backward_elimination, data, y[:-1], seed=0)
    refuses("two classes", backward_elimination, data, np.zeros(100, dtype=int), seed=0)
    refuses("every class", backward_elimination, data, np.eye(100, dtype=int)[0], seed=0)
    refuses("at least one column", backward_elimination, Table.from_numeric(np.empty((100, 0))), y, seed=0)
    for wrong in ({"rows": 3}, {"candidates": 0}, {"tolerance": -0.1}, {"at_most": 0}):
        refuses("needs rows >= 4", backward_elimination, data, y, seed=0, **wrong)

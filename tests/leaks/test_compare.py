"""`compare`: a fold's test rows are in no model, encoder or decision to stop, and in its scores only."""

from typing import Any

import numpy as np
import pytest

from tests.fit.conftest import table_of
from tests.leaks.probes import spoiled_table, training, watched
from usboost.evaluation.ranking import METRICS
from usboost.fit.build import build
from usboost.fit.compare import compare
from usboost.fit.evaluate import FitData, evaluate, folds_of
from usboost.fit.tune import search_folds
from usboost.models.base import ViewsClassifier
from usboost.table.user_table import UserTable

ROUNDS = {"2wl": 4, "lgbm": 15}


@pytest.fixture(scope="module")
def table() -> UserTable:
    return table_of(150)


def unfitted(name: str) -> ViewsClassifier:
    return build(name, images=False, rounds=ROUNDS[name])


def everything(model: Any) -> np.ndarray:
    """The fit, what stopped it, and when."""
    return np.concatenate([training(model).ravel(), watched(model), [model.best_round_]])


@pytest.mark.parametrize("name", ROUNDS)
def test_test_rows_are_in_the_scores_only(name: str, table: UserTable) -> None:
    fold = folds_of(table, 3, 1, 0)[0]

    def fitted(rows: np.ndarray) -> tuple[np.ndarray, dict[str, float]]:
        model = unfitted(name)
        spoiled = spoiled_table(table, rows, labels=True)
        scores = evaluate(model, FitData.of(spoiled, fold), spoiled.task).scores
        return everything(model), {metric: scores[metric] for metric in METRICS}

    clean, forbidden = fitted(fold.test[:0]), fitted(fold.test)
    np.testing.assert_array_equal(clean[0], forbidden[0])
    assert clean[1] != forbidden[1]
    for rows in (fold.val, fold.train[:15]):
        assert not np.array_equal(clean[0], fitted(rows)[0])


@pytest.mark.parametrize("name", ROUNDS)
def test_every_fold_of_a_comparison(name: str, table: UserTable) -> None:
    """Spoiled test rows of the first fold change the fits of the other folds, which learn from them."""

    def fits(rows: np.ndarray) -> list[np.ndarray]:
        kept: list[Any] = []

        def make(seed: int) -> ViewsClassifier:
            kept.append(unfitted(name))
            return kept[-1]

        assert not compare(spoiled_table(table, rows), {"model": make}, folds=2).failures
        return [everything(model) for model in kept]

    test = folds_of(table, 2, 1, 0)[0].test
    clean, forbidden = fits(test[:0]), fits(test)
    np.testing.assert_array_equal(clean[0], forbidden[0])
    assert not np.array_equal(clean[1], forbidden[1])


@pytest.mark.parametrize("seed", [0, 7])
def test_a_comparison_has_none_of_the_folds_that_chose_settings(seed: int, table: UserTable) -> None:
    chose = {frozenset(fold.test.tolist()) for fold in search_folds(table, 5, seed)}
    for fold in folds_of(table, 5, 2, seed):
        assert frozenset(fold.test.tolist()) not in chose
        assert max(len(each & set(fold.test.tolist())) for each in chose) < 0.6 * len(fold.test)

"""`fit` of a user's table: the rows that stop it are in no model, encoder or median."""

from typing import Any

import numpy as np
import pytest

from tests.fit.conftest import numbers, table_of
from tests.leaks.probes import same_start, spoiled_table, training
from usboost.fit.build import fit
from usboost.fit.evaluate import divisible
from usboost.table.user_table import UserTable


@pytest.fixture(scope="module")
def table() -> UserTable:
    colours = numbers(160, classes=3)["colour"]
    return table_of(160, 3, note=[f"number {k} is the {name} thing" for k, name in enumerate(colours)])


@pytest.mark.parametrize("name", ["2wl", "lgbm"])
def test_rows_that_stop_a_fit_are_not_in_it(name: str, table: UserTable) -> None:
    kept, held = divisible(table).hold_out(0)

    def fitted(rows: np.ndarray) -> Any:
        return fit(spoiled_table(table, rows), name, rounds=12 if name == "lgbm" else 3, refit=False)

    clean, forbidden, allowed = fitted(held[:0]), fitted(held), fitted(kept[:12])
    assert clean.rows == (len(kept), len(held)) and len(kept) + len(held) == len(table)
    for learnt in ("imputation", "encoders", "texts_sha256"):
        assert getattr(clean.bundle.card, learnt) == getattr(forbidden.bundle.card, learnt)
        assert getattr(clean.bundle.card, learnt) != getattr(allowed.bundle.card, learnt)
    models = [each.bundle.model for each in (clean, forbidden, allowed)]
    assert same_start(training(models[0]), training(models[1]))
    assert not same_start(training(models[0]), training(models[2]))
    assert clean.scores != forbidden.scores


@pytest.mark.slow
def test_rows_that_score_a_blend_do_not_choose_it(table: UserTable) -> None:
    """They are only in the fits that are added when it has been scored."""
    held = divisible(table).hold_out(0)[1]
    settings = {"folds": 2, "repeats": 1}
    clean, forbidden = (
        fit(spoiled_table(table, rows), "best", rounds=3, settings=settings) for rows in (held[:0], held)
    )
    first, second = (each.bundle.model for each in (clean, forbidden))
    assert first.losses_ == second.losses_ and first.weights_ == second.weights_
    assert clean.bundle.card.encoders == forbidden.bundle.card.encoders
    assert clean.bundle.card.rows == {"train": len(table), "val": 0} and first.full_refits_
    assert clean.scores != forbidden.scores

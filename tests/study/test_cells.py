"""A cell of the papers' study: two rules that stop the same rounds, each with its best one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from benchmarks.study.cells import STOPS, BothRest, Samples, stopped
from tests.small_models import boosting, lgbm, on_features, two_branches
from usboost.boosting.rounds import Round
from usboost.data.table import Table
from usboost.data.views import Views


def samples(seed: int, n: int) -> Samples:
    x = np.random.default_rng(seed).normal(size=(n, 4))
    y = (x[:, 0] * x[:, 2] + np.random.default_rng(seed + 9).normal(size=n) > 0.5).astype(int)
    return Views(U=Table.from_numeric(x[:, :2]), S=Table.from_numeric(x[:, 2:])), y


SPLITS = {"train": samples(0, 120), "val": samples(1, 80), "test": samples(2, 50)}


def test_a_fit_goes_on_until_neither_rule_has_found_better() -> None:
    """Risk is lowest in round 2, F1 highest in round 4: two rounds after that both have rested."""
    watch, told = BothRest(2), []
    watch.on_fit_begin(None)
    for k, (risk, f1) in enumerate([(3, 1), (1, 1), (2, 1), (2, 5), (2, 2), (2, 3), (9, 3)], start=1):
        metrics = {"risk_val": float(risk), "f1_val": float(f1)}
        told.append(watch.on_round(Round(k, None, metrics, {})))
    assert told == [False, False, False, False, False, True, True]


@pytest.mark.parametrize(
    "model",
    [boosting(n_rounds=25, patience=4), two_branches(n_epochs=12, patience=3), on_features()],
    ids=["boosting", "two branches", "boosted features"],
)
def test_each_rule_has_its_best_of_the_same_rounds(model: Any) -> None:
    found = {}
    for rule, fitted in stopped(clone(model), SPLITS):
        history = fitted.history_
        best = {"log_loss": np.argmin, "f1": np.argmax}[rule]([row[STOPS[rule]] for row in history])
        assert history[fitted.best_round_ - 1][STOPS[rule]] == history[int(best)][STOPS[rule]]
        found[rule] = len(history), fitted.predict_proba(SPLITS["test"][0])
        # as a fit alone with this rule that does not stop
        nested = "network__" if "network__monitor" in model.get_params() else ""
        alone = clone(model).set_params(
            **{f"{nested}monitor": STOPS[rule], f"{nested}patience": None, "callbacks": [BothRest(999)]}
        )
        rounds = {"n_rounds", f"{nested}n_epochs"} & set(model.get_params())
        alone.set_params(**dict.fromkeys(rounds, len(history)))
        said = alone.fit(*SPLITS["train"], validation=SPLITS["val"]).predict_proba(SPLITS["test"][0])
        np.testing.assert_array_equal(found[rule][1], said)
    assert found["log_loss"][0] == found["f1"][0]


def test_a_model_without_rounds_of_its_own_is_fitted_once() -> None:
    ((rule, model),) = stopped(lgbm(), SPLITS)
    assert rule == "log_loss" and model.best_round_ >= 1

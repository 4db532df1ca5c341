"""A model that is fitted again to all rows has what validation rows have chosen, and chooses nothing anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from usboost import BoostedFeatures, Table, TreeLearner, TwoBranchNetworkClassifier, Views
from usboost.models.baselines.linear import LinearBaseline, RidgeBaseline
from usboost.models.baselines.trees import LightGBMBaseline, LightGBMBaselineRegressor
from usboost.models.methods.bfv_network import BoostedFeatureNetworkClassifier
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier, TwoWeakLearnerRegressor

RNG = np.random.default_rng(0)
N = 260
A, B = RNG.normal(size=(N, 12)).astype(np.float32), RNG.normal(size=(N, 3)).astype(np.float32)
Z = A[:, 0] + B[:, 1] * B[:, 2] + RNG.normal(size=N)
Y = np.digitize(Z, [-0.5, 0.8])
FIT, HELD = np.arange(100), np.arange(100, 160)


def views(rows: Any = slice(None)) -> Views:
    return Views(U=Table.from_numeric(A[rows]), S=Table.from_numeric(B[rows]))


def both(model: Any, y: np.ndarray) -> tuple[Any, Any]:
    """A fit with validation rows, and the fit to all rows, of which there are more."""
    first = model.fit(views(FIT), y[FIT], (views(HELD), y[HELD]))
    return first, first.for_all_rows().fit(views(), y)


TREES = {"S": TreeLearner(1, engine="histogram")}


@pytest.mark.parametrize("kept", [0, 3])
def test_the_penalty_of_a_classifiers_start(kept: int) -> None:
    """With no validation rows a start would take the one in the middle."""
    # the best is first or last, where the others are further from it on the same side
    penalties = (0.03, 10.0, 30.0, 100.0) if kept == 0 else (100.0, 30.0, 10.0, 0.03)
    start = LinearBaseline(penalties=penalties)
    first, again = both(TwoWeakLearnerClassifier(TREES, start=start, n_rounds=2), Y)
    assert first.start_.penalty_ == again.start_.penalty_ == penalties[kept] == 0.03
    assert again.start.penalties == (0.03,) and first.start.penalties == penalties


def test_the_penalty_of_a_regressors_start() -> None:
    """Which its leave-one-out errors would choose anew: of 260 rows another than of 100."""
    first, again = both(TwoWeakLearnerRegressor(TREES, start=RidgeBaseline(), n_rounds=2), Z)
    anew = TwoWeakLearnerRegressor(TREES, start=RidgeBaseline(), n_rounds=2, validation_fraction=0)
    assert anew.fit(views(), Z).start_.penalty_ != pytest.approx(first.start_.penalty_)
    assert again.start_.penalty_ == pytest.approx(first.start_.penalty_)


def test_the_share_of_rows_for_steps() -> None:
    """100 rows are few for 12 columns, 260 are not; the steps stay those of rows that learners do not see."""
    learners = {"U": TreeLearner(1, engine="histogram")}
    first, again = both(TwoWeakLearnerClassifier(learners, step_fraction="wide", n_rounds=2), Y)
    anew = TwoWeakLearnerClassifier(learners, step_fraction="wide", n_rounds=2).fit(views(), Y)
    assert (first.step_fraction_, again.step_fraction_, anew.step_fraction_) == (0.2, 0.2, 0.0)


SMALL: dict[str, Any] = {"dnn1": (6,), "dnn2": (6,), "dnn3": (4,), "device": "cpu", "learning_rate": 0.03}


@pytest.mark.parametrize(
    ("model", "y"),
    [
        (TwoWeakLearnerClassifier(TREES, n_rounds=40, patience=3), Y),
        (TwoWeakLearnerRegressor(TREES, n_rounds=40, patience=3), Z),
        (LightGBMBaseline(n_trees=200, patience=5), Y),
        (LightGBMBaselineRegressor(n_trees=200, patience=5), Z),
        (TwoBranchNetworkClassifier(**SMALL, n_epochs=40, patience=3, monitor="risk_val"), Y),
        (
            BoostedFeatureNetworkClassifier(
                BoostedFeatures(4),
                TwoBranchNetworkClassifier(**SMALL, n_epochs=40, patience=3, monitor="risk_val"),
            ),
            Y,
        ),
    ],
    ids=lambda each: type(each).__name__,
)
def test_it_goes_as_far_as_the_best_round(model: Any, y: np.ndarray) -> None:
    """Which is not the last one that was tried; no row is set aside."""
    first, again = both(model, y)
    assert 1 <= first.best_round_ < len(first.history_)
    assert len(again.history_) == again.best_round_ == first.best_round_
    assert all("risk_val" not in each for each in again.history_)

"""A model that is fitted again to all rows has what validation rows have chosen, and chooses nothing anew."""

from typing import Any

import numpy as np
import pytest

from tests.conftest import reloaded
from tests.tables import crossed
from usboost import BoostedFeatures, NetworkLearner, Table, TreeLearner, TwoBranchNetworkClassifier, Views
from usboost.evaluation.metrics import row_losses
from usboost.fit.build import build
from usboost.models.baselines.linear import LinearBaseline, RidgeBaseline
from usboost.models.baselines.trees import LightGBMBaseline, LightGBMBaselineRegressor
from usboost.models.methods.bfv_network import BoostedFeatureNetworkClassifier
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier, TwoWeakLearnerRegressor

VIEWS, Z = crossed(260, columns=12, noise=1.0)
Y = np.digitize(Z, [-0.5, 0.8])
FIT, HELD = np.arange(100), np.arange(100, 160)


def both(model: Any, y: np.ndarray) -> tuple[Any, Any]:
    """A fit with validation rows, and the fit to all rows, of which there are more."""
    first = model.fit(VIEWS[FIT], y[FIT], (VIEWS[HELD], y[HELD]))
    return first, first.for_all_rows().fit(VIEWS, y)


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
    assert anew.fit(VIEWS, Z).start_.penalty_ != pytest.approx(first.start_.penalty_)
    assert again.start_.penalty_ == pytest.approx(first.start_.penalty_)


def test_the_share_of_rows_for_steps() -> None:
    """100 rows are few for 12 columns, 260 are not; the steps stay those of rows that learners do not see."""
    learners = {"U": TreeLearner(1, engine="histogram")}
    first, again = both(TwoWeakLearnerClassifier(learners, step_fraction="wide", n_rounds=2), Y)
    anew = TwoWeakLearnerClassifier(learners, step_fraction="wide", n_rounds=2).fit(VIEWS, Y)
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
    first, again = both(model, y)
    assert 1 <= first.best_round_ < len(first.history_)
    assert len(again.history_) == again.best_round_ == first.best_round_
    assert all("risk_val" not in each for each in again.history_)


# Steps of tables with many columns for their rows.


def wide(n: int, columns: int, seed: int = 0) -> tuple[Views, np.ndarray]:
    """Four columns that count, one of them in an interaction, among others that do not."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, columns))
    score = x[:, 0] + x[:, 1] - x[:, 2] * (x[:, 3] > 0) + 0.3 * rng.normal(size=n)
    table = Table.from_numeric(x.astype(np.float32))
    return Views(U=table, S=table), (score > 0).astype(int)


@pytest.mark.parametrize("made", [TwoWeakLearnerClassifier, TwoWeakLearnerRegressor])
@pytest.mark.parametrize(("n", "share"), [(99, 0.2), (100, 0.0)])
def test_it_is_by_rows_and_the_columns_that_a_learner_reads(made: type, n: int, share: float) -> None:
    codes = Table(np.zeros((n, 4), np.float32), np.arange(4 * n, dtype=np.int32).reshape(n, 4) % 3, (3,) * 4)
    views = Views(U=Table.from_numeric(np.random.default_rng(0).normal(size=(n, 2)).astype("f4")), S=codes)
    learners = {"U": TreeLearner(reads=("U", "S")), "S": TreeLearner()}
    how = {"n_rounds": 2, "validation_fraction": 0.0}
    y = np.arange(n) % 2
    model = made(learners, step_fraction="wide", **how).fit(views, y)
    literal = made(learners, step_fraction=share, **how).fit(views, y)
    assert model.step_fraction_ == share
    np.testing.assert_array_equal(model.predict(views), literal.predict(views))


def test_a_file_keeps_the_share(tmp_path) -> None:
    views, y = wide(90, 10)
    learners = {"U": NetworkLearner(hidden=(4,)), "S": TreeLearner()}
    model = TwoWeakLearnerClassifier(learners, step_fraction="wide", n_rounds=3, validation_fraction=0.2)
    model.fit(views, y)
    assert model.step_fraction_ == 0.2 == model.for_all_rows().step_fraction
    kept = reloaded(model, tmp_path / "model")
    assert kept.step_fraction == "wide"
    np.testing.assert_array_equal(kept.predict_proba(views), model.predict_proba(views))


@pytest.mark.slow
def test_a_network_that_knows_rows_by_heart_leaves_the_trees_something_to_learn() -> None:
    views, y = wide(900, 300)
    train, held, unseen = views[:340], views[340:400], views[400:]
    losses = {}
    for share in ("wide", 0.0):
        model = build("crossed", images=None, settings={"step_fraction": share})
        model.fit(train, y[:340], (held, y[340:400]))
        losses[share] = row_losses(y[400:], model.predict_proba(unseen)).mean()
    assert losses["wide"] < losses[0.0] - 0.08

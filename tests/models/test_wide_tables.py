"""`step_fraction` "wide": where a table has many columns for its rows, steps are searched on others."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conftest import reloaded
from usboost import NetworkLearner, Table, TreeLearner, Views
from usboost.evaluation.metrics import row_losses
from usboost.fit.build import build
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier, TwoWeakLearnerRegressor


def rows(n: int, columns: int, seed: int = 0) -> tuple[Views, np.ndarray]:
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


def test_a_fit_to_all_rows_keeps_the_share(tmp_path) -> None:
    views, y = rows(90, 10)
    learners = {"U": NetworkLearner(hidden=(4,)), "S": TreeLearner()}
    model = TwoWeakLearnerClassifier(learners, step_fraction="wide", n_rounds=3, validation_fraction=0.2)
    model.fit(views, y)
    assert model.step_fraction_ == 0.2 == model.for_all_rows().step_fraction
    kept = reloaded(model, tmp_path / "model")
    assert kept.step_fraction == "wide"
    np.testing.assert_array_equal(kept.predict_proba(views), model.predict_proba(views))


@pytest.mark.slow
def test_a_network_that_knows_rows_by_heart_leaves_the_trees_something_to_learn() -> None:
    views, y = rows(900, 300)
    train, held, unseen = views[:340], views[340:400], views[400:]
    losses = {}
    for share in ("wide", 0.0):
        model = build("crossed", images=None, settings={"step_fraction": share})
        model.fit(train, y[:340], (held, y[340:400]))
        losses[share] = row_losses(y[400:], model.predict_proba(unseen)).mean()
    assert losses["wide"] < losses[0.0] - 0.08

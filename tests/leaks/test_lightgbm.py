"""LightGBM stops on the validation rows, at the right round, and keeps that round."""

import lightgbm
import numpy as np
import pytest
from sklearn.metrics import log_loss

from tests.conftest import make_views
from usboost import Callback, LightGBMBaseline, Views
from usboost.boosting.rounds import Round
from usboost.models.baselines.wrapper import NAME
from usboost.models.methods.boosted_features import lightgbm_parameters

PATIENCE = 8


@pytest.fixture(scope="module", params=[2, 3], ids=["two classes", "three"])
def fitted(request: pytest.FixtureRequest) -> tuple[LightGBMBaseline, Views, np.ndarray]:
    """A model that stopped long before its last tree, and all rows; the last 100 stopped it."""
    views, y = make_views(request.param, n=300, seed=1)
    model = LightGBMBaseline(n_trees=300, learning_rate=0.3, min_samples_leaf=3, patience=PATIENCE)
    return model.fit(views[:200], y[:200], (views[200:], y[200:])), views, y


def test_what_stops_it_is_the_log_loss_of_the_validation_rows(fitted) -> None:
    model, views, y = fitted
    raw = model.gbm_.staged_raw_score(model.reading_(views[200:])[NAME])
    for row, scores in zip(model.history_, raw):
        columns = np.column_stack([np.zeros(100), scores]) if scores.shape[1] == 1 else scores
        p = np.exp(columns - np.logaddexp.reduce(columns, axis=1)[:, None])
        assert row["risk_val"] == pytest.approx(log_loss(y[200:], p), rel=1e-6)


def test_it_stops_after_its_patience_and_keeps_the_best_round(fitted) -> None:
    model, views, y = fitted
    losses = [row["risk_val"] for row in model.history_]
    assert len(losses) < 300  # it did stop
    assert model.best_round_ == 1 + int(np.argmin(losses)) == len(losses) - PATIENCE
    assert model.n_estimators_ == model.best_round_
    said = log_loss(y[200:], model.predict_proba(views[200:]))
    assert said == pytest.approx(min(losses), rel=1e-6)


class StopAt(Callback):
    def on_round(self, round_: Round) -> bool:
        return round_.index == 40


def test_asked_to_stop_late_it_keeps_the_best_round_all_the_same() -> None:
    views, y = make_views(2, n=300, seed=1)
    settings = {"n_trees": 300, "learning_rate": 0.3, "min_samples_leaf": 3, "patience": 300}
    model = LightGBMBaseline(**settings, callbacks=[StopAt()])
    model.fit(views[:200], y[:200], (views[200:], y[200:]))
    losses = [row["risk_val"] for row in model.history_]
    assert len(losses) == 40 and model.best_round_ == model.n_estimators_ == 1 + int(np.argmin(losses)) < 40
    assert log_loss(y[200:], model.predict_proba(views[200:])) == pytest.approx(min(losses), rel=1e-6)


def test_its_trees_are_lightgbms_own_at_that_round(fitted) -> None:
    """LightGBM itself on the training rows alone, for as many rounds as were kept."""
    model, views, y = fitted
    table, seen = model.reading_(views)[NAME], y[:200]
    n_classes = len(model.classes_)
    shares = np.bincount(seen) / len(seen)
    start = [np.log(shares[1] / shares[0])] if n_classes == 2 else np.log(shares)
    parameters = lightgbm_parameters(n_classes) | {
        "learning_rate": 0.3,
        "min_data_in_leaf": 3,
        "num_threads": 1,
        "seed": 0,
    }
    data = lightgbm.Dataset(
        table[:200].matrix(),
        label=seen,
        init_score=np.repeat(start, 200),
        params=parameters,
        categorical_feature=list(table.categorical),
    )
    booster = lightgbm.train(parameters, data, model.best_round_)
    raw = booster.predict(table.matrix(), raw_score=True).reshape(len(y), -1) + np.asarray(start)
    np.testing.assert_allclose(model.gbm_.raw_score(table), raw, rtol=1e-5, atol=1e-6)  # leaves are float32

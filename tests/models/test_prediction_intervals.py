"""Intervals hold as many new targets as they promise, whatever the regressor makes of the data."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.model_selection import train_test_split

from tests.conftest import refuses, reloaded
from usboost import PredictionIntervals, RidgeBaseline, Table, TreeLearner, Views, load
from usboost.models.baselines.trees import LightGBMBaselineRegressor
from usboost.models.methods.two_weak_learner import TwoWeakLearnerRegressor


def data(n: int, seed: int) -> tuple[Views, np.ndarray]:
    """Noise that grows with the second column, so that no single width fits all."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 1, size=(n, 3))
    y = 10 * x[:, 0] + (0.2 + 4 * x[:, 1]) * rng.normal(size=n)
    return Views(S=Table.from_numeric(x)), y


def trees() -> TwoWeakLearnerRegressor:
    learners = {"S": TreeLearner(max_depth=2)}
    return TwoWeakLearnerRegressor(learners, n_rounds=25, shrinkage=0.3, validation_fraction=0)


MODELS = {
    "quantiles": lambda level: PredictionIntervals(trees(), level),
    "quantiles of LightGBM": lambda level: PredictionIntervals(
        LightGBMBaselineRegressor(("S",), n_trees=20, learning_rate=0.1), level
    ),
    "residuals": lambda level: PredictionIntervals(trees(), level, "residuals"),
    "a bad regressor": lambda level: PredictionIntervals(RidgeBaseline(("S",), (1e9,)), level, "residuals"),
}


@pytest.mark.parametrize("level", [0.5, 0.9])
@pytest.mark.parametrize("name", MODELS)
def test_new_targets_are_inside_as_often_as_promised(name: str, level: float) -> None:
    """The share of one calibration set varies by √(level(1 − level)/n); the mean over sets is promised."""
    new, truth = data(2000, 99)
    inside = []
    for seed in range(6):
        model = MODELS[name](level).fit(*data(500, seed))
        assert model.n_calibration_ == 100
        low, high = model.predict_interval(new)
        assert (low <= high).all()
        inside.append(np.mean((low <= truth) & (truth <= high)))
    # at least the level, at most 1/(n + 1) more, give or take three standard errors of six sets
    error = 3 * np.sqrt(level * (1 - level) / 100 / 6)
    assert level - error < np.mean(inside) < level + 1 / 101 + error


def test_the_margin_is_the_calibration_scores_quantile() -> None:
    views, y = data(300, 0)
    model = PredictionIntervals(trees(), 0.8, "residuals", random_state=5).fit(views, y)
    rows, held = train_test_split(np.arange(300), test_size=0.2, random_state=5)
    alone = trees().fit(views[rows], y[rows])
    np.testing.assert_array_equal(alone.predict(views), model.predict(views))
    away = np.sort(np.abs(y[held] - alone.predict(views[held])))
    assert model.margin_ == away[int(np.ceil(61 * 0.8)) - 1]


def test_quantiles_follow_the_noise_and_residuals_do_not() -> None:
    views, y = data(1500, 0)
    calm = Views(S=Table.from_numeric(np.array([[0.5, 0.05, 0.5]])))
    loud = Views(S=Table.from_numeric(np.array([[0.5, 0.95, 0.5]])))

    def widths(method: str) -> list[float]:
        model = PredictionIntervals(trees(), method=method).fit(views, y)
        return [float((high - low)[0]) for low, high in map(model.predict_interval, (calm, loud))]

    one, other = widths("quantiles")
    assert other > 3 * one
    one, other = widths("residuals")
    assert other == pytest.approx(one)


@pytest.mark.parametrize("name", ["quantiles", "residuals", "quantiles of LightGBM"])
def test_files_keep_the_intervals(name: str, tmp_path: Path) -> None:
    views, y = data(200, 0)
    model = MODELS[name](0.8).fit(views, y)
    again = reloaded(model, tmp_path / "model")
    np.testing.assert_array_equal(again.predict(views), model.predict(views))
    for one, other in zip(again.predict_interval(views), model.predict_interval(views)):
        np.testing.assert_array_equal(one, other)
    inner = next((tmp_path / "model").glob("point/**/*.safetensors"))
    inner.write_bytes(inner.read_bytes()[:-1] + b"x")
    refuses("not the file that was saved", load, tmp_path / "model")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (PredictionIntervals(trees(), 1.5), "level is a probability"),
        (PredictionIntervals(trees(), method="magic"), "unknown method 'magic'"),
        (PredictionIntervals(RidgeBaseline(("S",))), "a RidgeBaseline fits no quantiles"),
        (PredictionIntervals(trees(), 0.99), "20 calibration samples are too few"),
    ],
)
def test_what_cannot_be_promised_is_refused(model: PredictionIntervals, message: str) -> None:
    refuses(message, model.fit, *data(100, 0))

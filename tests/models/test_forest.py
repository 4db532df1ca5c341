"""The forest against scikit-learn's, the prior against counts, LightGBM's columns that only rise or fall."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes, load_wine
from sklearn.ensemble import RandomForestRegressor

from tests.conftest import refuses, reloaded
from tests.fit.conftest import accepted, run
from tests.tables import one
from usboost import LightGBMBaselineRegressor
from usboost.fit import bundle
from usboost.models.baselines.packages import PriorBaseline, PriorBaselineRegressor
from usboost.models.baselines.trees import ForestBaseline, ForestBaselineRegressor

WINE, DIABETES = load_wine(), load_diabetes()


def saved(model, folder: Path):
    return reloaded(model, folder / "model")


def test_classes_as_scikit_learns_forest_on_indicators(tmp_path):
    x, y = WINE.data, WINE.target
    model = ForestBaseline(("S",), n_trees=15, leaf_sizes=(3,), validation_fraction=0, random_state=4)
    model.fit(one(x), y)
    forest = RandomForestRegressor(15, min_samples_leaf=3, max_features="sqrt", random_state=4)
    expected = forest.fit(x.astype(np.float32), np.eye(3)[y]).predict(x.astype(np.float32))
    expected = (15 * expected + 1 / 3) / 16  # one tree more, which knows nothing
    np.testing.assert_allclose(model.predict_proba(one(x)), expected, atol=1e-6)
    importances = model.feature_importances_
    assert importances.sum() == pytest.approx(1) and len(importances) == x.shape[1]
    np.testing.assert_array_equal(saved(model, tmp_path).predict_proba(one(x)), model.predict_proba(one(x)))


def test_numbers_as_scikit_learns_forest_and_the_better_leaves_are_kept(tmp_path):
    x, y = DIABETES.data, DIABETES.target
    train, held = np.arange(300), np.arange(300, len(y))
    model = ForestBaselineRegressor(("S",), n_trees=15, leaf_sizes=(1, 20), random_state=4)
    model.fit(one(x[train]), y[train], (one(x[held]), y[held]))
    errors = []
    for size in (1, 20):
        forest = RandomForestRegressor(15, min_samples_leaf=size, max_features=1 / 3, random_state=4)
        predicted = forest.fit(x[train].astype(np.float32), y[train]).predict(x[held].astype(np.float32))
        errors.append(np.square(predicted - y[held]).mean())
    best = int(np.argmin(errors))
    assert model.best_round_ == best + 1
    found = np.square(model.predict(one(x[held])) - y[held]).mean()
    assert found == pytest.approx(errors[best], rel=1e-5)
    np.testing.assert_array_equal(saved(model, tmp_path).predict(one(x)), model.predict(one(x)))


def test_the_prior_is_the_same_for_every_row(tmp_path):
    x, names = WINE.data, np.array(["b", "a", "c"])[WINE.target]
    model = PriorBaseline().fit(one(x), names)
    expected = [np.mean(names == name) for name in "abc"]
    np.testing.assert_allclose(model.predict_proba(one(x[:5])), np.tile(expected, (5, 1)))
    assert set(model.predict(one(x))) == {"a"}
    np.testing.assert_array_equal(saved(model, tmp_path).shares_, model.shares_)
    mean = PriorBaselineRegressor().fit(one(DIABETES.data), DIABETES.target)
    np.testing.assert_allclose(mean.predict(one(DIABETES.data[:3])), DIABETES.target.mean())
    assert saved(mean, tmp_path / "other").predict(one(DIABETES.data[:3])).shape == (3,)


RNG = np.random.default_rng(0)
X = RNG.normal(size=(500, 3)).astype(np.float32)
Y = np.sin(3 * X[:, 0]) + X[:, 0] - X[:, 1] + 0.3 * X[:, 0] * X[:, 2] + 0.5 * RNG.normal(size=500)
NAMES = ("rooms", "age", "other")


def steps(predict, x, column):
    """Differences of predictions along a column's range, for 100 rows: (100, 79)."""
    sweep = np.linspace(x[:, column].min() - 1, x[:, column].max() + 1, 80)
    rows = np.repeat(x[:100], 80, axis=0)
    rows[:, column] = np.tile(sweep, 100)
    return np.diff(predict(rows).reshape(100, 80), axis=1)


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_swept_over_its_range(loss):
    free = LightGBMBaselineRegressor(views=("S",), n_trees=60, loss=loss).fit(one(X, *NAMES), Y)
    held = LightGBMBaselineRegressor(
        views=("S",), n_trees=60, loss=loss, monotone={"rooms": "+", "age": "-"}
    ).fit(one(X, *NAMES), Y)
    of_free, of_held = (lambda x, model=model: model.predict(one(x, *NAMES)) for model in (free, held))
    assert steps(of_free, X, 0).min() < -0.01 and steps(of_free, X, 1).max() > 0.01
    assert steps(of_held, X, 0).min() >= 0 and steps(of_held, X, 1).max() <= 0
    assert steps(of_held, X, 0).max() > 0.01
    assert steps(of_held, X, 2).min() < 0 < steps(of_held, X, 2).max()  # free


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"monotone": {"rom": "+"}}, r"'rom' is no number; choose among .*did you mean 'rooms'\?"),
        ({"monotone": {"age": "up"}}, "the direction of 'age' is \\+ or -, not 'up'"),
        ({"monotone": "age"}, "such as {age: \\+}, not 'age'"),
        ({"monotone": {"age": "-"}, "loss": "quantile"}, "no column monotone with the quantile loss"),
    ],
)
def test_what_cannot_be_promised(given, said):
    refuses(said, LightGBMBaselineRegressor(views=("S",), n_trees=5, **given).fit, one(X, *NAMES), Y)


def test_by_the_command_on_a_table_with_gaps(tmp_path):
    frame = pd.DataFrame(X, columns=NAMES).assign(price=np.exp(Y))
    frame.loc[:40, "rooms"] = np.nan
    frame["age"] = np.exp(3 * frame["age"])  # skewed: read through a logarithm
    frame.to_parquet(tmp_path / "t.parquet")
    common = ("fit", tmp_path / "t.parquet", "--label", "price", "--set", "monotone={rooms: +, age: '-'}")
    accepted(*common, "--model", "lgbm", "--out", tmp_path / "m")
    loaded, x = bundle.load(tmp_path / "m"), frame[[*NAMES]].dropna().to_numpy()

    def predict(rows):
        return loaded.predict(pd.DataFrame(rows, columns=NAMES))["prediction"].to_numpy()

    assert steps(predict, x, 0).min() >= 0 and steps(predict, x, 1).max() <= 0
    assert steps(predict, x, 0).max() > 0
    for other in ("linear_trees", "ridge"):
        result = run(*common, "--model", other, "--out", tmp_path / "n")
        assert result.exit_code == 1 and f"{other} has no setting 'monotone'" in result.stderr

"""LightGBM's predictions of a number that never fall, or rise, as a column grows."""

import numpy as np
import pandas as pd
import pytest

from tests.conftest import refuses
from tests.fit.conftest import accepted, run
from tests.tables import one
from usboost import LightGBMBaselineRegressor
from usboost.fit import bundle

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
        ({"monotone": {"rom": "+"}}, r"no column of numbers 'rom'; choose among .*did you mean 'rooms'\?"),
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

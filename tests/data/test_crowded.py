"""Columns that standardising in float32 would make one number: their order is kept, others are as before."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import rankdata
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine
from sklearn.metrics import roc_auc_score

from tests.conftest import refuses
from usboost import MultimodalClassifier
from usboost.data.encoding import KNOTS, Numeric, TableEncoder
from usboost.datasets.store import EncoderCard
from usboost.table.columns.kinds import fill_values

N = 800
RNG = np.random.default_rng(0)
SMALL = RNG.uniform(size=N).round(6)
SOME = RNG.uniform(size=N) < 0.2
HALF = RNG.uniform(size=N) < 0.5

CROWDED = {
    "a fill value of GDAL": np.where(SOME, -3.4028234e38, SMALL),
    "a fill value of netCDF": np.where(SOME, 9.96921e36, SMALL),
    "a fill value in few rows": np.where(np.arange(N) % 40 == 0, 9.96921e36, SMALL * 1e-12),
    "nines": np.where(SOME, 99999999, SMALL),
    "nines and a negative one": np.select([SOME, HALF], [99999999, -99999999], SMALL),
    "mostly a fill value": np.where(SOME, SMALL, 1e10),
    "grams and nanograms": np.where(HALF, SMALL, SMALL * 1e-9),
    "no time among timestamps": np.where(HALF, 0, 1.6e9 + np.round(SMALL * 86_400, 3)),
    "a small number on an offset, far from another": np.where(HALF, 1e9 + np.round(SMALL, 4), 1e18),
    "subnormal": SMALL * 1e-310,
    "squares underflow": SMALL * 1e-200,
    "the year 9999": np.where(SOME, 2.9e6, np.round(SMALL * 365)),
}


def encoded(values: np.ndarray, other: np.ndarray | None = None) -> np.ndarray:
    """The column as learnt of values, by way of a card."""
    encoder = TableEncoder.fit(pd.DataFrame({"x": values}), ["x"])
    spec = json.loads(json.dumps(EncoderCard.model_validate(encoder.to_dict()).model_dump(), allow_nan=False))
    return (
        TableEncoder.from_dict(spec)
        .transform(pd.DataFrame({"x": values if other is None else other}))
        .numeric[:, 0]
    )


@pytest.mark.parametrize("name", CROWDED)
def test_the_order_is_kept(name: str) -> None:
    values = CROWDED[name].astype(np.float64)
    found = encoded(values)
    np.testing.assert_array_equal(rankdata(found, "dense"), rankdata(values, "dense"))
    assert abs(found.mean()) < 1e-4 and abs(found.std() - 1) < 1e-4
    # what is between known values is between them, what is beyond is at the end
    ends = encoded(values, np.array([-1e39, values.min(), np.median(values), values.max(), 1e39]))
    assert ends[0] == ends[1] <= ends[2] <= ends[3] == ends[4]


def test_many_values_have_few_knots() -> None:
    rng = np.random.default_rng(1)
    values = np.where(rng.uniform(size=20_000) < 0.2, 1e10, rng.uniform(size=20_000))
    scale = Numeric.fit("x", values)
    assert 2 < len(scale.knots) <= KNOTS
    order = np.argsort(values)
    found = scale(values).astype(np.float32)[order]
    assert (np.diff(found) >= 0).all() and len(np.unique(found)) > 0.99 * len(np.unique(values))


@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer, load_diabetes])
def test_ordinary_columns_are_standardised_as_before(load) -> None:
    frame = load(as_frame=True).data
    frame["offset"], frame["seconds"] = 1e9 + frame.iloc[:, 0], 1.6e9 + np.arange(len(frame)) * 3600
    frame["noise"] = frame.iloc[:, 0] * (1 + 1e-16 * (np.arange(len(frame)) % 9))  # rounding
    frame["zeros"] = np.where(np.arange(len(frame)) % 3 == 0, 0, 1e6 + frame.iloc[:, 0])
    for scale in TableEncoder.fit(frame, list(frame)).numeric[:-1]:
        assert not scale.knots, scale.name


@pytest.mark.parametrize(
    "card", [{"knots": [0.0]}, {"knots": [0.0, 1.0], "places": [0.0]}, {"knots": [1, 1], "places": [0, 1]}]
)
def test_a_card_with_wrong_knots_is_refused(card) -> None:
    spec = {"numeric": [{"name": "x", "log": False, "mean": 0, "std": 1} | card], "categorical": []}
    refuses("'x' do not rise, each with its place", TableEncoder.from_dict, spec)


@pytest.mark.parametrize("name", ["nines", "grams and nanograms"])
def test_trees_and_lines_learn_what_is_in_small_values(name: str) -> None:
    y = (RNG.uniform(size=N) < np.where(SMALL > 0.5, 0.95, 0.05)).astype(int)
    frame, small = pd.DataFrame({"x": CROWDED[name], "z": RNG.normal(size=N)}), CROWDED[name] < 1
    for model in ("lgbm", "logistic") if name == "nines" else ("lgbm",):
        with pytest.warns(UserWarning, match="x") if name == "nines" else pytest.MonkeyPatch.context():
            fitted = MultimodalClassifier(model, refit=False).fit(frame, y)
        assert roc_auc_score(y[small], fitted.predict_proba(frame[small])[:, 1]) > 0.9


def test_fill_values_are_found() -> None:
    expected = {
        "a fill value of netCDF": ["9.96921e+36"],
        "nines": ["99999999"],
        "nines and a negative one": ["-99999999", "99999999"],
        "grams and nanograms": [],
        "squares underflow": [],
    }
    for name, fills in expected.items():
        assert list(fill_values(CROWDED[name])) == fills
    assert fill_values(np.where(SOME, 99, RNG.integers(1, 6, N))) == {"99": int(SOME.sum())}
    assert fill_values(np.where(SOME, -1, RNG.integers(0, 9, N))) == {}
    assert fill_values(np.where(SOME, 0, RNG.normal(size=N))) == fill_values(np.zeros(N)) == {}

"""The encoder: what it learns, from which rows, its description; one form of a value in every writing."""

import datetime
import json
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.stats import rankdata
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine
from sklearn.metrics import roc_auc_score

from tests.conftest import refuses
from usboost import MultimodalClassifier
from usboost.data.encoding import KNOTS, SKEWED, Numeric, TableEncoder
from usboost.data.value import canonical, find, missing_of
from usboost.datasets.store import EncoderCard
from usboost.table.columns.kinds import fill_values

WORDS = st.one_of(st.none(), st.sampled_from(["a", "b", "c", "NA", "nan", "0", "1", "é", ""]))
ROWS = st.integers(1, 30)
NUMBERS = st.floats(-1e30, 1e30, allow_nan=False)


@st.composite
def frames(draw: st.DrawFn, rows: st.SearchStrategy[int] = ROWS) -> pd.DataFrame:
    n = draw(rows)
    return pd.DataFrame(
        {
            "x": draw(hnp.arrays(np.float64, n, elements=NUMBERS)),
            "word": pd.Series(draw(st.lists(WORDS, min_size=n, max_size=n)), dtype=object),
            "k": pd.Categorical(draw(st.lists(st.sampled_from("uvw"), min_size=n, max_size=n))),
            "z": draw(hnp.arrays(np.float32, n, elements=st.floats(-100, 100, width=32))),
        }
    )


COLUMNS = ["word", "x", "k", "z"]


@given(frames(), frames())
def test_the_description_makes_an_equal_encoder(train: pd.DataFrame, other: pd.DataFrame) -> None:
    encoder = TableEncoder.fit(train, COLUMNS)
    again = TableEncoder.from_dict(json.loads(json.dumps(encoder.to_dict(), allow_nan=False)))
    assert again == encoder
    one, two = encoder.transform(other), again.transform(other)
    np.testing.assert_array_equal(one.numeric, two.numeric)
    np.testing.assert_array_equal(one.codes, two.codes)
    assert one.names == two.names == ("x", "z", "word", "k")


@given(frames(), frames())
def test_codes_against_a_literal_count_of_the_training_rows(train: pd.DataFrame, other: pd.DataFrame) -> None:
    encoder = TableEncoder.fit(train, ["word"])
    values = list(train["word"])
    present = [value for value in set(values) if value is not None]
    order = sorted(present, key=lambda value: (-values.count(value), value))
    if None in values:
        missing = values.count(None)
        order.insert(sum(values.count(value) >= missing for value in order), None)
    expected = [order.index(value) + 1 if value in order else 0 for value in other["word"]]
    table = encoder.transform(other)
    assert table.codes[:, 0].tolist() == expected
    assert table.cardinalities == (len(order) + 1,)
    assert (encoder.transform(train).codes > 0).all()


@given(frames(st.integers(2, 40)), frames())
def test_numbers_are_standardised_on_the_training_rows(train: pd.DataFrame, other: pd.DataFrame) -> None:
    encoder = TableEncoder.fit(train, COLUMNS)
    assert np.isfinite(encoder.transform(other).numeric).all()
    for j, name in enumerate(("x", "z")):
        values = train[name].to_numpy(dtype=np.float64)
        if abs(train[name].astype(float).skew()) > SKEWED:
            values = np.sign(values) * np.log1p(np.abs(values))
        spread = values.std()
        if encoder.numeric[j].knots:
            continue  # by ranks, see CROWDED
        if values.min() == values.max() or spread == 0:
            expected = np.zeros(len(values))
        else:
            expected = (values - values.mean()) / spread
        np.testing.assert_allclose(encoder.transform(train).numeric[:, j], expected, rtol=1e-5, atol=1e-5)


@given(frames(st.integers(4, 20)), st.data())
def test_other_rows_change_nothing(frame: pd.DataFrame, data: st.DataObject) -> None:
    half = len(frame) // 2
    train, other = frame.iloc[:half], frame.iloc[half:]
    encoder = TableEncoder.fit(train, COLUMNS)
    plain = train.assign(k=train["k"].astype(str))
    assert TableEncoder.fit(plain, COLUMNS) == encoder
    rows = data.draw(st.lists(st.integers(0, len(other) - 1), min_size=1, max_size=5))
    table, some = encoder.transform(other), encoder.transform(other.iloc[rows])
    np.testing.assert_array_equal(some.numeric, table.numeric[rows])
    np.testing.assert_array_equal(some.codes, table.codes[rows])


@settings(max_examples=50)
@given(
    st.lists(st.one_of(st.none(), st.integers(0, 4)), min_size=1, max_size=20),
    st.lists(st.one_of(st.none(), st.integers(0, 6)), min_size=1, max_size=20),
)
def test_one_column_in_every_dress_has_equal_codes(train: list[int | None], other: list[int | None]) -> None:
    def dresses(values: list[int | None]) -> list[pd.Series]:
        words = [None if value is None else str(value) for value in values]
        return [
            pd.Series(words, dtype=object),
            pd.Series(words, dtype="str"),
            pd.Series(words, dtype="string[pyarrow]"),
            pd.Series(words, dtype="category"),
            pd.Series(values, dtype=object),
            pd.Series(values, dtype="float64"),
            pd.Series(values, dtype="Int64"),
            pd.Series(values, dtype="int64[pyarrow]"),
            pd.Series(values, dtype="float64").astype("category"),
            pd.Series(values, dtype="Int64").astype("category"),
        ]

    encoders = [TableEncoder.fit(s.to_frame("c"), ["c"], categorical=["c"]) for s in dresses(train)]
    assert all(encoder == encoders[0] for encoder in encoders)
    codes = [encoders[0].transform(s.to_frame("c")).codes.tolist() for s in dresses(other)]
    assert all(c == codes[0] for c in codes)
    assert [code == 0 for (code,) in codes[0]] == [value not in train for value in other]


def test_numbers_are_numeric_and_everything_else_nominal_unless_told() -> None:
    frame = pd.DataFrame({"n": [1, 2, 3], "f": [0.5, 1.5, 2.5], "b": [True, False, True], "s": list("abc")})
    assert TableEncoder.fit(frame, list(frame)).names == ("n", "f", "b", "s")
    told = TableEncoder.fit(frame, list(frame), categorical=["n", "b", "s"])
    assert [c.name for c in told.numeric] == ["f"]
    assert told.names == ("f", "n", "b", "s")


def test_a_skewed_column_is_read_through_the_logarithm() -> None:
    train = pd.DataFrame({"gains": np.r_[np.zeros(50), 99999.0], "even": np.arange(51.0)})
    gains, even = TableEncoder.fit(train, ["gains", "even"]).numeric
    assert gains.log and not even.log
    values = (
        TableEncoder.fit(train, ["gains"]).transform(pd.DataFrame({"gains": [-9.0, 0.0, 9.0]})).numeric[:, 0]
    )
    assert values[2] - values[1] == pytest.approx(values[1] - values[0], rel=1e-5)
    assert values[2] - values[1] == pytest.approx(np.log(10) / gains.std, rel=1e-5)


def test_a_constant_column_is_zero_whatever_comes() -> None:
    encoder = TableEncoder.fit(pd.DataFrame({"x": [0.1] * 7}), ["x"])
    assert encoder.transform(pd.DataFrame({"x": [0.1, 5.0, -1e30]})).numeric.tolist() == [[0.0]] * 3


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, None])
def test_a_number_that_is_none_is_named_and_counted(bad: float | None) -> None:
    good, wrong = pd.DataFrame({"age": [1.0, 2.0, 3.0]}), pd.DataFrame({"age": [1.0, bad, bad]})
    refuses("'age' holds 2 missing or infinite values of 3", TableEncoder.fit, wrong, ["age"])
    refuses("'age' holds 2 missing or infinite values of 3", TableEncoder.fit(good, ["age"]).transform, wrong)


def test_what_cannot_be_encoded_is_named() -> None:
    frame = pd.DataFrame({"age": [1.0, 2.0], "word": ["a", "b"]})
    encoder = TableEncoder.fit(frame, ["age", "word"])
    for column in ("age", "word"):
        refuses(f"'{column}' is missing", encoder.transform, frame.drop(columns=column))
        refuses(f"'{column}' is missing", TableEncoder.fit, frame.drop(columns=column), ["age", "word"])
    refuses("'age' is numeric", encoder.transform, frame.assign(age=["old", "young"]))
    refuses("at least one training row", TableEncoder.fit, frame.iloc[:0], ["age"])
    refuses("'age'", TableEncoder.fit, pd.DataFrame({"age": [1e308, 1e308, -1e308]}), ["age"])
    for spec in ({}, {"numeric": [], "categorical": [{"name": "x"}]}, {"numeric": 3, "categorical": []}):
        refuses("not the description", TableEncoder.from_dict, spec)


def test_a_view_may_have_no_number_or_no_category() -> None:
    frame = pd.DataFrame({"age": [1.0, 2.0], "word": ["a", "b"]})
    assert TableEncoder.fit(frame, ["word"]).transform(frame).numeric.shape == (2, 0)
    assert TableEncoder.fit(frame, ["age"]).transform(frame).codes.shape == (2, 0)


@pytest.mark.parametrize(
    ("values", "form"),
    [
        ((3, 3.0, "3", "3.0", "3.000", np.int8(3), np.float32(3), Decimal("3.00")), "3"),
        ((0, -0.0, "-0", "0.0", "-0.0"), "0"),
        ((-999, -999.0, "-999", "-999.00"), "-999"),
        ((1e16, "1e+16", 10**16), "10000000000000000"),
        ((2.5, "2.5", np.float32(2.5), Decimal("2.5")), "2.5"),
        ((True, np.True_, "True"), "True"),
        ((datetime.date(2020, 3, 1), pd.Timestamp("2020-03-01"), "2020-03-01 00:00:00"), "2020-03-01"),
        ((float("inf"), "inf"), "inf"),
    ],
)
def test_values_of_one_form(values: tuple[Any, ...], form: str) -> None:
    assert [canonical(value) for value in values] == [form] * len(values)


def test_truth_values_in_every_spelling_are_two_categories() -> None:
    frame = pd.DataFrame({"c": ["yes"] * 3 + ["YES", "No", "no", "no", None, "0", "true"]})
    encoder = TableEncoder.fit(frame, ["c"])
    assert encoder.categorical[0].values == ("yes", "no", None)
    assert encoder.transform(frame).codes.ravel().tolist() == [1, 1, 1, 1, 2, 2, 2, 3, 2, 1]
    assert TableEncoder.fit(pd.DataFrame({"c": ["yes", "Yes", "no", "?"]}), ["c"]).categorical[0].values[
        1:
    ] == (*("Yes", "no"), "yes")


@pytest.mark.parametrize(
    "code", ["007", "00.10", "1e5", "1E5", "12E34", "1.10", "+3", "3.", ".0", "1234567890123456.0", "٣.0", ""]
)
def test_codes_stay_as_they_are(code: str) -> None:
    assert canonical(code) == code


@pytest.mark.parametrize(
    ("known", "given", "expected"),
    [
        (("3", "5"), ("3.0", "3", "5.00", "7"), {"3": 0, "3.0": 0, "5.00": 1}),
        (("3.0", "5.0"), ("3", "5"), {"3": 0, "5": 1}),  # of a model that was saved before
        (("1.1", "1.10"), ("1.1", "1.10", "1.100"), {"1.1": 0, "1.10": 1, "1.100": 0}),
        (("2.50", "a"), ("2.5",), {"2.5": 0}),
        (("True", "False"), ("1", "true", "FALSE", "0", "2"), {"1": 0, "true": 0, "FALSE": 1, "0": 1}),
        (("TRUE", "FALSE"), ("True", "False"), {"True": 0, "False": 1}),
        (("yes", "no", None), ("True", "NO", None), {"True": 0, "NO": 1, None: 2}),
        (("0", "1"), ("False", "True"), {"False": 0, "True": 1}),
        (("yes", "no", "perhaps"), ("True", "Yes"), {}),
        (("007", "1e5"), ("7", "100000"), {}),
    ],
)
def test_names_are_found_that_are_written_otherwise(
    known: tuple[str | None, ...], given: tuple[str | None, ...], expected: dict[str | None, int]
) -> None:
    assert find({name: k for k, name in enumerate(known)}, given) == expected


def test_what_is_said_to_be_missing() -> None:
    for option in ("-999", "-999.0", "-9.99e2", " -999"):
        found = missing_of((option,))
        assert "-999" in found.texts and found.floats == [-999.0] and found.whole == [-999]
    assert missing_of(("9007199254740993",)).whole == [9007199254740993]
    assert missing_of(("1e5",)).texts == {"1e5"} and missing_of(("1e5",)).floats == [100000.0]
    assert missing_of(("007",)).texts == {"007"}
    assert missing_of(("Infinity",)).floats == [np.inf] and missing_of(("inf",)).whole == []
    assert missing_of(("nan", "n.a.")).numbers == ()


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

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

from tests.conftest import refuses
from usboost.data.encoding import SKEWED, TableEncoder
from usboost.data.value import canonical, find, missing_of

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
def test_numbers_are_finite_and_standardised_on_the_training_rows(
    train: pd.DataFrame, other: pd.DataFrame
) -> None:
    encoder = TableEncoder.fit(train, COLUMNS)
    assert np.isfinite(encoder.transform(other).numeric).all()
    for j, name in enumerate(("x", "z")):
        values = train[name].to_numpy(dtype=np.float64)
        if abs(train[name].astype(float).skew()) > SKEWED:
            values = np.sign(values) * np.log1p(np.abs(values))
        spread = values.std()
        if encoder.numeric[j].knots:
            continue  # by ranks, see tests/data/test_crowded.py
        if values.min() == values.max() or spread == 0:
            expected = np.zeros(len(values))
        else:
            expected = (values - values.mean()) / spread
        np.testing.assert_allclose(encoder.transform(train).numeric[:, j], expected, rtol=1e-5, atol=1e-5)


@given(frames(st.integers(4, 20)), st.data())
def test_other_rows_change_nothing(frame: pd.DataFrame, data: st.DataObject) -> None:
    """A row's encoding depends on the training rows and on itself, and a shared dictionary says nothing."""
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

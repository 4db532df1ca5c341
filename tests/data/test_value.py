"""One form of a value, however it is typed or written."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from usboost.data.encoding import Categorical
from usboost.data.value import canonical, find, missing_of


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


def test_categories_are_found_by_the_encoder() -> None:
    fitted = Categorical.fit("c", pd.Series([True, True, False]))
    assert fitted(pd.Series([1, 0, 1])).tolist() == [1, 2, 1]
    assert fitted(pd.Series(["true", "FALSE", "x"])).tolist() == [1, 2, 0]
    saved = Categorical("c", ("3.0", "5.0", None))
    assert (
        saved(pd.Series([3, 5, 7])).tolist() == saved(pd.Series(["3.0", "5.0", "7.0"])).tolist() == [1, 2, 0]
    )
    assert saved(pd.Series([3.0, np.nan])).tolist() == [1, 3]


def test_what_is_said_to_be_missing() -> None:
    for option in ("-999", "-999.0", "-9.99e2", " -999"):
        found = missing_of((option,))
        assert "-999" in found.texts and found.floats == [-999.0] and found.whole == [-999]
    assert missing_of(("9007199254740993",)).whole == [9007199254740993]
    assert missing_of(("1e5",)).texts == {"1e5"} and missing_of(("1e5",)).floats == [100000.0]
    assert missing_of(("007",)).texts == {"007"}
    assert missing_of(("Infinity",)).floats == [np.inf] and missing_of(("inf",)).whole == []
    assert missing_of(("nan", "n.a.")).numbers == ()

"""The groups of a column by which rows are scored."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tests.conftest import refuses
from usboost.errors import UsboostError
from usboost.table.columns.slices import MOST, read_slices
from usboost.table.source import FrameRows


def groups(values, rows=None, **given) -> list[str | None]:
    """The name of each row's group."""
    frame = pd.DataFrame({"x": values, "age": 0})
    rows = np.arange(len(frame)) if rows is None else np.array(rows)
    found = read_slices(FrameRows(frame, mixed=True), "x", rows, **given)
    assert found.codes.dtype == np.int64 and set(found.codes) == set(range(len(found.names)))
    return [found.names[k] for k in found.codes]


def test_categories_and_rows_without_one():
    assert groups(["a", None, "b", " b", ""]) == ["a", "(missing)", "b", "b", "(missing)"]
    assert groups([True, False, True]) == ["True", "False", "True"]
    assert groups([None, None]) == ["(missing)"] * 2


def test_the_most_frequent_come_first_and_the_rarest_are_one_group():
    values = [each for k in range(15) for each in [f"c{k:02}"] * (20 - k)]
    found = groups(values)
    names = list(dict.fromkeys(found))
    assert names == [*(f"c{k:02}" for k in range(MOST - 1)), "(4 rarer values)"]
    assert all(
        name == (value if int(value[1:]) < MOST - 1 else names[-1])
        for name, value in zip(found, values, strict=True)
    )
    assert set(groups(values[: sum(20 - k for k in range(MOST))])) == {f"c{k:02}" for k in range(MOST)}


def test_numbers_in_quarters_of_the_rows_that_count():
    values = [*range(1, 101), np.nan]
    assert dict.fromkeys(groups(values)) == dict.fromkeys(
        ["1 to 25", "26 to 50", "51 to 75", "76 to 100", "(missing)"]
    )
    assert set(groups(values, rows=range(20))) == {"1 to 5", "6 to 10", "11 to 15", "16 to 20"}
    # three quarters of all values are 0, so there are two groups
    assert groups([0.0] * 75 + [*np.arange(1, 26) / 10])[70:80] == ["0"] * 5 + ["0.1 to 2.5"] * 5


def test_few_numbers_are_groups_of_their_own_in_rising_order():
    frame = pd.DataFrame({"x": [3, 1, 2, 1]})
    found = read_slices(FrameRows(frame), "x", np.arange(4))
    assert found.names == ("1", "2", "3") and found.codes.tolist() == [2, 0, 1, 0]


def test_what_a_model_reads_as_categories_and_values_that_count_as_missing():
    codes = [str(k % 20) for k in range(40)]
    assert set(groups(codes)) == {"0 to 4", "5 to 9", "10 to 14", "15 to 19"}
    assert "19" not in groups(codes, kind="category") and "(9 rarer values)" in groups(codes, kind="category")
    assert groups(["1", "-9", "2"], missing=("-9",)) == ["1", "(missing)", "2"]


def test_dates_in_quarters():
    days = pd.date_range("2020-01-01", periods=40)
    assert groups(days)[0] == "2020-01-01 to 2020-01-10" and groups(days)[-1] == "2020-01-31 to 2020-02-09"


def test_what_cannot_be_grouped():
    with pytest.raises(UsboostError, match=r"lacks column 'agee'.*did you mean 'age'"):
        read_slices(FrameRows(pd.DataFrame({"age": [1]})), "agee", np.arange(1))
    refuses("column 'x' is of type binary, which has no groups; name a column", groups, [b"1", b"2"])

"""Numbers as people write them come back as they went, in every way of writing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from usboost.table.columns.formats import FORMATS, NumberFormat, number_format

CENTS = st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=20)


@pytest.mark.parametrize("unit", ["", "€", "USD", "%"])
@pytest.mark.parametrize("form", FORMATS, ids=str)
@settings(max_examples=20)
@given(cents=CENTS)
def test_numbers_come_back(form: NumberFormat, unit: str, cents: list[int]) -> None:
    marks = str.maketrans({",": form.thousands, ".": form.decimal})
    texts = pd.Series(
        [f"{each / 100:,.2f}".translate(marks) + f" {unit}".rstrip() for each in cents], dtype="str"
    )
    found, share = number_format(texts, ".")
    assert share == 1
    expected = np.array(cents) / (10_000 if unit == "%" else 100)
    np.testing.assert_allclose(found.numbers(texts), expected, rtol=1e-12)
    same = NumberFormat(form.decimal, form.thousands, unit)
    np.testing.assert_allclose(same.numbers(texts), expected, rtol=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        "1,23,456.0",
        "12,34",
        "0,123.5",
        "1,,234",
        "1.2.3",
        "$ 5 €",
        "5 kg",
        "--5",
        "1 2",
        "e5",
        "",
        "1,234,",
        "½",
    ],
)
def test_what_is_no_number_with_thousands(text: str) -> None:
    assert NumberFormat(".", ",", "").numbers(pd.Series([text, "1,234.5"], dtype="str")).isna().tolist() == [
        True,
        False,
    ]

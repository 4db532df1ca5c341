"""Numbers as people write them: 4.053,5 and € 12, 12 %, 5 kg; and how a card holds a column's format."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, fields
from functools import cached_property
from operator import not_
from typing import Annotated, Literal

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

from usboost.datasets.user.columns.dates import DateFormat, Order

_SIGNS = "[$¢£¤¥฿₠-₿]"
_CODES = (
    "AUD|BRL|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HKD|HUF|INR|JPY|KRW|MXN|NOK|NZD|PLN|RUB|SEK|SGD|TRY|USD|ZAR|kr|zł"
)
_WORD = r"[A-Za-zµμ°Ω][A-Za-zµμ°Ω²³/]"
_MEASURE = rf" {_WORD}{{0,9}}|{_WORD}{{1,9}}"  # without a space one letter may be part of a code
_NUMBER = re.compile(
    rf"(?P<before>{_SIGNS}|{_CODES})? ?(?P<sign>[+-])? ?(?P<unit>{_SIGNS}|{_CODES})? ?"
    rf"(?P<body>[\d.,' ]*\d[\d.,']*(?:[eE][+-]?\d+)?)"
    rf"(?: ?(?P<after>{_SIGNS}|{_CODES}|%)|(?<=\d)(?P<measure>{_MEASURE}))?"
)

UNIT_LENGTH = 10
"""Characters of a unit, at most."""

_LONGEST = 60  # characters of a number; the time that the pattern takes grows with their square
_ALIKE = {" ": "[\u00a0\u202f\u2009]", "-": "\u2212", "'": "[\u2019\u02bc]"}


@dataclass(frozen=True)
class NumberFormat:
    """How the numbers of a column are written.

    Attributes
    ----------
    decimal : the mark of decimals; thousands : what may stand between groups of three digits.
    unit : "%" (numbers are divided by 100), a currency, which a number may lack, another unit, such as "kg",
        or "".
    """

    decimal: str = "."
    thousands: str = ","
    unit: str = ""

    @cached_property
    def _body(self) -> re.Pattern[str]:
        t, d = re.escape(self.thousands), re.escape(self.decimal)
        whole = rf"(?:[1-9]\d{{0,2}}(?:{t}\d{{3}})+|\d+)"
        return re.compile(rf"(?:{whole}(?:{d}\d*)?|{d}\d+)(?:[eE][+-]?\d+)?")

    def fits(self, text: str) -> bool:
        """Whether a string is a number in this format."""
        found = _split(text)
        if found is None:
            return False
        body, unit = found
        is_money = re.fullmatch(f"{_SIGNS}|{_CODES}", self.unit)
        return bool((unit == self.unit or (is_money and not unit)) and self._body.fullmatch(body))

    def numbers(self, values: pd.Series) -> pd.Series:
        """float64 of each string, NaN where it is missing or no number in this format."""
        shapes = shapes_of(values)
        fitting = [shape for shape in shapes.dropna().unique() if self.fits(shape)]
        plain = _plain(values.where(shapes.isin(fitting)))
        if self.unit:
            unit = re.escape(self.unit)
            plain = plain.str.replace(rf"^([+-]? ?){unit}|{unit}$", "\\1", regex=True)
        plain = plain.str.replace(f"[ {self.thousands}]", "", regex=True).str.replace(
            self.decimal, ".", regex=False
        )
        numbers = pd.to_numeric(plain, errors="coerce").astype("float64")
        return numbers / 100 if self.unit == "%" else numbers

    def __str__(self) -> str:
        example = f"1{self.thousands}234{self.decimal}5"
        return f"{example} {self.unit}".rstrip()


FORMATS = tuple(
    NumberFormat(decimal, thousands) for decimal, marks in ((".", ",' "), (",", ".' ")) for thousands in marks
)
"""The conventions that are tried; each takes numbers without a mark between thousands, too."""


def number_format(values: pd.Series, decimal: str) -> tuple[NumberFormat, float]:
    """The one format in which most of a column's values are numbers, and the share of these.

    Parameters
    ----------
    values : strings, none missing.
    decimal : the mark of decimals where as many values are numbers with either, as in a column of ``1,234``.
    """
    counts = shapes_of(values).value_counts()
    units: Counter[str] = Counter()
    for shape, count in counts.items():
        if (found := _split(str(shape))) is not None:
            units[found[1]] += int(count)
    common = [unit for unit, _ in units.most_common() if unit]
    unit = common[0] if common else ""
    if unit == "%" and units[""] > units["%"]:
        unit = ""
    formats = [NumberFormat(each.decimal, each.thousands, unit) for each in FORMATS]
    formats.sort(key=lambda each: each.decimal != decimal)
    numbers = {form: sum(int(n) for shape, n in counts.items() if form.fits(str(shape))) for form in formats}
    best = max(formats, key=lambda form: numbers[form])
    return best, numbers[best] / len(values)


def shapes_of(values: pd.Series) -> pd.Series:
    """Strings with 1 for each digit, but a 0 that is the first: a column of numbers has few of them."""
    marked = values.str.replace(r"^([^0-9]*)0", "\\1\ue000", regex=True)
    return marked.str.replace("[0-9]", "1", regex=True).str.replace("\ue000", "0", regex=False)


def _plain(values: pd.Series) -> pd.Series:
    """Strings with the ASCII space, minus sign and apostrophe in place of what looks like them."""
    for mark, alike in _ALIKE.items():
        values = values.str.replace(alike, mark, regex=True)
    return values


class Written(BaseModel):
    """A format as a card holds it, which anyone may have written."""

    model_config = ConfigDict(extra="ignore", strict=True)

    decimal: Literal[".", ","] = "."
    thousands: Literal[",", ".", "'", " "] = ","
    unit: Annotated[str, Field(max_length=UNIT_LENGTH)] = ""
    order: Order | None = None
    short_years: bool = Field(False, exclude_if=not_)

    @property
    def form(self) -> NumberFormat | DateFormat:
        if self.order is not None:
            return DateFormat(self.order, self.short_years)
        return NumberFormat(self.decimal, self.thousands, self.unit)


def plain_form(form: NumberFormat | DateFormat) -> dict[str, str]:
    """A format as JSON holds it."""
    return {field.name: getattr(form, field.name) for field in fields(form)}


def _split(text: str) -> tuple[str, str] | None:
    """Digits and unit of what may be a number."""
    if len(text) > _LONGEST:
        return None
    for mark, alike in _ALIKE.items():
        text = re.sub(alike, mark, text)
    found = _NUMBER.fullmatch(text.strip())
    if found is None:
        return None
    units = [unit.strip() for unit in found.group("before", "unit", "after", "measure") if unit]
    return None if len(units) > 1 else (found["body"].strip(), units[0] if units else "")

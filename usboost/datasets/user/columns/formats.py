"""Numbers and dates as people write them: 4.053,5 and € 12, 12 %, 24/12/2020."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Annotated, Literal

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

Order = Literal["ymd", "dmy", "mdy"]

_SIGNS = "[$¢£¤¥฿₠-₿]"
_CODES = (
    "AUD|BRL|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HKD|HUF|INR|JPY|KRW|MXN|NOK|NZD|PLN|RUB|SEK|SGD|TRY|USD|ZAR|kr|zł"
)
_NUMBER = re.compile(
    rf"(?P<before>{_SIGNS}|{_CODES})? ?(?P<sign>[+-])? ?(?P<unit>{_SIGNS}|{_CODES})? ?"
    rf"(?P<body>[\d.,' ]*\d[\d.,']*(?:[eE][+-]?\d+)?) ?(?P<after>{_SIGNS}|{_CODES}|%)?"
)
_LONGEST = 60  # characters of a number; the time that the pattern takes grows with their square
_ALIKE = {" ": "[\u00a0\u202f\u2009]", "-": "\u2212", "'": "[\u2019\u02bc]"}

_CLOCK = r"(?:[T ,]+(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d{1,9})?))? ?(Z|[+-]\d{2}:?\d{2}|[+-]\d{2})?)?"
_YEAR_FIRST = re.compile(rf"(\d{{4}})([-/.])(\d{{1,2}})\2(\d{{1,2}}){_CLOCK}")
_YEAR_LAST = re.compile(rf"(\d{{1,2}})([-/.])(\d{{1,2}})\2(\d{{4}}){_CLOCK}")


@dataclass(frozen=True)
class NumberFormat:
    """How the numbers of a column are written.

    Attributes
    ----------
    decimal : the mark of decimals; thousands : what may stand between groups of three digits.
    unit : "%" (numbers are divided by 100), a currency, which a number may lack, or "".
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
        is_money = self.unit not in ("", "%")
        return bool((unit == self.unit or (is_money and not unit)) and self._body.fullmatch(body))

    def numbers(self, values: pd.Series) -> pd.Series:
        """float64 of each string, NaN where it is missing or no number in this format."""
        shapes = shapes_of(values)
        fitting = [shape for shape in shapes.dropna().unique() if self.fits(shape)]
        plain = _plain(values.where(shapes.isin(fitting)))
        if self.unit:
            plain = plain.str.replace(self.unit, "", regex=False)
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


@dataclass(frozen=True)
class DateFormat:
    """The order of day, month and year in a column; the year first is read in any column."""

    order: Order = "ymd"

    def dates(self, values: pd.Series) -> pd.Series:
        """datetime64 in UTC of each string, NaT where it is missing or no date in this format."""
        known = {text: self._standard(text) for text in values.dropna().unique()}
        standard = values.map(known).astype(object)
        found = pd.to_datetime(standard, format="ISO8601", utc=True, errors="coerce")
        return found.dt.tz_localize(None).astype("datetime64[us]")

    def _standard(self, text: str) -> str | None:
        """The date as ISO 8601 has it."""
        if found := _YEAR_FIRST.fullmatch(text):
            year, _, month, day, *clock = found.groups()
        elif self.order != "ymd" and (found := _YEAR_LAST.fullmatch(text)):
            day, _, month, year, *clock = found.groups()
            if self.order == "mdy":
                day, month = month, day
        else:
            return None
        hour, minute, second, zone = clock
        date = f"{year}-{month:0>2}-{day:0>2}"
        return f"{date}T{hour:0>2}:{minute}:{second or '00'}{zone or ''}" if hour else date


class Written(BaseModel):
    """A format as a card holds it, which anyone may have written."""

    model_config = ConfigDict(extra="ignore", strict=True)

    decimal: Literal[".", ","] = "."
    thousands: Literal[",", ".", "'", " "] = ","
    unit: Annotated[str, Field(max_length=3)] = ""
    order: Order | None = None

    @property
    def form(self) -> NumberFormat | DateFormat:
        if self.order is not None:
            return DateFormat(self.order)
        return NumberFormat(self.decimal, self.thousands, self.unit)


def plain_form(form: NumberFormat | DateFormat) -> dict[str, str]:
    """A format as JSON holds it."""
    return {field.name: getattr(form, field.name) for field in fields(form)}


def date_formats(texts: Sequence[str]) -> list[DateFormat]:
    """The formats in which a column's distinct values may be dates; none where they are none."""
    if not texts:
        return []
    if all(_YEAR_FIRST.fullmatch(text) for text in texts):
        return [DateFormat()]
    found = [_YEAR_LAST.fullmatch(text) for text in texts]
    if any(each is None for each in found):
        return []
    first, second = (max(int(each[k]) for each in found if each) for k in (1, 3))
    orders: list[DateFormat] = []
    if second <= 12:
        orders.append(DateFormat("dmy"))
    if first <= 12:
        orders.append(DateFormat("mdy"))
    return orders


def _split(text: str) -> tuple[str, str] | None:
    """Digits and unit of what may be a number."""
    if len(text) > _LONGEST:
        return None
    for mark, alike in _ALIKE.items():
        text = re.sub(alike, mark, text)
    found = _NUMBER.fullmatch(text.strip())
    if found is None:
        return None
    units = [unit for unit in found.group("before", "unit", "after") if unit]
    return None if len(units) > 1 else (found["body"].strip(), units[0] if units else "")

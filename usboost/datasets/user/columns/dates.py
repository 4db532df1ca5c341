"""Dates as people and programs write them: 24/12/2020, 18-Aug-2021 10:29, 2020-03-20 00:00:00 UTC."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import pandas as pd

Order = Literal["ymd", "dmy", "mdy"]

ORDERS: tuple[Order, ...] = ("ymd", "dmy", "mdy")

ENOUGH = 0.95
"""Share of dates from which years are not looked for in two digits, too."""

LIKE = r"(?:[A-Za-z]{3,9}[-/., ]+){0,2}\d[\w\-/., :+]{3,}"
"""What any date is like; a quick look rules most columns out."""

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAME = (
    r"jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?"
)
_WEEKDAY = r"(?:mon|tue|tues|wed|wednes|thu|thur|thurs|fri|sat|satur|sun)(?:day)?"
_ZONE = r"Z|UTC|GMT|(?:UTC|GMT)?[+-]\d{2}:?\d{2}|[+-]\d{2}"
_TIME = r"(\d{1,2}):(\d{2})(?::(\d{2}(?:[.,]\d{1,9})?))? ?([ap]\.?m\.?)?"
_CLOCK = rf"(?:(?:[T ,:]+|,? at ){_TIME} ?({_ZONE})?)?"
_FLAGS = re.IGNORECASE | re.ASCII
_DAY = rf"(?:{_WEEKDAY}\.?,? )?"

_NUMBERS = re.compile(rf"{_DAY}(\d{{1,4}})([-/.])(\d{{1,2}})\2(\d{{1,4}}){_CLOCK}", _FLAGS)
_NAMED = re.compile(
    rf"{_DAY}(\d{{1,4}})(?:st|nd|rd|th)?([-/., ]{{0,2}})({_NAME})\.?[-/., ]{{0,2}}(\d{{1,4}}){_CLOCK}", _FLAGS
)
_NAME_FIRST = re.compile(
    rf"{_DAY}({_NAME})\.?([-/. ])(\d{{1,2}})(?:st|nd|rd|th)?[-/., ]{{1,2}}(\d{{1,4}}){_CLOCK}", _FLAGS
)
# the year behind the clock, as C's ctime has it
_YEAR_AT_END = re.compile(
    rf"({_WEEKDAY} (?:{_NAME})) +(\d{{1,2}}) (\d\d:\d\d:\d\d)(?: ({_ZONE}))? (\d{{4}})", _FLAGS
)
_YEAR = r"(?:1[0-9]|2[01])\d\d"
_MONTH_ONLY = re.compile(rf"(?:({_YEAR})[-/.](\d{{1,2}})|(\d{{1,2}}|{_NAME})[-/. ]({_YEAR}))", _FLAGS)
_YEAR_ONLY = re.compile(_YEAR)


@dataclass(frozen=True)
class DateFormat:
    """How the dates of a column are written; four digits in front are a year in any column.

    Attributes
    ----------
    order : of day, month and year. A month with a name, and a year of four digits, are known without it.
    short_years : whether years have two digits: 69 to 99 are of the 20th century, as in Python's ``%y``.
    """

    order: Order = "ymd"
    short_years: bool = False

    def dates(self, values: pd.Series) -> pd.Series:
        """datetime64 in UTC of each string, NaT where it is missing or no date in this format.

        A year or month alone is its first day.
        """
        known = {text: self._standard(text) for text in values.dropna().unique()}
        standard = values.map(known).astype(object)
        found = pd.to_datetime(standard, format="ISO8601", utc=True, errors="coerce")
        return found.dt.tz_localize(None).astype("datetime64[us]")

    def _standard(self, text: str) -> str | None:
        """The date as ISO 8601 has it."""
        text = text.strip()
        if found := _NUMBERS.fullmatch(text):
            first, mark, second, third, *clock = found.groups()
            date = self._of_numbers(first, second, third, mark)
        elif found := _NAMED.fullmatch(text):
            first, _, name, third, *clock = found.groups()
            date = self._of_name(name, first, third)
        elif found := _NAME_FIRST.fullmatch(text):
            name, _, day, year, *clock = found.groups()
            date = _iso(self._year(year), _month(name), day)
        elif found := _YEAR_AT_END.fullmatch(text):
            return self._standard(f"{found[1]} {found[2]} {found[5]} {found[3]} {found[4] or ''}")
        else:
            return self._of_part(text)
        return _with_clock(date, *clock) if date else None

    def _of_numbers(self, first: str, second: str, third: str, mark: str) -> str | None:
        if len(first) == 4:
            return _iso(first, second, third)
        is_version = mark == "." and len(third) < 4 and len(first + second) < 4
        if len(first) > 2 or is_version:
            return None
        if self.order == "ymd":
            return _iso(self._year(first), second, third) if self.short_years else None
        day, month = (first, second) if self.order == "dmy" else (second, first)
        return _iso(self._year(third), month, day)

    def _of_name(self, name: str, first: str, third: str) -> str | None:
        is_year_first = len(first) == 4 or (len(third) < 4 and self.order == "ymd")
        year, day = (first, third) if is_year_first else (third, first)
        return _iso(self._year(year), _month(name), day)

    def _of_part(self, text: str) -> str | None:
        """The first day of a year or month."""
        if _YEAR_ONLY.fullmatch(text):
            return f"{text}-01-01"
        found = _MONTH_ONLY.fullmatch(text)
        if found is None or (found[3] and found[3].isdigit() and self.order == "ymd"):
            return None
        return _iso(found[1] or found[4], found[2] or _month(found[3]), "1")

    def _year(self, text: str) -> str | None:
        if len(text) == 4:
            return text
        if len(text) != 2 or not self.short_years:
            return None
        return f"{'19' if int(text) >= 69 else '20'}{text}"


def formats_of(counts: pd.Series) -> list[tuple[DateFormat, float]]:
    """The formats in which most of a column are dates, with the share of these.

    There are several where it cannot be told. Formats that give the same dates are one. `counts`: of each
    distinct string, which is the index.
    """
    values = pd.Series(counts.index, dtype="str")
    weights = counts.to_numpy() / counts.sum()
    found: list[tuple[DateFormat, float, pd.Series]] = []
    for short_years in (False, True):
        if max((share for _, share, _ in found), default=0) >= ENOUGH:
            break
        for order in ORDERS:
            form = DateFormat(order, short_years)
            dates = form.dates(values)
            if not any(dates.equals(others) for _, _, others in found):
                found.append((form, float(weights[dates.notna()].sum()), dates))
    most = max(share for _, share, _ in found)
    best = [each for each in found if each[1] == most]
    if len(best) > 1 and any(form.short_years and form.order == "ymd" for form, _, _ in best):
        # where the first or the last number may be the year it is the one that varies less
        spans = [dates.max() - dates.min() for _, _, dates in best]
        best = [each for each, span in zip(best, spans, strict=True) if span < 2 * min(spans)]
    return [(form, share) for form, share, _ in best]


def is_partial(text: str) -> bool:
    """Whether a date is a year or a month alone."""
    return bool(_YEAR_ONLY.fullmatch(text) or _MONTH_ONLY.fullmatch(text))


def _month(name: str) -> str:
    return name if name.isdigit() else str(_MONTHS.index(name[:3].lower()) + 1)


def _iso(year: str | None, month: str, day: str) -> str | None:
    return f"{year}-{month:0>2}-{day:0>2}" if year and len(day) <= 2 else None


def _with_clock(
    date: str, hour: str | None, minute: str, second: str | None, half: str | None, zone: str | None
) -> str | None:
    if not hour:
        return date
    if half:
        if not 1 <= int(hour) <= 12:
            return None
        hour = str(int(hour) % 12 + 12 * (half[0] in "pP"))
    zone = re.sub("Z|UTC|GMT", "", zone or "", flags=re.IGNORECASE)
    return f"{date}T{hour:0>2}:{minute}:{(second or '00').replace(',', '.')}{zone or 'Z'}"

"""Parse dates and numbers as people and programs write them: 24/12/2020, 18-Aug-2021 10:29, 9:30 pm; 4.053,5
and € 12, 12 %, 5 kg; and how a card holds a column's format."""

import math
import re
from collections import Counter
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from operator import is_, not_
from typing import Annotated, Literal

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, field_validator

Order = Literal["ymd", "dmy", "mdy", "clock"]

ORDERS: tuple[Order, ...] = ("ymd", "dmy", "mdy", "clock")

ENOUGH, EXCHANGED = 0.95, 0.1
"""Shares of dates from which years are not looked for in two digits, too; and of those that are dates only
with day and month exchanged, from which all are read so."""

LIKE = r"(?:[A-Za-z]{3,9}[-/., ]+){0,2}\d[\w\-/., :+]{3,}"
"""The likeness of any date; a quick look rules most columns out."""

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAME = (
    r"jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?"
)
_WEEKDAY = r"(?:mon|tue|tues|wed|wednes|thu|thur|thurs|fri|sat|satur|sun)(?:day)?"
_ZONE = r"(?:UTC|GMT)?[+-]\d{2}:?\d{2}|Z|UTC|GMT|[+-]\d{2}"
_TIME = r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2}(?:[.,]\d{1,9})?))? ?(?P<half>[ap]\.?m\.?)?"
_CLOCK = rf"(?:(?:[T ,:]+|,? at ){_TIME} ?(?P<zone>{_ZONE})?)?"
_FLAGS = re.IGNORECASE | re.ASCII
_DAY = rf"(?:{_WEEKDAY}\.?,? )?"
_BESIDE = "[-/., ]{0,2}"  # a month's name
_VERSION = r"(?!(?:\d\.\d\d?|\d\d\.\d)\.\d{1,3}(?!\d))"
"""Not the start of a version, 1.10.2 say."""
PARTS = ("year", "month", "day", "hour", "minute", "second", "half", "zone")
"""The parts of a date, as groups of its patterns are called."""
_YEAR = r"(?:1[0-9]|2[01])\d\d"
_MONTH_ONLY = re.compile(rf"(?:({_YEAR})[-/.](\d{{1,2}})|(\d{{1,2}}|{_NAME})[-/. ]({_YEAR}))", _FLAGS)
_YEAR_ONLY = re.compile(_YEAR)
_HAS_ZONE = re.compile(rf":\d\d[\d.,]* ?(?:[ap]\.?m\.?)? ?({_ZONE})(?: \d{{4}})?", _FLAGS)
_HAS_CLOCK = re.compile(r"\d:\d\d")


@dataclass(frozen=True)
class DateFormat:
    """The way that the dates of a column are written; four digits in front are a year in any column.

    Attributes
    ----------
    order : of day, month and year. A month with a name, and a year of four digits, are known without it.
        "clock" is times of the day, read as of the first day of 1970.
    short_years : whether years have two digits: 69 to 99 are of the 20th century, as in Python's ``%y``.
    zone : of the times: times without one are of it; "" where they have none, so that of one that has a zone
        the clock counts as it is written; None where that is not known, and UTC stands for none.
    """

    order: Order = "ymd"
    short_years: bool = False
    zone: str | None = None

    def dates(self, values: pd.Series) -> pd.Series:
        """Parse dates: datetime64 in UTC of each string, NaT where it is missing or no date in this format.

        A year or month alone is its first day.
        """
        known = {text: self._standard(text) for text in values.dropna().unique()}
        if self.zone:
            known = {text: self._in_zone(text, iso) for text, iso in known.items()}
        standard = values.map(known).astype(object)
        dates = pd.to_datetime(standard, format="ISO8601", utc=True, errors="coerce")
        return dates.dt.tz_localize(None).astype("datetime64[us]")

    def _in_zone(self, text: str, iso: str | None) -> str | None:
        """Return a parsed text, as ISO 8601, in the column's zone if it has none."""
        if iso is None or "T" not in iso or _zone_in(text):
            return iso
        at = pd.to_datetime(iso.removesuffix("Z"), format="ISO8601", errors="coerce")
        return None if pd.isna(at) else str(localised(pd.Series([at]), str(self.zone)).iloc[0])

    def differs(self, values: pd.Series) -> str:
        """Say which of some strings has a zone where the column has none, or none where it has one; or ""."""
        for text in () if self.zone is None else values.dropna().unique():
            if _HAS_CLOCK.search(text) and bool(_zone_in(text)) != bool(self.zone):
                return otherwise(text, self.zone)
        return ""

    def here(self, values: pd.Series) -> tuple["DateFormat", str]:
        """Return how dates are written in another table than that of the fit, and a sentence where otherwise.

        Day and month are exchanged where more of the strings, none missing, are dates that way.
        """
        exchanged: dict[Order, Order] = {"dmy": "mdy", "mdy": "dmy"}
        swapped = replace(self, order=exchanged.get(self.order, self.order))
        own, other = (each.dates(values).notna() for each in (self, swapped))
        few = (other & ~own).mean() < EXCHANGED  # which may be mistyped
        if len(values) < ENOUGH_VALUES or few or other.sum() <= own.sum():
            return self, ""
        example, first = values[other & ~own].iloc[0], "month" if swapped.order == "mdy" else "day"
        return swapped, f"dates such as {example} have the {first} first, unlike those of the fit"

    def with_zone(self, texts: pd.Series) -> "DateFormat":
        """Return the same with the zone of some strings: one, UTC of several, None where some have none."""
        zones = {_zone_in(text) for text in texts if _HAS_CLOCK.search(text)}
        if len(zones) > 1:
            return replace(self, zone=None if "" in zones else "UTC")
        zone = re.sub("^(?:UTC|GMT)(?=.)|^Z$", "", next(iter(zones), ""), flags=re.IGNORECASE)
        is_offset = re.fullmatch(r"[+-]\d{2}:\d{2}", zone)
        return replace(self, zone=zone if is_offset else "UTC" if any(zones) else "")

    def notes(self, counts: pd.Series) -> list[str]:
        """Note dates that may be read otherwise than they were meant. `counts`: as of `formats_of`."""
        first, notes = str(counts.index[0]), []
        if self.short_years:
            date = self.dates(pd.Series([first], dtype="str")).iloc[0]
            notes.append(f"holds dates such as {first!r}, which is read as {date:%Y-%m-%d}")
        partial = [bool(_YEAR_ONLY.fullmatch(each) or _MONTH_ONLY.fullmatch(each)) for each in counts.index]
        if n := int(counts[partial].sum()):
            which = "1 date that is" if n == 1 else f"{n:,} dates that are"
            notes.append(f"holds {which} a month or year alone, of which the first day counts")
        return notes

    @cached_property
    def patterns(self) -> tuple[re.Pattern[str], ...]:
        """Return the patterns of a date, whose groups have the names of its parts; no text is of two."""
        if self.order == "clock":
            return (re.compile(_TIME, _FLAGS),)
        short, number = r"|\d\d" if self.short_years else "", "" if self.order == "ymd" else r"|\d{1,2}"
        part = {"y": rf"(?P<year>\d{{4}}{short})", "m": r"(?P<month>\d{1,2})", "d": r"(?P<day>\d{1,2})"}
        first, second, third = (part[each] for each in self.order)
        year, month, day = (part[each] for each in "ymd")
        name, whole, mark = rf"(?P<month>{_NAME})\.?", r"(?P<year>\d{4})", "(?P<mark>[-/.])"
        in_front, behind = (year, whole) if self.order == "ymd" else (whole, year)
        of_days = (
            rf"{whole}{mark}{month}(?P=mark){day}",
            rf"{_VERSION}{first}{mark}{second}(?P=mark){third}",
            rf"{in_front}(?:st|nd|rd|th)?{_BESIDE}{name}{_BESIDE}{day}",
            rf"{day}(?:st|nd|rd|th)?{_BESIDE}{name}{_BESIDE}{behind}",
            rf"{name}[-/. ]{day}(?:st|nd|rd|th)?[-/., ]{{1,2}}{year}",
        )
        others = (
            # the year behind the clock, as C's ctime has it
            rf"{_WEEKDAY} (?P<month>{_NAME}) +{day} (?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
            rf"(?: (?P<zone>{_ZONE}))? {whole}",
            f"(?P<year>{_YEAR})",
            rf"(?P<year>{_YEAR})[-/.]{month}",
            rf"(?P<month>{_NAME}{number})[-/. ](?P<year>{_YEAR})",
        )
        every = (*(f"{_DAY}{each}{_CLOCK}" for each in of_days), *others)
        return tuple(re.compile(each, _FLAGS) for each in every)

    def _standard(self, text: str) -> str | None:
        """Return the date as ISO 8601 has it."""
        found = next(filter(None, (each.fullmatch(text.strip()) for each in self.patterns)), None)
        if found is None:
            return None
        parts = {"year": "1970"} | found.groupdict("")
        year, month, day, hour, minute, second, half, zone = (parts.get(each, "") for each in PARTS)
        number = str(_MONTHS.index(month[:3].lower()) + 1) if month.isalpha() else month or "1"
        century = "" if len(year) == 4 else "19" if int(year) >= 69 else "20"  # as of `%y`
        date = f"{century}{year}-{number:0>2}-{day or 1:0>2}"
        if not hour or (half and not 1 <= int(hour) <= 12):
            return None if hour else date
        hour = str(int(hour) % 12 + 12 * (half[0] in "pP")) if half else hour
        zone = "" if self.zone == "" else re.sub("Z|UTC|GMT", "", zone, flags=re.IGNORECASE)
        second = (second or "00").replace(",", ".")[:9]  # microseconds: of more digits no date is after 2262
        return f"{date}T{hour:0>2}:{minute}:{second}{zone or 'Z'}"


def _zone_in(text: str) -> str:
    """Return the zone of a time that is text, "" where it has none."""
    text = text.strip()
    match = next((each for each in _HAS_ZONE.finditer(text) if each.end() == len(text)), None)
    return match[1] if match else ""


def localised(dates: pd.Series, zone: str) -> pd.Series:
    """Return in UTC, without a zone, what datetime64 without one are in a zone.

    Of an hour that a clock shows twice the first counts; one that it leaves out is its end.
    """
    first = np.ones(len(dates), dtype=bool)
    aware = dates.dt.tz_localize(zone, ambiguous=first, nonexistent="shift_forward")
    return aware.dt.tz_convert("UTC").dt.tz_localize(None)


def otherwise(example: str, zone: str | None) -> str:
    """Say how a time is read that has a zone, or none, unlike those that a model was fitted to."""
    if zone:
        return f"times such as {example} have no zone, as they had for the fit, and are read as of {zone}"
    return f"times such as {example} have a zone, as none had for the fit, and are read as the clock says"


def formats_of(counts: pd.Series) -> list[tuple[DateFormat, float]]:
    """Return the formats in which most of a column are dates, with the share of these.

    There are several where it cannot be told. Formats that give the same dates are one. `counts`: of each
    distinct string, which is the index.
    """
    values = pd.Series(counts.index, dtype="str")
    weights = counts.to_numpy() / counts.sum()
    tried: list[tuple[DateFormat, float, pd.Series]] = []
    for short_years in (False, True):
        if max((share for _, share, _ in tried), default=0) >= ENOUGH:
            break
        for order in ORDERS:
            form = DateFormat(order, short_years)
            dates = form.dates(values)
            if not any(dates.equals(others) for _, _, others in tried):
                tried.append((form, float(weights[dates.notna()].sum()), dates))
    most = max(share for _, share, _ in tried)
    best = [each for each in tried if each[1] == most]
    if len(best) > 1 and any(form.short_years and form.order == "ymd" for form, _, _ in best):
        # where the first or the last number may be the year it is the one that varies less
        spans = [dates.max() - dates.min() for _, _, dates in best]
        best = [each for each, span in zip(best, spans, strict=True) if span < 2 * min(spans)]
    return [(form, share) for form, share, _ in best]


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
LIMIT = r"^[<>≤≥~≈]=? ?(\W*\d.*)$"
"""A number that is known to be below or above, as of what is too little to be measured: it counts as that."""

SHORTENED = {r"-\1": r"^\((.*\d.*)\)$", r"\1e3\2": r"(\d)[kK](\W*)$"}
SHORTENED |= {r"\1e6\2": r"(\d)M(\W*)$", r"\1e9\2": r"(\d)B(\W*)$"}
"""Bookkeepers' (854.11), which is negative, and thousands, millions and billions: 11.3K, $71.7M, 2B."""
_ALIKE = {" ": "[\u00a0\u202f\u2009]", "-": "\u2212", "'": "[\u2019\u02bc]"} | SHORTENED


@dataclass(frozen=True)
class NumberFormat:
    """The way that the numbers of a column are written.

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
    def body(self) -> re.Pattern[str]:
        """Return the pattern of a number without sign and unit."""
        t, d = re.escape(self.thousands), re.escape(self.decimal)
        whole = rf"(?:[1-9]\d{{0,2}}(?:{t}\d{{3}})+|\d+)"
        return re.compile(rf"(?:{whole}(?:{d}\d*)?|{d}\d+)(?:[eE][+-]?\d+)?")

    @property
    def is_money(self) -> bool:
        """Return whether the unit is a currency."""
        return re.fullmatch(f"{_SIGNS}|{_CODES}", self.unit) is not None

    def fits(self, text: str) -> bool:
        """Return whether a string is a number in this format."""
        if (parts := _split(text)) is None:
            return False
        body, unit = parts
        return bool((unit == self.unit or (self.is_money and not unit)) and self.body.fullmatch(body))

    def numbers(self, values: pd.Series) -> pd.Series:
        """Parse each string as float64, NaN where it is missing or no number in this format."""
        shapes = shapes_of(values)
        fitting = [shape for shape in shapes.dropna().unique() if self.fits(shape)]
        plain = values.where(shapes.isin(fitting))
        for mark, alike in _ALIKE.items():
            plain = plain.str.replace(alike, mark, regex=True)
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


ENOUGH_VALUES = 20
"""Values of a column, at least, from which alone it is told that decimals have another mark."""

AMBIGUOUS = r"[^\d.,]*[1-9]\d{0,2}[.,]\d{3}[^\d.,]*"
"""A number whose mark may be that of decimals or of thousands."""

FORMATS = tuple(
    NumberFormat(decimal, thousands) for decimal, marks in ((".", ",' "), (",", ".' ")) for thousands in marks
)
"""The conventions that are tried; each takes numbers without a mark between thousands, too."""


def number_format(values: pd.Series, decimal: str) -> tuple[NumberFormat, float]:
    """Return the one format in which most of some strings are numbers, and the share of these.

    `decimal`: the mark of decimals where as many are numbers with either, as in a column of ``1,234``.
    """
    counts = shapes_of(values).value_counts()
    units, ways = Counter[str](), set[str]()
    for shape, count in counts.items():
        if (parts := _split(str(shape))) is not None:
            units[parts[1]] += int(count)
            short = [way for way, pattern in SHORTENED.items() if re.search(pattern, str(shape))]
            ways.update(short or [""], re.findall("[.,]", str(shape)), [parts[1]] * bool(parts[1]))
    if len(ways) == 1 and "" not in ways:  # whole numbers that are all like 3B, or (1), are codes
        return FORMATS[0], 0.0
    common = [unit for unit, _ in units.most_common() if unit]
    unit = common[0] if common else ""
    if unit == "%" and units[""] > units["%"]:
        unit = ""
    formats = [NumberFormat(each.decimal, each.thousands, unit) for each in FORMATS]
    formats.sort(key=lambda each: each.decimal != decimal)
    numbers = {form: sum(int(n) for shape, n in counts.items() if form.fits(str(shape))) for form in formats}
    best = max(formats, key=lambda form: numbers[form])
    return best, numbers[best] / len(values)


def format_here(
    form: NumberFormat | None, values: pd.Series, mark: str, *, known: bool, usual: float | None
) -> tuple[NumberFormat | None, str]:
    """Return how numbers are written in another table than that of the fit, and a sentence where otherwise.

    Where all values are like 1.234, they are read so that they are about what they were; else by the mark of
    decimals that the table shows, or if it shows none, by that by which most values are numbers.

    Parameters
    ----------
    form : of the fit; None for plain numbers.
    values : strings, none missing.
    mark : of decimals in the table; known : whether it shows that.
    usual : the median of the fit.
    """
    numbers, ambiguous = plain_numbers(values), all(map(re.compile(AMBIGUOUS).fullmatch, values))
    if not form and mark == "." and np.isfinite(numbers).all() and not ambiguous:
        return None, ""  # most columns: without a look at each way, which costs most of a wide table
    own = form or NumberFormat()
    other = "," if own.decimal == "." else "."
    swapped = replace(own, decimal=other, thousands=own.decimal if own.thousands == other else own.thousands)
    read = {form: numbers if form is None else form.numbers(values)}
    read |= {each: each.numbers(values) for each in (own, swapped)}
    count = {each: np.isfinite(numbers).sum() for each, numbers in read.items()}  # infinity is no number
    fitting = [each for each in read if count[each] == max(count.values())]
    if len(values) < ENOUGH_VALUES and not known:
        return form, ""
    if len(values) >= ENOUGH_VALUES and usual and ambiguous:
        distance = {each: abs(math.log(abs(read[each].median() or 1) / abs(usual))) for each in fitting}
        chosen = min(fitting, key=distance.__getitem__, default=form)
    else:
        by_mark = [each for each in fitting if (each or own).decimal == mark] if known else []
        chosen = next(iter(by_mark or fitting), form)
    otherwise_read = read[chosen].notna() & (read[chosen] != read[form])
    if (chosen or own) == own or not otherwise_read.any():
        return (chosen, "") if form not in fitting else (form, "")
    example = values[otherwise_read].iloc[0]
    return (
        chosen,
        f"{example} is read with {other!r} for decimals, where the table of the fit had {own.decimal!r}",
    )


def shapes_of(values: pd.Series) -> pd.Series:
    """Return strings with 1 for each digit but a leading 0: a column of numbers has few of them."""
    marked = values.str.replace(r"^([^0-9]*)0", "\\1\ue000", regex=True)
    return marked.str.replace("[0-9]", "1", regex=True).str.replace("\ue000", "0", regex=False)


Format = NumberFormat | DateFormat


def is_known(zone: str) -> bool:
    """Return whether this machine knows a time zone."""
    try:
        return bool(pd.Timestamp(0).tz_localize(zone))
    except (KeyError, ValueError):
        return False


class Written(BaseModel):
    """A format as a card holds it, which anyone may have written."""

    model_config = ConfigDict(extra="ignore", strict=True)

    decimal: Literal[".", ","] = "."
    thousands: Literal[",", ".", "'", " "] = ","
    unit: Annotated[str, Field(max_length=UNIT_LENGTH)] = ""
    order: Order | None = None
    short_years: bool = Field(False, exclude_if=not_)
    zone: str | None = Field(None, exclude_if=partial(is_, None))

    @field_validator("zone")
    @classmethod
    def _a_zone(cls, zone: str | None) -> str | None:
        if zone and not is_known(zone):
            raise ValueError(f"{zone} is no time zone that this machine knows")
        return zone

    @property
    def form(self) -> Format:
        if self.order is not None:
            return DateFormat(self.order, self.short_years, self.zone)
        return NumberFormat(self.decimal, self.thousands, self.unit)


def plain_form(form: Format) -> dict[str, str]:
    """Return a format as JSON holds it."""
    return {field.name: getattr(form, field.name) for field in fields(form)}


def plain_numbers(values: pd.Series) -> pd.Series:
    """Parse each string as float64, NaN where it is missing or no number as programs write it."""
    return pd.to_numeric(values, errors="coerce").astype("float64")


def _split(text: str) -> tuple[str, str] | None:
    """Return digits and unit of what may be a number."""
    if len(text) > _LONGEST:
        return None
    for mark, alike in _ALIKE.items():
        text = re.sub(alike, mark, text)
    if (match := _NUMBER.fullmatch(text.strip())) is None:
        return None
    units = [unit.strip() for unit in match.group("before", "unit", "after", "measure") if unit]
    return None if len(units) > 1 else (match["body"].strip(), units[0] if units else "")

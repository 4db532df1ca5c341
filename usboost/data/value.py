"""One form of a value, however it is typed or written: 3, 3.0, "3" and "3.0" are one category."""

import datetime
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from numbers import Integral, Real
from typing import Any, TypeVar

_WHOLE = r"-?(?:0|[1-9]\d{0,14})\.0+|-0"
_LARGE = r"-?[1-9](?:\.\d+)?e\+\d{2,3}"
_MIDNIGHT = r"\d{4}-\d\d-\d\d[ T]00:00:00(?:\.0+)?(?:Z|\+00:?00)?"
REWRITTEN = f"{_WHOLE}|{_LARGE}|{_MIDNIGHT}"
"""Strings that have another form: whole numbers with decimals, or as Python prints large ones; midnights."""

_rewritten = re.compile(REWRITTEN)
_decimal = re.compile(r"-?(?:0|[1-9]\d*)\.\d+")
_code = re.compile(r"[+-]?0\d+|\d+[eE]\d+|.*_.*")  # what float() takes, but is a number to nobody else
TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_DIGITS = 15  # that a float keeps
_SHOWN = 60  # characters of a value in a message

T = TypeVar("T")


def composed(text: str) -> str:
    """Return a text in Unicode's form NFC, in which a letter with its accent is one character."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def canonical(value: object) -> str:
    """Name a value as a category is called.

    An integer-valued float or decimal is its integer. So is text that is a plain decimal number of at most
    15 digits with nothing but zeros behind the point. Midnight is its date. Any other text is itself, in
    Unicode's form NFC, so that codes such as "007" or "1.10" stay as they are. Others are as `str` has them.
    """
    if isinstance(value, str):
        value = composed(value)
        if not _rewritten.fullmatch(value):
            return value
        if ":" in value:
            return value[:10]
        return str(int(float(value))) if float(value).is_integer() else value
    if isinstance(value, (bool, Integral)):
        return str(value)
    if isinstance(value, Real):
        number = float(value)
        return str(int(number)) if number.is_integer() else str(value)
    return canonical(str(value)) if isinstance(value, (Decimal, datetime.datetime)) else str(value)


def shown(value: object) -> str:
    """Return a value as a message has it: its `repr`, of a long text that of its beginning."""
    return repr(f"{value[:_SHOWN]}…" if isinstance(value, str) and len(value) > _SHOWN else value)


def find(known: Mapping[Any, T], names: Iterable[str | None]) -> dict[str | None, T]:
    """Look up names, which may be written otherwise; a name that is not known is left out.

    A name itself counts first. Else it is compared in its canonical form, then as a number (2.50 and 2.5).
    Where all that is known are truth values, it may be one of these: True, "TRUE", "true", 1, "yes". Of
    several that are known and equal, the first counts.
    """
    names = list(names)
    result = {name: known[name] for name in names if name in known}
    rest = [name for name in names if name is not None and name not in result]
    if not rest:
        return result

    def as_number(name: str) -> str:
        is_number = _decimal.fullmatch(name) and sum(each.isdigit() for each in name) <= _DIGITS
        return canonical(float(name)) if is_number else canonical(name)

    given = [name for name in known if name is not None]
    forms: list[Callable[[str], object]] = [canonical, as_number]
    if all(name.lower() in TRUTH for name in given):
        forms.append(lambda name: TRUTH.get(name.lower(), name))
    for form in forms:
        others: dict[object, T] = {}
        for name in given:
            others.setdefault(form(name), known[name])
        result |= {name: others[form(name)] for name in rest if name not in result and form(name) in others}
    return result


@dataclass(frozen=True)
class Missing:
    """Values that count as missing, in each form that a column may have them in.

    Attributes
    ----------
    texts : as written, and their canonical forms.
    numbers : those that are numbers, exactly.
    """

    texts: frozenset[str]
    numbers: tuple[Decimal, ...]

    @property
    def floats(self) -> list[float]:
        return [float(each) for each in self.numbers]

    @property
    def whole(self) -> list[int]:
        return [int(each) for each in self.numbers if each.is_finite() and each == each.to_integral_value()]


@lru_cache(maxsize=256)
def missing_of(options: tuple[str, ...]) -> Missing:
    """Read values that a user says are missing: -999, "-999.0" and "-9.99e2" mean one."""
    texts = {form for each in options for form in (each, each.strip(), canonical(each.strip()))}
    numbers: list[Decimal] = []
    for each in options:
        try:
            number = Decimal(each.strip())
        except InvalidOperation:
            continue
        if number.is_nan():
            continue
        numbers.append(number)
        if not _code.fullmatch(each.strip()):
            texts.add(canonical(float(number)) if abs(number) < 10**_DIGITS else each.strip())
    return Missing(frozenset(texts), tuple(numbers))

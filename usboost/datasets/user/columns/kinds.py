"""What a raw column is: numbers, categories, dates, text, or what tells one row from another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from usboost.datasets.user.columns.column import (
    Column,
    Format,
    Kind,
    is_date,
    is_text,
    is_usable,
    plain_numbers,
)
from usboost.datasets.user.columns.formats import NumberFormat, date_formats, number_format
from usboost.datasets.user.columns.texts import have_words, share_words
from usboost.errors import UsboostError, option

TEXT_LENGTH = 24
"""Mean number of characters above which mostly distinct strings of several words are text."""

FEW = 20
"""Fewer values than these are too few to say what nearly all of them are, or how often they repeat."""

NEARLY_ALL = 0.95
"""Share of numbers, or of dates, above which the other values of a column are taken for mistakes."""

_CODE = r"0\d+|\d{16,}"  # digits that a number would not keep
_MANY = 1000  # distinct values by which numbers and dates are ruled out


@dataclass(frozen=True)
class ColumnKind:
    """What a column is.

    Attributes
    ----------
    kind : "name" is strings of which nearly all differ and that have no words in common, "identifier" what
        differs in each row, "nested" what has parts of its own, or bytes.
    form : how its numbers or dates are written; None where they are plain, or not text.
    """

    kind: Literal[Kind, "name", "identifier", "nested"]
    form: Format | None = None


def kind_of(column: Column, *, nominal: bool = False, textual: bool = False) -> ColumnKind:
    """What a column is, by all of its rows.

    Types decide first: booleans are categories; dates, times and durations are what they are. Text is numbers
    when all values are, written in one way (see `numbers.NumberFormat`), and none is digits with a leading
    zero or more than 15 of them, which are codes; plain digits only in a file that is all text. It is dates
    when all values are dates in one order. Else it is a category, unless enough values differ: of several
    words it is text, where these are long or have words in common, of one word an identifier or name. Raises
    UsboostError if nearly all values are numbers or dates and some are not, or it cannot be told which of two
    numbers is the day. `nominal`, `textual`: it is known to be a category, or text.
    """
    kind = column.type
    if not is_usable(kind):
        return ColumnKind("nested")
    if textual:
        return ColumnKind("text")
    if nominal or pa.types.is_boolean(kind):
        return ColumnKind("category")
    if is_date(kind):
        return ColumnKind("date")
    if is_text(kind):
        return _kind_of_text(column)
    return ColumnKind("identifier" if pa.types.is_integer(kind) and _counts_up(column) else "number")


def _kind_of_text(column: Column) -> ColumnKind:
    values, written = column.plain(), column.written()
    present = written.dropna()
    # a typed file says itself what is a number; text there that is plain digits was meant to be text
    as_text = column.source.as_text
    if not len(present):
        return ColumnKind("number" if as_text else "category")
    if not present.str.fullmatch(_CODE).any():
        if as_text and plain_numbers(present).notna().all() and not _in_groups(present, column):
            return ColumnKind("identifier" if _counts_up(column) else "number")
        if found := _number(column, present, as_text):
            return found
    return _date(column, present) or ColumnKind(_kind_of_strings(values.dropna(), len(values)))


def _kind_of_strings(present: pd.Series, rows: int) -> Literal["category", "text", "name", "identifier"]:
    if len(present) < FEW:
        return "category"
    distinct = present.nunique() / len(present)
    if distinct <= 0.5:
        return "category"
    is_long = present.str.len().mean() > TEXT_LENGTH
    if have_words(present) and (is_long or (distinct > 0.9 and share_words(present))):
        return "text"
    if distinct <= 0.9:
        return "category"
    return "identifier" if distinct == 1 and len(present) == rows else "name"


def _number(column: Column, present: pd.Series, as_text: bool) -> ColumnKind | None:
    """Numbers as people write them; None where they are something else."""
    form, share = number_format(present, column.source.decimal)
    if share < NEARLY_ALL:
        return None
    good = form.numbers(present).notna()
    plain = plain_numbers(present).notna().where(good, True).all() and form.decimal == "."
    if plain and not as_text:
        return None
    if good.all():
        return ColumnKind("number", form)
    _refuse_few(column, good, "numbers")
    return None


def _date(column: Column, present: pd.Series) -> ColumnKind | None:
    distinct = pd.Series(present.unique())
    head = distinct.head(_MANY)
    shaped = head.str.fullmatch(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}.*")
    if shaped.mean() < NEARLY_ALL:
        return None
    shaped = distinct.str.fullmatch(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}.*")
    forms = date_formats(list(distinct[shaped]))
    if not forms:
        return None
    if len(forms) > 1:
        example = distinct.iloc[0]
        raise UsboostError(
            f"{column.source}: column {column.name!r} holds dates such as {example!r}, of which it cannot be "
            f"told whether day or month is first; write them as 2020-12-24, or take the column as categories "
            f"with {option('categorical', repr(column.name))}"
        )
    good = forms[0].dates(present).notna()
    if good.all():
        return ColumnKind("date", forms[0])
    _refuse_few(column, good, "dates")
    return None


def _refuse_few(column: Column, good: pd.Series, what: str) -> None:
    """Refuse a few values that are not what nearly all are."""
    if len(good) < FEW or good.mean() < NEARLY_ALL:
        return
    k = int(good.index[~good][0])
    value = column.plain().iloc[k]
    raise UsboostError(
        f"{column.row(k)}: column {column.name!r} holds {what}, but here {value!r}; count that value as "
        f"missing with {option('missing', repr(value))}, or take the column as categories with "
        f"{option('categorical', repr(column.name))}"
    )


def _in_groups(present: pd.Series, column: Column) -> bool:
    """Whether plain numbers such as 1.234 are thousands, in a file whose decimals have a comma."""
    if column.source.decimal != ",":
        return False
    form = NumberFormat(",", ".")
    return bool(present.str.contains(".", regex=False).any() and form.numbers(present).notna().all())


def _counts_up(column: Column) -> bool:
    """Whether each row holds the number of the row, from 0 or 1, or a column that pandas wrote holds whole
    numbers that all differ."""
    is_index = column.name == "" or column.name.startswith("Unnamed: ")
    # most columns are ruled out by their first value
    if not len(column.cells) or not (is_index or str(column.cells[0].as_py()).strip() in ("0", "1")):
        return False
    numbers = column.numbers()
    if numbers is None or numbers.isna().any():
        return False
    if is_text(column.type) and not column.plain().str.fullmatch(r"\d+").all():
        return False
    found = numbers.to_numpy()
    if is_index:
        return len(np.unique(found)) == len(found)
    return len(found) >= FEW and found[0] in (0, 1) and bool((np.diff(found) == 1).all())

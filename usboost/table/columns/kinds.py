"""The kind of a raw column: numbers, categories, dates, text, or what tells one row from another."""

import re
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from usboost.data.value import shown
from usboost.errors import UsboostError
from usboost.table.columns.column import MARKS, Column, Kind, is_date, is_text, is_usable
from usboost.table.columns.formats import (
    AMBIGUOUS,
    LIKE,
    LIMIT,
    DateFormat,
    Format,
    NumberFormat,
    Order,
    formats_of,
    number_format,
    plain_numbers,
)
from usboost.table.columns.texts import have_words, share_words

TEXT_LENGTH = 24
"""Mean number of characters above which seldom repeated strings of several words are text."""

SELDOM, MANY_VALUES = 1 / 3, 30
"""Different strings to a row, and in all, up to which they are categories, each with some rows."""

FEW = 20
"""Fewer values than these are too few to say what nearly all of them are, or how often they repeat."""

NEARLY_ALL = 0.95
"""Share of numbers, or of dates, above which the other values of a column are taken for mistakes."""

MOSTLY = 0.5
"""Share of numbers, or of dates, from which a column is not read as something else without a note."""

_CODE = r"0\d+|-?\d{16,}"  # digits that a number would not keep
_EXPONENT = r"\d+[eE]\d+"  # which programs write with a point or a sign
_PHONE = r"\+\d[\d ]{6,}"
_WHOLE = re.compile(r"\d+(?:\.0+)?")
_UNNAMED = re.compile(r"(?:Unnamed: .*)?")
_INDEX = re.compile(r"index|level_\d+")
_MANY = 1000  # distinct values by which numbers and dates are ruled out
_WORDS = 3  # different strings without digits, at most, that may stand for missing numbers
_COUNTER = re.compile(
    r"(?i)(.*[\W_])?(i|id|idx|index|no|nr|row|rownum|key|level_0|#)|row[\W_]?.*|.*[a-z](?-i:I[dD])"
)


@dataclass(frozen=True)
class ColumnKind:
    """The kind of a column.

    Attributes
    ----------
    kind : "name" is strings of which nearly all differ and that have no words in common, "identifier" what
        differs in each row, "index" what a program counted, "nested" what has parts of its own, or bytes.
    form : how its numbers or dates are written; None where they are plain, or not text.
    notes : what a user should know of it, to follow the column's name.
    """

    kind: Literal[Kind, "name", "identifier", "index", "nested"]
    form: Format | None = None
    notes: tuple[str, ...] = ()


def kind_of(column: Column, *, nominal: bool = False, textual: bool = False) -> ColumnKind:
    """Decide the kind of a column, by all of its rows.

    Types decide first: booleans are categories; dates, times and durations are what they are. Text is
    numbers when all values are, written in one way (see `formats.NumberFormat`), and they are no codes
    (`are_codes`). It is dates when all values are dates in one order. `MISSING` and `MARKS` stand for missing
    ones. Else it is a category, unless enough values differ: of several words, or a list, it is text, where
    these are long or have words in common, of one word an identifier or name.

    Raises UsboostError if nearly all values are numbers or dates and some are not, or most are and the others
    are a word or two; or it cannot be told which of two numbers is the day. `nominal`, `textual`: it is known
    to be a category, or text.
    """
    kind = column.type
    if not is_usable(kind):
        return ColumnKind("nested")
    if textual:
        return ColumnKind("text")
    if nominal or pa.types.is_boolean(kind):
        return ColumnKind("category")
    if is_date(kind):
        order: Order = "clock" if pa.types.is_time(kind) else "ymd"
        return ColumnKind("date", DateFormat(order, zone=getattr(kind, "tz", None) or ""))
    if is_text(kind):
        return _kind_of_text(column)
    if pa.types.is_integer(kind) and _run_together(column):
        texts = column.texts().dropna()
        note = f"holds codes such as {texts.iloc[0]}, and is not read as numbers, which some would share"
        return ColumnKind(_kind_of_strings(texts, len(column.cells)), notes=(note,))
    counts = pa.types.is_integer(kind) or (pa.types.is_floating(kind) and _UNNAMED.fullmatch(column.name))
    return _number_or_counter(column) if counts else ColumnKind("number")


def _run_together(column: Column) -> bool:
    """Return whether some of a column's whole numbers are one in float64."""
    ends = pc.min_max(column.values).as_py()
    if max(abs(each or 0) for each in ends.values()) <= 1 << 53:
        return False
    distinct = column.values.unique()
    return bool(len(distinct.cast(pa.float64(), safe=False).unique()) < len(distinct))


def _kind_of_text(column: Column) -> ColumnKind:
    values, written = column.plain(), column.written()
    present = written.dropna()
    if not len(present):
        # a column of nothing but marks may be one of signs
        nothing = column.source.as_text and not column.written(marks=()).notna().any()
        return ColumnKind("number" if nothing else "category")
    if are_codes(present):
        strings = ColumnKind(_kind_of_strings(values.dropna(), len(values)))
        many = present.nunique() > FEW or present.str.fullmatch(f"{_EXPONENT}|{_PHONE}").any()
        if not many or plain_numbers(present).notna().mean() < MOSTLY:
            return strings
        note = f"holds codes such as {shown(present.iloc[0])}, and is not read as numbers"
        return replace(strings, notes=(note,))
    marks = values[written.isna() & values.isin(MARKS)].value_counts()
    marked = tuple(
        f"has {mark!r} in {count:,} row{'s' * (count != 1)}, which counts as missing"
        for mark, count in marks.items()
    )
    limits = values[values.str.match(LIMIT).fillna(False)] if column.has_limits else values[:0]
    numbers = _numbers(column, present) if len(limits) <= MOSTLY * len(present) else None  # <20 and >20
    if numbers is not None and numbers[1] == 1:
        if len(limits):
            first, count = limits.iloc[0], f"{len(limits):,} row{'s' * (len(limits) > 1)}"
            marked = (*marked, f"has limits such as {first!r} in {count}, each read as the number itself")
        if numbers[0] is not None:
            if not column.source.decimal_known and present.str.fullmatch(AMBIGUOUS).all():
                first = present.iloc[0]
                read = numbers[0].numbers(pd.Series([first])).iloc[0]
                marked = (
                    *marked,
                    f"holds {first!r}, read as {read:g}: nothing in the table says what the mark is",
                )
            return ColumnKind("number", numbers[0], marked)
        kind = _number_or_counter(column)
        typed = "holds numbers as text, and is read as numbers; `categorical` takes it as categories"
        return replace(kind, notes=(*[typed] * (not column.source.as_text), *marked, *kind.notes))
    counts = present.value_counts(sort=False)
    dates = _dates(column, counts)
    if dates is not None and dates[1] == 1:
        form = dates[0].with_zone(present)
        some = ("holds times with a zone and without, which are read as UTC",) if form.zone is None else ()
        return ColumnKind("date", form, (*dates[0].notes(counts), *some, *marked))
    strings = ColumnKind(_kind_of_strings(values.dropna(), len(values)))
    for what, each in (("numbers", numbers), ("dates", dates)):
        if each is not None and each[1] >= MOSTLY:
            good = _good(present, each[0])
            others = present[~good]
            # a few values that are not what nearly all are, or a word or two among many numbers or dates
            words = others.nunique() <= _WORDS and not others.str.contains(r"\d").any()
            nearly = good.mean() >= NEARLY_ALL or (words and present[good].nunique() > FEW)
            if len(good) >= FEW and nearly and len(others):
                raise _other(column, good, what)
            but = f"in {int(100 * good.mean())} % of its values, but also {shown(others.iloc[0])}"
            return replace(strings, notes=(f"holds {what} {but}, so it is not read as {what}",))
    if len(counts) > FEW and present.str.match(r"[^\w]{0,2}\d").mean() >= MOSTLY:
        like = "which begin like numbers or dates but are read as neither"
        return replace(strings, notes=(f"holds values such as {shown(present.iloc[0])}, {like}",))
    return strings


def are_codes(present: pd.Series) -> bool:
    """Return whether strings of digits, none missing, are codes, which are no numbers."""
    if re.fullmatch(_PHONE, present.iloc[0]) and present.str.fullmatch(_PHONE).all():
        return True
    suspects = present.str.fullmatch(f"{_CODE}|{_EXPONENT}")
    if not suspects.any():
        return False
    exponents = present.str.fullmatch(_EXPONENT)
    if (suspects & ~exponents).any():
        return True
    same_length = present.str.len().nunique() == 1 and present.str.len().iloc[0] >= 4
    return bool(exponents.all() or (same_length and present.str.fullmatch(rf"\d+|{_EXPONENT}").all()))


def _kind_of_strings(present: pd.Series, rows: int) -> Literal["category", "text", "name", "identifier"]:
    if len(present) < FEW:
        return "category"
    values = present.drop_duplicates()
    distinct, is_long = len(values) / len(present), values.str.len().mean() > TEXT_LENGTH
    differ = distinct > (0.5 if is_long else 0.9) or (distinct > SELDOM and len(values) > MANY_VALUES)
    if differ and have_words(values) and (is_long or share_words(values)):
        return "text"
    if distinct <= 0.9:
        return "category"
    return "identifier" if distinct == 1 and len(present) == rows else "name"


def _numbers(column: Column, present: pd.Series) -> tuple[NumberFormat | None, float] | None:
    """Return how most values are written that are numbers, None for plainly, and the share of these."""
    # plain numbers such as 1.234 are thousands in a file whose decimals have a comma
    groups = NumberFormat(",", ".")
    has_points = column.source.decimal == "," and present.str.contains(".", regex=False).any()
    in_groups = bool(has_points and groups.numbers(present).notna().all())
    if not in_groups and plain_numbers(present).notna().all():
        return None, 1.0
    form, share = number_format(present, column.source.decimal)
    return (form, share) if share > 0 else None


def _dates(column: Column, counts: pd.Series) -> tuple[DateFormat, float] | None:
    """Return the same of dates; None where they are not most."""
    head = counts.head(_MANY)
    like = head.index.to_series().str.fullmatch(LIKE).to_numpy()
    if head[like].sum() < MOSTLY * head.sum():
        return None
    forms = formats_of(head[like])
    share = forms[0][1] * head[like].sum() / head.sum()
    if share < MOSTLY:
        return None
    if len(forms) > 1 and share >= NEARLY_ALL:
        raise UsboostError(
            f"{column.source}: column {column.name!r} holds dates such as {counts.index[0]!r}, of which it "
            f"cannot be told whether day or month is first; write them as 2020-12-24, or take the column as "
            f"categories with `categorical={column.name!r}`"
        )
    form = forms[0][0]
    good = _good(pd.Series(counts.index, dtype="str"), form).to_numpy()
    share = float(counts[good].sum() / counts.sum())
    return None if form.order == "clock" and share < 1 else (form, share)  # 61:30 is a length


def _good(present: pd.Series, form: Format | None) -> pd.Series:
    if isinstance(form, DateFormat):
        return form.dates(present).notna()
    return (plain_numbers(present) if form is None else form.numbers(present)).notna()


def check_form(column: Column, form: Format | None) -> None:
    """Refuse a column of text of which some value is not written in a form, which others have.

    Raises UsboostError, naming the first row. `form`: None for plain numbers.
    """
    if is_text(column.type) and len(present := column.written().dropna()):
        good = _good(present, form)
        if not good.all():
            raise _other(column, good, "dates" if isinstance(form, DateFormat) else "numbers")


def _other(column: Column, good: pd.Series, what: str) -> UsboostError:
    """Return the refusal of the values that are not what others are; it names the first one's row."""
    k = int(good.index[~good][0])
    value, *others = map(shown, column.plain()[good.index[~good]].unique())
    more = f", in other rows {', '.join(others[:3])}{', …' * (len(others) > 3)}" if others else ""
    return UsboostError(
        f"{column.row(k)}: column {column.name!r} holds {what}, but here {value}{more}; count that value as "
        f"missing with `missing={value}`, or take the column as categories with "
        f"`categorical={column.name!r}`"
    )


FAR = 10
"""Times the range of all other values that a value which stands for a missing one is away from them."""

FREQUENT = 0.01
"""Share of the rows that it has, at least; and 5 rows."""


def fill_values(values: np.ndarray) -> dict[str, int]:
    """Return numbers that seem to stand for a missing one, such as -999 or 1e20, and how many rows have each.

    Such a one is frequent and far from the range of all others, below or above; `values`: float64 (n,).
    """
    values = values[np.isfinite(values)]
    enough = max(5, FREQUENT * len(values))
    ends = [values.min(), values.max()] if len(values) else []
    frequent = [end for end in ends if np.count_nonzero(values == end) >= enough]
    for each in ([end] for end in frequent), [frequent]:
        for ends in each:
            others = np.unique(values[~np.isin(values, ends)])
            if not ends or len(others) < 3:
                continue
            with np.errstate(over="ignore"):
                gaps = [max(others[0] - end, end - others[-1]) for end in ends]
                if min(gaps) >= FAR * (others[-1] - others[0]):
                    return {repr(float(end)).removesuffix(".0"): int((values == end).sum()) for end in ends}
    return {}


def _number_or_counter(column: Column) -> ColumnKind:
    """Return the kind of whole numbers, which are left out where they only tell rows apart.

    They do if they all differ and the column has the name of such a one. Whether they are in order does not
    matter, since some of the rows may be a fold. Without a name, as pandas writes its index, or called
    ``index`` and with all numbers from 0, they may repeat, as where tables were put together.
    """
    unnamed = _UNNAMED.fullmatch(column.name) is not None
    enough = unnamed or len(column.cells) >= FEW
    # most columns are ruled out by their first value
    if not (enough and len(column.cells) and _WHOLE.fullmatch(str(column.cells[0].as_py()).strip())):
        return ColumnKind("number")
    numbers = column.numbers()
    if numbers is None or numbers.isna().any():
        return ColumnKind("number")
    if is_text(column.type) and not column.plain().str.fullmatch(_WHOLE.pattern if unnamed else r"\d+").all():
        return ColumnKind("number")
    whole = numbers.to_numpy()
    distinct = len(np.unique(whole))
    if (unnamed or _COUNTER.fullmatch(column.name)) and distinct == len(whole):
        return ColumnKind("identifier")
    is_dense = whole.min() == 0 and FEW < distinct == whole.max() + 1
    if (unnamed and (whole % 1 == 0).all()) or (_INDEX.fullmatch(column.name) and is_dense):
        return ColumnKind("index")
    if len(whole) < FEW:
        return ColumnKind("number")
    if whole[0] in (0, 1) and (np.diff(whole) == 1).all():
        note = "counts the rows, and is read as a number; drop it if it says no more than their order"
        return ColumnKind("number", notes=(note,))
    if ((whole >= 19000101) & (whole <= 21001231)).all():  # dates without signs between?
        texts = pd.Series(np.unique(whole).astype(np.int64)).astype(str)
        if pd.to_datetime(texts, format="%Y%m%d", errors="coerce").notna().all():
            note = f"holds dates such as {int(whole[0])}, which are read as numbers; write them as 2020-12-24"
            return ColumnKind("number", notes=(note,))
    return ColumnKind("number")

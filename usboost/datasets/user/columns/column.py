"""The values of a raw column as numbers, categories, dates or text."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from usboost.data.value import REWRITTEN, canonical, missing_of
from usboost.datasets.user.columns.dates import DateFormat
from usboost.datasets.user.columns.formats import NumberFormat
from usboost.datasets.user.columns.types import (
    is_binary,
    is_date,
    is_number,
    is_text,
    is_usable,
    plain_cells,
    plain_type,
)
from usboost.datasets.user.misfits import Misfits
from usboost.datasets.user.reading.source import Source
from usboost.errors import UsboostError, option

Kind = Literal["number", "category", "date", "text"]
"""What a model reads a column as."""

Format = NumberFormat | DateFormat

MISSING = ("", "NA", "N/A", "na", "n/a", "NaN", "nan", "NULL", "null", "None", "?", "#N/A", "<NA>", "NaT")
"""What stands for a missing number or date in text; in other columns only the empty text does."""

_SHORT = r"\N - -- --- – — . .. ... * : n.a. N.A. n.a N.A (null) -nan -NaN 0000-00-00 00/00/0000"
_FAULTS = "#DIV/0! #VALUE! #REF! #NUM! #NAME? #NULL! 1.#IND -1.#IND 1.#QNAN -1.#QNAN"
MARKS = (*_SHORT.split(), *_FAULTS.split(), "#N/A N/A", "0000-00-00 00:00:00")
"""What else programs and people write for a missing number or date, of which a note is made."""

_HELD = {"number": "numbers", "date": "dates"}
_DTYPES = {"number": "float64", "date": "datetime64[us]"}


@dataclass(frozen=True)
class Column:
    """A column of some rows.

    Attributes
    ----------
    source : where the rows are from.
    name : of the column.
    cells : the n values as they were read.
    first : the position of the first of them in the source, for messages.
    missing : further values that count as missing.
    """

    source: Source
    name: str
    cells: pa.ChunkedArray
    first: int = 0
    missing: Collection[str] = ()

    @cached_property
    def values(self) -> pa.ChunkedArray:
        """The cells without a coding: no dictionary, no runs, and strings of one of two types."""
        return plain_cells(self.cells)

    @property
    def type(self) -> pa.DataType:
        """The type of the values, whether or not they are coded."""
        return plain_type(self.cells.type)

    def row(self, k: int) -> str:
        """What the k-th row is called in messages."""
        return self.source.row(self.first + k)

    def plain(self) -> pd.Series:
        """Values as pandas holds them, None or NaN where missing; strings without the spaces around them."""
        series = self._unmasked()
        return series.mask(self._means_missing(series, self.missing)) if self.missing else series

    def _unmasked(self) -> pd.Series:
        # whole numbers stay whole beside a missing one: as float64 those above 2⁵³ would fall together
        series = self.values.to_pandas(integer_object_nulls=True)
        if is_text(self.type):
            series = series.str.strip()
            return series.mask(series == "")
        return series.astype(object) if self.missing and pa.types.is_integer(self.type) else series

    def _means_missing(self, series: pd.Series, options: Collection[str]) -> pd.Series:
        """Whether each value is one of those that count as missing, however these are written."""
        wanted = missing_of(tuple(options))
        if is_text(self.type):
            return series.isin(wanted.texts) | _named(series).isin(wanted.texts)
        if pa.types.is_floating(self.type):
            return pd.Series(np.isin(series, np.array(wanted.floats, dtype=series.dtype)), series.index)
        if pa.types.is_integer(self.type):
            return series.isin(wanted.whole)
        if pa.types.is_decimal(self.type):
            return series.isin(wanted.numbers)
        return series.map(canonical, na_action="ignore").isin(wanted.texts)

    def holds(self, option: str, form: Format | None = None) -> bool:
        """Whether a value is the one that `option` says is missing. `form`: how numbers are written."""
        series = replace(self, missing=())._unmasked()
        found = bool(self._means_missing(series, (option,)).any())
        numbers = missing_of((option,)).floats
        if found or not (numbers and is_text(self.type)):
            return found
        found_numbers = form.numbers(series) if isinstance(form, NumberFormat) else plain_numbers(series)
        return bool(found_numbers.isin(numbers).any())

    def written(self, marks: Collection[str] = MARKS) -> pd.Series:
        """The strings of a column that may hold numbers or dates, NaN where these would be missing."""
        values = self.plain()
        return values.mask(values.isin([*MISSING, *marks]))

    def texts(self) -> pd.Series:
        """Values as classes and categories are called, NaN or None where missing; see `canonical`."""
        values = self.plain()
        if is_text(self.type):
            return _named(values)
        if pa.types.is_nested(self.type):  # which cannot be compared
            return values.map(canonical, na_action="ignore")
        # equal values of one type are called the same
        codes, distinct = pd.factorize(values)
        names = np.array([*map(canonical, distinct.astype(object)), None], dtype=object)
        return pd.Series(names[codes], values.index)

    def filled(self) -> pd.Series:
        """As `texts`, none of which may be missing.

        Raises UsboostError, naming the first row where one is.
        """
        texts = self.texts()
        if texts.isna().any():
            row = self.row(int(np.flatnonzero(texts.isna())[0]))
            raise UsboostError(f"{row}: column {self.name!r} is empty; fill it or leave out the row")
        return texts

    def numbers(self, form: NumberFormat | None = None) -> pd.Series | None:
        """float64 values, NaN where missing, or None when the column holds something else.

        Durations are days, times of the day hours, True is 1. `form`: how numbers that are text are written;
        by default plainly.
        """
        if is_text(self.type):
            if form is None and not self.missing:
                numbers = plain_numbers(self.values.to_pandas())
                if numbers.notna().all():
                    return numbers  # without a look for what is missing, which costs most of a wide row
            values = self.written()
            numbers = plain_numbers(values) if form is None else form.numbers(values)
            if not (numbers.notna() == values.notna()).all():
                truth = values.str.lower().map({"true": 1.0, "false": 0.0})
                return truth if form is None and (truth.notna() == values.notna()).all() else None
            missing = missing_of(tuple(self.missing)).floats
            return numbers.mask(numbers.isin(missing)) if missing else numbers
        if pa.types.is_duration(self.type):
            return self._scaled(pa.duration("us"), 86_400e6)
        if pa.types.is_time(self.type):
            return self._scaled(pa.time64("us"), 3_600e6)
        if pa.types.is_boolean(self.type):
            numbers = self.values.cast(pa.int8()).cast(pa.float64()).to_pandas().astype("float64")
        elif is_number(self.type) or pa.types.is_null(self.type):
            numbers = self.values.cast(pa.float64(), safe=False).to_pandas().astype("float64")
        else:
            return self._nothing("float64")
        return numbers.mask(self.plain().isna()) if self.missing else numbers

    def dates(self, form: DateFormat | None = None) -> pd.Series | None:
        """datetime64 in UTC, NaT where missing, or None when the column holds something else.

        A whole number is a year, if it has four digits. `form`: how dates are written in text; by default
        with the year first.
        """
        if is_text(self.type):
            values, form = self.written(), form or DateFormat()
            dates = form.dates(values)
            if not (dates.notna() == values.notna()).all():
                return None
            options = [each for each in self.missing if not missing_of((each,)).numbers]
            return dates.mask(dates.isin(form.dates(pd.Series(options, dtype="str")).dropna()))
        if is_date(self.type) or pa.types.is_null(self.type):
            dates = self.values.cast(pa.timestamp("us"), safe=False).to_pandas().astype("datetime64[us]")
            return dates.mask(self.plain().isna()) if self.missing else dates
        if is_number(self.type) and (values := self.plain()).notna().any():
            dates = DateFormat().dates(values.map(canonical, na_action="ignore").astype("str"))
            return dates if (dates.notna() == values.notna()).all() else None
        return self._nothing("datetime64[us]")

    def _nothing(self, dtype: str) -> pd.Series | None:
        """A column that holds no value, whose type therefore says nothing; None of another."""
        values = self.plain()
        return None if values.notna().any() else pd.Series(np.nan, values.index).astype(dtype)

    def categories(self) -> pd.Series:
        """A pandas category of strings."""
        texts = self.texts()
        names = sorted(set(texts.dropna().unique()))
        return pd.Series(pd.Categorical(texts, categories=pd.Index(names, dtype="str")))

    def strings(self) -> pd.Series:
        """Text, NaN where missing."""
        return self.texts().astype("str")

    def feature(self, kind: Kind, form: Format | None = None, misfits: Misfits | None = None) -> pd.Series:
        """What a model may learn from.

        Raises UsboostError if it holds something other than the `kind`, or infinity.

        Parameters
        ----------
        kind : what the column holds; form : how its numbers or dates are written in text.
        misfits : counts values that are no such numbers or dates, which are then missing.

        Returns
        -------
        float64 numbers (NaN is missing), datetime64 in UTC (NaT is missing), a pandas category of strings, or
        strings (NaN is missing) where they are text.
        """
        if kind in ("category", "text"):
            if not is_usable(self.type):
                raise self.unusable()
            return self.categories() if kind == "category" else self.strings()
        values = self._of(kind, form)
        if values is None:
            if misfits is None or not misfits.count:
                error = UsboostError(
                    f"{self._not(kind, form)}: column {self.name!r} held {_HELD[kind]} when the model was "
                    f"fitted; give {_HELD[kind]}"
                )
                if misfits is None:
                    raise error
                misfits.error = str(error)
            values = self._partly(kind, form)
        if kind == "number":
            values = self._finite(values, misfits)
        if misfits is not None:
            self._count(values, misfits)
        return values

    def unusable(self) -> UsboostError:
        """What to say of a column that no model can read."""
        is_record = pa.types.is_struct(self.type) and self.type.get_field_index("bytes") >= 0
        named = f", name it with {option('image')} if it holds images,"
        images = named if is_binary(self.type) or is_record else ""
        return UsboostError(
            f"{self.source}: column {self.name!r} is of type {self.type}; turn it into numbers{images} or "
            "drop it"
        )

    def _of(self, kind: Kind, form: Format | None) -> pd.Series | None:
        if kind == "date":
            return self.dates(form if isinstance(form, DateFormat) else None)
        return self.numbers(form if isinstance(form, NumberFormat) else None)

    def _scaled(self, kind: pa.DataType, unit: float) -> pd.Series:
        whole = self.values.cast(kind, safe=False).cast(pa.int64())
        return whole.cast(pa.float64(), safe=False).to_pandas().astype("float64") / unit

    def _present(self) -> np.ndarray:
        """Which values are there: bool of shape (n,)."""
        return (self.written() if is_text(self.type) else self.plain()).notna().to_numpy()

    def _partly(self, kind: Kind, form: Format | None) -> pd.Series:
        """The values that are of the kind, the others missing."""
        if is_text(self.type):
            distinct = self.values.filter(pa.array(self._present())).unique()
            wrong = pa.array(self._wrong(pa.chunked_array([distinct]), kind, form), self.type)
            kept = pc.if_else(pc.is_in(self.values, value_set=wrong), None, self.values)
            if (values := replace(self, cells=kept)._of(kind, form)) is not None:
                return values
        return pd.Series(np.nan, range(len(self.cells))).astype(_DTYPES[kind])

    def _wrong(self, cells: pa.ChunkedArray, kind: Kind, form: Format | None) -> list[str]:
        """Those of some values that are not of the kind, found by halving: mostly they are few."""
        if replace(self, cells=cells)._of(kind, form) is not None:
            return []
        if len(cells) == 1:
            return [cells[0].as_py()]
        half = len(cells) // 2
        return [each for part in (cells[:half], cells[half:]) for each in self._wrong(part, kind, form)]

    def _count(self, values: pd.Series, misfits: Misfits) -> None:
        """Count the values that were read, and those that are missing since they could not be."""
        if not misfits.error:
            misfits.given += int(values.notna().sum())
            return
        present = self._present()
        wrong = present & values.isna().to_numpy()
        k = int(wrong.argmax())
        row = "" if misfits.count else self.row(k).removeprefix(f"{self.source}, ")
        misfits.add_wrong(present, wrong, row=row, value=self.cells[k].as_py())

    def _finite(self, numbers: pd.Series, misfits: Misfits | None = None) -> pd.Series:
        with np.errstate(over="ignore"):
            infinite = np.isinf(numbers.to_numpy().astype(np.float32))
        if not infinite.any():
            return numbers
        row = self.row(int(infinite.argmax()))
        error = (
            f"{row}: column {self.name!r} holds infinity or a number too large; correct it, or "
            f"count it as missing ({option('missing', 'inf')})"
        )
        if misfits is None:
            raise UsboostError(error)
        misfits.error = misfits.error or error
        return numbers.mask(infinite)

    def _not(self, kind: Kind, form: Format | None) -> str:
        """Where the first value is that is not of the kind; the source where the type is another."""
        if is_text(self.type):
            for k in range(len(self.cells)):
                one = Column(self.source, self.name, self.cells.slice(k, 1), missing=self.missing)
                if one._of(kind, form) is None:
                    return f"{self.row(k)}, {self.cells[k].as_py()!r}"
        return str(self.source)


def plain_numbers(values: pd.Series) -> pd.Series:
    """float64 of each string, NaN where it is missing or no number as programs write it."""
    return pd.to_numeric(values, errors="coerce").astype("float64")


def _named(texts: pd.Series) -> pd.Series:
    """Strings as `canonical` has them; few are rewritten."""
    rewritten = texts.str.fullmatch(REWRITTEN).fillna(False).astype(bool)
    if not rewritten.any():
        return texts
    texts = texts.copy()
    texts[rewritten] = texts[rewritten].map(canonical)
    return texts

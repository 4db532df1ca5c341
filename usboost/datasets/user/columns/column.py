"""The values of a raw column as numbers, categories, dates or text."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from usboost.datasets.user.columns.formats import DateFormat, NumberFormat
from usboost.datasets.user.misfits import Misfits
from usboost.datasets.user.reading.source import Source
from usboost.errors import UsboostError, option

Kind = Literal["number", "category", "date", "text"]
"""What a model reads a column as."""

Format = NumberFormat | DateFormat

MISSING = ("", "NA", "N/A", "na", "n/a", "NaN", "nan", "NULL", "null", "None", "?", "#N/A", "<NA>", "NaT")
"""What stands for a missing number or date in text; in other columns only the empty field does."""

_HELD = {"number": "numbers", "date": "dates"}


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

    @property
    def type(self) -> pa.DataType:
        """The type of the values, whether or not they are coded by a dictionary."""
        return plain_type(self.cells.type)

    def row(self, k: int) -> str:
        """What the k-th row is called in messages."""
        return self.source.row(self.first + k)

    def plain(self) -> pd.Series:
        """Values as pandas holds them, None or NaN where missing; strings without the spaces around them."""
        # whole numbers stay whole beside a missing one: as float64 those above 2⁵³ would fall together
        series = self.cells.cast(self.type).to_pandas(integer_object_nulls=True)
        if is_text(self.type):
            series = series.str.strip()
            series = series.mask(series == "") if self.source.as_text else series
            return series.mask(series.isin(list(self.missing))) if self.missing else series
        if self.missing and is_number(self.type):
            series = series.astype(object) if pa.types.is_integer(self.type) else series
            return series.mask(series.map(text_of, na_action="ignore").isin(list(self.missing)))
        return series

    def written(self) -> pd.Series:
        """The strings of a column that may hold numbers or dates, NaN where these would be missing."""
        values = self.plain()
        return values.mask(values.isin(MISSING))

    def texts(self) -> pd.Series:
        """Values as classes and categories are called, NaN or None where missing."""
        return self.plain().map(text_of, na_action="ignore")

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

        Durations are days, times of the day hours. `form`: how numbers that are text are written; by default
        plainly, and in a file of text only.
        """
        if is_text(self.type):
            if form is None and not self.source.as_text:
                return None
            values = self.written()
            numbers = plain_numbers(values) if form is None else form.numbers(values)
            return numbers if (numbers.notna() == values.notna()).all() else None
        if pa.types.is_duration(self.type):
            return self._scaled(pa.duration("us"), 86_400e6)
        if pa.types.is_time(self.type):
            return self._scaled(pa.time64("us"), 3_600e6)
        if is_number(self.type) or pa.types.is_null(self.type):
            numbers = self.cells.cast(self.type).cast(pa.float64(), safe=False).to_pandas().astype("float64")
            return numbers.mask(self.plain().isna()) if self.missing else numbers
        return None

    def dates(self, form: DateFormat | None = None) -> pd.Series | None:
        """datetime64 in UTC, NaT where missing, or None when the column holds something else.

        `form`: the order of day, month and year in text; by default the year is first.
        """
        if is_text(self.type):
            values = self.written()
            dates = (form or DateFormat()).dates(values)
            return dates if (dates.notna() == values.notna()).all() else None
        if is_date(self.type) or pa.types.is_null(self.type):
            return self.cells.cast(pa.timestamp("us"), safe=False).to_pandas().astype("datetime64[us]")
        return None

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
        if values is None and not (present := self._present()).any():
            values = pd.Series(np.nan, range(len(present)))
            values = values.astype("datetime64[us]") if kind == "date" else values
        elif values is None:
            if misfits is None or not misfits.count:
                error = UsboostError(
                    f"{self._not(kind, form)}: column {self.name!r} held {_HELD[kind]} when the model was "
                    f"fitted; give {_HELD[kind]}"
                )
                if misfits is None:
                    raise error
                misfits.error = str(error)
            values = self._partly(kind, form, present)
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
        whole = self.cells.cast(kind, safe=False).cast(pa.int64())
        return whole.cast(pa.float64(), safe=False).to_pandas().astype("float64") / unit

    def _present(self) -> np.ndarray:
        """Which values are there: bool of shape (n,)."""
        return (self.written() if is_text(self.type) else self.plain()).notna().to_numpy()

    def _partly(self, kind: Kind, form: Format | None, present: np.ndarray) -> pd.Series:
        """The values that are of the kind, the others missing."""
        none = pd.Series(np.nan, range(len(present)))
        none = none.astype("datetime64[us]") if kind == "date" else none
        if not is_text(self.type):
            return none
        cells = self.cells.cast(self.type)
        distinct = cells.filter(pa.array(present)).unique()
        wrong = self._wrong(pa.chunked_array([distinct]), kind, form)
        kept = pc.if_else(pc.is_in(cells, value_set=pa.array(wrong, self.type)), None, cells)
        values = replace(self, cells=kept)._of(kind, form)
        return none if values is None else values

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
                    plain = form is None and kind == "number" and not self.source.as_text
                    return str(self.source) if plain else f"{self.row(k)}, {self.cells[k].as_py()!r}"
        return str(self.source)


def plain_numbers(values: pd.Series) -> pd.Series:
    """float64 of each string, NaN where it is missing or no number as programs write it."""
    return pd.to_numeric(values, errors="coerce").astype("float64")


def text_of(value: object) -> str:
    """A value as a class or category is called: 1, 1.0 and "1" are one."""
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        value = int(value)
    return str(value)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of the values, whether or not they are coded by a dictionary."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def is_binary(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def is_date(kind: pa.DataType) -> bool:
    return pa.types.is_date(kind) or pa.types.is_timestamp(kind)


def is_usable(kind: pa.DataType) -> bool:
    """Whether a model can read values of the type."""
    known = is_text(kind) or is_number(kind) or is_date(kind)
    return known or any(
        check(kind)
        for check in (pa.types.is_boolean, pa.types.is_null, pa.types.is_duration, pa.types.is_time)
    )

"""Arrow's types as far as they matter for what a column is."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal
from unicodedata import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from usboost.data.value import REWRITTEN, canonical, missing_of, shown
from usboost.errors import UsboostError
from usboost.table.columns.formats import (
    LIMIT,
    DateFormat,
    Format,
    NumberFormat,
    format_here,
    is_known,
    localised,
    otherwise,
    plain_numbers,
)
from usboost.table.notes import Misfits
from usboost.table.source import Source


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values, whether or not they are coded, and however their strings are stored.

    Times of a zone that this machine does not know are in UTC.
    """
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        kind = kind.value_type
    if pa.types.is_timestamp(kind) and kind.tz and not is_known(kind.tz):
        return pa.timestamp(kind.unit, "UTC")
    views = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    return views.get(kind, kind)


def plain_cells(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the cells as those of the `plain_type`."""
    kind = plain_type(cells.type)
    chunks = []
    for chunk in cells.chunks:
        if pa.types.is_run_end_encoded(chunk.type):
            chunk = pc.run_end_decode(chunk)
        if pa.types.is_dictionary(chunk.type) and chunk.type.value_type != kind:
            chunk = pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(kind))
        chunks.append(chunk if chunk.type == kind else chunk.cast(kind))
    return pa.chunked_array(chunks, kind)


def is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def is_binary(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def is_date(kind: pa.DataType) -> bool:
    return pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_time(kind)


def is_usable(kind: pa.DataType) -> bool:
    """Return whether a model can read values of the type."""
    others = (pa.types.is_boolean, pa.types.is_null, pa.types.is_duration)
    return is_text(kind) or is_number(kind) or is_date(kind) or any(check(kind) for check in others)


Kind = Literal["number", "category", "date", "text"]
"""Kinds of columns, as a model reads them."""

MISSING = ("", "NA", "N/A", "na", "n/a", "NaN", "nan", "NULL", "null", "None", "?", "#N/A", "<NA>", "NaT")
"""Marks of a missing number or date in text; in other columns only the empty text does."""

_SHORT = r"\N - -- --- – — . .. ... * : n.a. N.A. n.a N.A (null) -nan -NaN 0000-00-00 00/00/0000"
_FAULTS = "#DIV/0! #VALUE! #REF! #NUM! #NAME? #NULL! 1.#IND -1.#IND 1.#QNAN -1.#QNAN"
MARKS = (*_SHORT.split(), *_FAULTS.split(), "#N/A N/A", "0000-00-00 00:00:00")
"""Further marks of a missing number or date that people and programs write, of which a note is made."""


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
        """Return the name of the k-th row in messages."""
        return self.source.row(self.first + k)

    def plain(self) -> pd.Series:
        """Return values as in pandas, None or NaN where missing; strings without the spaces around them."""
        series = self._unmasked()
        return series.mask(self._means_missing(series, self.missing)) if self.missing else series

    def _unmasked(self) -> pd.Series:
        # whole numbers stay whole next to a missing one: as float64 those above 2⁵³ would fall together
        series = self.values.to_pandas(integer_object_nulls=True)
        if is_text(self.type):
            series = series.str.strip()
            return series.mask(empty) if (empty := series == "").any() else series
        return series.astype(object) if self.missing and pa.types.is_integer(self.type) else series

    def _means_missing(self, series: pd.Series, options: Collection[str]) -> pd.Series:
        """Return whether each value is one of those that count as missing, however these are written."""
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
        """Return whether a value is the one that `option` says is missing. `form`: of numbers in text."""
        series = replace(self, missing=())._unmasked()
        present = bool(self._means_missing(series, (option,)).any())
        numbers = missing_of((option,)).floats
        if present or not (numbers and is_text(self.type)):
            return present
        parsed = form.numbers(series) if isinstance(form, NumberFormat) else plain_numbers(series)
        return bool(parsed.isin(numbers).any())

    @cached_property
    def has_limits(self) -> bool:
        """Return whether some string is a `LIMIT`."""
        return bool(pc.any(pc.match_substring_regex(self.values, r"^ *[<>≤≥~≈]\W*\d")).as_py())

    def written(self, marks: Collection[str] = MARKS, *, limits: bool = True) -> pd.Series:
        """Return the strings of a column that may hold numbers or dates, NaN where these would be missing.

        Digits of other scripts, and their decimal marks, are written 0 to 9; with `limits` "<0.5" is "0.5".
        """
        values = self.plain()
        if limits and self.has_limits:
            values = values.str.replace(LIMIT, "\\1", regex=True)
        if not pc.all(pc.string_is_ascii(self.values)).as_py():
            foreign = values[values.str.contains(r"[^\x00-\x7F]").fillna(False).astype(bool)]
            foreign = foreign[foreign.str.fullmatch(_NUMERIC).astype(bool)]
            foreign = foreign.map(lambda text: "".join(str(decimal(each, each)) for each in text))
            values = values.where(~values.index.isin(foreign.index), foreign.str.translate(_SIGNS))
        return values.mask(gone) if (gone := values.isin([*MISSING, *marks])).any() else values

    def texts(self) -> pd.Series:
        """Return values as names of classes and categories, NaN or None where missing; see `canonical`."""
        values = self.plain()
        if is_text(self.type):
            return _named(values)
        if pa.types.is_nested(self.type):  # which cannot be compared
            return values.map(canonical, na_action="ignore")
        # equal values of one type are called the same
        codes, distinct = pd.factorize(values)
        if distinct.dtype.kind == "f" and distinct.dtype.itemsize < 8:  # .1, not .10000000149
            distinct = np.asarray(distinct).astype(str)
        names = np.array([*map(canonical, distinct.astype(object)), None], dtype=object)
        return pd.Series(names[codes], values.index)

    def filled(self, rows: np.ndarray) -> pd.Series:
        """Return some rows of it as `texts`, none of which may be missing.

        Raises UsboostError, naming the first row where one is.
        """
        texts = self.texts().iloc[rows]
        if texts.isna().any():
            row = self.row(int(rows[texts.isna().argmax()]))
            raise UsboostError(f"{row}: column {self.name!r} is empty; fill it or leave out the row")
        return texts

    def numbers(self, form: NumberFormat | None = None) -> pd.Series | None:
        """Return float64 values, NaN where missing, or None when the column holds something else.

        Durations are days, times of the day hours, as older models have them, True is 1. `form`: how numbers
        that are text are written; by default plainly.
        """
        if is_text(self.type):
            if form is None and not self.missing:
                numbers = plain_numbers(self.values.to_pandas())
                if numbers.notna().all():
                    return numbers  # without a look for what is missing, which costs most of a wide row
            numbers = _as_numbers(values := self.written(), form)
            if not (numbers.notna() == values.notna()).all():
                return None
            missing = missing_of(tuple(self.missing)).floats
            return numbers.mask(numbers.isin(missing)) if missing else numbers
        if (is_span := pa.types.is_duration(self.type)) or pa.types.is_time(self.type):
            microseconds = self.values.cast(pa.duration("us") if is_span else pa.time64("us"), safe=False)
            whole = microseconds.cast(pa.int64()).cast(pa.float64(), safe=False).to_pandas()
            return whole.astype("float64") / (86_400e6 if is_span else 3_600e6)
        if pa.types.is_boolean(self.type):
            numbers = self.values.cast(pa.int8()).cast(pa.float64()).to_pandas().astype("float64")
        elif is_number(self.type) or pa.types.is_null(self.type):
            numbers = self.values.cast(pa.float64(), safe=False).to_pandas().astype("float64")
        else:
            return self._nothing("float64")
        return numbers.mask(self.plain().isna()) if self.missing else numbers

    def dates(self, form: DateFormat | None = None) -> pd.Series | None:
        """Parse dates: datetime64 in UTC, NaT where missing, or None when the column holds something else.

        A whole number is a year, if it has four digits. `form`: how dates are written in text; by default
        with the year first; where it is "clock", the time of the day alone counts.
        """
        clock = form is not None and form.order == "clock"
        if is_text(self.type):
            values, form = self.written(), form or DateFormat()
            dates = form.dates(values)
            if not (dates.notna() == values.notna()).all():
                return None
            options = [each for each in self.missing if not missing_of((each,)).numbers]
            return dates.mask(dates.isin(form.dates(pd.Series(options, dtype="str")).dropna()))
        if (is_date(self.type) and (clock or not pa.types.is_time(self.type))) or pa.types.is_null(self.type):
            cells, zone = self.values, None if form is None else form.zone
            own = pa.types.is_timestamp(self.type) and self.type.tz
            if own and zone == "":
                cells = pc.local_timestamp(cells)
            if pa.types.is_time(self.type):
                cells = cells.cast(pa.time64("us"), safe=False).cast(pa.int64())
            dates = cells.cast(pa.timestamp("us"), safe=False).to_pandas().astype("datetime64[us]")
            if zone and not own and pa.types.is_timestamp(self.type):
                dates = localised(dates, zone)
            if clock:
                dates = pd.Timestamp(0) + (dates - dates.dt.normalize())
            return dates.mask(self.plain().isna()) if self.missing else dates
        if is_number(self.type) and not clock and (values := self.plain()).notna().any():
            dates = DateFormat().dates(values.map(canonical, na_action="ignore").astype("str"))
            return dates if (dates.notna() == values.notna()).all() else None
        return self._nothing("datetime64[us]")

    def format_here(self, kind: Kind, form: Format | None, usual: float | None) -> tuple[Format | None, str]:
        """Return how its strings are written, of a fit's `form` and median; see `formats.format_here`."""
        if not is_text(self.type) or not (kind == "number" or isinstance(form, DateFormat)):
            return form, ""
        texts, source = self.written().dropna(), self.source
        if isinstance(form, DateFormat):
            return form.here(texts)
        return format_here(form, texts, source.decimal, known=source.decimal_known, usual=usual)

    def differs(self, form: Format | None) -> str:
        """Say that numbers lack the unit, or times have a zone, or none, unlike those that `form` was learnt
        of, and how they are read; "" where they do not."""
        if isinstance(form, NumberFormat) and form.unit == "%" and is_number(self.type):
            of_fit, typical = "as they had for the fit", abs(self.plain().astype("float64")).median()
            read = f"numbers such as {typical:g} have no %, {of_fit}, and are read as {100 * typical:g} %"
            return read if typical > 1 else ""
        if not isinstance(form, DateFormat):
            return ""
        if is_text(self.type):
            return form.differs(self.written())
        if not pa.types.is_timestamp(self.type) or form.zone is None or bool(self.type.tz) == bool(form.zone):
            return ""
        present = self.values.drop_null()
        return otherwise(str(present[0]), form.zone) if len(present) else ""

    def _nothing(self, dtype: str) -> pd.Series | None:
        """Return a column that holds no value, whose type therefore says nothing; None of another."""
        values = self.plain()
        return None if values.notna().any() else pd.Series(np.nan, values.index).astype(dtype)

    def feature(self, kind: Kind, form: Format | None = None, misfits: Misfits | None = None) -> pd.Series:
        """Return what a model may learn from.

        That is float64 numbers (NaN is missing), datetime64 in UTC (NaT is missing), a pandas category of
        strings, or strings (NaN is missing) where they are text. `form` is how numbers or dates are written
        in text; `misfits` counts values that are no such ones, which are then missing. Raises UsboostError if
        the column holds something other than the `kind`, or infinity.
        """
        if kind in ("category", "text"):
            if not is_usable(self.type):
                raise self.unusable()
            texts = self.texts()
            if kind == "text":
                return texts.astype("str")
            names = sorted(set(texts.dropna().unique()))
            return pd.Series(pd.Categorical(texts, categories=pd.Index(names, dtype="str")))
        values = self._of(kind, form)
        if values is None:
            wrong = self._wrong(kind, form) if is_text(self.type) else np.zeros(len(self.cells), dtype=bool)
            if misfits is None or not misfits.count:
                k = int(wrong.argmax())
                where = f"{self.row(k)}, {shown(self.cells[k].as_py())}" if wrong.any() else str(self.source)
                unit = f" with the unit {form.unit!r}" if isinstance(form, NumberFormat) and form.unit else ""
                as_fit = f"like {form}" if isinstance(form, NumberFormat) else "as for the fit"
                want = f"{kind}s{unit}" + (f", written {as_fit}" if form else "")
                error = f"{where}: column {self.name!r} held {kind}s when the model was fitted; give {want}"
                if misfits is None:
                    raise UsboostError(error)
                misfits.error = error
            if wrong.any():  # the others may be of the kind
                cells = pc.if_else(pa.array(~wrong), self.values, None)
                values = replace(self, cells=cells)._of(kind, form)
            if values is None:
                dtype = "float64" if kind == "number" else "datetime64[us]"
                values = pd.Series(np.nan, range(len(self.cells))).astype(dtype)
        if kind == "number":
            with np.errstate(over="ignore"):
                infinite = np.isinf(values.to_numpy().astype(np.float32))
            if infinite.any():
                k = int(infinite.argmax())
                error = (
                    f"{self.row(k)}: column {self.name!r} holds infinity or a number too large; correct it, "
                    f"or fit with `missing={float(values.iloc[k])!r}`, which counts it as missing"
                )
                if misfits is None:
                    raise UsboostError(error)
                misfits.error = misfits.error or error
                values = values.mask(infinite)
        if misfits is None:
            return values
        if not misfits.error:
            misfits.given += int(values.notna().sum())
            return values
        present = (self.written() if is_text(self.type) else self.plain()).notna().to_numpy()
        missed = present & values.isna().to_numpy()
        k = int(missed.argmax())
        row = "" if misfits.count else self.row(k).removeprefix(f"{self.source}, ")
        misfits.add_wrong(present, missed, row=row, value=self.cells[k].as_py())
        return values

    def unusable(self) -> UsboostError:
        """Return the refusal of a column that no model can read."""
        is_record = pa.types.is_struct(self.type) and self.type.get_field_index("bytes") >= 0
        named = ", name it with `image` if it holds images,"
        images = named if is_binary(self.type) or is_record else ""
        return UsboostError(
            f"{self.source}: column {self.name!r} is of type {self.type}; turn it into numbers{images} or "
            "drop it"
        )

    def _of(self, kind: Kind, form: Format | None) -> pd.Series | None:
        if kind == "date":
            return self.dates(form if isinstance(form, DateFormat) else None)
        return self.numbers(form if isinstance(form, NumberFormat) else None)

    def _wrong(self, kind: Kind, form: Format | None) -> np.ndarray:
        """Return which strings are neither missing nor of the kind: bool (n,)."""
        values = self.written()
        if kind == "date":
            read = (form if isinstance(form, DateFormat) else DateFormat()).dates(values)
        else:
            read = _as_numbers(values, form if isinstance(form, NumberFormat) else None)
        return (read.isna() & values.notna()).to_numpy()


def _as_numbers(values: pd.Series, form: NumberFormat | None) -> pd.Series:
    """Parse each string as float64, NaN where it is none; without a unit true is 1 in whatever company."""
    numbers = plain_numbers(values) if form is None else form.numbers(values)
    others = values[numbers.isna() & values.notna()]
    if others.empty or (form and form.unit):
        return numbers
    return numbers.fillna(others.str.lower().map({"true": 1.0, "false": 0.0}))


_NUMERIC = r"[\d\s.,٫٬．，+\-−－＋/:%'’]+"
_SIGNS = str.maketrans("٫٬．，－＋", ".,.,-+")


def _named(texts: pd.Series) -> pd.Series:
    """Return strings as `canonical` writes them; few are rewritten."""
    rewritten = texts.str.contains(rf"^(?:{REWRITTEN})$|[^\x00-\x7f]").fillna(False).astype(bool)
    if not rewritten.any():
        return texts
    texts = texts.copy()
    texts[rewritten] = texts[rewritten].map(canonical)
    return texts

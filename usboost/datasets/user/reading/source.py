"""Where raw rows come from: a table on disk, of any size, or a DataFrame."""

from __future__ import annotations

import datetime
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Protocol

import pandas as pd
import pyarrow as pa

from usboost.data.value import canonical
from usboost.datasets.user.reading import files as readers
from usboost.datasets.user.reading.content import FAULTS, Content, damaged, even
from usboost.datasets.user.reading.partitions import base_of
from usboost.errors import UsboostError, choices

INDEX_COLUMN = re.compile(r"__index_level_\d+__")
"""Columns that pandas writes for itself."""


class Source(Protocol):
    """Raw rows; `str` gives what they are called in messages."""

    @property
    def as_text(self) -> bool:
        """Whether all values are strings, as in a CSV."""

    @property
    def decimal(self) -> str:
        """The mark of decimals in numbers that are text, "." or ",", where a column leaves it open."""

    @property
    def folder(self) -> Path | None:
        """Where the paths of images begin; None where rows may name no files."""

    @property
    def images_root(self) -> Path | None:
        """The folder that paths of images may be absolute in, if one was named."""

    @property
    def names(self) -> list[str]:
        """The columns, in their order."""

    def type_of(self, name: str) -> pa.DataType:
        """The type of a column that is there."""

    def number(self, position: int) -> int:
        """Of a row in all of the table, from 1."""

    def row(self, position: int) -> str:
        """What a row is called in messages."""

    @property
    def n_rows(self) -> int | None:
        """The number of rows; None where it is unknown before they are read, as in a CSV."""

    @property
    def notes(self) -> Sequence[str]:
        """What was decided when it was opened, for a user to read."""

    @property
    def declared(self) -> Collection[str]:
        """Columns that are categories by their type."""

    def digest(self) -> str:
        """Hexadecimal SHA-256 of what is on disk, "" where nothing is."""

    def batches(self, names: Collection[str], size: int) -> Iterator[pa.Table]:
        """Some columns, `size` rows at a time; the last batch may have fewer."""


@dataclass(frozen=True)
class TableFile:
    """A table on disk: a file of a kind in `readers.READERS`, or a folder or pattern of Parquet files.

    Attributes
    ----------
    path : the file, folder or pattern, such as ``rows/*.parquet``.
    content : what it holds.
    images_root : the folder that paths of images are relative to and may not leave; by default the
        table's, of a folder of files this folder itself.
    """

    path: Path
    content: Content
    images_root: Path | None = None

    @classmethod
    def open(cls, path: Path, images_root: Path | None = None) -> TableFile:
        """Find out the columns.

        Raises UsboostError if the file is missing, damaged or of another kind, or the root of the images is
        no folder.
        """
        path = Path(path)
        if images_root is not None and not Path(images_root).is_dir():
            raise UsboostError(f"the folder of the images, {images_root}, does not exist")
        return cls(path, readers.open_content(path), None if images_root is None else Path(images_root))

    def __str__(self) -> str:
        return str(self.path)

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns; of text and Excel all are strings."""
        return self.content.schema

    @property
    def as_text(self) -> bool:
        return self.content.as_text

    @property
    def decimal(self) -> str:
        return self.content.decimal

    @property
    def folder(self) -> Path:
        if self.images_root is not None:
            return self.images_root
        return base_of(self.path)

    @property
    def names(self) -> list[str]:
        return list(self.schema.names)

    @property
    def n_rows(self) -> int | None:
        """The number of rows; None where it is unknown before they are read, as in a CSV."""
        try:
            return self.content.n_rows
        except FAULTS as error:
            raise damaged(self.path, error) from None

    @property
    def notes(self) -> Sequence[str]:
        return self.content.notes

    @property
    def declared(self) -> Collection[str]:
        """Columns that were categories in pandas; Parquet itself keeps that for strings only."""
        try:
            columns = (self.schema.pandas_metadata or {}).get("columns", [])
            return [column["name"] for column in columns if column.get("pandas_type") == "categorical"]
        # ignore damaged pandas metadata
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return []

    def digest(self) -> str:
        """Hexadecimal SHA-256; changes with the file, or with a folder's files."""
        return readers.digest(self.path)

    def type_of(self, name: str) -> pa.DataType:
        return self.schema.field(name).type

    def number(self, position: int) -> int:
        return position + 1

    def row(self, position: int) -> str:
        line = self.content.line(position)
        return f"{self}, row {self.number(position)}" + ("" if line is None else f" (line {line})")

    def pieces(self, names: list[str], most: int) -> Iterator[pa.Table]:
        """As of `Content`."""
        return self.content.pieces(names, most)

    def batches(self, names: Collection[str], size: int) -> Iterator[pa.Table]:
        """Some columns, `size` rows at a time; the last batch may have fewer.

        Raises UsboostError if the file is damaged.
        """
        try:
            yield from even(self.pieces(list(dict.fromkeys(names)), size), size)
        except UsboostError:
            raise
        except FAULTS as error:
            raise damaged(self.path, error) from None


class FrameRows:
    """The rows of a DataFrame.

    Parameters
    ----------
    folder : where the paths of images begin; without one images are bytes or, since JSON has no bytes,
        base64, never paths.
    mixed : whether a column may hold text among numbers or dates; it is text then.
    """

    as_text = False
    decimal = "."
    notes: Sequence[str] = ()

    def __init__(self, frame: pd.DataFrame, folder: Path | None = None, *, mixed: bool = False) -> None:
        self._frame, self.folder, self.images_root, self._mixed = frame, folder, folder, mixed
        self._names = [str(name) for name in frame.columns]
        # of names that are there twice the first; `require` refuses them
        self._places = {name: place for place, name in reversed(list(enumerate(self._names)))}

    def __str__(self) -> str:
        return "the input"

    @property
    def n_rows(self) -> int:
        return len(self._frame)

    @property
    def declared(self) -> Collection[str]:
        types = zip(self.names, self._frame.dtypes, strict=True)
        return [name for name, kind in types if isinstance(kind, pd.CategoricalDtype)]

    def digest(self) -> str:
        return ""

    @property
    def names(self) -> list[str]:
        return list(self._names)

    def type_of(self, name: str) -> pa.DataType:
        return self._column(name).type

    def number(self, position: int) -> int:
        return position + 1

    def row(self, position: int) -> str:
        return f"{self}, row {position + 1}"

    def batches(self, names: Collection[str], size: int) -> Iterator[pa.Table]:
        """Some columns, `size` rows at a time; the last batch may have fewer.

        Raises UsboostError if a column holds what an Arrow column cannot: values of several types, say.
        """
        table = pa.table({name: self._column(name) for name in names})
        for first in range(0, len(self._frame), size):
            yield table.slice(first, size)

    def _column(self, name: str) -> pa.Array | pa.ChunkedArray:
        values = self._frame.iloc[:, self._places[name]]
        try:
            return self._array(values)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise UsboostError(f"{self}: {self._cannot(name, values)}") from error

    def _array(self, values: pd.Series) -> pa.Array | pa.ChunkedArray:
        """As Arrow; of paths and intervals their text, and of periods their first day."""
        if isinstance(values.dtype, pd.CategoricalDtype):
            kind = values.dtype.categories.dtype
            if isinstance(kind, (pd.IntervalDtype, pd.PeriodDtype)):
                values = values.cat.rename_categories(str)
        elif isinstance(values.dtype, pd.IntervalDtype):
            values = values.astype(object)
        elif isinstance(values.dtype, pd.PeriodDtype):
            values = values.dt.to_timestamp()
        try:
            return pa.array(values, from_pandas=True)
        except pa.ArrowException:
            if self._mixed and all(isinstance(each, _SCALARS) for each in values.dropna()):
                return pa.array(values.map(canonical, na_action="ignore"), pa.string(), from_pandas=True)
            if not any(isinstance(each, (os.PathLike, pd.Interval)) for each in values):
                raise
            return pa.array([_text_of(each) for each in values], from_pandas=True)

    @staticmethod
    def _cannot(name: str, values: pd.Series) -> str:
        """What is wrong with a column that Arrow cannot hold, and what to do."""
        if isinstance(values.dtype, pd.SparseDtype):
            return f"column {name!r} is sparse; make it dense, values.sparse.to_dense() say"
        if values.dtype.kind == "c":
            return f"column {name!r} is complex; give real and imaginary part as two columns, or drop it"
        kinds = list(dict.fromkeys(type(each).__name__ for each in values.dropna()))
        if kinds == ["int"]:
            return f"column {name!r} holds whole numbers of more than 64 bits; turn it into float or text"
        what = f"several types, {', '.join(kinds[:5])}" if len(kinds) > 1 else f"type {kinds[0]}"
        return f"column {name!r} holds values of {what}; turn it into numbers or text, or drop it"


_SCALARS = (str, bool, Real, Decimal, datetime.date, datetime.time)


def _text_of(value: object) -> object:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return str(value) if isinstance(value, pd.Interval) else value


def require(source: Source, needed: Collection[str]) -> None:
    """Refuse rows that lack a column, or have it twice. Raises UsboostError, naming the columns."""
    names = Counter(source.names)
    if not names:
        raise UsboostError(f"{source} is empty")
    if absent := [name for name in needed if name not in names]:
        raise UsboostError(
            f"{source} lacks {_listed(absent)}, required by the model or asked for; "
            f"{choices(absent[0], list(names), 'its columns are')}"
        )
    if twice := [name for name in needed if names[name] > 1]:
        raise UsboostError(f"{source} has two columns called {twice[0]!r}; rename one")


def _listed(names: Collection[str]) -> str:
    quoted = ", ".join(repr(name) for name in names)
    return f"column {quoted}" if len(names) == 1 else f"columns {quoted}"

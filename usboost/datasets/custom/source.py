"""Where raw rows come from: a table on disk, of any size, or a DataFrame."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from usboost.errors import UsboostError

INDEX_COLUMN = re.compile(r"__index_level_\d+__")
"""Columns that pandas writes for itself."""

_BLOCK = 1 << 22  # bytes of a CSV read at a time; no row may be longer


class Source(Protocol):
    """Raw rows; `str` gives what they are called in messages."""

    @property
    def as_text(self) -> bool:
        """Whether all values are strings, as in a CSV."""
        ...

    @property
    def folder(self) -> Path | None:
        """Where the paths of pictures begin; None where rows may name no files."""
        ...

    @property
    def names(self) -> list[str]:
        """The columns, in their order."""
        ...

    def type_of(self, name: str) -> pa.DataType:
        """The type of a column that is there."""
        ...

    def batches(self, names: Collection[str], size: int) -> Iterator[pa.Table]:
        """Some columns, `size` rows at a time; the last batch may have fewer."""
        ...


@dataclass(frozen=True)
class TableFile:
    """A ``.parquet`` or ``.csv`` file.

    Attributes
    ----------
    path : the file.
    schema : names and types of the columns; of a CSV (UTF-8, commas, a header) all are strings.
    """

    path: Path
    schema: pa.Schema

    @classmethod
    def open(cls, path: Path) -> TableFile:
        """Find out the columns.

        Raises
        ------
        UsboostError
            If the file is missing, damaged or of another kind.
        """
        path = Path(path)
        if not path.is_file():
            raise UsboostError(f"table not found: {path}")
        try:
            if is_csv(path):
                with path.open(encoding="utf-8-sig", newline="") as file:
                    names = next(csv.reader(file), [])
                return cls(path, pa.schema([(name, pa.string()) for name in names]))
            if path.suffix.lower() in (".parquet", ".pq"):
                return cls(path, pq.read_schema(path))
        except (UnicodeDecodeError, csv.Error, pa.ArrowException, OSError) as error:
            raise _damaged(path, error) from None
        raise UsboostError(f"{path} must be a .parquet or .csv file")

    def __str__(self) -> str:
        return str(self.path)

    @property
    def as_text(self) -> bool:
        return is_csv(self.path)

    @property
    def folder(self) -> Path:
        return self.path.parent

    @property
    def names(self) -> list[str]:
        return list(self.schema.names)

    @property
    def n_rows(self) -> int | None:
        """The number of rows; None for a CSV, where it is unknown."""
        if self.as_text:
            return None
        try:
            return pq.read_metadata(self.path).num_rows
        except (pa.ArrowException, OSError) as error:
            raise _damaged(self.path, error) from None

    def type_of(self, name: str) -> pa.DataType:
        return self.schema.field(name).type

    def batches(self, names: Collection[str], size: int) -> Iterator[pa.Table]:
        """Some columns, `size` rows at a time; the last batch may have fewer.

        Raises
        ------
        UsboostError
            If the file is damaged.
        """
        chosen = list(dict.fromkeys(names))
        try:
            if self.as_text:
                yield from _csv_batches(self.path, chosen, size)
                return
            # column chunks are read a page at a time, so that no row group has to fit in memory
            with pq.ParquetFile(self.path, pre_buffer=False, buffer_size=1 << 20) as file:
                for batch in file.iter_batches(batch_size=size, columns=chosen):
                    table = pa.Table.from_batches([batch]).select(chosen)
                    # text that is not UTF-8 would be found only when a value is looked at
                    table.validate(full=True)
                    yield table
        except UsboostError:
            raise
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise _damaged(self.path, error) from None


class FrameRows:
    """The rows of a DataFrame; pictures are bytes or, since JSON has no bytes, base64, never paths."""

    as_text = False
    folder: Path | None = None

    def __init__(self, frame: pd.DataFrame) -> None:
        self._frame = frame

    def __str__(self) -> str:
        return "the input"

    @property
    def names(self) -> list[str]:
        return [str(name) for name in self._frame.columns]

    def type_of(self, name: str) -> pa.DataType:
        return self._column(name).type

    def batches(self, names: Collection[str], size: int) -> Iterator[pa.Table]:
        """Some columns, `size` rows at a time; the last batch may have fewer.

        Raises
        ------
        UsboostError
            If a column holds values of several types.
        """
        table = pa.table({name: self._column(name) for name in names})
        for first in range(0, len(self._frame), size):
            yield table.slice(first, size)

    def _column(self, name: str) -> pa.Array | pa.ChunkedArray:
        values = self._frame.iloc[:, self.names.index(name)]
        try:
            return pa.array(values, from_pandas=True)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise UsboostError(f"{self}: column {name!r} holds values of several types: {error}") from None


def is_csv(path: Path) -> bool:
    return path.suffix.lower() == ".csv"


def require(source: Source, needed: Collection[str]) -> None:
    """Refuse rows that lack a column, or have it twice.

    Raises
    ------
    UsboostError
        Naming the columns.
    """
    names = source.names
    if absent := [name for name in needed if name not in names]:
        raise UsboostError(
            f"{source} lacks {_listed(absent)} that the model reads or was asked for; "
            f"its columns are {', '.join(names)}"
        )
    if twice := [name for name in needed if names.count(name) > 1]:
        raise UsboostError(f"{source} has two columns called {twice[0]!r}; rename one")


def _csv_batches(path: Path, names: list[str], size: int) -> Iterator[pa.Table]:
    reader = pyarrow.csv.open_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(block_size=_BLOCK),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), include_columns=names, strings_can_be_null=False
        ),
    )
    with reader:
        waiting = pa.Table.from_batches([], schema=reader.schema)
        for block in reader:
            waiting = pa.concat_tables([waiting, pa.Table.from_batches([block])])
            while waiting.num_rows >= size:
                yield waiting.slice(0, size)
                waiting = waiting.slice(size)
        if waiting.num_rows:
            yield waiting


def _damaged(path: Path, error: Exception) -> UsboostError:
    return UsboostError(f"{path} is damaged or not of the type in its name: {error}")


def _listed(names: Collection[str]) -> str:
    quoted = ", ".join(repr(name) for name in names)
    return f"column {quoted}" if len(names) == 1 else f"columns {quoted}"

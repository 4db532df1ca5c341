"""What every kind of file gives: columns, and rows in pieces."""

from __future__ import annotations

import csv
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from usboost.errors import UsboostError

FAULTS: tuple[type[Exception], ...] = (
    *(csv.Error, pa.ArrowException, OSError, ValueError, KeyError, EOFError),
    *(zlib.error, zipfile.BadZipFile, RuntimeError, MemoryError),
)
"""What readers raise of a damaged file, the errors of pyarrow's own and of unpacking included."""


class Content(Protocol):
    """The rows of a file.

    Attributes
    ----------
    as_text : whether all values are strings, as in a CSV.
    decimal : the mark of decimals in numbers that are text, "." or ",", where a column leaves it open.
    notes : what a user should know about how the file is read.
    schema : names and types of the columns.
    n_rows : the number of rows; None where it is unknown before they are read.
    """

    @property
    def as_text(self) -> bool: ...

    @property
    def decimal(self) -> str: ...

    @property
    def notes(self) -> tuple[str, ...]: ...

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def n_rows(self) -> int | None: ...

    def pieces(self, names: list[str], most: int) -> Iterator[pa.Table]:
        """Some columns of all rows in their order, in pieces; `most` rows are wanted at a time."""
        ...

    def line(self, row: int) -> int | None:
        """The line of the file on which a row begins, from 1; None where a file has no lines."""
        ...

    def place(self, row: int) -> tuple[Path, int] | None:
        """The Parquet file that holds the row, and its position there; None for other kinds of file."""
        ...


def even(pieces: Iterable[pa.Table], size: int) -> Iterator[pa.Table]:
    """The same rows, `size` at a time; the last table may have fewer."""
    waiting: list[pa.Table] = []
    rows = 0
    for piece in pieces:
        waiting.append(piece)
        rows += piece.num_rows
        if rows < size:
            continue
        joined = pa.concat_tables(waiting)
        first = 0
        for first in range(0, rows - size + 1, size):
            yield joined.slice(first, size)
        waiting = [joined.slice(first + size)]
        rows = waiting[0].num_rows
    if rows:
        yield pa.concat_tables(waiting)


def damaged(path: Path, error: Exception) -> UsboostError:
    """What to say of a file that its reader cannot read."""
    return UsboostError(f"{path} is damaged or not of the type in its name: {error}")

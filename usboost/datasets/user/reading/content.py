"""What every kind of file gives: columns, and rows in pieces; of a compressed one, what is in it."""

from __future__ import annotations

import csv
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import pyarrow as pa

from usboost.errors import UsboostError

PACKINGS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""pyarrow's names of them; a ``.zip`` is opened by Python."""


def kind_of_file(path: Path) -> tuple[str, bool]:
    """The end of the name of what the file holds, such as ``.csv``, and whether that is compressed.

    Raises UsboostError if an archive does not hold exactly one file.
    """
    packing = path.suffix.lower()
    if packing == ".zip":
        with zipfile.ZipFile(path) as archive:
            return PurePosixPath(_member(path, archive).filename).suffix.lower(), True
    if packing in PACKINGS:
        return path.with_suffix("").suffix.lower(), True
    return packing, False


@contextmanager
def unpacked(path: Path) -> Iterator[pa.NativeFile]:
    """The file's bytes as a stream, unpacked while they are read."""
    packing = path.suffix.lower()
    if packing == ".zip":
        with zipfile.ZipFile(path) as archive, archive.open(_member(path, archive)) as member:
            yield pa.PythonFile(member, mode="r")
        return
    with pa.OSFile(str(path)) as file:
        if packing not in PACKINGS:
            yield file
            return
        with pa.CompressedInputStream(file, PACKINGS[packing]) as stream:
            yield stream


def _member(path: Path, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    """The one file of an archive; what macOS adds does not count."""
    found = [
        info
        for info in archive.infolist()
        if not info.is_dir()
        and not info.filename.startswith("__MACOSX/")
        and ".DS_Store" not in info.filename
    ]
    if len(found) != 1:
        raise UsboostError(f"{path} holds {len(found)} files; a zip must hold one table, so unpack it")
    return found[0]


FAULTS: tuple[type[Exception], ...] = (
    *(csv.Error, pa.ArrowException, OSError, ValueError, KeyError, TypeError, EOFError),
    *(zlib.error, zipfile.BadZipFile, RuntimeError, MemoryError),
)
"""What readers raise of a damaged file, the errors of pyarrow's own and of unpacking included."""


class Content(ABC):
    """The rows of a file.

    Attributes
    ----------
    schema : names and types of the columns.
    as_text : whether all values are strings, as in a CSV.
    decimal : the mark of decimals in numbers that are text, "." or ",", where a column leaves it open.
    notes : what a user should know about how the file is read.
    """

    schema: pa.Schema
    as_text: bool = False
    decimal: str = "."
    notes: tuple[str, ...] = ()

    @property
    def n_rows(self) -> int | None:
        """The number of rows; None where it is unknown before they are read."""
        return None

    @abstractmethod
    def pieces(self, names: list[str], most: int) -> Iterator[pa.Table]:
        """Some columns of all rows in their order, in pieces; `most` rows are wanted at a time."""

    def line(self, row: int) -> int | None:
        """The line of the file on which a row begins, from 1; None where a file has no lines."""
        return None

    def place(self, row: int) -> tuple[Path, int] | None:
        """The Parquet file that holds the row, and its position there; None for other kinds of file."""
        return None


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
    memory = ", or there is not enough memory" if isinstance(error, MemoryError) else ""
    return UsboostError(f"{path} is damaged or not of the type in its name{memory}: {error}")

"""The files that a table may be: which reader opens which, a new kind of file is one entry of `READERS`; and
those that are read as a whole, Excel and JSON lines."""

from __future__ import annotations

import datetime
import hashlib
import itertools
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.json

from usboost.datasets.sources import sha256
from usboost.datasets.user.reading.columnar import Feather, Parquet
from usboost.datasets.user.reading.content import FAULTS, Content, damaged, kind_of_file, unpacked
from usboost.datasets.user.reading.delimited import Delimited
from usboost.datasets.user.reading.partitions import base_of, is_pattern, parts_of
from usboost.errors import UsboostError
from usboost.shards.here import here

LARGEST = 1 << 30
"""Bytes, unpacked, above which such a file is refused."""

_BLOCK = 1 << 24  # bytes of JSON parsed at a time; no line may be longer


@dataclass(frozen=True)
class Whole(Content):
    """A table in memory."""

    table: pa.Table
    as_text: bool = False
    notes: tuple[str, ...] = ()
    lines: tuple[int, ...] | None = None
    """The line of each row, where the file has lines of its own."""

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    @property
    def n_rows(self) -> int:
        return int(self.table.num_rows)

    def pieces(self, names: list[str], most: int) -> Iterator[pa.Table]:
        yield self.table.select(names)

    def line(self, row: int) -> int | None:
        return None if self.lines is None else self.lines[row]


def read_json_lines(path: Path) -> Whole:
    """One JSON object a line; a value that is not there is missing."""
    with unpacked(path) as stream:
        data = stream.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise UsboostError(f"{path} holds more than {LARGEST:,} bytes of JSON; write it as .parquet")
    data = data.removeprefix(b"\xef\xbb\xbf")
    if not data.strip():
        return Whole(pa.table({}))
    # text that is not UTF-8 would be found only when a value is looked at
    data.decode()
    options = pyarrow.json.ReadOptions(block_size=_BLOCK)
    return Whole(pyarrow.json.read_json(pa.BufferReader(data), read_options=options))


def read_excel(path: Path) -> Whole:
    """The first sheet of a workbook as text, so that it is read as a CSV is; formulas as last computed.

    Raises UsboostError if openpyxl is not installed, or there is more than `LARGEST` bytes in it.
    """
    try:
        import openpyxl
    except ModuleNotFoundError:
        raise UsboostError(
            f"{path} is read with openpyxl; install it with: pip install 'usboost[excel]'"
        ) from None
    with zipfile.ZipFile(path) as archive:
        size = sum(info.file_size for info in archive.infolist())
    if size > LARGEST:
        raise UsboostError(f"{path} holds more than {LARGEST:,} bytes; write it as .csv or .parquet")
    try:
        titles, rows = _first_sheet(openpyxl.load_workbook(path, read_only=True, data_only=True))
    # openpyxl raises nearly anything for a damaged workbook
    except Exception as error:
        raise damaged(path, error) from None
    if not titles:
        raise UsboostError(f"{path} has no sheet")
    first = next((k for k, row in enumerate(rows) if any(row)), len(rows))
    header = _unpadded(rows[first]) if first < len(rows) else []
    width = len(header)
    # empty rows would be rows without a label
    numbered = [
        (line, row) for line, each in enumerate(rows[first + 1 :], first + 2) if (row := _unpadded(each))
    ]
    lines, body = tuple(line for line, _ in numbered), [row for _, row in numbered]
    for line, row in numbered:
        if len(row) > width:
            raise UsboostError(f"{path}, line {line}: there is a value beside the columns of the header")
    columns = itertools.zip_longest(*body, fillvalue="") if body else ([] for _ in header)
    arrays = [pa.array(list(column), pa.string()) for column in columns]
    arrays += [pa.array([""] * len(body), pa.string()) for _ in range(width - len(arrays))]
    several = f"{path}: of {len(titles)} sheets the first is read, {titles[0]!r}"
    notes = (several,) if len(titles) > 1 else ()
    return Whole(pa.Table.from_arrays(arrays, names=header), as_text=True, notes=notes, lines=lines)


def _first_sheet(book: Any) -> tuple[list[str], list[list[str]]]:
    """The titles of all sheets, and the rows of the first as text."""
    try:
        sheets = book.worksheets
        if not sheets:
            return [], []
        # what a sheet says of its size may be wrong
        sheets[0].reset_dimensions()
        rows = [list(map(_text, row)) for row in sheets[0].iter_rows(values_only=True)]
        return [sheet.title for sheet in sheets], rows
    finally:
        book.close()


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        value = value.date()
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    return str(value)


def _unpadded(row: list[str]) -> list[str]:
    """A row without the empty cells at its end."""
    last = max((k for k, value in enumerate(row) if value.strip()), default=-1)
    return row[: last + 1]


READERS: Mapping[str, Callable[[Path], Content]] = {
    **dict.fromkeys((".csv", ".tsv", ".tab", ".txt"), Delimited.open),
    **dict.fromkeys((".parquet", ".pq"), Parquet.open),
    **dict.fromkeys((".feather", ".arrow", ".ipc"), Feather.open),
    **dict.fromkeys((".jsonl", ".ndjson"), read_json_lines),
    **dict.fromkeys((".xlsx", ".xlsm"), read_excel),
}
"""By the end of a file's name."""

PACKED = (".csv", ".tsv", ".tab", ".txt", ".jsonl", ".ndjson")
"""The kinds that may be compressed."""

T = TypeVar("T")

_ADVICE = {
    ".xls": "save it as .xlsx",
    ".ods": "save it as .xlsx or .csv",
    ".json": "write one object a line, as .jsonl",
    ".rds": "write it as .csv",
    ".pkl": "write it as .parquet",
}


def open_content(path: Path) -> Content:
    """What a table's file, or folder or pattern of Parquet files, holds.

    Raises UsboostError if it is missing, damaged or of another kind.
    """
    if path.is_dir() or is_pattern(path):
        return _told(path, _readable(Parquet.open))
    if not path.is_file():
        raise UsboostError(f"table not found: {path}")
    kind, packed = _told(path, kind_of_file)
    if kind not in READERS:
        advice = _ADVICE.get(kind, "give a .csv, .tsv, .parquet, .feather, .jsonl or .xlsx file")
        raise UsboostError(f"{path} is no table of a known kind; {advice}")
    if packed and kind not in PACKED:
        raise UsboostError(f"{path}: a compressed {kind} file is not read; unpack it")
    return _told(path, _readable(READERS[kind]))


def digest(path: Path) -> str:
    """Hexadecimal SHA-256 of a table's file; of a folder, of its parts' paths in it and digests.

    In a fit on shards each reads some of the files.
    """
    parts, shards, base = [path] if path.is_file() else parts_of(path), here(), base_of(path)
    read = shards.listed([sha256(part) for part in parts[shards.number :: shards.count]])
    digests = [read[k % shards.count][k // shards.count] for k in range(len(parts))]
    if path.is_file():
        return digests[0]
    lines = zip(parts, digests, strict=True)
    names = "".join(f"{part.relative_to(base).as_posix()} {each}\n" for part, each in lines)
    return hashlib.sha256(names.encode()).hexdigest()


def _readable(read: Callable[[Path], Content]) -> Callable[[Path], Content]:
    """The same, and the columns' names are text."""

    def checked(path: Path) -> Content:
        content = read(path)
        len(content.schema.names)
        return content

    return checked


def _told(path: Path, read: Callable[[Path], T]) -> T:
    try:
        return read(path)
    except UsboostError:
        raise
    except FAULTS as error:
        raise damaged(path, error) from None

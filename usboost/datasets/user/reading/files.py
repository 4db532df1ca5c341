"""The files that a table may be: which reader opens which. A new kind of file is one entry of `READERS`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from usboost.datasets.files.sources import sha256
from usboost.datasets.user.reading.columnar import Feather, Parquet, parts_of
from usboost.datasets.user.reading.content import FAULTS, Content, damaged
from usboost.datasets.user.reading.delimited import Delimited
from usboost.datasets.user.reading.packing import kind_of_file
from usboost.datasets.user.reading.whole import read_excel, read_json_lines
from usboost.errors import UsboostError

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
    """What a table's file, or folder of Parquet files, holds.

    Raises
    ------
    UsboostError
        If it is missing, damaged or of another kind.
    """
    if path.is_dir():
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
    """Hexadecimal SHA-256 of a table's file; of a folder, of its parts' names and digests."""
    if not path.is_dir():
        return sha256(path)
    names = "".join(f"{part.name} {sha256(part)}\n" for part in parts_of(path))
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

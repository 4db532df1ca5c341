"""The files that a table may be, by the ends of their names: a new kind is one entry of `READERS`.

Parquet may be a folder of files, also as Hive, Spark and dask divide it: ``year=2020/p.parquet``.
`pyarrow.dataset` would read ``k=02`` as 2, a folder that leads to itself again and again, and without a word
sub-folders of other names, folders by two columns, and files that Delta has replaced.
"""

import datetime
import hashlib
import itertools
import json
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq

from usboost.errors import UsboostError
from usboost.files import check_local
from usboost.files.arrays import sha256
from usboost.shards.collective import world
from usboost.table.content import FAULTS, Content, Delimited, damaged, kind_of_file, unpacked

LARGEST = 1 << 30
"""Bytes, unpacked, above which a file that is read as a whole is refused."""

NONE = "__HIVE_DEFAULT_PARTITION__"
"""The value of a folder whose rows have none."""

_BLOCK = 1 << 24  # bytes of JSON parsed at a time; no line may be longer
_HUGE = re.compile(rb"[:\s]-?\d{19,}\s*[,}]")
_LOGS = {"_delta_log": "Delta", ".hoodie": "Hudi"}  # folders that say which of the files next to them count
_LOOKED_AT = 10_000  # files of a sub-folder, which may hold a million images
_SIGNS = set("*?[")


@dataclass(frozen=True)
class Parquet(Content):
    """Parquet files that are one table, their rows one after another in the order of the files' names.

    `given`: the columns that folders' names give, one value for each file, None where it is missing.
    """

    paths: tuple[Path, ...]
    schema: pa.Schema
    given: Mapping[str, pa.Array] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @classmethod
    def open(cls, path: Path) -> "Parquet":
        """Find out the columns; those of a folder's files, or of a pattern's, must be the same."""
        if path.is_file():
            return cls((path,), pq.read_schema(path))
        (paths, others), base = parquet_parts(path), base_of(path)
        advice = "are not read: a sub-folder is read if its name is column=value"
        notes = [f"the files in {name} {advice}" for name in others]
        if not paths and path != base:
            raise UsboostError(f"there is no Parquet file like {path}; name a table")
        if not paths:
            why = notes[0] if notes else "name a table"
            raise UsboostError(f"{path} is a folder without .parquet files; {why}")
        schemas = []
        for each in paths:
            try:
                schemas.append(pq.read_schema(each))
            except FAULTS as error:
                raise damaged(each, error) from None
            if other := set(schemas[-1].names) ^ set(schemas[0].names):
                raise UsboostError(
                    f"{each} and {paths[0].relative_to(base)} do not have the same columns: {min(other)!r} "
                    "is in one only"
                )
        try:
            joined = pa.unify_schemas(schemas, promote_options="permissive")
        except pa.ArrowException as error:
            raise UsboostError(f"{path}: its files hold different types: {error}; write them alike") from None
        given, more = _partitions(base, paths, joined.names)
        for name, values in given.items():
            joined = joined.append(pa.field(name, values.type))
        said = tuple(f"{path}: {each}" for each in (*notes, *more))
        return cls(tuple(paths), joined.with_metadata(schemas[0].metadata), given, said)

    @cached_property
    def groups(self) -> list[list[int]]:
        """Return how many rows each row group of each file has."""
        every = map(pq.read_metadata, self.paths)
        return [[each.row_group(k).num_rows for k in range(each.num_row_groups)] for each in every]

    @property
    def n_rows(self) -> int:
        return sum(map(sum, self.groups))

    def pieces(self, names: list[str], most: int, rows: range | None = None) -> Iterator[pa.Table]:
        """Read as of `Content`; of some `rows` only their row groups are read."""
        target = pa.schema([self.schema.field(name) for name in names]) if len(self.paths) > 1 else None
        own = [name for name in names if name not in self.given]
        rows = range(self.n_rows) if rows is None else rows
        before = 0
        for k, path in enumerate(self.paths):
            ends = before + np.cumsum(self.groups[k], dtype=np.int64)
            starts = ends - self.groups[k]
            wanted = np.flatnonzero((starts < rows.stop) & (ends > rows.start))
            before += sum(self.groups[k])
            if not len(wanted):
                continue
            at = int(starts[wanted[0]])
            # column chunks are read a page at a time, so that no row group has to fit in memory
            with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
                for batch in file.iter_batches(batch_size=most, row_groups=wanted.tolist(), columns=own):
                    low, high = max(rows.start - at, 0), min(rows.stop - at, len(batch))
                    at += len(batch)
                    if low >= high:
                        continue
                    batch = batch.slice(low, high - low)
                    for name in names:
                        if name in self.given:
                            batch = batch.append_column(name, pa.repeat(self.given[name][k], len(batch)))
                    table = pa.Table.from_batches([batch]).select(names)
                    # text that is not UTF-8 would be found only when a value is looked at
                    table.validate(full=True)
                    yield table if target is None else table.cast(target)


@dataclass(frozen=True)
class Feather(Content):
    """Arrow's own format (Feather, version 2), as a file or a stream."""

    path: Path
    schema: pa.Schema

    @classmethod
    def open(cls, path: Path) -> "Feather":
        """Find out the columns."""
        with cls._opened(path) as (schema, _):
            return cls(path, schema)

    def pieces(self, names: list[str], most: int) -> Iterator[pa.Table]:
        with self._opened(self.path) as (_, batches):
            for batch in batches:
                table = pa.Table.from_batches([batch]).select(names)
                table.validate(full=True)
                yield table

    @staticmethod
    @contextmanager
    def _opened(path: Path) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
        with pa.memory_map(str(path)) as file:
            try:
                reader = pa.ipc.open_file(file)
            except pa.ArrowInvalid:
                file.seek(0)
                stream = pa.ipc.open_stream(file)
                yield stream.schema, iter(stream)
                return
            yield reader.schema, (reader.get_batch(k) for k in range(reader.num_record_batches))


@dataclass(frozen=True)
class Whole(Content):
    """A table in memory."""

    table: pa.Table
    as_text: bool = False
    decimal_known: bool = False
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
    """Read one JSON object a line; a value that is not there is missing."""
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
    table = pyarrow.json.read_json(pa.BufferReader(data), read_options=options)
    if times := [(each.name, pa.string()) for each in table.schema if pa.types.is_timestamp(each.type)]:
        given = pyarrow.json.ParseOptions(explicit_schema=pa.schema(times))  # or their zone would be lost
        table = pyarrow.json.read_json(pa.BufferReader(data), read_options=options, parse_options=given)
    doubles = [each.name for each in table.schema if pa.types.is_floating(each.type)]
    if doubles and _HUGE.search(data):  # whole numbers of more than 64 bits, of which neighbours would be one
        rows = [json.loads(line) for line in data.splitlines() if line.strip()]
        for name in doubles:
            values = [row.get(name) for row in rows]
            if all(each is None or isinstance(each, int) for each in values):
                texts = pa.array([each if each is None else str(each) for each in values], pa.string())
                table = table.set_column(table.schema.names.index(name), name, texts)
    return Whole(table)


def read_excel(path: Path) -> Whole:
    """Read the first sheet of a workbook as text, so that it is read as a CSV is; formulas as last computed.

    Raises UsboostError if openpyxl is not installed, or there is more than `LARGEST` bytes in it.
    """
    try:
        import openpyxl
    except ModuleNotFoundError:
        raise UsboostError(f"{path} needs openpyxl; install it with: pip install 'usboost[excel]'") from None
    with zipfile.ZipFile(path) as archive:
        size = sum(info.file_size for info in archive.infolist())
    if size > LARGEST:
        raise UsboostError(f"{path} holds more than {LARGEST:,} bytes; write it as .csv or .parquet")
    titles: list[str] = []
    rows: list[list[str]] = []
    with_floats = False  # which are written with a point
    try:
        with closing(openpyxl.load_workbook(path, read_only=True, data_only=True)) as book:
            titles = [sheet.title for sheet in book.worksheets]
            for sheet in book.worksheets[:1]:
                sheet.reset_dimensions()  # what a sheet says of its size may be wrong
                cells = list(sheet.iter_rows(values_only=True))
                every = [each for row in cells for each in row]
                with_floats = any(isinstance(each, float) and each % 1 for each in every)
                with_floats |= any(isinstance(each, datetime.timedelta) for each in every)
                rows = [_texts(row) for row in cells]
    # openpyxl raises nearly anything for a damaged workbook
    except Exception as error:
        raise damaged(path, error) from None
    if not titles:
        raise UsboostError(f"{path} has no sheet")
    # empty rows would be rows without a label
    (_, header), *numbered = [(line, row) for line, row in enumerate(rows, 1) if row] or [(0, [])]
    for line, row in numbered:
        if len(row) > len(header):
            raise UsboostError(f"{path}, line {line}: there is a value beside the columns of the header")
    filled = [row + [""] * (len(header) - len(row)) for _, row in numbered]
    arrays = [pa.array([row[k] for row in filled], pa.string()) for k in range(len(header))]
    several = f"{path}: of {len(titles)} sheets the first is read, {titles[0]!r}"
    return Whole(
        pa.Table.from_arrays(arrays, names=header),
        as_text=True,
        decimal_known=with_floats,
        notes=(several,) if len(titles) > 1 else (),
        lines=tuple(line for line, _ in numbered),
    )


def _texts(row: Sequence[Any]) -> list[str]:
    """Return a sheet's row as text, without the empty cells at its end."""
    texts = []
    for value in row:
        if isinstance(value, datetime.datetime) and value.time() == datetime.time():
            value = value.date()
        if isinstance(value, datetime.timedelta):  # days, as in other files
            value = value / datetime.timedelta(days=1)
        if isinstance(value, datetime.date | datetime.time):
            value = value.isoformat()
        if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
            value = int(value)
        texts.append("" if value is None else str(value))
    while texts and not texts[-1].strip():
        texts.pop()
    return texts


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

_ADVICE = {
    ".xls": "save it as .xlsx",
    ".ods": "save it as .xlsx or .csv",
    ".json": "write one object a line, as .jsonl",
    ".rds": "write it as .csv",
    ".pkl": "write it as .parquet",
}


def open_content(path: Path) -> Content:
    """Open what a table's file, or folder or pattern of Parquet files, holds.

    Raises UsboostError if it is missing, damaged or of another kind.
    """
    try:
        if path.is_dir() or is_pattern(path):
            content: Content = Parquet.open(path)
        elif not path.is_file():
            check_local(path)
            if path.exists() or str(path) == "-":
                raise UsboostError(f"{path} is a stream, and rows are read twice; write them to a file first")
            others = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
            near = get_close_matches(path.name, others, 1, 0.75)
            raise UsboostError(f"table not found: {path}" + "".join(f"; did you mean {p}?" for p in near))
        else:
            kind, packed = kind_of_file(path)
            if kind not in READERS:
                advice = _ADVICE.get(kind, "give a .csv, .tsv, .parquet, .feather, .jsonl or .xlsx file")
                raise UsboostError(f"{path} is no table of a known kind; {advice}")
            if packed and kind not in PACKED:
                raise UsboostError(f"{path}: a compressed {kind} file is not read; unpack it")
            content = READERS[kind](path)
        len(content.schema.names)  # which fails where one is no text
        return content
    except UsboostError:  # which is a ValueError
        raise
    except FAULTS as error:
        raise damaged(path, error) from None


def digest(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a table's file; of a folder, of its parts' paths in it and digests.

    In a fit on shards each reads some of the files.
    """
    parts, shards, base = [path] if path.is_file() else parquet_parts(path)[0], world(), base_of(path)
    read = shards.listed([sha256(part) for part in parts[shards.number :: shards.count]])
    digests = [read[k % shards.count][k // shards.count] for k in range(len(parts))]
    if path.is_file():
        return digests[0]
    lines = zip(parts, digests, strict=True)
    names = "".join(f"{part.relative_to(base).as_posix()} {each}\n" for part, each in lines)
    return hashlib.sha256(names.encode()).hexdigest()


def is_pattern(path: Path) -> bool:
    """Return whether a path stands for those that are like it, such as ``rows/*.parquet``."""
    return bool(_SIGNS & set(str(path))) and not path.exists()


def base_of(path: Path) -> Path:
    """Return the folder of a table's files: a folder itself; what stands before a pattern's first sign."""
    if not is_pattern(path):
        return path if path.is_dir() else path.parent
    return Path(*itertools.takewhile(lambda part: not _SIGNS & set(part), path.parts))


def is_part(file: Path, table: Path) -> bool:
    """Return whether a file is, or were it there would be, one that a table is read from."""
    if table.is_dir():
        return file.suffix != ".csv" and file.resolve().is_relative_to(table.resolve())
    if is_pattern(table):
        return file.absolute().match(str(table.absolute()))
    return file.exists() and table.exists() and file.samefile(table)


def parquet_parts(path: Path) -> tuple[list[Path], list[str]]:
    """Find the Parquet files of a folder and of folders ``column=value`` in it, or those like a pattern, in
    the order of their names; and the folders with Parquet files that are not read.

    Raises UsboostError if a log says which of the files count, or a column is in a path twice.
    """
    if is_pattern(path):
        base = base_of(path)
        return sorted(filter(_is_part, base.glob(str(path.relative_to(base))))), []
    for name, whose in _LOGS.items():
        if (path / name).is_dir():
            raise UsboostError(f"{path} is a {whose} table, whose files may be stale; write it as Parquet")
    parts, others, below = list[Path](), list[Path](), [(path, set[str]())]
    for folder, above in below:
        for each in folder.iterdir():
            pair = _pair(each.name)
            if each.name.startswith((".", "_")):
                continue
            if _is_part(each):
                parts.append(each)
            elif each.is_dir():
                if pair is None:
                    others.append(each)
                    continue
                if pair[0] in above:
                    raise UsboostError(f"{each}: column {pair[0]!r} is in the path twice; rename a folder")
                below.append((each, {*above, pair[0]}))
    passed = [
        each.relative_to(path).as_posix()
        for each in sorted(others)
        if any(map(_is_part, itertools.islice(each.rglob("*"), _LOOKED_AT)))
    ]
    return sorted(parts), passed


def _partitions(
    folder: Path, paths: Sequence[Path], names: Sequence[str]
) -> tuple[dict[str, pa.Array], list[str]]:
    """Return the columns that the names of folders give, a value for each file, and notes for a user.

    Values are int64 where all are whole numbers, else text; missing where the file lies above the folders
    that have them. Raises UsboostError if some folders are of one column and others of another. `names`: the
    columns in the files, whose values go before those of folders.
    """
    values = [
        {pair[0]: pair[1] for part in path.relative_to(folder).parent.parts if (pair := _pair(part))}
        for path in paths
    ]
    keys = max(map(list, values), key=len)
    for path, own in zip(paths, values, strict=True):
        if list(own) != keys[: len(own)]:
            raise UsboostError(
                f"{folder} is divided in two ways, by {', '.join(keys)} and by {', '.join(own)} "
                f"({path.relative_to(folder)}); name one of its folders"
            )
    notes = [f"column {key!r} is in the files too, whose values are read" for key in keys if key in names]
    keys = [key for key in keys if key not in names]
    for path, own in zip(paths, values, strict=True):
        if lacking := [key for key in keys if key not in own]:
            where = path.relative_to(folder)
            notes.append(f"{where} lies above the folders of {', '.join(lacking)}: missing in its rows")
    given = {}
    for key in keys:
        texts = pa.array([None if own.get(key) == NONE else own.get(key) for own in values], pa.string())
        given[key] = texts
        with suppress(pa.ArrowInvalid):
            numbers = texts.cast(pa.int64())
            if numbers.cast(pa.string()).equals(texts):  # 01 is a code
                given[key] = numbers
    return given, notes


def _pair(name: str) -> tuple[str, str] | None:
    """Return column and value of a folder's name, percent-encoded as in Hive; None for another folder."""
    key, sign, value = name.partition("=")
    return (unquote(key), unquote(value)) if sign and key else None


def _is_part(path: Path) -> bool:
    named = path.suffix.lower() in (".parquet", ".pq") and not path.name.startswith((".", "_"))
    return named and path.is_file()

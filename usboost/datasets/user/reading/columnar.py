"""Files whose columns have types: Parquet, one file or a folder of them, and Feather."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from usboost.datasets.user.reading.content import FAULTS, Content, damaged
from usboost.datasets.user.reading.partitions import ADVICE, base_of, others_in, partitions, parts_of
from usboost.errors import UsboostError


@dataclass(frozen=True)
class Parquet(Content):
    """Parquet files that are one table, their rows one after another in the order of the files' names.

    Attributes
    ----------
    given : the columns that folders' names give, one value for each file, None where it is missing.
    """

    paths: tuple[Path, ...]
    schema: pa.Schema
    given: Mapping[str, pa.Array] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @classmethod
    def open(cls, path: Path) -> Parquet:
        """Find out the columns; those of a folder's files, or of a pattern's, must be the same."""
        if path.is_file():
            return cls((path,), pq.read_schema(path))
        paths, base = parts_of(path), base_of(path)
        others = others_in(path) if path == base else []
        passed_by = [f"the files in {name} are not read: {ADVICE}" for name in others]
        if not paths and path != base:
            raise UsboostError(f"there is no Parquet file like {path}; name a table")
        if not paths:
            why = f"; {passed_by[0]}" if passed_by else "; name a table"
            raise UsboostError(f"{path} is a folder without .parquet files{why}")
        schemas = [_schema(each) for each in paths]
        for each, schema in zip(paths, schemas, strict=True):
            if other := set(schema.names) ^ set(schemas[0].names):
                raise UsboostError(
                    f"{each} and {paths[0].relative_to(base)} do not have the same columns: {min(other)!r} "
                    "is in one only"
                )
        try:
            joined = pa.unify_schemas(schemas, promote_options="permissive")
        except pa.ArrowException as error:
            raise UsboostError(f"{path}: its files hold different types: {error}; write them alike") from None
        given, said = partitions(base, paths, joined.names)
        for name, values in given.items():
            joined = joined.append(pa.field(name, values.type))
        notes = tuple(f"{path}: {each}" for each in (*passed_by, *said))
        return cls(tuple(paths), joined.with_metadata(schemas[0].metadata), given, notes)

    @cached_property
    def groups(self) -> list[list[int]]:
        """How many rows each row group of each file has."""
        every = map(pq.read_metadata, self.paths)
        return [[each.row_group(k).num_rows for k in range(each.num_row_groups)] for each in every]

    @cached_property
    def _ends(self) -> list[int]:
        """The position after the last row of each file."""
        return list(itertools.accumulate(map(sum, self.groups)))

    @property
    def n_rows(self) -> int:
        return self._ends[-1]

    def pieces(self, names: list[str], most: int, rows: range | None = None) -> Iterator[pa.Table]:
        """As of `Content`; of some `rows` only their row groups are read."""
        target = pa.schema([self.schema.field(name) for name in names]) if len(self.paths) > 1 else None
        own = [name for name in names if name not in self.given]
        for k, path in enumerate(self.paths):
            inside = None if rows is None else self._inside(k, rows)
            if inside is not None and not inside:
                continue
            # column chunks are read a page at a time, so that no row group has to fit in memory
            with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
                for batch in self._batches(k, file, inside, most, own):
                    for name in names:
                        if name in self.given:
                            batch = batch.append_column(name, pa.repeat(self.given[name][k], len(batch)))
                    table = pa.Table.from_batches([batch]).select(names)
                    # text that is not UTF-8 would be found only when a value is looked at
                    table.validate(full=True)
                    yield table if target is None else table.cast(target)

    def _inside(self, k: int, rows: range) -> range:
        """Those of some rows that are in a file, by their positions there."""
        first = self._ends[k - 1] if k else 0
        return range(max(rows.start - first, 0), min(rows.stop, self._ends[k]) - first)

    def _batches(
        self, k: int, file: pq.ParquetFile, rows: range | None, most: int, names: list[str]
    ) -> Iterator[pa.RecordBatch]:
        """A file's rows, or some that follow one another."""
        if rows is None:
            yield from file.iter_batches(batch_size=most, columns=names)
            return
        ends = np.cumsum(self.groups[k])
        starts = ends - self.groups[k]
        wanted = np.flatnonzero((starts < rows.stop) & (ends > rows.start))
        at = int(starts[wanted[0]])
        for batch in file.iter_batches(batch_size=most, row_groups=wanted.tolist(), columns=names):
            low, high = max(rows.start - at, 0), min(rows.stop - at, len(batch))
            if low < high:
                yield batch.slice(low, high - low)
            at += len(batch)

    def place(self, row: int) -> tuple[Path, int]:
        k = bisect.bisect_right(self._ends, row)
        return self.paths[k], row - (self._ends[k - 1] if k else 0)


@dataclass(frozen=True)
class Feather(Content):
    """Arrow's own format (Feather, version 2), as a file or a stream."""

    path: Path
    schema: pa.Schema

    @classmethod
    def open(cls, path: Path) -> Feather:
        """Find out the columns."""
        with _batches(path) as (schema, _):
            return cls(path, schema)

    def pieces(self, names: list[str], most: int) -> Iterator[pa.Table]:
        with _batches(self.path) as (_, batches):
            for batch in batches:
                table = pa.Table.from_batches([batch]).select(names)
                table.validate(full=True)
                yield table


def _schema(path: Path) -> pa.Schema:
    try:
        return pq.read_schema(path)
    except FAULTS as error:
        raise damaged(path, error) from None


@contextmanager
def _batches(path: Path) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
    with pa.memory_map(str(path)) as file:
        try:
            reader = pa.ipc.open_file(file)
        except pa.ArrowInvalid:
            file.seek(0)
            stream = pa.ipc.open_stream(file)
            yield stream.schema, iter(stream)
            return
        yield reader.schema, (reader.get_batch(k) for k in range(reader.num_record_batches))

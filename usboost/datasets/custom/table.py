"""A person's own table, Parquet or CSV, read strictly and as a whole: labels, features, pictures."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from usboost.data.images import Images
from usboost.data.progress import Progress
from usboost.data.views import Views
from usboost.datasets.custom.columns import Column, Kind, is_binary, plain_type
from usboost.datasets.custom.encoding import PICTURES, Encoding
from usboost.datasets.custom.pictures import PictureReader, check_memory, check_type
from usboost.datasets.custom.source import INDEX_COLUMN, TableFile
from usboost.datasets.prepared.store import CLEAN, LABEL
from usboost.errors import UsboostError

LARGEST = 500_000_000
"""Values of a Parquet table above which it is refused: a small file can stand for any number of rows."""

FEWEST = 10
"""Rows that a table must have to learn from."""

_BATCH = 1 << 16  # rows read at once
_PICTURES = 4096  # rows whose pictures are read at once


@dataclass(frozen=True)
class Roles:
    """The roles of a table's columns, as given by the user.

    Attributes
    ----------
    label : the column of the classes.
    image : the column of pictures: paths relative to the table's folder, or, in Parquet, bytes.
    split : the column that holds train, val or test.
    categorical : columns that are categories whatever they look like, such as postal codes.
    dropped : columns to leave out.
    """

    label: str
    image: str | None = None
    split: str | None = None
    categorical: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()

    @property
    def named(self) -> list[str]:
        """The columns that are no features."""
        return [name for name in (self.label, self.image, self.split) if name is not None]


@dataclass(frozen=True)
class OwnTable:
    """The labelled rows of a table.

    Attributes
    ----------
    file : where they are from.
    roles : of the columns.
    features : n rows; float64 numbers (NaN is missing) and pandas categories of strings.
    labels : codes int64 of shape (n,) of the `classes`.
    classes : names of the classes, numbers in rising order, else alphabetically.
    split : the split of each row as given, str of shape (n,), or None.
    pictures : the rows' pictures, when they were read and there are any.
    skipped : how many rows of the file had no picture and are not among the n.
    """

    file: TableFile
    roles: Roles
    features: pd.DataFrame
    labels: np.ndarray
    classes: list[str]
    split: np.ndarray | None = None
    pictures: Images | None = None
    skipped: int = 0

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def kinds(self) -> dict[str, Kind]:
        """What each feature holds."""
        return {
            str(name): "number" if isinstance(self.features[name].dtype, np.dtype) else "category"
            for name in self.features
        }

    def fit_encoding(self, rows: np.ndarray) -> Encoding:
        """Learn from some rows how the table becomes views.

        With pictures, U, all columns are S. Without, both views are the whole table, so that the network
        and the trees of a model both read every column. (The papers' tables have two kinds of columns; a
        table of one's own says nothing of the kind, and a split made at random, which
        `usboost.datasets.custom.prepare` makes for the papers' comparison, would hide half of the columns
        from each learner.)
        """
        views = ("S",) if self.pictures is not None else (PICTURES, "S")
        return Encoding.fit(self.features.iloc[rows], views)

    def views(self, encoding: Encoding, rows: np.ndarray) -> Views:
        """The views of some rows, U and S."""
        pictures = None if self.pictures is None else self.pictures[rows]
        return encoding.views(self.features.iloc[rows], pictures)


def read_table(
    path: Path,
    *,
    label: str,
    image: str | None = None,
    split_column: str | None = None,
    categorical: Collection[str] = (),
    drop: Collection[str] = (),
) -> OwnTable:
    """Read a table without its pictures.

    In a CSV (UTF-8, commas, a header) a column is numeric when every field but those in `columns.MISSING`
    is a number. Booleans, strings and pandas' categories are categories. A column of 20 or more strings is
    refused when more than half of them are distinct and their mean length is over `columns.TEXT_LENGTH`
    (text), or more than nine in ten are distinct (names or identifiers).

    Parameters
    ----------
    path : a ``.parquet`` or ``.csv`` file.
    label, image, split_column, categorical, drop : see `Roles`.

    Raises
    ------
    UsboostError
        If the file is missing, damaged or of another kind; two columns have the same name, a column named
        is absent or has two roles, one that is not the label is called ``label`` or ``clean_label``, or
        there are no rows; a column holds text, identifiers, dates, nested or binary values or infinity; a
        label or split is missing; or the labels are of one class or are no classes.
    """
    roles = Roles(label, image, split_column, tuple(categorical), tuple(drop))
    file = TableFile.open(path)
    _check_names(file, roles)
    left_out = {*roles.dropped, image}
    names = [name for name in file.names if name not in left_out and not INDEX_COLUMN.fullmatch(name)]
    table = _load(file, names)
    if not table.num_rows:
        raise UsboostError(f"{file} has no rows")
    nominal = {*roles.categorical, *_declared(file.schema)}
    columns = {name: Column(file, name, table[name]) for name in names}
    features = {
        name: column.feature("category" if name in nominal else None)
        for name, column in columns.items()
        if name not in roles.named
    }
    codes, classes = columns[label].classes()
    split = None if split_column is None else columns[split_column].splits()
    if image is not None:
        check_type(file, image)
    frame = pd.DataFrame(features, index=pd.RangeIndex(table.num_rows))
    return OwnTable(file, roles, frame, codes, classes, split)


def read_own(
    path: Path,
    *,
    label: str,
    image: str | None = None,
    categorical: Collection[str] = (),
    drop: Collection[str] = (),
    size: int = 32,
    channels: int = 3,
    skip_missing: bool = False,
    progress: Progress | None = None,
) -> OwnTable:
    """Read a whole table with its pictures.

    Parameters
    ----------
    path, label, image, categorical, drop : as `read_table`.
    size, channels : of the pictures in memory.
    skip_missing : leave rows without a picture out.
    progress : called with (pictures read, rows).

    Raises
    ------
    UsboostError
        As `read_table` and `PictureReader.read`; or if there is no column beside label and picture,
        there are under 10 rows, a class has one row only, or the pictures take too much memory.
    """
    table = read_table(path, label=label, image=image, categorical=categorical, drop=drop)
    if not table.features.shape[1]:
        others = ", ".join([*table.roles.named[:1], *table.roles.dropped, *table.roles.named[1:]])
        raise UsboostError(f"{table.file} has no column to learn from beside {others}")
    if image is not None:
        reader = PictureReader(table.file, image, size=size, channels=channels, skip_missing=skip_missing)
        pictures, present = _pictures(table.file, image, reader, len(table), progress)
        table = replace(
            table,
            features=table.features[present].reset_index(drop=True),
            labels=table.labels[present],
            pictures=pictures,
            skipped=int((~present).sum()),
        )
    _check_rows(table)
    return table


def paths_of(table: OwnTable) -> list[str] | None:
    """The picture's path of each row of a table read by `read_table`; None where pictures are in the file.

    Raises
    ------
    UsboostError
        If one is missing.
    """
    image = table.roles.image
    if image is None or is_binary(plain_type(table.file.type_of(image))):
        return None
    cells = _load(table.file, [image])[image]
    return Column(table.file, image, cells).texts().tolist()


def _check_names(file: TableFile, roles: Roles) -> None:
    names = file.names
    if not names:
        raise UsboostError(f"{file} is empty")
    if repeated := [name for name in names if names.count(name) > 1]:
        raise UsboostError(f"{file} has two columns called {repeated[0]!r}; rename one")
    others = (*roles.categorical, *roles.dropped)
    for name in (*roles.named, *others):
        if name not in names:
            raise UsboostError(f"{file} has no column {name!r}; its columns are {', '.join(names)}")
    if repeated := [name for name in roles.named if roles.named.count(name) > 1 or name in others]:
        raise UsboostError(f"{file}: column {repeated[0]!r} cannot have two roles")
    for name in (LABEL, CLEAN):
        if name in names and name != roles.label and name not in roles.dropped:
            raise UsboostError(f"{file} has a column {name!r} that is not the label; rename or drop it")


def _load(file: TableFile, names: list[str]) -> pa.Table:
    rows = file.n_rows
    if rows is not None and rows * len(names) > LARGEST:
        raise UsboostError(
            f"{file} has {rows:,} rows of {len(names)} columns, more than the {LARGEST:,} values that a "
            "table may have"
        )
    batches = list(file.batches(names, _BATCH))
    return pa.concat_tables(batches) if batches else pa.table({name: pa.nulls(0) for name in names})


def _declared(schema: pa.Schema) -> list[str]:
    """Columns that were categories in pandas; Parquet itself keeps that for strings only."""
    try:
        columns = (schema.pandas_metadata or {}).get("columns", [])
        return [column["name"] for column in columns if column.get("pandas_type") == "categorical"]
    # ignore damaged pandas metadata
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return []


def _pictures(
    file: TableFile, image: str, reader: PictureReader, n: int, progress: Progress | None
) -> tuple[Images, np.ndarray]:
    """All pictures that are there, and for each of n rows whether it has one."""
    check_memory(file, n, reader.row_bytes)
    pixels: np.ndarray | None = None
    present = np.empty(n, dtype=bool)
    cells = file.batches([image], _PICTURES) if reader.needs_cells else None
    for first in range(0, n, _PICTURES):
        count = min(_PICTURES, n - first)
        rows = slice(first, first + count)
        found, present[rows] = reader.read(first, count, None if cells is None else next(cells)[image])
        pixels = np.empty((n, *found.shape[1:]), dtype=np.uint8) if pixels is None else pixels
        pixels[rows] = found
        if progress:
            progress(first + count, n)
    assert pixels is not None  # a table has rows
    return Images(pixels if present.all() else pixels[present]), present


def _check_rows(table: OwnTable) -> None:
    counts = np.bincount(table.labels, minlength=len(table.classes))
    if len(table) < FEWEST:
        raise UsboostError(f"{table.file} has {len(table)} rows to learn from; {FEWEST} or more are needed")
    if (counts < 2).any():
        name, count = table.classes[int(counts.argmin())], int(counts.min())
        raise UsboostError(
            f"{table.file}: class {name!r} of {table.roles.label!r} has {count} row{'s' * (count != 1)}, so "
            "it cannot be learnt and checked; add rows of it or leave it out"
        )

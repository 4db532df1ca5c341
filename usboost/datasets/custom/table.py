"""A person's own table, Parquet or CSV, read strictly and as a whole: labels, features, pictures."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from usboost.data.images import Images
from usboost.data.pooled_images import PooledImages
from usboost.data.progress import Progress
from usboost.data.views import Views
from usboost.datasets.custom import SIZE
from usboost.datasets.custom.columns import Column, Kind
from usboost.datasets.custom.encoding import Encoding
from usboost.datasets.custom.pictures import VIEW, PictureColumns, PictureReader, PictureSet, check_type
from usboost.datasets.custom.source import INDEX_COLUMN, TableFile
from usboost.datasets.files.image_sources import Aspect
from usboost.datasets.files.image_sources import Source as Picture
from usboost.datasets.prepared.store import CLEAN, LABEL
from usboost.errors import UsboostError

LARGEST = 500_000_000
"""Values of a Parquet table above which it is refused: a small file can stand for any number of rows."""

FEWEST = 10
"""Rows that a table must have to learn from."""

_BATCH = 1 << 16  # rows read at once
_PICTURES = 256  # rows whose pictures are read at once


@dataclass(frozen=True)
class Roles:
    """The roles of a table's columns, as given by the user.

    Attributes
    ----------
    label : the column of the classes.
    image : the columns of pictures: paths relative to the table's folder, or, in Parquet, bytes. A single
        name is taken, too.
    split : the column that holds train, val or test.
    categorical : columns that are categories whatever they look like, such as postal codes.
    dropped : columns to leave out.
    """

    label: str
    image: tuple[str, ...] = ()
    split: str | None = None
    categorical: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.image, str):
            object.__setattr__(self, "image", (self.image,))

    @property
    def named(self) -> list[str]:
        """The columns that are no features."""
        return [name for name in (self.label, *self.image, self.split) if name is not None]


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
    pictures : the rows' pictures by view, when they were read and there are any.
    form : what these were made.
    without : how many rows have no picture, by column.
    unreadable : how many of these could not be read.
    """

    file: TableFile
    roles: Roles
    features: pd.DataFrame
    labels: np.ndarray
    classes: list[str]
    split: np.ndarray | None = None
    pictures: Mapping[str, Images | PooledImages] = field(default_factory=dict)
    form: PictureColumns | None = None
    without: Mapping[str, int] = field(default_factory=dict)
    unreadable: int = 0

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
        views = ("S",) if self.pictures else (VIEW, "S")
        return Encoding.fit(self.features.iloc[rows], views)

    def views(self, encoding: Encoding, rows: np.ndarray) -> Views:
        """The views of some rows, those of the pictures (or U) and S."""
        pictures = {name: view[rows] for name, view in self.pictures.items()}
        return encoding.views(self.features.iloc[rows], pictures)


def read_table(
    path: Path,
    *,
    label: str,
    image: str | Collection[str] | None = None,
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
    images = (image,) if isinstance(image, str) else tuple(image or ())
    roles = Roles(label, images, split_column, tuple(categorical), tuple(drop))
    file = TableFile.open(path)
    _check_names(file, roles)
    left_out = {*roles.dropped, *images}
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
    for each in images:
        check_type(file, each)
    frame = pd.DataFrame(features, index=pd.RangeIndex(table.num_rows))
    return OwnTable(file, roles, frame, codes, classes, split)


def read_own(
    path: Path,
    *,
    label: str,
    image: str | Collection[str] | None = None,
    categorical: Collection[str] = (),
    drop: Collection[str] = (),
    size: int = SIZE,
    channels: int = 3,
    aspect: Aspect = "crop",
    pool: Literal["mean"] | None = None,
    skip_unreadable: bool = False,
    progress: Progress | None = None,
) -> OwnTable:
    """Read a whole table with its pictures.

    A row may lack pictures: where the column is empty, or its path leads to no file.

    Parameters
    ----------
    path, label, image, categorical, drop : as `read_table`.
    size, channels : of the pictures.
    aspect : what becomes of pictures that are not square, see `image_sources`.
    pool : "mean" makes several columns of pictures one view; by default each is its own.
    skip_unreadable : count pictures that cannot be read as missing, instead of refusing them.
    progress : called with (rows whose pictures are read, rows).

    Raises
    ------
    UsboostError
        As `read_table` and `PictureReader.read`; or if there is no column beside label and pictures,
        a column of pictures has none, there are under 10 rows, a class has one row only, or the disk has
        no room for the pictures.
    """
    table = read_table(path, label=label, image=image, categorical=categorical, drop=drop)
    if not table.features.shape[1]:
        others = ", ".join([*table.roles.named[:1], *table.roles.dropped, *table.roles.named[1:]])
        raise UsboostError(f"{table.file} has no column to learn from beside {others}")
    _check_rows(table)
    if not table.roles.image:
        return table
    form = PictureColumns(table.roles.image, size, channels, aspect, pooled=pool is not None)
    readers = form.readers(table.file, skip_unreadable=skip_unreadable)
    found = _pictures(table, form, readers, progress)
    return replace(
        table,
        pictures=found.views(),
        form=form,
        without=dict(zip(form.columns, map(int, found.absent.sum(axis=1)), strict=True)),
        unreadable=sum(reader.unreadable for reader in readers),
    )


def picture_sources(table: OwnTable, form: PictureColumns) -> list[list[Picture | None]]:
    """Where each row's pictures are, by column; None where a row has none.

    Raises
    ------
    UsboostError
        As `PictureReader.sources`, or if a column holds no picture at all.
    """
    readers = form.readers(table.file)
    found: list[list[Picture | None]] = [[] for _ in readers]
    for first, count, raw in _picture_batches(table, readers):
        for reader, of_column in zip(readers, found, strict=True):
            cells = raw[reader.column] if reader.needs_cells else None
            of_column += reader.sources(first, count, cells)
    for reader, of_column in zip(readers, found, strict=True):
        if all(each is None for each in of_column):
            raise reader.none_at_all()
    return found


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
    table: OwnTable, form: PictureColumns, readers: Sequence[PictureReader], progress: Progress | None
) -> PictureSet:
    """The pictures of all rows."""
    n = len(table)
    found = PictureSet(form, n, what=table.file)
    for first, count, raw in _picture_batches(table, readers):
        found.read(readers, first, count, raw)
        if progress:
            progress(first + count, n)
    for reader, absent in zip(readers, found.absent, strict=True):
        if absent.all():
            raise reader.none_at_all()
    return found


def _picture_batches(
    table: OwnTable, readers: Sequence[PictureReader]
) -> Iterator[tuple[int, int, pa.Table]]:
    """The position of the first of some rows, how many they are, and the columns that the readers want."""
    n, names = len(table), [reader.column for reader in readers if reader.needs_cells]
    batches = table.file.batches(names, _PICTURES) if names else itertools.repeat(pa.table({}))
    for first, raw in zip(range(0, n, _PICTURES), batches, strict=False):
        yield first, min(_PICTURES, n - first), raw


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

"""A person's own table, read strictly and as a whole: labels, features, pictures."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from usboost.data.progress import Progress
from usboost.datasets.custom import SIZE
from usboost.datasets.custom.columns import Column, Format, Kind
from usboost.datasets.custom.kinds import Found, kind_of
from usboost.datasets.custom.labels import classes_of, splits_of
from usboost.datasets.custom.own import OwnTable
from usboost.datasets.custom.pictures import PictureColumns, check_type
from usboost.datasets.custom.roles import Roles
from usboost.datasets.custom.source import INDEX_COLUMN, TableFile
from usboost.datasets.custom.table_pictures import read_pictures
from usboost.datasets.files.image_sources import Aspect
from usboost.errors import UsboostError

LARGEST = 500_000_000
"""Values of a table above which it is refused: a small file can stand for any number of rows."""

FEWEST = 10
"""Rows that a table must have to learn from."""

_BATCH = 1 << 16  # rows read at once


def read_table(
    path: Path,
    *,
    label: str,
    image: str | Collection[str] | None = None,
    split_column: str | None = None,
    categorical: Collection[str] = (),
    drop: Collection[str] = (),
    missing: Collection[str] = (),
    images_root: Path | None = None,
) -> OwnTable:
    """Read a table without its pictures.

    What a column is, `kinds.kind_of` says. Identifiers are left out, and so are rows without a label; the
    answer has both.

    Parameters
    ----------
    path : a file of a kind in `readers.READERS`, or a folder of Parquet files.
    label, image, split_column, categorical, drop, missing : see `Roles`.
    images_root : see `source.TableFile`.

    Raises
    ------
    UsboostError
        If the file is missing, damaged, of another kind or has more than `LARGEST` values; as `Roles.check`
        and `kinds.kind_of`; if there are no rows; a column holds text, names, nested or binary values or
        infinity; a split is missing; or the labels are of one class or are no classes.
    """
    images = (image,) if isinstance(image, str) else tuple(image or ())
    roles = Roles(label, images, split_column, tuple(categorical), tuple(drop), tuple(missing))
    file = TableFile.open(path, images_root)
    roles.check(file)
    not_read = {*roles.dropped, *images}
    names = [name for name in file.names if name not in not_read and not INDEX_COLUMN.fullmatch(name)]
    table = _load(file, names)
    if not table.num_rows:
        raise UsboostError(f"{file} has no rows")
    columns = {name: Column(file, name, table[name], missing=roles.missing) for name in names}
    codes, classes = classes_of(columns[label])
    rows = np.flatnonzero(codes >= 0)
    nominal = {*roles.categorical, *_declared(file.schema)}
    features: dict[str, pd.Series] = {}
    formats: dict[str, Format] = {}
    left_out: dict[str, str] = {}
    for name, column in columns.items():
        if name in roles.named:
            continue
        found = kind_of(column, nominal=name in nominal)
        if found.kind == "identifier":
            left_out[name] = "each row has its own value"
            continue
        features[name] = column.feature(_readable(column, found), found.form)
        if found.form is not None:
            formats[name] = found.form
    split = None if split_column is None else splits_of(columns[split_column])[rows]
    for each in images:
        check_type(file, each)
    frame = pd.DataFrame(features, index=pd.RangeIndex(table.num_rows))
    return OwnTable(
        file,
        roles,
        frame if len(rows) == len(frame) else frame.iloc[rows].reset_index(drop=True),
        codes[rows],
        classes,
        rows=rows,
        split=split,
        unlabelled=len(codes) - len(rows),
        formats=formats,
        left_out=left_out,
    )


def read_own(
    path: Path,
    *,
    label: str,
    image: str | Collection[str] | None = None,
    categorical: Collection[str] = (),
    drop: Collection[str] = (),
    missing: Collection[str] = (),
    images_root: Path | None = None,
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
    path, label, image, categorical, drop, missing, images_root : as `read_table`.
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
    table = read_table(
        path,
        label=label,
        image=image,
        categorical=categorical,
        drop=drop,
        missing=missing,
        images_root=images_root,
    )
    if not table.features.shape[1]:
        named = table.roles.named
        others = ", ".join([*named[:1], *table.roles.dropped, *table.left_out, *named[1:]])
        raise UsboostError(f"{table.file} has no column to learn from beside {others}")
    _check_rows(table)
    if not table.roles.image:
        return table
    form = PictureColumns(table.roles.image, size, channels, aspect, pooled=pool is not None)
    readers = form.readers(table.file, skip_unreadable=skip_unreadable)
    found = read_pictures(table, form, readers, progress)
    return replace(
        table,
        pictures=found.views(),
        form=form,
        without=dict(zip(form.columns, map(int, found.absent.sum(axis=1)), strict=True)),
        unreadable=sum(reader.unreadable for reader in readers),
    )


def _readable(column: Column, found: Found) -> Kind:
    """The kind of a column that a model can read."""
    where = f"{column.source}: column {column.name!r}"
    if found.kind == "text":
        raise UsboostError(f"{where} holds text, which is not supported yet; drop it")
    if found.kind == "name":
        raise UsboostError(
            f"{column.source}: nearly every row has its own value of column {column.name!r}, a name or "
            "number; drop it"
        )
    if found.kind == "nested" or found.kind == "identifier":
        raise column.unusable()
    return found.kind


def _load(file: TableFile, names: list[str]) -> pa.Table:
    """Some columns of all rows; their number is checked before and while they are read."""
    rows = file.n_rows
    if rows is not None:
        _check_size(file, rows, names)
    batches, read = [], 0
    for batch in file.batches(names, _BATCH):
        read += batch.num_rows
        _check_size(file, read, names)
        batches.append(batch)
    return pa.concat_tables(batches) if batches else pa.table({name: pa.nulls(0) for name in names})


def _check_size(file: TableFile, rows: int, names: list[str]) -> None:
    if rows * len(names) > LARGEST:
        raise UsboostError(
            f"{file} has {rows:,} rows of {len(names)} columns, more than the {LARGEST:,} values that a "
            "table may have"
        )


def _declared(schema: pa.Schema) -> list[str]:
    """Columns that were categories in pandas; Parquet itself keeps that for strings only."""
    try:
        columns = (schema.pandas_metadata or {}).get("columns", [])
        return [column["name"] for column in columns if column.get("pandas_type") == "categorical"]
    # ignore damaged pandas metadata
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return []


def _check_rows(table: OwnTable) -> None:
    counts = np.bincount(table.labels, minlength=len(table.classes))
    if len(table) < FEWEST:
        raise UsboostError(f"{table.file} has {len(table)} rows to learn from; {FEWEST} or more are needed")
    if (counts < 2).any():
        name, count = table.classes[int(counts.argmin())], int(counts.min())
        raise UsboostError(
            f"{table.file}: class {name!r} of {table.roles.label!r} has {count} row{'s' * (count != 1)}, so "
            "it cannot be learnt and checked; add rows of it, or leave its row out with "
            f"--missing {name!r}"
        )

"""A user's own table, read strictly and as a whole: labels, features, images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from usboost.data.progress import Progress
from usboost.datasets.store import CLEAN, LABEL
from usboost.datasets.user.columns.column import Column, Format, Kind
from usboost.datasets.user.columns.kinds import ColumnKind, kind_of
from usboost.datasets.user.columns.labels import (
    classes_of,
    groups_of,
    has_blanks,
    label_kind,
    scaled,
    splits_of,
    targets_of,
    task_of,
    times_of,
    weights_of,
    with_positive,
)
from usboost.datasets.user.columns.types import is_text
from usboost.datasets.user.images.image_set import read_images
from usboost.datasets.user.images.reader import ImageColumns
from usboost.datasets.user.images.values import NAMES, are_names_of_images, check_type
from usboost.datasets.user.reading.source import INDEX_COLUMN, Source, TableFile
from usboost.datasets.user.table_spec import TableSpec
from usboost.datasets.user.user_table import UserTable
from usboost.errors import UsboostError, choices, option
from usboost.shards.here import here

LARGEST = 500_000_000
"""Values of a table above which it is refused: a small file can stand for any number of rows."""

FEWEST = 10
"""Rows that a table must have to learn from."""

LEFT_OUT = {"identifier": "each row has its own value", "name": "nearly every row has its own value"}
"""Why a column of a kind is no feature."""

_BATCH = 1 << 16  # rows read at once


def read_table(path: Path | Source, spec: TableSpec, *, progress: Progress | None = None) -> UserTable:
    """Read a whole table with its images.

    A row may lack images: where the column is empty, or its path leads to no file.

    Parameters
    ----------
    path : a file of a kind in `readers.READERS`, a folder or pattern of Parquet files, or a DataFrame's rows.
    progress : called with (rows whose images are read, rows).

    Raises
    ------
    UsboostError
        As `read_columns`, `check_learnable` and `ImageReader.read`; or if there is a text model, and no
        column of text for it, or the disk has no room for the images.
    """
    table = read_columns(path, spec)
    check_learnable(table)
    return with_images(table, progress)


def with_images(table: UserTable, progress: Progress | None = None) -> UserTable:
    """The table with its images, if its spec names columns of them.

    Of a shard's rows the images are read; which are missing or cannot be read is counted in all shards.
    Raises UsboostError as `read_table`.
    """
    spec = table.spec
    if not spec.image:
        return table
    form = ImageColumns.of(spec)
    readers = form.readers(table.file, "images" if spec.skip_unreadable else "none")
    found = read_images(table, form, readers, progress)
    absent = here().sum(found.absent.sum(axis=1).astype(np.float64))
    return replace(
        table,
        images=found.views(),
        without=dict(zip(form.columns, map(int, absent), strict=True)),
        misfits=tuple(reader.misfits.of_all_shards() for reader in readers),
        paths=tuple(reader.paths.of_all_shards() for reader in readers),
    )


def read_columns(path: Path | Source, spec: TableSpec) -> UserTable:
    """Read a table without its images, whether or not anything can be learnt from it.

    What a column is, `kinds.kind_of` says. Identifiers and names are left out, and so are rows without a
    label; the answer has both.

    Parameters
    ----------
    path : as of `read_table`.

    Raises
    ------
    UsboostError
        If the file is missing, damaged, of another kind or has more than `LARGEST` values; if the columns
        are not those that the spec names; as `kinds.kind_of`; if there are no rows; a column holds nested or
        binary values or infinity; a split, group, time or weight is missing; or the labels are of one class
        or are no classes, or no finite numbers that differ.
    """
    file = TableFile.open(path, spec.images_root) if isinstance(path, (str, Path)) else path
    label, table = spec.label, load(file, columns_read(file, spec))
    if not table.num_rows:
        raise UsboostError(f"{file} has no rows")
    columns = {name: Column(file, name, table[name], missing=spec.missing) for name in table.column_names}
    inferred, said = task_of(columns[label])
    if (spec.task or inferred) == "classification":
        labels, classes = with_positive(*classes_of(columns[label]), spec.positive, columns[label])
        rows = np.flatnonzero(labels >= 0)
    else:
        if spec.positive is not None:
            raise UsboostError(f"{option('positive')} is for classes, but {label!r} is predicted as a number")
        labels, classes = targets_of(columns[label]), []
        rows = np.flatnonzero(~np.isnan(labels))
    nominal = {*spec.categorical, *file.declared}
    features: dict[str, pd.Series] = {}
    formats: dict[str, Format] = {}
    left_out: dict[str, str] = {}
    notes: list[str] = []
    for name, column in columns.items():
        if name in spec.named:
            continue
        found = kind_of(column, nominal=name in nominal, textual=name in spec.text)
        notes += [f"column {name!r} {note}" for note in found.notes]
        if found.kind in LEFT_OUT:
            named_images = is_text(column.type) and are_names_of_images(column.plain())
            left_out[name] = f"it {NAMES}" if named_images else LEFT_OUT[found.kind]
            continue
        features[name] = column.feature(_readable(column, found), found.form)
        if found.form is not None:
            formats[name] = found.form
    for each in spec.image:
        check_type(file, each)
    frame = pd.DataFrame(features, index=pd.RangeIndex(table.num_rows))
    return UserTable(
        file,
        spec,
        frame if len(rows) == len(frame) else frame.iloc[rows].reset_index(drop=True),
        labels[rows],
        classes,
        label_kind=label_kind(columns[label]),
        said="" if spec.task else said,
        stripped=bool(classes) and has_blanks(columns[label]),
        rows=rows,
        unlabelled=len(labels) - len(rows),
        **divided_by(columns.__getitem__, spec, rows),
        formats=formats,
        left_out=left_out,
        notes=(*notes, *_held_nowhere(columns, spec, formats)),
    )


def divided_by(column: Callable[[str], Column], spec: TableSpec, rows: np.ndarray) -> dict[str, Any]:
    """How some rows are divided and weighted, by the field of `UserTable`; `column` reads one."""
    found: dict[str, Any] = {
        field: made(column(name))[rows]
        for field, name, made in (
            ("split", spec.split, splits_of),
            ("groups", spec.group, groups_of),
            ("times", spec.time, times_of),
            ("weights", spec.weight, weights_of),
        )
        if name is not None
    }
    return {**found, "weights": scaled(found["weights"])} if "weights" in found else found


def _held_nowhere(
    columns: Mapping[str, Column], spec: TableSpec, formats: Mapping[str, Format]
) -> Iterator[str]:
    """A sentence for each value that counts as missing, but is in no column."""
    for each in spec.missing:
        if not any(column.holds(each, formats.get(name)) for name, column in columns.items()):
            yield f"no column holds {each!r}, which counts as missing ({option('missing', repr(each))})"


def asked_of(path: Path, spec: TableSpec) -> tuple[str, str]:
    """What the label asks for, before the rest is read, and a sentence on why; see `labels.task_of`.

    Raises UsboostError if the file cannot be read or has no such column.
    """
    file, label = TableFile.open(path), spec.label
    if label not in file.names:
        raise UsboostError(f"{file} has no column {label!r}; {choices(label, file.names, 'its columns are')}")
    return task_of(Column(file, label, load(file, [label])[label], missing=spec.missing))


def check_learnable(table: UserTable) -> None:
    """Refuse a table with no column to learn from, under `FEWEST` rows, or a class of one row; or whose
    spec names a text model, although it has no column of text.

    Raises UsboostError, saying what there is.
    """
    if not table.features.shape[1]:
        named = table.spec.named
        others = ", ".join([*named[:1], *table.spec.drop, *table.left_out, *named[1:]])
        raise UsboostError(f"{table.file} has no column to learn from beside {others}")
    labels, that = table.labels, ""
    if table.weights is not None:
        labels, that = labels[table.weights > 0], " of weight above 0"
    rows = int(here().sum(len(labels)))
    too_few = UsboostError(f"{table.file} has {rows} rows{that} to learn from; {FEWEST} or more are needed")
    if here().sum(len(table)) < FEWEST:
        raise too_few
    counts = np.bincount(labels, minlength=len(table.classes)) if table.classes else np.empty(0)
    counts = here().sum(counts)
    if (counts < 2).any():
        name, count = table.classes[int(counts.argmin())], int(counts.min())
        has = f"{count} row{'s' * (count != 1)}{that}"
        number = f", or predict the number with {option('task', 'regression')}" if table.said else ""
        raise UsboostError(
            f"{table.file}: class {name!r} of {table.spec.label!r} has {has}, so it cannot be learnt and "
            f"checked; add rows of it, or leave its row out with {option('missing', repr(name))}{number}"
        )
    if rows < FEWEST:
        raise too_few
    if (model := table.spec.text_model) is not None and "text" not in table.kinds.values():
        raise UsboostError(
            f"{table.file} has no column of text for {option('text_model')} {model}; name one with "
            f"{option('text')}, or leave it out"
        )


def columns_read(file: Source, spec: TableSpec) -> list[str]:
    """The columns of a table that are read, which those of images are not here.

    Raises UsboostError if two columns have the same name, one that is named is absent or has two roles, or
    one that is not the label is called ``label`` or ``clean_label``.
    """
    names = file.names
    if not names:
        raise UsboostError(f"{file} is empty")
    if repeated := [name for name in names if names.count(name) > 1]:
        raise UsboostError(f"{file} has two columns called {repeated[0]!r}; rename one")
    others = (*spec.categorical, *spec.drop, *spec.text)
    shown = [name for name in names if not INDEX_COLUMN.fullmatch(name)]
    for name in (*spec.named, *others):
        if name not in names:
            raise UsboostError(f"{file} has no column {name!r}; {choices(name, shown, 'its columns are')}")
    twice = [name for name in spec.named if spec.named.count(name) > 1 or name in others]
    if repeated := twice or [name for name in spec.text if name in (*spec.categorical, *spec.drop)]:
        raise UsboostError(f"{file}: column {repeated[0]!r} cannot have two roles")
    for name in (LABEL, CLEAN):
        if name in names and name != spec.label and name not in spec.drop:
            raise UsboostError(f"{file} has a column {name!r} that is not the label; rename or drop it")
    return [name for name in shown if name not in (*spec.drop, *spec.image)]


def _readable(column: Column, found: ColumnKind) -> Kind:
    """The kind of a column that a model can read."""
    if found.kind == "nested" or found.kind == "name" or found.kind == "identifier":
        raise column.unusable()
    return found.kind


def load(file: Source, names: list[str], chosen: np.ndarray | None = None) -> pa.Table:
    """Some columns of all rows, or of those chosen, int (k,) in rising order.

    Their number is checked before and while they are read.
    """
    rows = file.n_rows
    if rows is not None:
        _check_size(file, rows, names)
    batches, read = [], 0
    for batch in file.batches(names, _BATCH):
        read += batch.num_rows
        _check_size(file, read, names)
        if chosen is not None:
            first, last = np.searchsorted(chosen, [read - batch.num_rows, read])
            batch = batch.take(chosen[first:last] - (read - batch.num_rows))
        batches.append(batch)
    return (
        pa.concat_tables(batches)
        if batches
        else pa.table({name: pa.nulls(0, file.type_of(name)) for name in names})
    )


def _check_size(file: Source, rows: int, names: list[str]) -> None:
    if rows * len(names) > LARGEST:
        raise UsboostError(
            f"{file} has {rows:,} rows of {len(names)} columns, more than the {LARGEST:,} values that a "
            "table may have"
        )

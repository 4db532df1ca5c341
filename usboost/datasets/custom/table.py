"""A person's own table, read strictly and as a whole: labels, features, pictures."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from usboost.data.progress import Progress
from usboost.datasets.custom import SIZE
from usboost.datasets.custom.columns import Column, Format, Kind, is_text
from usboost.datasets.custom.kinds import Found, kind_of
from usboost.datasets.custom.labels import (
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
from usboost.datasets.custom.own import OwnTable
from usboost.datasets.custom.picture_values import NAMES, are_names_of_pictures, check_type
from usboost.datasets.custom.pictures import PictureColumns
from usboost.datasets.custom.roles import Roles
from usboost.datasets.custom.source import INDEX_COLUMN, Source, TableFile
from usboost.datasets.custom.table_pictures import read_pictures
from usboost.datasets.files.image_sources import Aspect
from usboost.errors import UsboostError

LARGEST = 500_000_000
"""Values of a table above which it is refused: a small file can stand for any number of rows."""

FEWEST = 10
"""Rows that a table must have to learn from."""

LEFT_OUT = {
    "identifier": "each row has its own value",
    "name": "nearly every row has its own value; --text takes it as text",
}
"""Why a column of a kind is no feature."""

_BATCH = 1 << 16  # rows read at once


def read_table(
    path: Path | Source,
    *,
    label: str,
    task: Literal["classification", "regression"] | None = None,
    image: str | Collection[str] | None = None,
    split_column: str | None = None,
    categorical: Collection[str] = (),
    text: Collection[str] = (),
    drop: Collection[str] = (),
    missing: Collection[str] = (),
    images_root: Path | None = None,
    group: str | None = None,
    time: str | None = None,
    weight: str | None = None,
    positive: str | None = None,
) -> OwnTable:
    """Read a table without its pictures.

    What a column is, `kinds.kind_of` says. Identifiers and names are left out, and so are rows without a
    label; the answer has both.

    Parameters
    ----------
    path : a file of a kind in `readers.READERS`, a folder of Parquet files, or a DataFrame's rows.
    label, image, split_column, categorical, text, drop, missing, group, time, weight : see `Roles`.
    task : what is predicted; by default what the labels look like, see `labels.task_of`.
    positive : of two classes, the one that F1 is of; by default the rarer. It is the second.
    images_root : see `source.TableFile`.

    Raises
    ------
    UsboostError
        If the file is missing, damaged, of another kind or has more than `LARGEST` values; as `Roles.check`
        and `kinds.kind_of`; if there are no rows; a column holds nested or binary values or infinity; a
        split, group, time or weight is missing; or the labels are of one class or are no classes, or no
        finite numbers that differ.
    """
    images = (image,) if isinstance(image, str) else tuple(image or ())
    lists = tuple(categorical), tuple(drop), tuple(missing)
    roles = Roles(label, images, split_column, *lists, group, time, weight, tuple(text))
    file = TableFile.open(path, images_root) if isinstance(path, (str, Path)) else path
    roles.check(file)
    not_read = {*roles.dropped, *images}
    names = [name for name in file.names if name not in not_read and not INDEX_COLUMN.fullmatch(name)]
    table = _load(file, names)
    if not table.num_rows:
        raise UsboostError(f"{file} has no rows")
    columns = {name: Column(file, name, table[name], missing=roles.missing) for name in names}
    inferred, said = task_of(columns[label])
    if (task or inferred) == "classification":
        labels, classes = with_positive(*classes_of(columns[label]), positive, columns[label])
        rows = np.flatnonzero(labels >= 0)
    else:
        if positive is not None:
            raise UsboostError(f"--positive is for classes, but {label!r} is predicted as a number")
        labels, classes = targets_of(columns[label]), []
        rows = np.flatnonzero(~np.isnan(labels))
    nominal = {*roles.categorical, *file.declared}
    features: dict[str, pd.Series] = {}
    formats: dict[str, Format] = {}
    left_out: dict[str, str] = {}
    for name, column in columns.items():
        if name in roles.named:
            continue
        found = kind_of(column, nominal=name in nominal, textual=name in roles.text)
        if found.kind in LEFT_OUT:
            of_pictures = is_text(column.type) and are_names_of_pictures(column.plain())
            left_out[name] = f"it {NAMES}" if of_pictures else LEFT_OUT[found.kind]
            continue
        features[name] = column.feature(_readable(column, found), found.form)
        if found.form is not None:
            formats[name] = found.form
    divided: dict[str, Any] = {
        field: made(columns[name])[rows]
        for field, name, made in (
            ("split", split_column, splits_of),
            ("groups", group, groups_of),
            ("times", time, times_of),
            ("weights", weight, weights_of),
        )
        if name is not None
    }
    if "weights" in divided:
        divided["weights"] = scaled(divided["weights"])
    for each in images:
        check_type(file, each)
    frame = pd.DataFrame(features, index=pd.RangeIndex(table.num_rows))
    return OwnTable(
        file,
        roles,
        frame if len(rows) == len(frame) else frame.iloc[rows].reset_index(drop=True),
        labels[rows],
        classes,
        label_kind=label_kind(columns[label]),
        said="" if task else said,
        stripped=bool(classes) and has_blanks(columns[label]),
        rows=rows,
        unlabelled=len(labels) - len(rows),
        **divided,
        formats=formats,
        left_out=left_out,
    )


def asked_of(path: Path, label: str, *, missing: Collection[str] = ()) -> tuple[str, str]:
    """What a label's column asks for, before the rest is read, and a sentence on why; see `labels.task_of`.

    Parameters
    ----------
    path, missing : as of `read_table`.

    Raises
    ------
    UsboostError
        If the file cannot be read or has no such column.
    """
    file = TableFile.open(path)
    if label not in file.names:
        raise UsboostError(f"{file} has no column {label!r}; its columns are {', '.join(file.names)}")
    return task_of(Column(file, label, _load(file, [label])[label], missing=tuple(missing)))


def read_own(
    path: Path | Source,
    *,
    label: str,
    task: Literal["classification", "regression"] | None = None,
    image: str | Collection[str] | None = None,
    categorical: Collection[str] = (),
    text: Collection[str] = (),
    drop: Collection[str] = (),
    missing: Collection[str] = (),
    images_root: Path | None = None,
    split: str | None = None,
    group: str | None = None,
    time: str | None = None,
    weight: str | None = None,
    positive: str | None = None,
    size: int = SIZE,
    channels: int = 3,
    aspect: Aspect = "crop",
    pool: Literal["mean"] | None = None,
    skip_unreadable: bool = False,
    text_model: str | None = None,
    progress: Progress | None = None,
) -> OwnTable:
    """Read a whole table with its pictures.

    A row may lack pictures: where the column is empty, or its path leads to no file.

    Parameters
    ----------
    path, label, task, image, categorical, text, drop, missing, images_root, group, time, weight, positive :
        as `read_table`.
    split : the column that holds train, val or test.
    size, channels : of the pictures.
    aspect : what becomes of pictures that are not square, see `image_sources`.
    pool : "mean" makes several columns of pictures one view; by default each is its own.
    skip_unreadable : count pictures that cannot be read as missing, instead of refusing them.
    text_model : name or path of a model of sentence-transformers, which reads the texts.
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
        task=task,
        image=image,
        split_column=split,
        group=group,
        time=time,
        weight=weight,
        positive=positive,
        categorical=categorical,
        text=text,
        drop=drop,
        missing=missing,
        images_root=images_root,
    )
    check_learnable(table)
    table = with_text_model(table, text_model)
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
        paths=tuple(reader.paths for reader in readers),
    )


def check_learnable(table: OwnTable) -> None:
    """Refuse a table with no column to learn from, under `FEWEST` rows, or a class of one row.

    Raises
    ------
    UsboostError
        Saying what there is.
    """
    if not table.features.shape[1]:
        named = table.roles.named
        others = ", ".join([*named[:1], *table.roles.dropped, *table.left_out, *named[1:]])
        raise UsboostError(f"{table.file} has no column to learn from beside {others}")
    labels, that = table.labels, ""
    if table.weights is not None:
        labels, that = labels[table.weights > 0], " of weight above 0"
    too_few = UsboostError(
        f"{table.file} has {len(labels)} rows{that} to learn from; {FEWEST} or more are needed"
    )
    if len(table) < FEWEST:
        raise too_few
    counts = np.bincount(labels, minlength=len(table.classes)) if table.classes else np.empty(0)
    if (counts < 2).any():
        name, count = table.classes[int(counts.argmin())], int(counts.min())
        has = f"{count} row{'s' * (count != 1)}{that}"
        raise UsboostError(
            f"{table.file}: class {name!r} of {table.roles.label!r} has {has}, so it cannot be learnt and "
            f"checked; add rows of it, or leave its row out with --missing {name!r}"
        )
    if len(labels) < FEWEST:
        raise too_few


def with_text_model(table: OwnTable, text_model: str | None) -> OwnTable:
    """The table, whose texts are read by that model.

    Raises
    ------
    UsboostError
        If there is a model, and no column of text for it.
    """
    if text_model is not None and "text" not in table.kinds.values():
        raise UsboostError(
            f"{table.file} has no column of text for --text-model {text_model}; name one with --text, or "
            "leave it out"
        )
    return replace(table, text_model=text_model)


def _readable(column: Column, found: Found) -> Kind:
    """The kind of a column that a model can read."""
    if found.kind == "nested" or found.kind == "name" or found.kind == "identifier":
        raise column.unusable()
    return found.kind


def _load(file: Source, names: list[str]) -> pa.Table:
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


def _check_size(file: Source, rows: int, names: list[str]) -> None:
    if rows * len(names) > LARGEST:
        raise UsboostError(
            f"{file} has {rows:,} rows of {len(names)} columns, more than the {LARGEST:,} values that a "
            "table may have"
        )

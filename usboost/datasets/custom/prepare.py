"""A person's own data: a table with a label, numbers, categories and perhaps a picture for each row."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from usboost.datasets.custom.table import RawTable, read_table
from usboost.datasets.files.image_sources import ParquetRow, Source, inside
from usboost.datasets.files.sampling import stratified_parts, stream
from usboost.datasets.files.sources import sha256
from usboost.datasets.prepared import image_store
from usboost.datasets.prepared.image_encoding import Progress, encode_files, encoding
from usboost.datasets.prepared.store import LABEL, Prepared, describe
from usboost.errors import UsboostError

SPLITS = ("train", "val", "test")

SHARES = (0.70, 0.15, 0.15)
"""The splits' shares when the table does not give them."""

FEWEST = 10
"""Rows that a table must have for a split to be made."""

SUFFIX = "_missing"
"""Ends the name of the column that is 1 where a number was missing."""


def prepare(
    table: Path,
    *,
    label: str,
    image: str | None = None,
    split_column: str | None = None,
    categorical: Collection[str] = (),
    drop: Collection[str] = (),
    seed: int,
    profile: str = "paper",
    size: int = 64,
    channels: int = 3,
    work: Path | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> Prepared:
    """Make a dataset of a person's own table.

    With pictures these are U and all other columns S; without, a random half of the columns is S and the
    rest U. A missing category is a category of its own. A missing number becomes the training split's
    median (0 when it holds none), and if it holds missing ones at all a further column, named with
    `SUFFIX`, is 1 there and 0 elsewhere. See `custom_table.read_table` for what columns may hold.

    Parameters
    ----------
    table : a ``.parquet`` or ``.csv`` file.
    label : column of the classes, of any type.
    image : column of the pictures: paths relative to the table's folder, or, in Parquet, bytes.
    split_column : column that holds train, val or test; by default the split is made at random,
        70/15/15 within each class.
    categorical : columns that are categories although they hold numbers.
    drop : columns to leave out.
    seed : of the split and of the halves.
    profile : "demo" or "paper"; only noted in the card.
    size : height and width of the pictures in pixels.
    channels : 1 (grey) or 3 (red, green, blue).
    work : folder for the shards of images, needed with pictures; a preparation that was stopped goes on
        there.
    workers : processes that decode and encode pictures.
    progress : called with (pictures done, pictures in all).

    Returns
    -------
    The splits train, val and test, rows in the table's order.

    Raises
    ------
    UsboostError
        As `read_table`; or if there are too few columns; a split has to be made of under 10 rows or of a
        class with one row; a class is in val or test but not in train; or a picture is missing, outside
        the table's folder, or cannot be read.
    """
    table = Path(table)
    raw = read_table(
        table, label=label, image=image, split_column=split_column, categorical=categorical, drop=drop
    )
    if image is not None and work is None:
        raise UsboostError("pictures are prepared in a work folder; name one with work")
    fewest = 1 if image is not None else 2
    if raw.features.shape[1] < fewest:
        raise UsboostError(
            f"{table} has {raw.features.shape[1]} columns beside {', '.join(filter(None, (label, image)))}; "
            f"{fewest} or more are needed"
        )
    rows = _split(raw, label, stream(seed, 0))
    imputation = imputation_of(raw.features.iloc[rows["train"]])
    frame = complete(raw.features, imputation)
    if clash := list(frame.columns[frame.columns.duplicated()]):
        raise UsboostError(f"{table}: the column {clash[0]!r} is in the way of one to be added; rename it")
    frame[LABEL] = raw.labels.astype(np.int16)
    splits = {split: frame.iloc[of_split].reset_index(drop=True) for split, of_split in rows.items()}

    views, why = _views(raw, imputation, image, stream(seed, 1))
    numbers = {name for name in frame if isinstance(frame[name].dtype, np.dtype)}
    columns: dict[str, dict[str, Any]] = {
        name: {
            "view": view,
            "kind": "continuous" if name in numbers else "nominal",
            "why": why if name in raw.features else "1 where the number was missing",
        }
        for view, names in views.items()
        for name in names
    }
    columns[LABEL] = {"view": None, "kind": "label", "why": f"what is predicted, column {label!r}"}
    more: dict[str, Any] = {}
    if image is not None and work is not None:
        sources = _sources(raw, image)
        encode_files(
            {split: [sources[row] for row in of_split] for split, of_split in rows.items()},
            work,
            size=size,
            channels=channels,
            workers=workers,
            progress=progress,
        )
        how = "shorter side scaled to the size, centre cropped"
        more["images"] = image_store.entry(size, channels, encoding=encoding(size), how=how, column=image)
    card = describe(
        splits,
        views,
        raw.classes,
        dataset="custom",
        profile=profile,
        seed=seed,
        columns=columns,
        sources={table.name: sha256(table)},
        imputation=imputation,
        roles={"label": label, "image": image, "split": split_column, "dropped": sorted(drop)},
        split="as given" if split_column else "made: 70/15/15 at random within each class",
        **more,
    )
    return Prepared(splits, views, raw.classes, card, images=work if image is not None else None)


def complete(frame: pd.DataFrame, imputation: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """Fill missing numbers of any rows, as in the training split, and add the columns that tell.

    Parameters
    ----------
    frame : features as `read_table` gives them.
    imputation : the card's entry of that name.

    Returns
    -------
    A new frame; numbers are float32, an added column stands after the one it tells about.
    """
    filled: list[pd.Series] = []
    for name in frame:
        column = frame[name]
        if name not in imputation:
            filled.append(column)
            continue
        filled.append(column.fillna(imputation[name]["value"]).astype(np.float32))
        if imputation[name]["indicator"]:
            filled.append(column.isna().astype(np.float32).rename(f"{name}{SUFFIX}"))
    return pd.concat(filled, axis=1)


def imputation_of(train: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """For each numeric column what stands for a missing value, and whether a column tells where."""
    rules = {}
    for name in train:
        if isinstance(train[name].dtype, np.dtype):
            missing = train[name].isna()
            value = 0.0 if missing.all() else float(train[name].median())
            rules[str(name)] = {"value": value, "indicator": bool(missing.any())}
    return rules


def _split(raw: RawTable, label: str, seed: int) -> dict[str, np.ndarray]:
    """The rows of each split."""
    counts = np.bincount(raw.labels)
    if raw.split is None:
        if len(raw.labels) < FEWEST:
            raise UsboostError(f"{raw.path} has {len(raw.labels)} rows; {FEWEST} or more can be split")
        if (counts == 1).any():
            name = raw.classes[int(np.argmax(counts == 1))]
            raise UsboostError(
                f"{raw.path}: class {name!r} of {label!r} has one row only, so no split can be made; "
                "add rows of it or leave it out"
            )
        return dict(zip(SPLITS, stratified_parts(raw.labels, SHARES, seed)))
    rows = {split: np.flatnonzero(raw.split == split) for split in SPLITS}
    known = np.unique(raw.labels[rows["train"]])
    if len(known) < 2:
        raise UsboostError(f"{raw.path}: the training rows are all of class {raw.classes[known[0]]!r}")
    if len(unknown := np.setdiff1d(raw.labels, known)):
        name = raw.classes[unknown[0]]
        raise UsboostError(f"{raw.path}: class {name!r} of {label!r} is in no training row; move some there")
    return rows


def _views(
    raw: RawTable, imputation: Mapping[str, Mapping[str, Any]], image: str | None, seed: int
) -> tuple[dict[str, list[str]], str]:
    """The columns of each view, and why they are there."""
    names = [str(name) for name in raw.features]
    # A column and the one that tells where it was missing stay together.
    both = {
        name: [name, f"{name}{SUFFIX}"] if name in imputation and imputation[name]["indicator"] else [name]
        for name in names
    }
    if image is not None:
        return {"S": [each for name in names for each in both[name]]}, "column of the table"
    chosen = np.random.default_rng(seed).permutation(len(names))[: len(names) // 2]
    in_s = {names[j] for j in chosen}
    views = {
        "U": [each for name in names if name not in in_s for each in both[name]],
        "S": [each for name in names if name in in_s for each in both[name]],
    }
    return views, "random half of the columns"


def _sources(raw: RawTable, image: str) -> list[Source]:
    if raw.paths is None:
        return [ParquetRow(raw.path, image, row) for row in range(len(raw.labels))]
    folder = raw.path.parent
    return [inside(folder, path, f"{raw.path}, row {k}") for k, path in enumerate(raw.paths, start=1)]

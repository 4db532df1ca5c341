"""A person's own data: a table with a label, numbers, categories and perhaps a picture for each row."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from usboost.data.progress import Progress
from usboost.datasets.custom.encoding import SUFFIX, Imputation, added, complete, imputation_of
from usboost.datasets.custom.table import FEWEST, OwnTable, paths_of, read_table
from usboost.datasets.files.image_sources import ParquetRow, Source, inside
from usboost.datasets.files.sampling import stratified_parts, stream
from usboost.datasets.files.sources import sha256
from usboost.datasets.prepared import image_store
from usboost.datasets.prepared.image_encoding import encode_files, encoding
from usboost.datasets.prepared.store import LABEL, Prepared, describe
from usboost.errors import UsboostError

SPLITS = ("train", "val", "test")

SHARES = (0.70, 0.15, 0.15)
"""The splits' shares when the table does not give them."""


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
    rest U. A missing category is a separate category. A missing number becomes the training split's
    median (0 when it holds none), and if it holds missing ones at all a further column, named with
    `encoding.SUFFIX`, is 1 there and 0 elsewhere. See `table.read_table` for what columns may hold.

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
    work : folder for the shards of images, needed with pictures; an interrupted preparation resumes
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
    rows = _split(raw, stream(seed, 0))
    imputation = imputation_of(raw.features.iloc[rows["train"]])
    frame = complete(raw.features, imputation)
    frame[LABEL] = raw.labels.astype(np.int16)
    splits = {split: frame.iloc[of_split].reset_index(drop=True) for split, of_split in rows.items()}

    views, why = _views(raw, imputation, image, stream(seed, 1))
    nominal = {name for name, kind in raw.kinds.items() if kind == "category"}
    columns: dict[str, dict[str, Any]] = {
        name: {
            "view": view,
            "kind": "nominal" if name in nominal else "continuous",
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


def _split(raw: OwnTable, seed: int) -> dict[str, np.ndarray]:
    """The rows of each split."""
    counts = np.bincount(raw.labels)
    label = raw.roles.label
    if raw.split is None:
        if len(raw) < FEWEST:
            raise UsboostError(f"{raw.file} has {len(raw)} rows; {FEWEST} or more can be split")
        if (counts == 1).any():
            name = raw.classes[int(np.argmax(counts == 1))]
            raise UsboostError(
                f"{raw.file}: class {name!r} of {label!r} has one row only, so no split can be made; "
                "add rows of it or leave it out"
            )
        return dict(zip(SPLITS, stratified_parts(raw.labels, SHARES, seed)))
    rows = {split: np.flatnonzero(raw.split == split) for split in SPLITS}
    known = np.unique(raw.labels[rows["train"]])
    if len(known) < 2:
        raise UsboostError(f"{raw.file}: the training rows are all of class {raw.classes[known[0]]!r}")
    if len(unknown := np.setdiff1d(raw.labels, known)):
        name = raw.classes[unknown[0]]
        raise UsboostError(f"{raw.file}: class {name!r} of {label!r} is in no training row; move some there")
    return rows


def _views(
    raw: OwnTable, imputation: Imputation, image: str | None, seed: int
) -> tuple[dict[str, list[str]], str]:
    """The columns of each view, and why they are there."""
    names, indicators = [str(name) for name in raw.features], added(imputation)
    # A column and its indicator of missing values stay together.
    both = {name: [name, *({f"{name}{SUFFIX}"} & set(indicators))] for name in names}
    if image is not None:
        return {"S": [each for name in names for each in both[name]]}, "column of the table"
    chosen = np.random.default_rng(seed).permutation(len(names))[: len(names) // 2]
    in_s = {names[j] for j in chosen}
    views = {
        "U": [each for name in names if name not in in_s for each in both[name]],
        "S": [each for name in names if name in in_s for each in both[name]],
    }
    return views, "random half of the columns"


def _sources(raw: OwnTable, image: str) -> list[Source]:
    paths, path = paths_of(raw), raw.file.path
    if paths is None:
        return [ParquetRow(path, image, row) for row in range(len(raw))]
    return [inside(path.parent, name, f"{path}, row {k}") for k, name in enumerate(paths, start=1)]

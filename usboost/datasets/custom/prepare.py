"""A person's own data: a table with a label, numbers, categories and perhaps a picture for each row."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow.parquet as pq

from usboost.data.progress import Progress
from usboost.datasets.custom import SIZE, text_file
from usboost.datasets.custom.dates import dates_of
from usboost.datasets.custom.encoding import SUFFIX, Imputation, Parts, added, complete, imputation_of
from usboost.datasets.custom.own import OwnTable
from usboost.datasets.custom.pictures import PictureColumns
from usboost.datasets.custom.table import FEWEST, read_table, with_text_model
from usboost.datasets.custom.table_pictures import picture_sources
from usboost.datasets.custom.text_models import text_numbers
from usboost.datasets.custom.texts import TextNumbers
from usboost.datasets.custom.written import plain_form
from usboost.datasets.files.image_sources import Source as Picture
from usboost.datasets.files.sampling import random_parts, stratified_parts, stream
from usboost.datasets.prepared import image_store
from usboost.datasets.prepared.image_encoding import encode_files, encoding
from usboost.datasets.prepared.store import LABEL, Prepared, describe
from usboost.errors import UsboostError

SPLITS = ("train", "val", "test")

SHARES = (0.70, 0.15, 0.15)
"""The splits' shares when the table does not give them."""

_WITHIN = " within each class"


def prepare(
    table: Path,
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
    seed: int,
    profile: str = "paper",
    size: int = SIZE,
    channels: int = 3,
    skip_unreadable: bool = False,
    text_model: str | None = None,
    work: Path | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> Prepared:
    """Make a dataset of a person's own table.

    With pictures these are U and all other columns S; several pictures a row are one view, U, of which
    learners read the mean. A row may lack pictures: where the column is empty, or its path leads to no
    file. Without columns of pictures, a random half of the columns is S and the
    rest U. A missing category is a separate category. A missing number becomes the training split's
    median (0 when it holds none), and if it holds missing ones at all a further column, named with
    `encoding.SUFFIX`, is 1 there and 0 elsewhere. See `table.read_table` for what columns may hold.

    Parameters
    ----------
    table : as of `table.read_table`.
    label : column of the classes, of any type, or of the numbers to predict.
    task : what is predicted; by default what the labels look like, see `labels.task_of`.
    image : column of the pictures, or several: paths relative to the table's folder, or, in Parquet, bytes.
    split_column : column that holds train, val or test; by default the split is made at random,
        70/15/15, within each class if there are classes.
    categorical : columns that are categories although they hold numbers, the label perhaps; text : columns
        that are text.
    drop : columns to leave out; missing : further values that count as missing.
    images_root : see `source.TableFile`.
    seed : of the split and of the halves.
    profile : "demo", "own" or "paper"; only noted in the card.
    size : height and width of the pictures in pixels.
    channels : 1 (grey) or 3 (red, green, blue).
    skip_unreadable : count pictures that cannot be read as missing, instead of refusing them.
    text_model : name or path of a model of sentence-transformers, which reads the texts.
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
        class with one row; a class is in val or test but not in train, or the training rows have one label
        only; a picture is outside the table's folder, or cannot be read; or a column holds no picture, or
        none in the training rows.
    """
    table = Path(table)
    raw = read_table(
        table,
        label=label,
        task=task or ("classification" if label in categorical else None),
        image=image,
        split_column=split_column,
        categorical=[name for name in categorical if name != label],
        text=text,
        drop=drop,
        missing=missing,
        images_root=images_root,
    )
    images = raw.roles.image
    if images and work is None:
        raise UsboostError("pictures are prepared in a work folder; name one with work")
    fewest = 1 if images else 2
    if raw.features.shape[1] < fewest:
        raise UsboostError(
            f"{table} has {raw.features.shape[1]} columns beside {', '.join((label, *images))}; "
            f"{fewest} or more are needed"
        )
    rows = _split(raw, stream(seed, 0))
    train = raw.features.iloc[rows["train"]]
    dates, texts = dates_of(train), text_numbers(train, with_text_model(raw, text_model).text_model)
    parts: Parts = {**dates, **texts}
    imputation = imputation_of(train, parts)
    frame = complete(raw.features, imputation, parts)
    frame[LABEL] = raw.labels.astype(np.int16) if raw.classes else raw.labels
    for name in texts:
        frame[name] = raw.features[name]  # in no view; for rows that are sent to a served model
    splits = {split: frame.iloc[of_split].reset_index(drop=True) for split, of_split in rows.items()}

    views, why = _views(raw, imputation, parts, stream(seed, 1))
    nominal = {name for name, kind in raw.kinds.items() if kind == "category"}
    whys = {each: f"part of the date {name!r}" for name, parts in dates.items() for each in parts.names(name)}
    whys |= {each: f"component of the text {name!r}" for name in texts for each in texts[name].names(name)}
    whys |= dict.fromkeys(added(imputation), "1 where the number was missing")
    columns: dict[str, dict[str, Any]] = {
        name: {
            "view": view,
            "kind": "nominal" if name in nominal else "continuous",
            "why": whys.get(name, why),
        }
        for view, names in views.items()
        for name in names
    }
    columns |= {name: {"view": None, "kind": "text", "why": "column of the table"} for name in texts}
    columns[LABEL] = {"view": None, "kind": "label", "why": f"what is predicted, column {label!r}"}
    more: dict[str, Any] = {}
    if texts:
        more["texts"] = {"columns": list(texts), "sha256": text_file.digest_of(texts)}
    if images and work is not None:
        form = PictureColumns(images, size, channels, pooled=len(images) > 1)
        more["images"] = _encode(raw, form, rows, work, skip_unreadable, workers, progress)
    card = describe(
        splits,
        views,
        raw.classes,
        dataset="custom",
        profile=profile,
        seed=seed,
        columns=columns,
        sources={table.name: raw.file.digest()},
        imputation=imputation,
        roles={
            "label": label,
            "image": list(images),
            "split": split_column,
            "dropped": sorted([*drop, *raw.left_out]),
        },
        dates={name: parts.to_dict() for name, parts in dates.items()},
        formats={name: plain_form(form) for name, form in raw.formats.items()},
        missing=list(missing),
        unlabelled=raw.unlabelled,
        split="as given" if split_column else "made: 70/15/15 at random" + _WITHIN * bool(raw.classes),
        **more,
    )
    return Prepared(splits, views, raw.classes, card, work if images else None, _files(texts))


def _files(texts: Mapping[str, TextNumbers]) -> dict[str, bytes]:
    return {text_file.FILE: text_file.to_bytes(texts)} if texts else {}


def _split(raw: OwnTable, seed: int) -> dict[str, np.ndarray]:
    """The rows of each split."""
    if raw.split is None and len(raw) < FEWEST:
        raise UsboostError(f"{raw.file} has {len(raw)} rows; {FEWEST} or more can be split")
    if raw.split is not None and not (raw.split == "test").any():
        raise UsboostError(
            f"{raw.file}: no row's split is test, but a dataset is scored on such rows; add them, or leave "
            "custom.split out"
        )
    if raw.classes:
        return _split_classes(raw, seed)
    if raw.split is None:
        return dict(zip(SPLITS, random_parts(len(raw), SHARES, seed)))
    rows = {split: np.flatnonzero(raw.split == split) for split in SPLITS}
    if np.ptp(raw.labels[rows["train"]]) == 0:
        raise UsboostError(
            f"{raw.file}: the label {raw.roles.label!r} is {raw.labels[rows['train'][0]]:g} in all training "
            "rows, so nothing can be learnt; move others there"
        )
    return rows


def _split_classes(raw: OwnTable, seed: int) -> dict[str, np.ndarray]:
    counts = np.bincount(raw.labels)
    label = raw.roles.label
    if raw.split is None:
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
    raw: OwnTable, imputation: Imputation, parts: Parts, seed: int
) -> tuple[dict[str, list[str]], str]:
    """The columns of each view, and why they are there."""
    names, indicators = [str(name) for name in raw.features], added(imputation)
    # The parts of a date or text, and a column and its indicator of missing values, stay together.
    both = {
        name: [
            each
            for part in (parts[name].names(name) if name in parts else [name])
            for each in (part, f"{part}{SUFFIX}")
            if each == part or each in indicators
        ]
        for name in names
    }
    if raw.roles.image:
        return {"S": [each for name in names for each in both[name]]}, "column of the table"
    chosen = np.random.default_rng(seed).permutation(len(names))[: len(names) // 2]
    in_s = {names[j] for j in chosen}
    views = {
        "U": [each for name in names if name not in in_s for each in both[name]],
        "S": [each for name in names if name in in_s for each in both[name]],
    }
    return views, "random half of the columns"


def _encode(
    raw: OwnTable,
    form: PictureColumns,
    rows: Mapping[str, np.ndarray],
    work: Path,
    skip_unreadable: bool,
    workers: int,
    progress: Progress | None,
) -> dict[str, Any]:
    """Write the pictures as shards; what the card says about them, also how many rows have none."""
    about = image_store.entry(
        form.size,
        form.channels,
        encoding=encoding(form.size),
        how="shorter side scaled to the size, centre cropped",
        columns=list(form.columns),
    )
    items: dict[str, list[Picture | None]] = {}
    for k, sources in enumerate(picture_sources(raw, form)):
        if all(sources[row] is None for row in rows["train"]):
            column = form.columns[k]
            raise UsboostError(
                f"{raw.file}: column {column!r} holds no picture in the training rows; add some"
            )
        for split, of_split in rows.items():
            items[image_store.parts(split, about)[k]] = [sources[row] for row in of_split]
    shards = encode_files(
        items,
        work,
        size=form.size,
        channels=form.channels,
        skip_unreadable=skip_unreadable,
        workers=workers,
        progress=progress,
    )
    about["without"] = {part: sum(each is None for each in of_part) for part, of_part in items.items()}
    if skip_unreadable:
        absent = sum(_absent(path) for paths in shards.values() for path in paths)
        about["unreadable"] = absent - sum(about["without"].values())
    return about


def _absent(shard: Path) -> int:
    """How many rows of a shard have no picture."""
    return pq.read_table(shard, columns=["image"])["image"].null_count

"""A user's own data, prepared: the rows as they were read, in splits; nothing is learnt from them yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from usboost.data.progress import Progress
from usboost.datasets import image_store
from usboost.datasets.image_encoding import encode_files, encoding
from usboost.datasets.image_files import Source as Image
from usboost.datasets.sampling import random_parts, stratified_parts, stream
from usboost.datasets.store import LABEL, Prepared, describe
from usboost.datasets.user.columns.formats import plain_form
from usboost.datasets.user.images.image_set import image_sources
from usboost.datasets.user.images.reader import ImageColumns
from usboost.datasets.user.read_prepared import ROW, SPLITS
from usboost.datasets.user.read_table import check_learnable, read_columns
from usboost.datasets.user.table_spec import TableSpec
from usboost.datasets.user.user_table import UserTable
from usboost.errors import UsboostError, option

SHARES = (0.70, 0.15, 0.15)
"""The splits' shares when the table does not give them."""

_WITHIN = " within each class"


def prepare(
    table: Path,
    spec: TableSpec,
    *,
    seed: int,
    profile: str = "paper",
    work: Path | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> Prepared:
    """Make a dataset of a user's own table, which `read_prepared.read_prepared` reads again.

    Its rows are as `table.read_table` gives them: nothing is imputed, encoded or pooled, since what a fit
    learns of its rows is that fit's business. A row may lack images: where the column is empty, or its
    path leads to no file.

    Parameters
    ----------
    table : as of `table.read_table`.
    spec : without groups, times, weights and pooled images, of which a dataset keeps nothing. A label that
        is named among the categories is one of classes; where no split is named, one is made at random,
        70/15/15, within each class if there are classes.
    seed : of the split.
    profile : "demo", "user" or "paper"; only noted in the card.
    work : folder for the shards of images, needed with images; an interrupted preparation resumes there.
    workers : processes that decode and encode images.
    progress : called with (images done, images in all).

    Returns
    -------
    The splits train, val and test, rows in the table's order: a column for each feature, `LABEL`, and
    `read_prepared.ROW`. Images are PNG, so that they keep every pixel.

    Raises
    ------
    UsboostError
        As `read_table`; or if a class is in val or test but not in train, the training rows have one label
        only, a column holds no image in the training rows, or these cannot be encoded.
    """
    table, label = Path(table), spec.label
    categorical = spec.categorical
    if label in categorical:
        others = tuple(name for name in categorical if name != label)
        spec = replace(spec, task=spec.task or "classification", categorical=others)
    raw = read_columns(table, spec)
    images = spec.image
    if images and work is None:
        raise UsboostError("images are prepared in a work folder; name one with work")
    check_learnable(raw)
    rows = _split(raw, stream(seed, 0))
    raw.fit_encoding(rows["train"])  # what no fit could learn from is said before any begins
    frame = raw.features.assign(**{LABEL: raw.labels, ROW: raw.rows})
    splits = {split: frame.iloc[of_split].reset_index(drop=True) for split, of_split in rows.items()}
    more: dict[str, Any] = {}
    if images and work is not None:
        more["images"] = _encode(raw, rows, work, workers, progress)
    card = describe(
        splits,
        {},
        raw.classes,
        dataset="user_table",
        profile=profile,
        seed=seed,
        columns=_columns(raw),
        sources={table.name: raw.file.digest()},
        roles={
            "label": label,
            "image": list(images),
            "split": spec.split,
            "categorical": list(categorical),
            "text": list(spec.text),
            "dropped": list(spec.drop),
        },
        label_kind=raw.label_kind,
        formats={name: plain_form(form) for name, form in raw.formats.items()},
        missing=list(spec.missing),
        text_model=spec.text_model,
        left_out=dict(raw.left_out),
        unlabelled=raw.unlabelled,
        split="as given" if spec.split else "made: 70/15/15 at random" + _WITHIN * bool(raw.classes),
        **more,
    )
    return Prepared(splits, {}, raw.classes, card, work if images else None)


def _columns(raw: UserTable) -> dict[str, dict[str, Any]]:
    """What the card says of each column."""
    read_by = "S" if raw.spec.image else "U and S"
    found: dict[str, dict[str, Any]] = {
        name: {"view": read_by, "kind": kind, "why": "column of the table"}
        for name, kind in raw.kinds.items()
    }
    found[LABEL] = {"view": None, "kind": "label", "why": f"what is predicted, column {raw.spec.label!r}"}
    return found


def _split(raw: UserTable, seed: int) -> dict[str, np.ndarray]:
    """The rows of each split."""
    if raw.split is not None and not (raw.split == "test").any():
        raise UsboostError(
            f"{raw.file}: no row's split is test, but a dataset is scored on such rows; add them, or leave "
            f"{option('split')} out"
        )
    if raw.split is None:
        made = (
            stratified_parts(raw.labels, SHARES, seed)
            if raw.classes
            else random_parts(len(raw), SHARES, seed)
        )
        return dict(zip(SPLITS, made))
    rows = {split: np.flatnonzero(raw.split == split) for split in SPLITS}
    label, known = raw.spec.label, np.unique(raw.labels[rows["train"]])
    if not raw.classes:
        if len(known) == 1:
            raise UsboostError(
                f"{raw.file}: the label {label!r} is {known[0]:g} in all training rows, so nothing can be "
                "learnt; move others there"
            )
        return rows
    if len(known) < 2:
        raise UsboostError(f"{raw.file}: the training rows are all of class {raw.classes[known[0]]!r}")
    if len(unknown := np.setdiff1d(raw.labels, known)):
        name = raw.classes[unknown[0]]
        raise UsboostError(f"{raw.file}: class {name!r} of {label!r} is in no training row; move some there")
    return rows


def _encode(
    raw: UserTable, rows: Mapping[str, np.ndarray], work: Path, workers: int, progress: Progress | None
) -> dict[str, Any]:
    """Write the images as shards; what the card says about them, also how many rows have none."""
    form, skip_unreadable = ImageColumns.of(raw.spec), raw.spec.skip_unreadable
    about = image_store.entry(
        form.size,
        form.channels,
        encoding=encoding(form.size, lossless=True),
        how="shorter side scaled to the size, centre cropped",
        view=form.names[0],
        columns=list(form.columns),
    )
    items: dict[str, list[Image | None]] = {}
    for k, sources in enumerate(image_sources(raw, form)):
        if all(sources[row] is None for row in rows["train"]):
            column = form.columns[k]
            raise UsboostError(f"{raw.file}: column {column!r} holds no image in the training rows; add some")
        for split, of_split in rows.items():
            items[image_store.parts(split, about)[k]] = [sources[row] for row in of_split]
    shards = encode_files(
        items,
        work,
        size=form.size,
        channels=form.channels,
        lossless=True,
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
    """How many rows of a shard have no image."""
    return pq.read_table(shard, columns=["image"])["image"].null_count

"""A user's table in its prepared form, as `table.read_table` read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import Field, ValidationError

from usboost.datasets import image_store, store
from usboost.datasets.image_store import CardPart
from usboost.datasets.image_store import ImagesEntry as Shards
from usboost.datasets.store import first_fault, is_user_table
from usboost.datasets.user.columns.formats import Written
from usboost.datasets.user.images.image_set import ImageSet
from usboost.datasets.user.images.reader import ImageColumns
from usboost.datasets.user.reading.source import FrameRows
from usboost.datasets.user.table_spec import SIZE, TableSpec
from usboost.datasets.user.user_table import UserTable
from usboost.errors import UsboostError

SPLITS = ("train", "val", "test")

ROW = "__index_level_0__"
"""The column of rows' positions in the table; pandas' name of an index, which no column of a table has."""


class _Roles(CardPart):
    label: str
    image: list[str]
    split: str | None
    categorical: list[str]
    text: list[str]
    dropped: list[str]


class _Column(CardPart):
    kind: str


class _Images(Shards):
    columns: Annotated[list[str], Field(min_length=1, max_length=100)]


class _Card(CardPart):
    """What the card says of a table beside its splits and classes."""

    classes: list[str]
    label_kind: Literal["bool", "int", "float", "str"]
    columns: dict[str, _Column]
    roles: _Roles
    formats: dict[str, Written]
    missing: list[str]
    text_model: str | None
    left_out: dict[str, str]
    unlabelled: Annotated[int, Field(ge=0)]
    sources: Annotated[dict[str, str], Field(min_length=1, max_length=1)]
    images: _Images | None = None


class PreparedRows(FrameRows):
    """The rows of a table that was prepared, called by its name, with its digest."""

    def __init__(self, frame: pd.DataFrame, path: Path, digest: str) -> None:
        super().__init__(frame)
        self.path, self._digest = path, digest

    def __str__(self) -> str:
        return str(self.path)

    def digest(self) -> str:
        return self._digest


def read_prepared(folder: Path) -> UserTable:
    """The table that `prepare.prepare` has made a dataset of, as `table.read_table` has it of its file.

    Its rows are in the file's order, and `UserTable.split` says of each which split it is in.

    Raises
    ------
    UsboostError
        If the folder holds no such dataset, a file of it is missing, damaged or not the one that the card
        describes, or the card lacks something.
    """
    folder = Path(folder)
    card = store.read_card(folder)
    about = _checked(card, folder)
    frames = {split: store.read_frame(folder, split) for split in SPLITS}
    labels = np.concatenate(
        [store.labels_of(frame, card, folder / f"{split}.parquet") for split, frame in frames.items()]
    )
    whole = _whole(frames, about, folder)
    order = np.argsort(whole[ROW].to_numpy(), kind="stable")
    whole = whole.iloc[order].reset_index(drop=True)
    features = whole.drop(columns=ROW)
    split = np.repeat(SPLITS, [len(frame) for frame in frames.values()]).astype(object)[order]
    ((name, digest),) = about.sources.items()
    roles, images = about.roles, about.images
    file = PreparedRows(features, Path(name), digest)
    found = UserTable(
        file,
        TableSpec(
            roles.label,
            image=tuple(roles.image),
            drop=tuple(roles.dropped),
            categorical=tuple(each for each in roles.categorical if each != roles.label),
            text=tuple(roles.text),
            text_model=about.text_model,
            missing=tuple(about.missing),
            split=roles.split,
            size=images.size[0] if images else SIZE,
            grey=images is not None and images.channels == 1,
        ),
        features,
        labels[order],
        about.classes,
        label_kind=about.label_kind,
        rows=whole[ROW].to_numpy(),
        split=split,
        unlabelled=about.unlabelled,
        formats={name: written.form for name, written in about.formats.items()},
        left_out=about.left_out,
    )
    kinds = {name: each.kind for name, each in about.columns.items() if name != store.LABEL}
    if wrong := [name for name, kind in found.kinds.items() if kind != kinds[name]]:
        raise UsboostError(
            f"{folder}: the column {wrong[0]!r} is no {kinds[wrong[0]]}; prepare the dataset again"
        )
    if about.images is None:
        return found
    places = {name: np.flatnonzero(split == name) for name in SPLITS}
    return _with_images(found, card["images"], folder, places)


def _checked(card: Mapping[str, Any], folder: Path) -> _Card:
    if not is_user_table(card):
        raise UsboostError(
            f"{folder} holds no table of a user's own as this version prepares it; prepare again"
        )
    try:
        return _Card.model_validate(card)
    except ValidationError as error:
        raise UsboostError(
            f"{folder / 'card.json'}: {first_fault(error)}; prepare the dataset again"
        ) from None


def _whole(frames: Mapping[str, pd.DataFrame], about: _Card, folder: Path) -> pd.DataFrame:
    """The features and the positions of all rows, in the table's order."""
    names = [*(name for name in about.columns if name != store.LABEL), ROW]
    for split, frame in frames.items():
        if absent := [name for name in names if name not in frame]:
            raise UsboostError(
                f"{folder / split}.parquet lacks the column {absent[0]!r}; prepare the dataset again"
            )
    whole = pd.DataFrame({name: _joined([frame[name] for frame in frames.values()]) for name in names})
    if whole[ROW].dtype != np.int64:
        raise UsboostError(
            f"{folder} does not say which rows of the table it holds; prepare the dataset again"
        )
    return whole


def _joined(parts: list[pd.Series]) -> pd.Series:
    """The splits' values of a column; categories are sorted, as `Column.categories` has them."""
    if not all(isinstance(part.dtype, pd.CategoricalDtype) for part in parts):
        return pd.concat(parts, ignore_index=True)
    names = sorted({str(name) for part in parts for name in part.cat.categories})
    values = [value for part in parts for value in part.astype(object)]
    return pd.Series(pd.Categorical(values, categories=pd.Index(names, dtype="str")))


def _with_images(
    table: UserTable, card: Mapping[str, Any], folder: Path, places: Mapping[str, np.ndarray]
) -> UserTable:
    """The table with its images, read a shard at a time; `places` are the rows of each split."""
    form = ImageColumns.of(table.spec)
    found = ImageSet(form, len(table), what=table.file)
    for split, rows in places.items():
        for k, part in enumerate(image_store.parts(split, card)):
            done = 0
            for images in image_store.pieces(folder, card, part, len(rows)):
                found.put(k, rows[done : done + len(images)], images)
                done += len(images)
    without = dict(zip(form.columns, map(int, found.absent.sum(axis=1)), strict=True))
    return replace(table, images=found.views(), without=without)

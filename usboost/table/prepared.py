"""A user's own table in its prepared form: the rows as they were read, in splits, before anything is learnt.

Images are decoded once, by the reader of the command line, and stored as pixels.
"""

import io
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from pydantic import Field, ValidationError

from usboost.data.progress import Progress
from usboost.datasets import image_store, store
from usboost.datasets.image_store import CardPart, ImageShards
from usboost.datasets.store import LABEL, Prepared, first_fault, is_user_table
from usboost.errors import UsboostError
from usboost.evaluation.folds import random_parts, stratified_parts, stream
from usboost.table.columns.formats import Written, plain_form
from usboost.table.images import ImageColumns, ImageSet
from usboost.table.source import FrameRows
from usboost.table.spec import SIZE, TableSpec
from usboost.table.user_table import UserTable, check_learnable, read_columns, with_images

SPLITS = ("train", "val", "test")

SHARES = (0.70, 0.15, 0.15)
"""The splits' shares when the table does not give them."""

ROW = "__index_level_0__"
"""The column of rows' positions in the table; pandas' name of an index, which no column of a table has."""

PIXELS = "pixels"
"""The encoding of the images: uint8 of (channels, height, width), as they are."""

_SHARD = 512  # images


def prepare(
    path: Path,
    spec: TableSpec,
    *,
    seed: int,
    profile: str = "paper",
    work: Path | None = None,
    progress: Progress | None = None,
) -> Prepared:
    """Make a dataset of a user's own table, which `read_prepared` reads again.

    Its rows and images are as `user_table.read_table` gives them: nothing is imputed or encoded, since what a
    fit learns of its rows is that fit's business. The splits train, val and test have a column for each
    feature, `LABEL`, and `ROW`, in the table's order. Raises UsboostError as `read_table`; or if a class is
    in val or test but not in train, the training rows have one label only, or a column holds no image in
    them.

    Parameters
    ----------
    path, progress : as of `user_table.read_table`.
    spec : without groups, times and weights, of which a dataset keeps nothing. A label that is named among
        the categories is one of classes; where no split is named, one is made at random, 70/15/15, within
        each class if there are classes.
    seed : of the split.
    profile : "demo", "user" or "paper"; only noted in the card.
    work : folder for the shards of images, needed with images.
    """
    path, label, categorical = Path(path), spec.label, spec.categorical
    if label in categorical:
        others = tuple(name for name in categorical if name != label)
        spec = replace(spec, task=spec.task or "classification", categorical=others)
    table = read_columns(path, spec)
    if spec.image and work is None:
        raise UsboostError("images are prepared in a work folder; name one with work")
    check_learnable(table)
    rows = _split(table, stream(seed, 0))
    table.fit_encoding(rows["train"])  # what no fit could learn from is said before any begins
    frame = table.features.assign(**{LABEL: table.labels, ROW: table.rows})
    splits = {split: frame.iloc[of_split].reset_index(drop=True) for split, of_split in rows.items()}
    images = _write_images(with_images(table, progress), rows, work) if spec.image and work else None
    read_by = "S" if spec.image else "U and S"
    columns: dict[str, dict[str, Any]] = {
        name: {"view": read_by, "kind": kind, "why": "column of the table"}
        for name, kind in table.kinds.items()
    }
    columns[LABEL] = {"view": None, "kind": "label", "why": f"what is predicted, column {label!r}"}
    made = f"made: 70/15/15 at random{' within each class' * bool(table.classes)}"
    card = store.describe(
        splits,
        {},
        table.classes,
        dataset="user_table",
        profile=profile,
        seed=seed,
        columns=columns,
        sources={path.name: table.file.digest()},
        roles={
            "label": label,
            "image": list(spec.image),
            "split": spec.split,
            "categorical": list(categorical),
            "text": list(spec.text),
            "dropped": list(spec.drop),
        },
        label_kind=table.label_kind,
        formats={name: plain_form(form) for name, form in table.formats.items()},
        missing=list(spec.missing),
        left_out=dict(table.left_out),
        unlabelled=table.unlabelled,
        split="as given" if spec.split else made,
        **({"images": images} if images else {}),
    )
    return Prepared(splits, {}, table.classes, card, work if spec.image else None, table)


def _split(table: UserTable, seed: int) -> dict[str, np.ndarray]:
    """Return the rows of each split, as given or drawn."""
    file, label, given = table.file, table.spec.label, table.split
    if given is None:
        if table.classes:
            return dict(zip(SPLITS, stratified_parts(table.labels, SHARES, seed)))
        return dict(zip(SPLITS, random_parts(len(table), SHARES, seed)))
    if not (given == "test").any():
        raise UsboostError(
            f"{file}: no row's split is test, but a dataset is scored on such rows; add them, or leave "
            f"`split` out"
        )
    rows = {split: np.flatnonzero(given == split) for split in SPLITS}
    known = np.unique(table.labels[rows["train"]])
    if not table.classes and len(known) == 1:
        raise UsboostError(
            f"{file}: the label {label!r} is {known[0]:g} in all training rows, so nothing can be learnt; "
            "move others there"
        )
    if table.classes and len(known) < 2:
        raise UsboostError(f"{file}: the training rows are all of class {table.classes[known[0]]!r}")
    if table.classes and len(unknown := np.setdiff1d(table.labels, known)):
        name = table.classes[unknown[0]]
        raise UsboostError(f"{file}: class {name!r} of {label!r} is in no training row; move some there")
    return rows


def _write_images(table: UserTable, rows: Mapping[str, np.ndarray], work: Path) -> dict[str, Any]:
    """Write the images as shards of `PIXELS`; return the card's entry, with the rows that have none."""
    form = ImageColumns.of(table.spec)
    about = image_store.entry(
        form.size,
        form.channels,
        encoding=PIXELS,
        how="shorter side scaled to the size, centre cropped",
        view=form.names[0],
        columns=list(form.columns),
        without={},
        unreadable=table.unreadable,
    )
    for split, of_split in rows.items():
        names = image_store.parts(split, about)
        for part, column, images in zip(names, form.columns, table.images.values(), strict=True):
            absent = np.zeros(len(table), dtype=bool) if images.absent is None else images.absent
            if split == "train" and absent[of_split].all():
                raise UsboostError(f"{table.file}: column {column!r} has no image to train on; add some")
            about["without"][part] = int(absent[of_split].sum())
            shutil.rmtree(work / part, ignore_errors=True)
            (work / part).mkdir(parents=True)
            for k, first in enumerate(range(0, len(of_split), _SHARD)):
                some = of_split[first : first + _SHARD]
                pairs = zip(absent[some], images[some].decode(), strict=True)
                cells = [None if missing else pixels.tobytes() for missing, pixels in pairs]
                shard = {"row": range(first, first + len(some)), "image": pa.array(cells, pa.binary())}
                pq.write_table(pa.table(shard), work / part / f"images-{k:05d}.parquet", compression="zstd")
    return about


def as_file(cell: bytes | None, about: Mapping[str, Any]) -> bytes | None:
    """Return an image of a prepared dataset as a PNG or JPEG file. `about`: the card's entry of images."""
    if cell is None or about.get("encoding") != PIXELS:
        return cell
    pixels, out = np.frombuffer(cell, np.uint8).reshape(about["channels"], *about["size"]), io.BytesIO()
    Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)).save(out, "PNG")
    return out.getvalue()


class _Roles(CardPart):
    label: str
    image: list[str]
    split: str | None
    categorical: list[str]
    text: list[str]
    dropped: list[str]


class _Images(ImageShards):
    columns: Annotated[list[str], Field(min_length=1, max_length=100)]


class _PreparedCard(CardPart):
    """The card of a table, but for its splits."""

    classes: list[str]
    label_kind: Literal["bool", "int", "float", "str"]
    columns: dict[str, dict[str, str | None]]
    roles: _Roles
    formats: dict[str, Written]
    missing: list[str]
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
    """Read the table that `prepare` has made a dataset of, as `user_table.read_table` has it of its file.

    Its rows are in the file's order, and `UserTable.split` says of each which split it is in. Raises
    UsboostError if the folder holds no such dataset, a file of it is missing, damaged or not the one that the
    card describes, or the card lacks something.
    """
    folder, again = Path(folder), "prepare the dataset again"
    card = store.read_card(folder)
    if not is_user_table(card):
        raise UsboostError(f"{folder} holds no own table as this version prepares it; prepare again")
    try:
        about = _PreparedCard.model_validate(card)
    except ValidationError as error:
        raise UsboostError(f"{folder / 'card.json'}: {first_fault(error)}; {again}") from None
    frames = {split: store.read_frame(folder, split) for split in SPLITS}
    names = [*(name for name in about.columns if name != LABEL), ROW]
    for split, frame in frames.items():
        if absent := [name for name in names if name not in frame]:
            raise UsboostError(f"{folder / split}.parquet lacks the column {absent[0]!r}; {again}")
    labels = [store.labels_of(frame, card, folder / f"{split}.parquet") for split, frame in frames.items()]
    whole = pd.DataFrame({name: _joined([frame[name] for frame in frames.values()]) for name in names})
    if whole[ROW].dtype != np.int64:
        raise UsboostError(f"{folder} does not say which rows of the table it holds; {again}")
    order = np.argsort(whole[ROW].to_numpy(), kind="stable")
    whole = whole.iloc[order].reset_index(drop=True)
    features = whole.drop(columns=ROW)
    given = np.repeat(SPLITS, [len(frame) for frame in frames.values()]).astype(object)[order]
    ((name, digest),) = about.sources.items()
    roles, images = about.roles, about.images
    table = UserTable(
        PreparedRows(features, Path(name), digest),
        TableSpec(
            roles.label,
            image=tuple(roles.image),
            drop=tuple(roles.dropped),
            categorical=tuple(each for each in roles.categorical if each != roles.label),
            text=tuple(roles.text),
            missing=tuple(about.missing),
            split=roles.split,
            size=images.size[0] if images else SIZE,
            grey=images is not None and images.channels == 1,
        ),
        features,
        np.concatenate(labels)[order],
        about.classes,
        label_kind=about.label_kind,
        rows=whole[ROW].to_numpy(),
        split=given,
        unlabelled=about.unlabelled,
        formats={name: written.form for name, written in about.formats.items()},
        left_out=about.left_out,
    )
    for name, kind in table.kinds.items():
        if kind != (said := about.columns[name].get("kind")):
            raise UsboostError(f"{folder}: the column {name!r} is no {said}; {again}")
    return table if images is None else _read_images(table, folder, card["images"])


def _joined(parts: list[pd.Series]) -> pd.Series:
    """Join the splits' values of a column; categories are sorted, as `Column.feature` has them."""
    if not all(isinstance(part.dtype, pd.CategoricalDtype) for part in parts):
        return pd.concat(parts, ignore_index=True)
    names = sorted({str(name) for part in parts for name in part.cat.categories})
    values = [value for part in parts for value in part.astype(object)]
    return pd.Series(pd.Categorical(values, categories=pd.Index(names, dtype="str")))


def _read_images(table: UserTable, folder: Path, about: Mapping[str, Any]) -> UserTable:
    """Return the table with its images, read a shard at a time."""
    form = ImageColumns.of(table.spec)
    image_set = ImageSet(form, len(table), what=table.file)
    for split in SPLITS:
        rows = np.flatnonzero(table.split == split)
        for k, part in enumerate(image_store.parts(split, about)):
            done = 0
            for images in image_store.pieces(folder, about, part, len(rows)):
                place = rows[done : done + len(images)]
                absent = np.zeros(len(images), dtype=bool) if images.absent is None else images.absent
                pixels = np.frombuffer(
                    b"".join(map(images.encoded, np.flatnonzero(~absent).tolist())), np.uint8
                )
                if pixels.size != np.count_nonzero(~absent) * np.prod(form.shape):
                    raise UsboostError(
                        f"{folder}: images of {part!r} are not of {form.size} pixels a side; prepare again"
                    )
                image_set.pixels[k, place[~absent]] = pixels.reshape(-1, *form.shape)
                image_set.absent[k, place] = absent
                done += len(images)
    without = dict(zip(form.columns, map(int, image_set.absent.sum(axis=1)), strict=True))
    return replace(table, images=image_set.views(), without=without)

"""A dataset in its prepared form: one Parquet file per split, images in shards, and a card about them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import not_
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field, FiniteFloat, ValidationError

from usboost.data.encoding import TableEncoder
from usboost.data.views import View, Views
from usboost.datasets import image_store
from usboost.datasets.image_store import CardPart, Count
from usboost.errors import UsboostError
from usboost.files import replacing
from usboost.files.arrays import sha256

LABEL = "label"
"""The column of class codes 0..M-1 in every split, or of the numbers to predict."""

CLEAN = "clean_label"
"""The column of class codes before any was switched, where labels are; in no view."""

FORMAT = 1
"""Version of the prepared form; a reader refuses another one."""


@dataclass(frozen=True)
class Prepared:
    """A dataset cut into splits and views, not yet encoded.

    Attributes
    ----------
    splits : frames by split name; raw values (float32 numbers, pandas categories) and `LABEL`.
    views : names of the columns of each view.
    classes : class names by code; none where a number is predicted.
    card : what there is to know about the dataset, as JSON (see `describe`). Its entry ``images``, of a
        dataset with images, is one of `image_store.entry`.
    images : folder with a folder of image shards for each split, or None.
    table : the user's table of which it is, a `UserTable`, or None.
    """

    splits: dict[str, pd.DataFrame]
    views: dict[str, list[str]]
    classes: list[str]
    card: dict[str, Any]
    images: Path | None = None
    table: Any = None


class _Split(CardPart):
    rows: Count
    sha256: str


class _Numeric(CardPart):
    name: str
    log: bool
    mean: FiniteFloat
    std: Annotated[FiniteFloat, Field(ge=0)]
    knots: list[FiniteFloat] = Field(default_factory=list, exclude_if=not_)
    places: list[FiniteFloat] = Field(default_factory=list, exclude_if=not_)


class _Categorical(CardPart):
    name: str
    values: list[str | None]


class EncoderCard(CardPart):
    """A `TableEncoder` in a card."""

    numeric: list[_Numeric]
    categorical: list[_Categorical]


class _Named(CardPart):
    view: str


class _Card(CardPart):
    splits: dict[str, _Split]
    views: dict[str, list[str]]
    encoders: dict[str, EncoderCard]
    task: Literal["classification", "regression"] = "classification"
    classes: list[str] = Field(default_factory=list)
    images: _Named | None = None


def describe(
    splits: Mapping[str, pd.DataFrame],
    views: Mapping[str, Sequence[str]],
    classes: Sequence[str],
    *,
    dataset: str,
    profile: str,
    seed: int,
    columns: Mapping[str, Mapping[str, Any]],
    sources: Mapping[str, str],
    **more: Any,
) -> dict[str, Any]:
    """Make the card of a dataset; the encoders in it are fitted on the split called ``train``.

    Returns a dict with ``format, dataset, profile, seed, classes, splits, views, columns, sources, encoders``
    and the entries of ``more``; ``splits`` holds ``rows`` and the ``classes``' counts. Without classes there
    is a ``task``, regression, and ``splits`` say where the ``label``'s numbers lie.

    Parameters
    ----------
    splits, views, classes : as in `Prepared`.
    dataset, profile, seed : what was prepared, "demo", "user" or "paper", and with which seed.
    columns : for each column its ``view`` (or None), ``kind`` and ``why`` it is there.
    sources : SHA-256 of each raw file, by file name.
    """

    def spread(labels: pd.Series) -> dict[str, dict[str, Any]]:
        if classes:
            counts = np.bincount(labels, minlength=len(classes)).tolist()
            return {"classes": dict(zip(classes, counts, strict=True))}
        numbers = {"mean": labels.mean(), "std": labels.std(ddof=0), "min": labels.min(), "max": labels.max()}
        return {"label": {name: float(value) for name, value in numbers.items()}}

    return {
        "format": FORMAT,
        "dataset": dataset,
        "profile": profile,
        "seed": seed,
        **({} if classes else {"task": "regression"}),
        "classes": list(classes),
        "splits": {name: {"rows": len(frame), **spread(frame[LABEL])} for name, frame in splits.items()},
        "views": {view: list(names) for view, names in views.items()},
        "columns": {name: dict(entry) for name, entry in columns.items()},
        "sources": dict(sources),
        "encoders": {view: TableEncoder.fit(splits["train"], own).to_dict() for view, own in views.items()},
        **more,
    }


def task_of(card: Mapping[str, Any]) -> str:
    """Return what is predicted of a prepared dataset: "classification" or "regression"."""
    return str(card.get("task", "classification"))


def is_user_table(card: Mapping[str, Any]) -> bool:
    """Tell a card of a user's table, whose rows are as they were read and have no views yet."""
    return "label_kind" in card


def write(prepared: Prepared, folder: Path, images: Path | None = None) -> None:
    """Write the splits as ``<split>.parquet``, the images as shards and the card as ``card.json``.

    An earlier folder of that name is replaced as a whole, see `usboost.files.replacing`. `images` is a folder
    with a folder of image shards for each split; by default that of ``prepared``. The shards are linked, not
    copied (see `image_store.place`). Raises UsboostError if ``folder`` is a file, the images are not one for
    each row, or there are images where the card describes none or the other way round.
    """
    images, about = images or prepared.images, prepared.card.get("images")
    if (images is None) != (about is None):
        raise UsboostError(
            "the card describes images, but no folder of them was given"
            if images is None
            else f"there are images in {images}, but the card does not describe them"
        )
    with replacing(Path(folder)) as fresh:
        card = {**prepared.card, "splits": {}}
        for split, frame in prepared.splits.items():
            path = fresh / f"{split}.parquet"
            pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path, compression="zstd")
            card["splits"][split] = {**prepared.card["splits"][split], "sha256": sha256(path)}
        if images is not None and about is not None:
            rows = {split: len(frame) for split, frame in prepared.splits.items()}
            card["images"] = image_store.place(images, about, rows, fresh)
        text = json.dumps(card, indent=1, ensure_ascii=False, allow_nan=False)
        (fresh / "card.json").write_text(text + "\n", encoding="utf-8")


def read_card(folder: Path) -> dict[str, Any]:
    """Read the card of a prepared dataset; anyone may have written it.

    Raises UsboostError if there is none, it is not JSON, it is of another format, or it lacks an entry or has
    it in another form; the message names the first entry that is wrong.
    """
    path = Path(folder) / "card.json"
    card = read_json(path, f"{path} is missing; prepare the dataset first", "prepare the dataset")
    if not isinstance(card, dict) or card.get("format") != FORMAT:
        raise UsboostError(f"{path} is not a card of format {FORMAT}; prepare the dataset again")
    if missing := [key for key in ("splits", "views", "encoders") if not isinstance(card.get(key), dict)]:
        raise UsboostError(f"{path} lacks {', '.join(missing)}; prepare the dataset again")
    try:
        _Card.model_validate(card)
    except ValidationError as error:
        raise UsboostError(f"{path}: {first_fault(error)}; prepare the dataset again") from None
    return card


def read_json(path: Path, missing: str, again: str) -> Any:
    """Read a card. Raises UsboostError: `missing` where there is none, else what to do `again`."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise UsboostError(missing) from None
    except OSError as error:
        raise UsboostError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsboostError(f"{path} is not valid JSON ({error}); {again} again") from None


def first_fault(error: ValidationError) -> str:
    """Name the first entry of a card that is wrong, and why."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def read(folder: Path, split: str, *, image_budget: int = image_store.BUDGET) -> tuple[Views, np.ndarray]:
    """Read one split as learners read it; not of a user's table, see `usboost.table.prepared`.

    Returns the views of n samples, the images first (`Images` or `EncodedImages`), each table encoded by its
    encoder in the card, and labels of shape (n,): int64 codes, or float64 numbers. Raises UsboostError as
    `read_frame`, or if the card has no encoder for a view, an image shard is missing, damaged or not the one
    that the card describes, or the rows are those of a user's table. `image_budget`: bytes of pixels up to
    which images are decoded into memory (see `image_store.read_view`).
    """
    folder = Path(folder)
    card = read_card(folder)
    if is_user_table(card):
        raise UsboostError(f"{folder} holds a table as read; what is learnt of its rows makes views of it")
    frame = read_frame(folder, split)
    about = card.get("images")
    views: dict[str, View] = {}
    if about:
        views[about["view"]] = image_store.read_view(folder, about, split, len(frame), budget=image_budget)
    for view in card["views"]:
        if view not in card["encoders"]:
            raise UsboostError(f"{folder / 'card.json'} has no encoder for view {view!r}; prepare again")
        views[view] = TableEncoder.from_dict(card["encoders"][view]).transform(frame)
    return Views(views), labels_of(frame, card, folder / f"{split}.parquet")


def labels_of(frame: pd.DataFrame, card: Mapping[str, Any], path: Path) -> np.ndarray:
    """Return int64 codes of classes that the card names, or float64 numbers.

    Raises UsboostError if the frame of a split, which is read from `path`, holds something else.
    """
    labels = frame[LABEL]
    if task_of(card) == "regression":
        if labels.dtype != np.float64 or not np.isfinite(labels.to_numpy()).all():
            raise UsboostError(f"{path}: {LABEL!r} must be finite numbers; prepare the dataset again")
        return labels.to_numpy()
    if not pd.api.types.is_integer_dtype(labels.dtype) or labels.isna().any():
        raise UsboostError(f"{path}: {LABEL!r} must be codes of classes; prepare the dataset again")
    codes = labels.to_numpy(dtype=np.int64)
    most = len(card["classes"]) if card.get("classes") else None
    if len(codes) and (codes.min() < 0 or (most is not None and codes.max() >= most)):
        raise UsboostError(f"{path}: {LABEL!r} holds codes of no class; prepare the dataset again")
    return codes


def read_frame(folder: Path, split: str) -> pd.DataFrame:
    """Read the raw values of one split, checked against the card: n rows, views' columns and `LABEL`.

    Raises UsboostError if the card or the Parquet file is missing, cut short or changed, has another number
    of rows than the card says, or lacks a column of a view.
    """
    folder, card = Path(folder), read_card(folder)
    if split not in card["splits"]:
        raise UsboostError(f"{folder} has no split {split!r}; its splits are {', '.join(card['splits'])}")
    path, promised = folder / f"{split}.parquet", card["splits"][split]
    try:
        with pq.ParquetFile(path) as file:
            columns, rows = set(file.schema_arrow.names), file.metadata.num_rows
    except FileNotFoundError:
        raise UsboostError(f"{path} is missing; prepare the dataset again") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UsboostError(f"{path} is damaged or truncated ({error}); prepare the dataset again") from error
    if rows != promised["rows"]:
        raise UsboostError(f"{path} has {rows} rows but the card says {promised['rows']}; prepare it again")
    for view, names in card["views"].items():
        if absent := [name for name in names if name not in columns]:
            raise UsboostError(f"{path} lacks column {absent[0]!r} of view {view!r}; prepare it again")
    if LABEL not in columns:
        raise UsboostError(f"{path} lacks the column {LABEL!r}; prepare the dataset again")
    if sha256(path) != promised["sha256"]:
        raise UsboostError(f"{path} is not the file the card describes; prepare the dataset again")
    try:
        return pq.read_table(path).to_pandas()
    # pandas' own notes in the file may hold anything
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsboostError(f"{path} is damaged or truncated ({error}); prepare the dataset again") from error

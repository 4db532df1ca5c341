"""The images of a prepared dataset: Parquet shards of encoded images, taken in and read.

A split's shards ``images/<split>/images-00000.parquet``, ... have the columns ``row`` (int64, counted on
from shard to shard) and ``image`` (PNG or JPEG bytes of one size; null where a row has no image).
`image_encoding` makes them of images, `shapes` draws them. Where rows have several images, the second
ones are in ``images/<split>-2/`` and so on (see `parts`).
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field

from usboost.data.images import EncodedImages, Images
from usboost.errors import UsboostError
from usboost.files.arrays import sha256

FOLDER = "images"
"""The folder of a prepared dataset that holds a folder of shards for each split."""

BUDGET = 4 << 30
"""Bytes of decoded pixels up to which a split's images are held in memory."""

Count = Annotated[int, Field(ge=0)]


class CardPart(BaseModel):
    """A part of a card; what this version does not know of it is left out."""

    model_config = ConfigDict(extra="ignore", strict=True)


class _ShardEntry(CardPart):
    file: Annotated[str, Field(pattern=r"^images-[0-9]+\.parquet$")]
    rows: Count
    absent: Count
    bytes: Count
    sha256: str


class _Shards(CardPart):
    shards: list[_ShardEntry]


class ImageShards(CardPart):
    """The entry ``images``; a shard's name is a name, not a path out of the folder."""

    view: str
    size: Annotated[list[Annotated[int, Field(ge=1, le=65_535)]], Field(min_length=2, max_length=2)]
    channels: Literal[1, 3]
    columns: Annotated[list[str], Field(min_length=1, max_length=100)] | None = None
    splits: dict[str, _Shards]


def entry(size: int, channels: int, *, encoding: str, **more: Any) -> dict[str, Any]:
    """Make the card's entry of images; `store.write` adds the ``splits``.

    Several images a row, in ``columns``, are a view each, of which ``view`` is the first.
    """
    return {"view": "U", "size": [size, size], "channels": channels, "encoding": encoding, **more}


def parts(split: str, about: Mapping[str, Any]) -> list[str]:
    """Name the folders of a split's first, second, ... images, by the card's ``columns``."""
    return [split, *(f"{split}-{k}" for k in range(2, 1 + len(about.get("columns", "-"))))]


def place(images: Path, about: Mapping[str, Any], rows: Mapping[str, int], folder: Path) -> dict[str, Any]:
    """Take shards made elsewhere into a prepared folder, without a second copy of them.

    They are hard links, so that the work folder stays complete should anything fail; they are copies only
    when the work folder is on another file system. `rows` are the number of rows by split. Raises
    UsboostError if a split's shards are missing, damaged, or do not hold one image for each row.

    Returns the card's entry with ``splits``: for each the ``rows``, ``bytes``, ``digest`` (SHA-256 over those
    of its shards) and ``shards`` with ``file, rows, absent, bytes, sha256``, where ``absent`` counts the rows
    without an image. Several images a row are one more of these each, under the names of `parts`.
    """
    splits = {}
    every = {part: n for split, n in rows.items() for part in parts(split, about)}
    for split, n in every.items():
        source, target = Path(images) / split, folder / FOLDER / split
        if not (paths := sorted(source.glob("images-*.parquet"))):
            raise UsboostError(f"{source} holds no images; make them before writing the dataset")
        target.mkdir(parents=True)
        shards: list[dict[str, Any]] = []
        first = 0
        for path in paths:
            count = _checked_rows(path, first)
            try:
                os.link(path, target / path.name)
            except OSError:
                shutil.copyfile(path, target / path.name)
            absent = pq.read_table(path, columns=["image"])["image"].null_count
            size, digest = path.stat().st_size, sha256(path)
            shards.append(
                {"file": path.name, "rows": count, "absent": absent, "bytes": size, "sha256": digest}
            )
            first += count
        if first != n:
            raise UsboostError(f"{source} holds {first} images but split {split!r} has {n} rows")
        splits[split] = {
            "rows": n,
            "bytes": sum(shard["bytes"] for shard in shards),
            "digest": hashlib.sha256("".join(shard["sha256"] for shard in shards).encode()).hexdigest(),
            "shards": shards,
        }
    return {**about, "splits": splits}


def read_view(
    folder: Path, about: Mapping[str, Any], split: str, n: int, *, budget: int = BUDGET
) -> Images | EncodedImages:
    """Read the images of one split as a view of n rows, every shard checked against the card.

    Within a `budget` of bytes the pixels are held in memory. Otherwise the encoded images are, and when these
    exceed it too they are mapped from a temporary file, deleted with the view. `split` may be another name of
    `parts`. Raises UsboostError if a shard is missing, changed, or its rows do not follow the one before.
    """
    shape, shards = _described(folder, about, split, n)
    if n * shape["channels"] * shape["height"] * shape["width"] <= budget:
        pixels = np.empty((n, shape["channels"], shape["height"], shape["width"]), dtype=np.uint8)
        absent = np.zeros(n, dtype=bool)
        first = 0
        for images in pieces(folder, about, split, n):
            rows = slice(first, first + len(images))
            pixels[rows], absent[rows] = images.decode(), False if images.absent is None else images.absent
            first += len(images)
        return Images(pixels, absent=absent if absent.any() else None)
    columns = _columns(shards)
    if sum(shard["bytes"] for _, shard in shards) <= budget:
        chunks = [chunk for column in columns for chunk in column.chunks]
    else:  # in a memory-mapped file without a name: gone when nothing refers to it
        schema = pa.schema([("image", pa.binary())])
        with tempfile.NamedTemporaryFile(suffix=".arrow") as file:
            with pa.OSFile(file.name, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
                for column in columns:
                    writer.write_table(pa.table({"image": column}, schema))
            chunks = pa.ipc.open_file(pa.memory_map(file.name)).read_all()["image"].chunks
    return EncodedImages(pa.chunked_array(chunks, pa.binary()), **shape)


def pieces(folder: Path, about: Mapping[str, Any], split: str, n: int) -> Iterator[EncodedImages]:
    """Read the same images, one shard in memory at a time; parameters and errors as of `read_view`."""
    shape, shards = _described(folder, about, split, n)
    yield from (EncodedImages(column, **shape) for column in _columns(shards))


Shards = list[tuple[Path, Mapping[str, Any]]]


def _described(folder: Path, about: Mapping[str, Any], split: str, n: int) -> tuple[dict[str, Any], Shards]:
    """Return the shape of one split's images, one a row, and the shards that hold them."""
    try:
        height, width = ImageShards.model_validate(about).size
        shape = {"channels": about["channels"], "height": height, "width": width}
        promised = about["splits"][split]["shards"]
        shards = [(folder / FOLDER / split / shard["file"], shard) for shard in promised]
        total = sum(shard["rows"] for shard in promised)
    except (KeyError, TypeError, ValueError) as error:
        raise UsboostError(
            f"{folder / 'card.json'} does not describe the images of {split!r} ({error!r}); prepare again"
        ) from None
    if total != n:
        raise UsboostError(f"{folder} has {total} images but {n} rows in split {split!r}; prepare it again")
    for path, shard in shards:
        if not path.is_file():
            raise UsboostError(f"{path} is missing; prepare the dataset again")
        if path.stat().st_size != shard["bytes"]:
            raise UsboostError(f"{path} is damaged or truncated; prepare the dataset again")
    return shape, shards


def _checked_rows(path: Path, first: int) -> int:
    """Count the rows of a shard that must start at `first`."""
    try:
        rows = pq.read_table(path, columns=["row"])["row"].cast(pa.int64()).to_numpy()
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise UsboostError(f"{path} is damaged or truncated ({error}); make its images again") from error
    if not np.array_equal(rows, np.arange(first, first + len(rows))):
        raise UsboostError(f"{path} does not hold the rows from {first} on, in order; make its images again")
    return len(rows)


def _columns(shards: Sequence[tuple[Path, Mapping[str, Any]]]) -> Iterator[pa.ChunkedArray]:
    """Read the encoded images of each shard, one shard in memory at a time."""
    first = 0
    for path, promised in shards:
        if sha256(path) != promised["sha256"]:
            raise UsboostError(f"{path} is not the file the card describes; prepare the dataset again")
        count = _checked_rows(path, first)
        if count != promised["rows"]:
            raise UsboostError(f"{path} has {count} rows, not {promised['rows']}; prepare the dataset again")
        first += count
        try:
            column = pq.read_table(path, columns=["image"])["image"].cast(pa.binary())
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            raise UsboostError(f"{path} is damaged ({error}); prepare the dataset again") from error
        absent = promised["absent"]
        if column.null_count != absent:
            raise UsboostError(f"{path} lacks {column.null_count} images, not {absent}; prepare it again")
        yield column

"""Images made uniform and written as Parquet shards, in parallel, resumable, in bounded memory."""

import hashlib
import io
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from usboost.data.images import MODES
from usboost.data.progress import Progress, spread
from usboost.datasets.image_files import Source, identity, name_of, read, square
from usboost.errors import UsboostError
from usboost.files import write_atomically

LARGEST_PNG = 64  # images of at most so many pixels a side are PNG, lossless; larger ones JPEG of `QUALITY`

QUALITY = 95

_JOB = 32  # images a worker takes at a time
_PROCESS = 4096  # fewer images than this are not worth starting one more process
_MOST_FAILURES = 20
_ENCODING = 1  # raise when the same image is encoded to other bytes


def encoding(size: int) -> str:
    """Tell the card how images of a size are encoded."""
    return "PNG" if size <= LARGEST_PNG else f"JPEG of quality {QUALITY}"


def encode_files(
    items: Mapping[str, Sequence[Source]],
    folder: Path,
    *,
    size: int,
    channels: int,
    workers: int = 1,
    shard_rows: int = 1024,
    progress: Progress | None = None,
) -> dict[str, list[Path]]:
    """Make the images of each split uniform and write them as shards, see `write_shards`.

    Bytes of a shard depend on its images, `size` and `channels` (and on the version of Pillow), not on
    `workers`. Raises UsboostError if a parameter is wrong, or images cannot be used: it names the first ones.
    Images get the `size` in pixels as `image_files` says, and 1 channel (grey) or 3 (red, green, blue).
    """
    if size < 1 or shard_rows < 1 or workers < 1 or channels not in MODES:
        raise UsboostError(
            f"size {size}, shard_rows {shard_rows} and workers {workers} must be 1 or more, "
            f"and channels 1 or 3, not {channels}"
        )
    return write_shards(
        items,
        folder,
        partial(_encode, size=size, channels=channels),
        lambda first, some: [_ENCODING, size, channels, first, [*map(identity, some)]],
        workers=workers,
        shard_rows=shard_rows,
        progress=progress,
    )


Encoded = list[bytes | str]  # encoded images, and for one that cannot be used, why


def write_shards(
    items: Mapping[str, Sequence[Any]],
    folder: Path,
    encode: Callable[[Any], Encoded],
    made_from: Callable[[int, Sequence[Any]], Any],
    *,
    workers: int = 1,
    shard_rows: int = 1024,
    progress: Progress | None = None,
) -> dict[str, list[Path]]:
    """Make the images of each split and write them as shards; return the paths of each split's.

    A shard gets its name when it is complete and has next to it, as ``images-00000.key``, what it was made
    from: whatever stops the work, calling again makes only the shards that are missing or whose images have
    changed. Other shards of these splits are removed. Raises UsboostError if images cannot be used; shards
    without such images are written all the same.

    `items` are what the images of each split are made of, in the order of the rows; `encode` makes those of a
    job, and is importable by name; `made_from` a shard's first row and items gives all that its bytes depend
    on, as JSON. `folder` gets a folder of shards for each split; nothing else may keep shards there. There is
    at most one worker for every 4096 images, see `progress.spread`; one holds 32 at a time. `progress` is
    called with (images done, images in all), first with those found in the folder.
    """
    shards: dict[str, list[_Shard]] = {}
    for split, of_split in items.items():
        if not of_split:
            raise UsboostError(f"split {split!r} has no images to encode")
        shards[split], clean = [], Path(folder) / split
        for k, first in enumerate(range(0, len(of_split), shard_rows)):
            part = of_split[first : first + shard_rows]
            key = hashlib.sha256(json.dumps(made_from(first, part)).encode()).hexdigest()
            shards[split].append(_Shard(clean / f"images-{k:05d}.parquet", first, part, key))
        if clean.exists() and not clean.is_dir():
            raise UsboostError(f"{clean} is a file, so no images can be written there; name another folder")
        clean.mkdir(parents=True, exist_ok=True)
        current = {path for shard in shards[split] for path in (shard.path, shard.path.with_suffix(".key"))}
        # A killed process leaves files of either name behind: its own, and those of `write_atomically`.
        for path in {*clean.glob("images*"), *clean.glob(".images*.tmp")} - current:
            path.unlink()
    missing = [shard for of_shards in shards.values() for shard in of_shards if not shard.is_complete()]
    total, todo = sum(map(len, items.values())), sum(len(shard.items) for shard in missing)
    done = total - todo
    report = progress or (lambda done, total: None)
    report(done, total)
    failures: list[str] = []
    parts = (shard.items[k : k + _JOB] for shard in missing for k in range(0, len(shard.items), _JOB))
    results = spread(encode, parts, min(workers, -(-todo // _PROCESS)))
    for shard in missing:
        images: Encoded = []
        while len(images) < len(shard.items):
            images += next(results)
            report(done + len(images), total)
        done += len(images)
        failed = [image for image in images if isinstance(image, str)]
        failures += failed
        if len(failures) >= _MOST_FAILURES:
            break
        if not failed:
            shard.write(images)
    if len(failures) == 1:
        raise UsboostError(failures[0])
    if failures:
        count = f"{len(failures)} or more" if len(failures) >= _MOST_FAILURES else len(failures)
        raise UsboostError(f"{count} images cannot be used, the first of them: {'; '.join(failures[:3])}")
    return {split: [shard.path for shard in of_shards] for split, of_shards in shards.items()}


@dataclass(frozen=True)
class _Shard:
    """One file to write; `key` is a digest of all that its bytes depend on."""

    path: Path
    first: int
    items: Sequence[Any]
    key: str

    def is_complete(self) -> bool:
        try:
            written = self.path.with_suffix(".key").read_text(encoding="utf-8")
            return written == self.key and pq.read_metadata(self.path).num_rows == len(self.items)
        except (OSError, ValueError, pa.ArrowException):
            return False

    def write(self, images: Encoded) -> None:
        self.path.with_suffix(".key").unlink(missing_ok=True)
        rows = pa.array(range(self.first, self.first + len(images)), pa.int64())
        table = pa.table({"row": rows, "image": pa.array(images, pa.binary())})
        content = io.BytesIO()
        # Encoded images neither repeat nor compress again.
        pq.write_table(table, content, row_group_size=1024, compression="none", use_dictionary=False)
        write_atomically(self.path, content.getvalue())
        write_atomically(self.path.with_suffix(".key"), self.key.encode())


def _encode(job: Sequence[Source], *, size: int, channels: int) -> Encoded:
    encoded: Encoded = []
    for source in job:
        try:
            image = square(read(source), name_of(source), size=size, channels=channels)
            encoded.append(image_bytes(image, png=size <= LARGEST_PNG))
        except UsboostError as error:
            encoded.append(str(error))
    return encoded


def image_bytes(image: Image.Image, *, png: bool) -> bytes:
    """Encode an image as a PNG file or a JPEG of `QUALITY`.

    Run lengths alone make photographs 4 % larger in two thirds of the time; flat shapes they pack well.
    """
    out = io.BytesIO()
    if png:
        image.save(out, "PNG", compress_level=3, compress_type=zlib.Z_RLE)
    else:
        image.save(out, "JPEG", quality=QUALITY)
    return out.getvalue()

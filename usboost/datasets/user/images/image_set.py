"""The images of n rows, in memory while they are few, else on the disk, and those of a table."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from usboost.data.images import EncodedImages, Images
from usboost.data.pooled_images import PooledImages
from usboost.data.progress import Progress
from usboost.datasets.image_files import Source as Image
from usboost.datasets.user.images.reader import ImageColumns, ImageReader
from usboost.datasets.user.user_table import UserTable
from usboost.errors import UsboostError, option
from usboost.shards.here import here

IN_MEMORY = 256 << 20
"""Bytes of pixels above which they lie in a file."""


def room(shape: tuple[int, ...], what: str) -> np.ndarray:
    """Zeros to be filled: uint8 of that shape.

    Above `IN_MEMORY` bytes they are a memory-mapped file in Python's temporary folder (the environment's
    ``TMPDIR``). It has no name, so that its room is free again as soon as nobody uses the array. Raises
    UsboostError if there is not enough space on the disk. `what`: has the pixels, for messages.
    """
    needed = int(np.prod(shape, dtype=np.int64))
    if needed <= IN_MEMORY:
        return np.zeros(shape, dtype=np.uint8)
    folder = tempfile.gettempdir()
    try:
        free = shutil.disk_usage(folder).free
        if free < needed:
            raise OSError
        with tempfile.TemporaryFile(dir=folder) as file:
            # space is taken now: a write to a page that finds none later would end the process
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, needed)
            return np.memmap(file, np.uint8, "r+", shape=shape)
    except OSError:
        raise UsboostError(
            f"{what}: the images take {needed / 1e9:,.1f} GB on the disk, more than is free in {folder}; "
            f"choose a smaller {option('size')}, or a folder with room by the environment's TMPDIR"
        ) from None


class ImageSet:
    """The images of n rows, read a batch at a time; memory holds them while they are few, see `room`.

    Parameters
    ----------
    form : the columns, and what their images are made.
    n : rows.
    what : has the images, for messages.

    Attributes
    ----------
    absent : bool (columns, n), True where a row has no image.
    """

    def __init__(self, form: ImageColumns, n: int, *, what: object = "the rows") -> None:
        self._form = form
        self._pixels = room((len(form.columns), n, *form.shape), str(what))
        self.absent = np.zeros((len(form.columns), n), dtype=bool)

    def read(self, readers: Sequence[ImageReader], rows: Sequence[int], raw: pa.Table, *, at: int) -> None:
        """Read some rows; errors as `ImageReader.read`.

        Parameters
        ----------
        rows : their positions in the source, rising.
        raw : the columns that the `readers` want of these rows.
        at : the place of the first of them in the set.
        """
        here = slice(at, at + len(rows))
        for k, reader in enumerate(readers):
            cells = raw[reader.column] if reader.needs_cells else None
            self.absent[k, here] = reader.read(rows, cells, self._pixels[k, here])[1]

    def put(self, column: int, rows: np.ndarray, images: EncodedImages) -> None:
        """Take the images of some rows of one column, int64 (k,), from elsewhere."""
        self._pixels[column, rows] = images.decode()
        self.absent[column, rows] = False if images.absent is None else images.absent

    def views(self, rows: slice = slice(None)) -> dict[str, Images | PooledImages]:
        """The images, or those of some rows, as views by name."""
        return self._form.views(
            [
                Images(pixels[rows], absent=absent[rows] if absent[rows].any() else None)
                for pixels, absent in zip(self._pixels, self.absent, strict=True)
            ]
        )


_ROWS = 256  # whose images are read at once


def image_sources(table: UserTable, form: ImageColumns) -> list[list[Image | None]]:
    """Where each row's images are, by column; None where a row has none.

    Raises UsboostError as `ImageReader.sources`, or if a column holds no image at all.
    """
    readers = form.readers(table.file)
    found: list[list[Image | None]] = [[] for _ in readers]
    for rows, raw in _image_batches(table, readers):
        for reader, of_column in zip(readers, found, strict=True):
            of_column += reader.sources(rows, raw[reader.column] if reader.needs_cells else None)
    for reader, of_column in zip(readers, found, strict=True):
        if all(each is None for each in of_column):
            raise reader.none_at_all()
    return found


def read_images(
    table: UserTable, form: ImageColumns, readers: Sequence[ImageReader], progress: Progress | None
) -> ImageSet:
    """The images of all rows.

    Raises UsboostError as `ImageReader.read`, or if a column holds no image at all.
    """
    n, done = len(table), 0
    found = ImageSet(form, n, what=table.file)
    for rows, raw in _image_batches(table, readers):
        found.read(readers, rows, raw, at=done)
        done += len(rows)
        if progress:
            progress(done, n)
    for reader, absent in zip(readers, found.absent, strict=True):
        if not here().sum(np.count_nonzero(~absent)):
            raise reader.none_at_all()
    return found


def _image_batches(table: UserTable, readers: Sequence[ImageReader]) -> Iterator[tuple[list[int], pa.Table]]:
    """The positions of some rows in the file, and the columns that the readers want of them."""
    names = [reader.column for reader in readers if reader.needs_cells]
    n = int(table.rows.max(initial=-1)) + 1
    batches = table.file.batches(names, _ROWS) if names else itertools.repeat(pa.table({}))
    for first, raw in zip(range(0, n, _ROWS), batches, strict=False):
        low, high = np.searchsorted(table.rows, [first, first + _ROWS])
        rows = table.rows[low:high]
        if len(rows):
            yield rows.tolist(), raw.take(rows - first) if names else raw

"""The images of a table's labelled rows, a few rows at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from usboost.data.progress import Progress
from usboost.datasets.files.image_sources import Source as Image
from usboost.datasets.user.images.image_set import ImageSet
from usboost.datasets.user.images.reader import ImageColumns, ImageReader
from usboost.datasets.user.user_table import UserTable

_ROWS = 256  # whose images are read at once


def image_sources(table: UserTable, form: ImageColumns) -> list[list[Image | None]]:
    """Where each row's images are, by column; None where a row has none.

    Raises
    ------
    UsboostError
        As `ImageReader.sources`, or if a column holds no image at all.
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

    Raises
    ------
    UsboostError
        As `ImageReader.read`, or if a column holds no image at all.
    """
    n, done = len(table), 0
    found = ImageSet(form, n, what=table.file)
    for rows, raw in _image_batches(table, readers):
        found.read(readers, rows, raw, at=done)
        done += len(rows)
        if progress:
            progress(done, n)
    for reader, absent in zip(readers, found.absent, strict=True):
        if absent.all():
            raise reader.none_at_all()
    return found


def _image_batches(table: UserTable, readers: Sequence[ImageReader]) -> Iterator[tuple[list[int], pa.Table]]:
    """The positions of some rows in the file, and the columns that the readers want of them."""
    names = [reader.column for reader in readers if reader.needs_cells]
    n = int(table.rows[-1]) + 1
    batches = table.file.batches(names, _ROWS) if names else itertools.repeat(pa.table({}))
    for first, raw in zip(range(0, n, _ROWS), batches, strict=False):
        low, high = np.searchsorted(table.rows, [first, first + _ROWS])
        rows = table.rows[low:high]
        if len(rows):
            yield rows.tolist(), raw.take(rows - first) if names else raw

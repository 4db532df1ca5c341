"""The pictures of a table's labelled rows, a few rows at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from usboost.data.progress import Progress
from usboost.datasets.files.image_sources import Source as Picture
from usboost.datasets.user.images.image_set import PictureSet
from usboost.datasets.user.images.reader import PictureColumns, PictureReader
from usboost.datasets.user.user_table import OwnTable

_ROWS = 256  # whose pictures are read at once


def picture_sources(table: OwnTable, form: PictureColumns) -> list[list[Picture | None]]:
    """Where each row's pictures are, by column; None where a row has none.

    Raises
    ------
    UsboostError
        As `PictureReader.sources`, or if a column holds no picture at all.
    """
    readers = form.readers(table.file)
    found: list[list[Picture | None]] = [[] for _ in readers]
    for rows, raw in _picture_batches(table, readers):
        for reader, of_column in zip(readers, found, strict=True):
            of_column += reader.sources(rows, raw[reader.column] if reader.needs_cells else None)
    for reader, of_column in zip(readers, found, strict=True):
        if all(each is None for each in of_column):
            raise reader.none_at_all()
    return found


def read_pictures(
    table: OwnTable, form: PictureColumns, readers: Sequence[PictureReader], progress: Progress | None
) -> PictureSet:
    """The pictures of all rows.

    Raises
    ------
    UsboostError
        As `PictureReader.read`, or if a column holds no picture at all.
    """
    n, done = len(table), 0
    found = PictureSet(form, n, what=table.file)
    for rows, raw in _picture_batches(table, readers):
        found.read(readers, rows, raw, at=done)
        done += len(rows)
        if progress:
            progress(done, n)
    for reader, absent in zip(readers, found.absent, strict=True):
        if absent.all():
            raise reader.none_at_all()
    return found


def _picture_batches(
    table: OwnTable, readers: Sequence[PictureReader]
) -> Iterator[tuple[list[int], pa.Table]]:
    """The positions of some rows in the file, and the columns that the readers want of them."""
    names = [reader.column for reader in readers if reader.needs_cells]
    n = int(table.rows[-1]) + 1
    batches = table.file.batches(names, _ROWS) if names else itertools.repeat(pa.table({}))
    for first, raw in zip(range(0, n, _ROWS), batches, strict=False):
        low, high = np.searchsorted(table.rows, [first, first + _ROWS])
        rows = table.rows[low:high]
        if len(rows):
            yield rows.tolist(), raw.take(rows - first) if names else raw

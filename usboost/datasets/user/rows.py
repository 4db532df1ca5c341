"""Raw rows as the views that a fitted model knows: a batch at a time, of a table or a DataFrame."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pyarrow as pa

from usboost.data.table import Table
from usboost.data.views import View, Views
from usboost.datasets.user.columns.column import Column, Format, Kind
from usboost.datasets.user.columns.encoding import Encoding
from usboost.datasets.user.images.image_set import ImageSet
from usboost.datasets.user.images.reader import ImageColumns
from usboost.datasets.user.images.values import Paths
from usboost.datasets.user.reading.source import Source, require

BATCH = 4096
"""Rows at a time."""

PIXELS = 1 << 28
"""Bytes of decoded images above which a batch of rows is cut smaller."""


@dataclass(frozen=True)
class Rows:
    """A batch of n rows.

    Attributes
    ----------
    first : the position of the first; raw : the raw columns; views : as the model reads them.
    absent : bool (image columns, n), True where a row has no image.
    unreadable : how many of these could not be read.
    paths : of images, of this batch and all before it, by column.
    """

    first: int
    raw: pa.Table
    views: Views
    absent: np.ndarray
    unreadable: int = 0
    paths: tuple[Paths, ...] = ()


@dataclass(frozen=True)
class RowReader:
    """Reads the columns that a model was fitted to.

    Attributes
    ----------
    kinds : of the columns that hold numbers, categories or dates.
    encoding : of these, as learnt.
    images : the columns of images, if there are any.
    formats : how numbers and dates that are text are written, by column.
    missing : further values that count as missing.
    """

    kinds: Mapping[str, Kind]
    encoding: Encoding
    images: ImageColumns | None = None
    formats: Mapping[str, Format] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    @property
    def needed(self) -> list[str]:
        """The columns that rows must have."""
        return [*self.kinds, *(self.images.columns if self.images else ())]

    def batch(self, most: int = BATCH) -> int:
        """How many rows are read at a time: `most`, or as many as have `PIXELS` bytes of images."""
        if self.images is None:
            return most
        return min(most, max(1, PIXELS // (math.prod(self.images.shape) * len(self.images.columns))))

    def frame(self, source: Source, raw: pa.Table, first: int) -> pd.DataFrame:
        """The columns of some rows as `Column.feature` gives them.

        Parameters
        ----------
        raw : the columns as they were read; first : the position of the first row.
        """
        columns = {
            name: Column(source, name, raw[name], first, self.missing).feature(kind, self.formats.get(name))
            for name, kind in self.kinds.items()
        }
        return pd.DataFrame(columns, index=pd.RangeIndex(raw.num_rows))

    def read(
        self,
        source: Source,
        *,
        batch: int = BATCH,
        skip_unreadable: bool = False,
        more: Collection[str] = (),
        into: ImageSet | None = None,
    ) -> Iterator[Rows]:
        """The rows as the model reads them, a batch at a time.

        Raises UsboostError if a column is missing or there twice, or a value or image cannot be read.

        Parameters
        ----------
        batch : rows at a time; fewer where their images would take more than `PIXELS` bytes.
        skip_unreadable : count images that cannot be read as missing, instead of refusing them.
        more : further columns wanted.
        into : gets the images of all rows; by default each batch has room of its own.
        """
        require(source, [*self.needed, *more])
        form = self.images
        readers = [] if form is None else form.readers(source, skip_unreadable=skip_unreadable)
        batch = self.batch(batch)
        names = [*self.kinds, *more, *(reader.column for reader in readers if reader.needs_cells)]
        paths = tuple(reader.paths for reader in readers)
        first = unreadable = 0
        for raw in source.batches(names, batch):
            n = raw.num_rows
            frame = self.frame(source, raw, first)
            images, absent = None, np.zeros((0, n), dtype=bool)
            if form is not None:
                made = ImageSet(form, n) if into is None else into
                own = slice(0, n) if into is None else slice(first, first + n)
                made.read(readers, range(first, first + n), raw, at=own.start)
                images, absent = made.views(own), made.absent[:, own]
            before, unreadable = unreadable, sum(reader.unreadable for reader in readers)
            views = self.encoding.views(frame, images)
            yield Rows(first, raw, views, absent, unreadable - before, paths)
            first += n


def joined(parts: Sequence[Views], images: Mapping[str, View] | None = None) -> Views:
    """The rows of all parts, read by the same reader, one after another.

    `images`: of all the rows; the other views of the parts are tables.
    """
    made: dict[int, Table] = {}  # what is one view of a part under two names stays one
    out: dict[str, View] = {**(images or {})}
    for name in parts[0].names:
        if name in out:
            continue
        tables = [part[name] for part in parts]
        if (key := id(tables[0])) not in made:
            made[key] = Table(
                np.concatenate([table.numeric for table in tables]),
                np.concatenate([table.codes for table in tables]),
                tables[0].cardinalities,
                tables[0].names,
            )
        out[name] = made[key]
    return Views(out)

"""Raw rows as the views that a fitted model knows: a batch at a time, of a table or a DataFrame."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from usboost.data.images import Images
from usboost.data.table import Table
from usboost.data.views import Views
from usboost.datasets.custom.columns import Column, Kind
from usboost.datasets.custom.encoding import Encoding
from usboost.datasets.custom.pictures import PictureReader
from usboost.datasets.custom.source import Source, require

PIXELS = 1 << 28
"""Bytes of decoded pictures above which a batch of rows is cut smaller."""


@dataclass(frozen=True)
class PictureColumn:
    """The column of pictures, and what they are made: height and width in pixels, 1 or 3 channels."""

    column: str
    size: int
    channels: int


@dataclass(frozen=True)
class Rows:
    """A batch: its first row's position, the raw columns, which rows are read, and the views of those."""

    first: int
    raw: pa.Table
    present: np.ndarray
    views: Views


@dataclass(frozen=True)
class RowReader:
    """Reads the columns that a model was fitted to.

    Attributes
    ----------
    kinds : of the columns that hold numbers or categories.
    encoding : of these, as learnt.
    pictures : the column of pictures, if there is one.
    """

    kinds: Mapping[str, Kind]
    encoding: Encoding
    pictures: PictureColumn | None = None

    @property
    def needed(self) -> list[str]:
        """The columns that rows must have."""
        return [*self.kinds, *([self.pictures.column] if self.pictures else [])]

    def read(
        self, source: Source, *, batch: int = 4096, skip_missing: bool = False, more: Collection[str] = ()
    ) -> Iterator[Rows]:
        """The rows as the model reads them, a batch at a time.

        Parameters
        ----------
        batch : rows at a time; fewer where their pictures would take more than `PIXELS` bytes.
        skip_missing : take rows without a picture out of the views, instead of refusing them.
        more : further columns wanted.

        Raises
        ------
        UsboostError
            If a column is missing or there twice, or a value or picture cannot be read.
        """
        require(source, [*self.needed, *more])
        reader, names = None, [*self.kinds, *more]
        if (about := self.pictures) is not None:
            reader = PictureReader(
                source, about.column, size=about.size, channels=about.channels, skip_missing=skip_missing
            )
            batch = min(batch, max(1, PIXELS // reader.row_bytes))
            if reader.needs_cells:
                names.append(about.column)
        first = 0
        for raw in source.batches(names, batch):
            columns = {
                name: Column(source, name, raw[name], first).feature(kind)
                for name, kind in self.kinds.items()
            }
            frame = pd.DataFrame(columns, index=pd.RangeIndex(raw.num_rows))
            present, pictures = np.ones(raw.num_rows, dtype=bool), None
            if reader is not None and about is not None:
                cells = raw[about.column] if reader.needs_cells else None
                pixels, present = reader.read(first, raw.num_rows, cells)
                pictures = Images(pixels if present.all() else pixels[present])
            frame = frame if present.all() else frame[present].reset_index(drop=True)
            yield Rows(first, raw, present, self.encoding.views(frame, pictures))
            first += raw.num_rows


def joined(parts: Sequence[Views]) -> Views:
    """The rows of all parts, read by the same reader, one after another."""
    if len(parts) == 1:
        return parts[0]
    made: dict[int, Any] = {}  # what is one view of a part under two names stays one
    out = {}
    for name in parts[0].names:
        views = [part[name] for part in parts]
        if (key := id(views[0])) not in made:
            made[key] = _one_view(views)
        out[name] = made[key]
    return Views(out)


def _one_view(views: list[Any]) -> Any:
    if isinstance(views[0], Images):
        return Images(np.concatenate([view.pixels for view in views]))
    return Table(
        np.concatenate([view.numeric for view in views]),
        np.concatenate([view.codes for view in views]),
        views[0].cardinalities,
        views[0].names,
    )

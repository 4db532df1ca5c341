"""Raw rows as the views that a fitted model knows: a batch at a time, of a table or a DataFrame."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pyarrow as pa

from usboost.data.table import Table
from usboost.data.views import View, Views
from usboost.errors import UsboostError
from usboost.table.columns.column import Column, Format, Kind
from usboost.table.columns.encoding import Encoding
from usboost.table.images import ImageColumns, ImageSet
from usboost.table.notes import SEVERAL, Gaps, Tally
from usboost.table.source import Source, require

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
    """

    first: int
    raw: pa.Table
    views: Views
    absent: np.ndarray


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
    gaps : the share of the training rows without a value, by column; trained : how many these were.
    """

    kinds: Mapping[str, Kind]
    encoding: Encoding
    images: ImageColumns | None = None
    formats: Mapping[str, Format] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    gaps: Mapping[str, float] = field(default_factory=dict)
    trained: int = 0

    @property
    def needed(self) -> list[str]:
        """Return the columns that rows must have."""
        return [*self.kinds, *(self.images.columns if self.images else ())]

    def batch(self, most: int = BATCH) -> int:
        """Return how many rows are read at a time: `most`, or as many as have `PIXELS` bytes of images."""
        if self.images is None:
            return most
        return min(most, max(1, PIXELS // (math.prod(self.images.shape) * len(self.images.columns))))

    def read(
        self,
        source: Source,
        *,
        batch: int = BATCH,
        strict: bool = False,
        tally: Tally | None = None,
        more: Collection[str] = (),
        into: ImageSet | None = None,
    ) -> Iterator[Rows]:
        """Read the rows as the model does, a batch at a time.

        A number, date or image that cannot be read counts as missing. Raises UsboostError if a column is
        missing or there twice, or, after all rows, if no value of a column is of its kind.

        Parameters
        ----------
        batch : rows at a time; fewer where their images would take more than `PIXELS` bytes.
        strict : refuse what cannot be read, and columns that lack far more than in training.
        tally : counts what was found; more : further columns wanted.
        into : gets the images of all rows; by default each batch has room of its own.
        """
        require(source, [*self.needed, *more])
        form, tally = self.images, tally or Tally()
        readers = [] if form is None else form.readers(source, "never" if strict else "all")
        batch = self.batch(batch)
        names = [*self.kinds, *more, *(reader.column for reader in readers if reader.needs_cells)]
        tally.paths = tuple(reader.paths for reader in readers)
        tally.misfits.update({reader.column: reader.misfits for reader in readers})
        tally.without = {reader.column: 0 for reader in readers}
        tally.gaps = {name: Gaps(name, share, self.trained) for name, share in self.gaps.items()}
        first, formats, tally.notes = 0, dict(self.formats), source.notes
        for raw in source.batches(names, batch):
            n = raw.num_rows
            frame = self._read_columns(source, raw, first, formats, tally, strict)
            images, absent = None, np.zeros((0, n), dtype=bool)
            if form is not None:
                made = ImageSet(form, n) if into is None else into
                place = slice(0, n) if into is None else slice(first, first + n)
                made.read(readers, range(first, first + n), raw, at=place.start)
                images, absent = made.views(place), made.absent[:, place]
            views = self.encoding.views(frame, images)
            _count_unseen(source, frame, views, first, tally)
            for name, value, count in _fill_values(frame, views):
                said = f"{count:,} of {n:,} rows have {value:g}, far from the fit's; empty what is missing"
                if strict:
                    raise UsboostError(f"{source}: column {name!r}: {said}")
                tally.of(name, "numbers").otherwise = said
            for each, missing in zip(tally.without, absent.sum(axis=1), strict=True):
                tally.without[each] += int(missing)
            first += n
            tally.rows = first
            for reader in readers:
                if (gap := tally.gaps.get(reader.column)) is not None:
                    reported = reader.misfits.count + reader.paths.lost
                    gap.rows, gap.count = first, tally.without[reader.column] - reported
            yield Rows(first - n, raw, views, absent)
        for misfits in tally.misfits.values():
            misfits.check()
        if strict and (lost := [each for each in tally.gaps.values() if each.far_more]):
            raise UsboostError(f"{source}: {lost[0]}; correct it, or leave `strict` out")

    def _read_columns(
        self,
        source: Source,
        raw: pa.Table,
        first: int,
        formats: dict[str, Format],
        tally: Tally,
        strict: bool,
    ) -> pd.DataFrame:
        """Read a batch's columns, of which the first batch decides how numbers are written."""
        columns: dict[str, pd.Series] = {}
        for name, kind in self.kinds.items():
            column = Column(source, name, raw[name], first, self.missing)
            misfits = None if strict else tally.of_kind(name, kind)
            said = column.differs(formats.get(name))
            if not first:
                usual = self.encoding.imputation[name]["value"] if kind == "number" else None
                here, other = column.format_here(kind, formats.pop(name, None), usual)
                formats |= {} if here is None else {name: here}
                said = "; ".join(filter(None, (other, said)))
            if said:
                if misfits is None:
                    raise UsboostError(f"{source}: column {name!r}: {said}; write them as for the fit")
                misfits.otherwise = said
            unread = 0 if misfits is None else misfits.count
            columns[name] = column.feature(kind, formats.get(name), misfits)
            if name in tally.gaps:
                unread = 0 if misfits is None else misfits.count - unread
                tally.gaps[name].rows += raw.num_rows
                tally.gaps[name].count += int(columns[name].isna().sum()) - unread
            if kind == "date" and not first and "hour" in self.encoding.dates[name].parts:
                days = columns[name].dropna()
                if len(days) >= SEVERAL and (days == days.dt.normalize()).all() and misfits is not None:
                    misfits.otherwise = misfits.otherwise or "no row has a time of the day, unlike the fit's"
        return pd.DataFrame(columns, index=pd.RangeIndex(raw.num_rows))


def _count_unseen(source: Source, frame: pd.DataFrame, views: Views, first: int, tally: Tally) -> None:
    """Count a batch's categories that training did not have."""
    known: dict[str, np.ndarray] = {}  # a column may be in several views
    for table in (view for name in views.names if isinstance(view := views[name], Table)):
        known.update(zip(table.names[table.numeric.shape[1] :], table.codes.T > 0, strict=True))
    for name, seen in known.items():
        present, of_column = frame[name].notna().to_numpy(), tally.of(name, "categories")
        unseen, row, value = present & ~seen, "", None
        if unseen.any() and not of_column.count:
            k = int(unseen.argmax())
            row, value = source.row(first + k).removeprefix(f"{source}, "), frame[name].iloc[k]
        of_column.add(present, unseen, row=row, value=value)


FAR, OFTEN = 10.0, 0.05
"""Standard deviations from the training rows' mean, and share of rows, from which on one number stands for a
missing one."""


def _fill_values(frame: pd.DataFrame, views: Views) -> Iterator[tuple[str, float, int]]:
    """Yield columns of a batch where many rows have one number that is far from the fit's; it; how many."""
    table = next(view for name in views.names if isinstance(view := views[name], Table))
    far, least = np.abs(table.numeric) > FAR, max(SEVERAL, OFTEN * len(frame))
    for j in np.flatnonzero(far.sum(axis=0) >= least):
        if (name := table.names[j]) in frame and frame[name].dtype.kind == "f":
            values, counts = np.unique(frame[name].to_numpy()[far[:, j]], return_counts=True)
            if counts.max() >= least:
                yield name, float(values[counts.argmax()]), int(counts.max())


def joined(parts: Sequence[Views], images: Mapping[str, View] | None = None) -> Views:
    """Join the rows of all parts, read by the same reader, one after another.

    `images`: of all the rows; the other views of the parts are tables.
    """
    made: dict[int, Table] = {}  # what is one view of a part under two names stays one
    out: dict[str, View] = {**(images or {})}
    for name in (each for each in parts[0].names if each not in out):
        tables = [part[name] for part in parts]
        if (key := id(tables[0])) not in made:
            numeric = np.concatenate([table.numeric for table in tables])
            codes = np.concatenate([table.codes for table in tables])
            made[key] = Table(numeric, codes, tables[0].cardinalities, tables[0].names)
        out[name] = made[key]
    return Views(out)

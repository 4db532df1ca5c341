"""The images of a table's rows, decoded a batch at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
from PIL import Image

from usboost.data.images import Images
from usboost.data.pooled_images import PooledImages
from usboost.datasets.image_files import Aspect, Cursor, ParquetRow, load, read, thumbnail
from usboost.datasets.user.columns.column import Column
from usboost.datasets.user.columns.types import is_text, plain_type
from usboost.datasets.user.images.values import ImageValues
from usboost.datasets.user.misfits import Misfits
from usboost.datasets.user.reading.source import Source, TableFile
from usboost.datasets.user.table_spec import TableSpec
from usboost.errors import UsboostError, option

VIEW = "U"
"""The view of the images; of several columns each has its own, ``U:<column>``, unless they are pooled."""

Skip = Literal["never", "none", "images", "all"]
"""What counts as missing: nothing; nothing, but it may be asked for; images that cannot be read; or also
values that are no path, bytes or base64."""

_BLOCK = 64  # images whose files are in memory at once
_ROWS = 32  # whose bytes are


@dataclass(frozen=True)
class ImageColumns:
    """The columns of images, and what these are made.

    Attributes
    ----------
    columns : of paths or bytes, one or more.
    size, channels : height and width in pixels; 1 (grey) or 3 (red, green, blue).
    aspect : what becomes of images that are not square.
    pooled : whether several columns are one view.
    """

    columns: tuple[str, ...]
    size: int
    channels: int
    aspect: Aspect = "crop"
    pooled: bool = False

    @classmethod
    def of(cls, spec: TableSpec) -> ImageColumns:
        """Those of a table."""
        return cls(spec.image, spec.size, 1 if spec.grey else 3, spec.aspect, spec.pool_images)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of one image's pixels."""
        return self.channels, self.size, self.size

    @property
    def names(self) -> list[str]:
        """The views that the images are."""
        one = self.pooled or len(self.columns) == 1
        return [VIEW] if one else [f"{VIEW}:{column}" for column in self.columns]

    def views(self, images: Sequence[Images]) -> dict[str, Images | PooledImages]:
        """The columns' images as views by name."""
        if self.pooled and len(images) > 1:
            return {VIEW: PooledImages(images)}
        return dict(zip(self.names, images, strict=True))

    def readers(self, source: Source, skip: Skip = "none") -> list[ImageReader]:
        """One for each column."""
        return [ImageReader(source, column, self, skip) for column in self.columns]


class ImageReader:
    """Reads the images of rows: files named by a column of paths, or a column of bytes.

    Parameters
    ----------
    source : of the rows. Paths are relative to its folder, which they may not leave; the text of rows that
        are in memory is base64.
    column : of paths or, but for text, of bytes, or of both, as records ``{bytes, path}``.
    form : what the images are made.
    skip : what counts as missing, instead of being refused.

    Attributes
    ----------
    misfits : images that counted as missing since they could not be read.
    paths : those that were read.
    """

    def __init__(self, source: Source, column: str, form: ImageColumns, skip: Skip = "none") -> None:
        self._source, self.column, self._form, self._skip = source, column, form, skip
        self.misfits = Misfits(column, "images")
        self._images = ImageValues(source, column)
        self.paths = self._images.paths
        self._values: Cursor | None = None
        if isinstance(source, TableFile) and not is_text(plain_type(source.type_of(column))):
            self._values = Cursor(source, self._pass)

    @property
    def needs_cells(self) -> bool:
        """Whether `read` wants the column's values; bytes in a file are read there, a few at a time."""
        return self._values is None

    def read(
        self, rows: Sequence[int], cells: pa.ChunkedArray | None, out: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The images of the rows of some positions, which rise.

        A row has no image where the column is empty or its path leads to no file. Raises UsboostError, naming
        the row and file, if its path leads out of the table's folder, or its image cannot be read, unless
        it is skipped.

        Parameters
        ----------
        cells : the rows' values of the column, if it `needs_cells`.
        out : zeros to be filled, uint8 of shape (n, channels, size, size); new ones by default.

        Returns
        -------
        pixels : uint8 array of shape (n, channels, size, size); zeros where there is none.
        absent : bool array of shape (n,), True where there is none.
        """
        form = self._form
        pixels = np.zeros((len(rows), *form.shape), dtype=np.uint8) if out is None else out
        absent = np.zeros(len(rows), dtype=bool)
        values = self._at(rows, cells)

        def fill(k: int, image: Path | bytes | UsboostError | None) -> UsboostError | None:
            """What is wrong with the image, if there is one and it cannot be read."""
            absent[k] = image is None or isinstance(image, UsboostError)
            if image is None or isinstance(image, UsboostError):
                return image
            name = self._name(rows[k], image)
            try:
                pixels[k] = load(image, name, size=form.size, channels=form.channels, aspect=form.aspect)
            except UsboostError as error:
                if self._skip in ("never", "none"):
                    raise self._with_advice(error) from None
                absent[k] = True
                return error
            return None

        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            for start in range(0, len(rows), _BLOCK):
                block = range(start, min(start + _BLOCK, len(rows)))
                images = [self._image(rows[k], next(values)) for k in block]
                self._count(images, list(pool.map(fill, block, images)))
        return pixels, absent

    def _image(self, row: int, value: object) -> Path | bytes | UsboostError | None:
        """The file or bytes of a row, None where there is none, or what is wrong with the value."""
        try:
            return self._images.of(row, value)
        except UsboostError as error:
            if self._skip == "all":
                return error
            raise

    def _count(
        self, images: Sequence[Path | bytes | UsboostError | None], errors: Sequence[UsboostError | None]
    ) -> None:
        """Count the images of some rows; of those that were there, what was wrong."""
        found = self.misfits
        found.given += sum(each is not None for each in images)
        found.count += sum(each is not None for each in errors)
        found.wrong += sum(isinstance(each, UsboostError) for each in images)
        found.error = found.error or next((str(each) for each in errors if each is not None), "")

    def _with_advice(self, error: UsboostError) -> UsboostError:
        if self._skip == "never" or self._source.folder is None:
            return error
        return UsboostError(f"{error}; {option('skip_unreadable')} counts such images as missing")

    def thumbnail(
        self, row: int, cells: pa.ChunkedArray | None, most: int
    ) -> tuple[Image.Image, tuple[int, int]] | None:
        """The image of one row as it was brought, of any proportions; None where there is none.

        Raises UsboostError as `read`, whether or not unreadable images are skipped.

        Parameters
        ----------
        row : its position; rising ones read a Parquet file in one pass.
        cells : the row's value of the column, if it `needs_cells`.
        most : pixels of the longer side, to which a larger one is scaled.

        Returns
        -------
        The image, and the width and height that it has in its file.
        """
        image = self._images.of(row, next(self._at([row], cells)))
        if image is None:
            return None
        name = self._name(row, image)
        return thumbnail(read(image, name), name, most)

    def _name(self, row: int, image: Path | bytes) -> str:
        """What a row's image is called in messages."""
        part = f"{image.name!r}" if isinstance(image, Path) else f"column {self.column!r}"
        return f"{self._source}, row {self._source.number(row)}, {part}"

    def sources(
        self, rows: Sequence[int], cells: pa.ChunkedArray | None
    ) -> list[Path | bytes | ParquetRow | None]:
        """Where the images of some rows are, None where there is none; parameters as of `read`.

        Raises UsboostError, naming the row, if its path leads out of the table's folder.
        """
        found: list[Path | bytes | ParquetRow | None] = []
        for row, value in zip(rows, self._at(rows, cells), strict=True):
            image = self._images.of(row, value)
            found.append(self._place(row, value) or image)
        return found

    def none_at_all(self) -> UsboostError:
        """What to say of a column whose rows all have no image."""
        why = f"no file {self.paths.first}, say" if self.paths.first else "every row is empty"
        return UsboostError(
            f"{self._source}: column {self.column!r} holds no image at all: {why}; correct it"
        )

    def _place(self, row: int, value: object) -> ParquetRow | None:
        """Where a row's bytes are in a Parquet file, in which they stay."""
        held = value.get("bytes") if isinstance(value, Mapping) else value
        if not (isinstance(held, bytes) and held and isinstance(self._source, TableFile)):
            return None
        place = self._source.content.place(row)
        return None if place is None else ParquetRow(place[0], self.column, place[1])

    def _pass(self) -> Iterator[list[object]]:
        for batch in self._source.batches([self.column], _ROWS):
            yield batch[self.column].to_pylist()

    def _at(self, rows: Sequence[int], cells: pa.ChunkedArray | None) -> Iterator[object]:
        """The rows' values."""
        if self._values is not None:
            return map(self._values, rows)
        values = [] if cells is None else Column(self._source, self.column, cells).plain().tolist()
        return iter(values)

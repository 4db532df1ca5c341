"""The pictures of a table's rows, decoded a batch at a time."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa

from usboost.datasets.custom.columns import Column, is_binary, is_text, plain_type
from usboost.datasets.custom.source import Source, TableFile
from usboost.datasets.files.image_sources import ParquetReader, inside, is_contained, read, square
from usboost.datasets.prepared.image_store import BUDGET
from usboost.errors import UsboostError

_BLOCK = 64  # pictures whose files are in memory at once
_REMEDY = "add it, or leave such rows out with --skip-missing"


class PictureReader:
    """Reads the pictures of rows: files named by a column of paths, or a column of bytes.

    Parameters
    ----------
    source : of the rows. A file's paths are relative to its folder, which they may not leave; the text
        of rows that are in memory is base64.
    column : of paths or, but for a CSV, of bytes.
    size : height and width of the pictures in pixels.
    channels : 1 (grey) or 3 (red, green, blue).
    skip_missing : whether a row without a picture is reported, not refused.

    Raises
    ------
    UsboostError
        If the column holds neither.
    """

    def __init__(
        self, source: Source, column: str, *, size: int, channels: int, skip_missing: bool = False
    ) -> None:
        check_type(source, column)
        self._source, self._column = source, column
        self._size, self._channels, self._skip = size, channels, skip_missing
        self._bytes: ParquetReader | None = None
        if isinstance(source, TableFile) and is_binary(plain_type(source.type_of(column))):
            self._bytes = ParquetReader(source.path, column)

    @property
    def needs_cells(self) -> bool:
        """Whether `read` wants the column's values; bytes in a Parquet file are read there."""
        return self._bytes is None

    @property
    def row_bytes(self) -> int:
        """Bytes of one picture's pixels."""
        return self._channels * self._size**2

    def read(self, first: int, count: int, cells: pa.ChunkedArray | None) -> tuple[np.ndarray, np.ndarray]:
        """The pictures of `count` rows from the position `first` on.

        Parameters
        ----------
        cells : the rows' values of the column, if it `needs_cells`.

        Returns
        -------
        pixels : uint8 array of shape (count, channels, size, size); zeros where there is none.
        present : bool array of shape (count,).

        Raises
        ------
        UsboostError
            Naming the row, if its picture is missing (unless these are skipped), leads out of the
            table's folder, or cannot be read.
        """
        pixels = np.zeros((count, self._channels, self._size, self._size), dtype=np.uint8)
        present = np.ones(count, dtype=bool)
        values: Sequence[object] | None = None
        if cells is not None:
            values = Column(self._source, self._column, cells).plain().tolist()

        def fill(k: int, picture: Path | bytes | None) -> None:
            if picture is None:
                present[k] = False
                return
            name = f"{self._source}, row {first + k + 1}, " + (
                f"{picture.name!r}" if isinstance(picture, Path) else f"column {self._column!r}"
            )
            image = np.asarray(square(read(picture, name), name, size=self._size, channels=self._channels))
            pixels[k] = image[None] if self._channels == 1 else image.transpose(2, 0, 1)

        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            for start in range(0, count, _BLOCK):
                block = range(start, min(start + _BLOCK, count))
                pictures = [self._picture(first + k, None if values is None else values[k]) for k in block]
                for _ in pool.map(fill, block, pictures):
                    pass
        return pixels, present

    def _picture(self, row: int, value: object) -> Path | bytes | None:
        """The file or bytes of a row; None where there is none and that may be."""
        where = f"{self._source}, row {row + 1}"
        if self._bytes is not None:
            value = self._bytes(row)
        if isinstance(value, str) and value and (folder := self._source.folder) is not None:
            # what is not there may be skipped; a path out of the folder may not
            if not is_contained(value) or os.path.lexists(folder / value):
                return inside(folder, value, where)
            if not self._skip:
                raise UsboostError(f"{where}: picture not found: {folder / value}; {_REMEDY}")
            return None
        if isinstance(value, str) and value:
            try:
                return base64.b64decode("".join(value.split()), validate=True)
            except binascii.Error as error:
                raise UsboostError(f"{where}: column {self._column!r} is not base64: {error}") from None
        if isinstance(value, bytes) and value:
            return value
        if self._skip:
            return None
        raise UsboostError(f"{where}: column {self._column!r} holds no picture; {_REMEDY}")


def check_type(source: Source, column: str) -> None:
    """Refuse a column that cannot hold pictures.

    Raises
    ------
    UsboostError
        If it holds neither text nor bytes.
    """
    kind = plain_type(source.type_of(column))
    if not (is_binary(kind) or is_text(kind)):
        raise UsboostError(f"{source}: the image column {column!r} must hold paths or bytes, not {kind}")


def check_memory(source: Source, n: int, row_bytes: int) -> None:
    """Refuse pictures that would take more memory than `image_store.BUDGET` when decoded."""
    if n * row_bytes > BUDGET:
        raise UsboostError(
            f"{source}: {n:,} pictures of this size take {n * row_bytes / 1e9:,.0f} GB of memory; choose a "
            "smaller --size, or prepare the table by params.yaml, which reads pictures from disk"
        )

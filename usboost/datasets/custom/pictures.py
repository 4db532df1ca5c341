"""The pictures of a table's rows, decoded a batch at a time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa

from usboost.datasets.custom.table import is_binary, is_csv, is_text, kind_of, plain_column
from usboost.datasets.files.image_sources import ParquetReader, inside, is_contained, read, square
from usboost.errors import UsboostError

_BLOCK = 64  # pictures whose files are in memory at once
_REMEDY = "add it, or leave such rows out with --skip-missing"


class PictureReader:
    """Reads the pictures of a table's rows: files named by a column of paths, or a column of bytes.

    Parameters
    ----------
    table : path of the table; paths are relative to its folder, which they may not leave.
    column : of paths or, in Parquet, of bytes.
    kind : the column's type.
    size : height and width of the pictures in pixels.
    channels : 1 (grey) or 3 (red, green, blue).
    skip_missing : whether a row without a picture is told of, not refused.

    Raises
    ------
    UsboostError
        If the column holds neither.
    """

    def __init__(
        self, table: Path, column: str, kind: pa.DataType, *, size: int, channels: int, skip_missing: bool
    ) -> None:
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        self.in_table = is_binary(kind)
        if not (self.in_table or is_text(kind)):
            raise UsboostError(f"{table}: the image column {column!r} must hold paths or bytes, not {kind}")
        self._table, self._column = table, column
        self._size, self._channels, self._skip = size, channels, skip_missing
        self._bytes = ParquetReader(table, column) if self.in_table else None

    @property
    def row_bytes(self) -> int:
        """Bytes of one picture's pixels."""
        return self._channels * self._size**2

    def read(self, first: int, count: int, cells: pa.ChunkedArray | None) -> tuple[np.ndarray, np.ndarray]:
        """The pictures of `count` rows from the position `first` on.

        Parameters
        ----------
        cells : the rows' paths; None when the pictures are in the table.

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
        paths = None if cells is None else self._paths(cells)

        def fill(k: int, source: Path | bytes | None) -> None:
            if source is None:
                present[k] = False
                return
            name = f"{self._table}, row {first + k + 1}, " + (
                f"{source.name!r}" if isinstance(source, Path) else f"column {self._column!r}"
            )
            image = np.asarray(square(read(source, name), name, size=self._size, channels=self._channels))
            pixels[k] = image[None] if self._channels == 1 else image.transpose(2, 0, 1)

        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            for start in range(0, count, _BLOCK):
                block = range(start, min(start + _BLOCK, count))
                sources = [self._source(first + k, None if paths is None else paths[k]) for k in block]
                for _ in pool.map(fill, block, sources):
                    pass
        return pixels, present

    def _paths(self, cells: pa.ChunkedArray) -> Sequence[str | None]:
        if not is_text(kind_of(cells)):
            raise UsboostError(f"{self._table}: the image column {self._column!r} must hold paths")
        values = plain_column(cells, is_csv(self._table))
        return [value if isinstance(value, str) and value else None for value in values]

    def _source(self, row: int, path: str | None) -> Path | bytes | None:
        where = f"{self._table}, row {row + 1}"
        if self._bytes is not None:
            data = self._bytes(row)
            if data or self._skip:
                return data or None
        elif path is not None:
            file = self._table.parent / path
            # what is not there may be skipped; a path out of the folder may not
            if not is_contained(path) or os.path.lexists(file):
                return inside(self._table.parent, path, where)
            if not self._skip:
                raise UsboostError(f"{where}: there is no picture {file}; {_REMEDY}")
        if self._skip:
            return None
        raise UsboostError(f"{where}: column {self._column!r} holds no picture; {_REMEDY}")

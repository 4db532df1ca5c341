"""The images of a table's rows: read a batch at a time, in memory while they are few, else on the disk."""

import base64
import itertools
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Literal

import numpy as np
import pandas as pd
import pyarrow as pa
from PIL import Image

from usboost.data.images import Images
from usboost.data.progress import Progress
from usboost.data.value import shown
from usboost.datasets.image_files import Aspect, Cursor, inside, is_contained, load, read, thumbnail
from usboost.errors import UsboostError
from usboost.files.arrays import zeros_on_disk
from usboost.shards.collective import world
from usboost.table.columns.column import MARKS, MISSING, Column, is_binary, is_text, plain_type
from usboost.table.notes import Misfits, Paths
from usboost.table.source import Source, TableFile
from usboost.table.spec import LARGE, TableSpec

VIEW = "U"
"""The view of the images; of several columns each has its own, ``U:<column>``."""

Skip = Literal["never", "none", "images", "all"]
"""Values that count as missing: none; none, but it may be asked for; images that cannot be read; or also
values that are no path, bytes or base64."""

IN_MEMORY = 256 << 20
"""Bytes of pixels above which they lie in a file."""

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_DATA = re.compile(r"data:[^,]*;base64,", re.IGNORECASE)  # as pages and JSON hold images
NAMES = "looks like names of images; `image` reads these"
"""The words for a column of which `are_names_of_images` is true."""

NO_IMAGE = {*MISSING, *MARKS}
"""Texts in place of a path that stand for no image, if no file is called so."""

_NAME = re.compile(r"(?i).*\.(jpe?g|png|gif|bmp|tiff?|webp)")
_LOOKED_AT = 100  # values
_BLOCK = 64  # images whose files are in memory at once
_CELLS = 32  # rows whose bytes are
_ROWS = 256  # rows whose images are read at once


@dataclass(frozen=True)
class ImageColumns:
    """The columns of images, and what these are made.

    Attributes
    ----------
    columns : of paths or bytes, one or more.
    size, channels : height and width in pixels; 1 (grey) or 3 (red, green, blue).
    aspect : what becomes of images that are not square.
    """

    columns: tuple[str, ...]
    size: int
    channels: int
    aspect: Aspect = "crop"

    @classmethod
    def of(cls, spec: TableSpec) -> "ImageColumns":
        """Return those of a table."""
        size = LARGE if spec.size == "auto" else spec.size
        return cls(spec.image, size, 1 if spec.grey else 3, spec.aspect)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return the shape of one image's pixels."""
        return self.channels, self.size, self.size

    @property
    def names(self) -> list[str]:
        """Return the names of the images' views."""
        return [VIEW] if len(self.columns) == 1 else [f"{VIEW}:{column}" for column in self.columns]

    def readers(self, source: Source, skip: Skip = "none") -> "list[ImageReader]":
        """Return a reader for each column."""
        return [ImageReader(source, column, self, skip) for column in self.columns]


class ImageReader:
    """Reads the images of rows: files named by a column of paths, or a column of bytes.

    Paths are relative to the source's folder, which they may not leave; the text of rows in memory is base64.
    A column holds paths or, but for text, bytes, or both, as records ``{bytes, path}``.

    Attributes
    ----------
    misfits : images that counted as missing since they could not be read; paths : those that were read.
    needs_cells : whether `read` wants the column's values; bytes in a file are read there, a few at a time.
    """

    def __init__(self, source: Source, column: str, form: ImageColumns, skip: Skip = "none") -> None:
        self._source, self.column, self._form, self._skip = source, column, form, skip
        self.misfits = Misfits(column, "images")
        self.paths = Paths(column)
        self._values: Cursor | None = None
        if isinstance(source, TableFile) and not is_text(plain_type(source.type_of(column))):
            batches = partial(source.batches, [column], _CELLS)
            self._values = Cursor(source, lambda: (batch[column].to_pylist() for batch in batches()))
        self.needs_cells = self._values is None

    def read(self, rows: Sequence[int], cells: pa.ChunkedArray | None, out: np.ndarray) -> np.ndarray:
        """Read the images of rows at rising positions; return where there is none, bool of shape (n,).

        A row has no image where the column is empty or its path leads to no file. Raises UsboostError, naming
        the row and file, if its path leads out of the table's folder, or its image cannot be read, unless it
        is skipped. `cells`: the rows' values of the column, if it `needs_cells`. `out`: gets the pixels,
        uint8 of shape (n, channels, size, size); zeros stay where there is none.
        """
        form, misfits = self._form, self.misfits
        absent = np.zeros(len(rows), dtype=bool)
        values = self._at(rows, cells)

        def fill(k: int, image: Path | bytes | UsboostError | None) -> UsboostError | None:
            """Decode an image; return the error of one that cannot be read."""
            absent[k] = image is None or isinstance(image, UsboostError)
            if image is None or isinstance(image, UsboostError):
                return image
            name = self._name(rows[k], image)
            try:
                out[k] = load(image, name, size=form.size, channels=form.channels, aspect=form.aspect)
            except UsboostError as error:
                if self._skip == "none" and self._source.folder is not None:
                    advice = "`skip_unreadable` counts such images as missing"
                    raise UsboostError(f"{error}; {advice}") from None
                if self._skip in ("never", "none"):
                    raise
                absent[k] = True
                return error
            return None

        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            for start in range(0, len(rows), _BLOCK):
                block = range(start, min(start + _BLOCK, len(rows)))
                images: list[Path | bytes | UsboostError | None] = []
                for k in block:
                    value = next(values)
                    try:
                        images.append(self._value(rows[k], value))
                    except UsboostError as error:
                        if self._skip != "all":
                            raise
                        images.append(error)
                errors = list(pool.map(fill, block, images))
                misfits.given += sum(each is not None for each in images)
                misfits.count += sum(each is not None for each in errors)
                misfits.wrong += sum(isinstance(each, UsboostError) for each in images)
                misfits.error = misfits.error or next((str(each) for each in errors if each is not None), "")
        return absent

    def thumbnail(
        self, row: int, cells: pa.ChunkedArray | None, most: int
    ) -> tuple[Image.Image, tuple[int, int]] | None:
        """Read the image of one row as it was given, with its width and height in the file; None without one.

        Rising rows read a Parquet file in one pass. An image of more than `most` pixels on its longer side is
        scaled. Raises UsboostError as `read`, whether or not unreadable images are skipped.
        """
        if (image := self._value(row, next(self._at([row], cells)))) is None:
            return None
        name = self._name(row, image)
        return thumbnail(read(image, name), name, most)

    def _value(self, row: int, value: object) -> Path | bytes | None:
        """Return the file or bytes of a row; None where there is none.

        Raises UsboostError if it has an address, a path out of the folder, no base64 where that is needed, or
        is of a type that holds no images.
        """
        if isinstance(value, Mapping):
            value = value.get("bytes") or value.get("path")
        if isinstance(value, bytes):
            return value or None
        is_nan = isinstance(value, float) and math.isnan(value)
        if value is None or value is pd.NA or value is pd.NaT or is_nan:
            return None
        if not isinstance(value, str):
            raise no_images(self._source, self.column)
        folder, data = self._source.folder, _DATA.match(value)
        if not value or (value in NO_IMAGE and not (folder and (folder / value).is_file())):
            return None
        where, given = f"{self._source}, row {self._source.number(row)}", shown(value)
        if data or (folder is None and not _ADDRESS.match(value)):
            text = value[data.end() :] if data else value
            try:
                return base64.b64decode("".join(text.split()), validate=True)
            except ValueError:  # binascii.Error, and letters beyond ASCII
                none = " (give base64, or the folder in which paths begin, `images_root`)"
                raise UsboostError(
                    f"{where}: column {self.column!r} is not base64: {given}{none * (folder is None)}"
                ) from None
        if folder is None or _ADDRESS.match(value):
            raise UsboostError(f"{where}: column {self.column!r} is an address, {given}; download images")
        root = self._source.images_root
        # an absolute path may be within the folder where that was named
        for start in (folder, folder.absolute(), folder.resolve()) if root is not None else ():
            if Path(value).is_relative_to(start) and Path(value) != start:
                value = str(Path(value).relative_to(start))
                break
        if root is None and (PurePosixPath(value).is_absolute() or PureWindowsPath(value).is_absolute()):
            raise UsboostError(
                f"{where}: column {self.column!r} holds an absolute path, {given}; name the folder that the "
                f"images are in with `images_root`"
            )
        if "\\" in value and _is_missing(folder / value):
            value = PureWindowsPath(value).as_posix()
        # what is not there is missing; a path out of the folder is a mistake all the same
        self.paths.given += 1
        if is_contained(value) and _is_missing(folder / value):
            self.paths.lost += 1
            self.paths.first = self.paths.first or folder / value
            return None
        return inside(folder, value, where)

    def _name(self, row: int, image: Path | bytes) -> str:
        """Return the name of a row's image in messages."""
        part = f"{image.name!r}" if isinstance(image, Path) else f"column {self.column!r}"
        return f"{self._source}, row {self._source.number(row)}, {part}"

    def _at(self, rows: Sequence[int], cells: pa.ChunkedArray | None) -> Iterator[object]:
        """Return the rows' values."""
        if self._values is not None:
            return map(self._values, rows)
        values = [] if cells is None else Column(self._source, self.column, cells).plain().tolist()
        return iter(values)


def files_of_images(file: Path, spec: TableSpec) -> Iterator[Path]:
    """Yield the files that a table names as images, as far as they are there."""
    table = TableFile.open(file, spec.images_root)
    for column in [each for each in spec.image if each in table.names]:  # one without is refused elsewhere
        for batch in table.batches([column], 4096):
            for value in batch[column].to_pylist():
                path = value.get("path") if isinstance(value, dict) else value
                with suppress(OSError, ValueError):  # no path
                    spelt = (path, PureWindowsPath(path).as_posix()) if isinstance(path, str) else ()
                    yield from [table.folder / each for each in spelt if (table.folder / each).is_file()][:1]


def check_type(source: Source, column: str) -> None:
    """Refuse a column that cannot hold images.

    Raises UsboostError if it holds anything but text, bytes, records of ``bytes`` or ``path``, and nothing.
    """
    kind = plain_type(source.type_of(column))
    fields = {field.name: field.type for field in kind} if pa.types.is_struct(kind) else {}
    holds = fields.get("bytes", pa.null())
    is_record = bool({"bytes", "path"} & set(fields)) and (is_binary(holds) or pa.types.is_null(holds))
    if not (is_binary(kind) or is_text(kind) or pa.types.is_null(kind) or is_record):
        raise no_images(source, column)


def no_images(source: Source, column: str) -> UsboostError:
    """Return the refusal of a column of another type."""
    kind = plain_type(source.type_of(column))
    return UsboostError(f"{source}: the image column {column!r} must hold paths or bytes, not {kind}")


def are_names_of_images(values: pd.Series) -> bool:
    """Return whether all of the first 100 values of a column that is none of images are names of images.

    `values`: strings or categories of strings, NaN or None where missing.
    """
    present = values.dropna().head(_LOOKED_AT)
    return len(present) > 0 and all(bool(_NAME.fullmatch(str(each).strip())) for each in present)


def _is_missing(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):  # the last of a NUL in it
        return True
    except OSError:  # no permission, say: told by what opens it
        return False
    return False


def room(shape: tuple[int, ...], what: object) -> np.ndarray:
    """Make uint8 zeros, above `IN_MEMORY` bytes in a file without a name, gone when nobody uses the array."""
    if (needed := math.prod(shape)) <= IN_MEMORY:
        return np.zeros(shape, dtype=np.uint8)
    try:
        return zeros_on_disk(shape, np.uint8)
    except UsboostError as error:
        taken = f"the images take {needed / 1e9:,.1f} GB on the disk"
        raise UsboostError(f"{what}: {taken}; choose a smaller `size`: {error}") from None


class ImageSet:
    """The images of n rows, read a batch at a time; memory holds them while they are few.

    Above `IN_MEMORY` bytes they are a file in Python's temporary folder (the environment's ``TMPDIR``).
    Raises UsboostError, naming `what` has the images, if there is not enough space on the disk.

    Attributes
    ----------
    pixels : uint8 (columns, n, channels, size, size).
    absent : bool (columns, n), True where a row has no image.
    """

    def __init__(self, form: ImageColumns, n: int, *, what: object = "the rows") -> None:
        self._form = form
        self.pixels = room((len(form.columns), n, *form.shape), what)
        self.absent = np.zeros((len(form.columns), n), dtype=bool)

    def read(self, readers: Sequence[ImageReader], rows: Sequence[int], raw: pa.Table, *, at: int) -> None:
        """Read some rows; errors as `ImageReader.read`. `rows`: their positions in the source, rising; `raw`:
        the columns that the `readers` want of them; `at`: the place of the first of them in the set."""
        place = slice(at, at + len(rows))
        for k, reader in enumerate(readers):
            cells = raw[reader.column] if reader.needs_cells else None
            self.absent[k, place] = reader.read(rows, cells, self.pixels[k, place])

    def views(self, rows: slice = slice(None)) -> dict[str, Images]:
        """Return the images, or those of some rows, as views by name."""
        pairs = zip(self.pixels[:, rows], self.absent[:, rows], strict=True)
        images = (Images(each, absent=no if no.any() else None) for each, no in pairs)
        return dict(zip(self._form.names, images, strict=True))


def read_images(
    source: Source,
    positions: np.ndarray,
    form: ImageColumns,
    readers: Sequence[ImageReader],
    progress: Progress | None = None,
) -> ImageSet:
    """Read the images of some rows: `positions` in the source, rising, int64 (n,).

    Raises UsboostError as `ImageReader.read`, or if a column holds no image at all. `progress`: called with
    (rows done, n).
    """
    done, images = 0, ImageSet(form, len(positions), what=source)
    names = [reader.column for reader in readers if reader.needs_cells]
    last = int(positions.max(initial=-1)) + 1
    batches = source.batches(names, _ROWS) if names else itertools.repeat(pa.table({}))
    for first, raw in zip(range(0, last, _ROWS), batches, strict=False):
        low, high = np.searchsorted(positions, [first, first + _ROWS])
        if low == high:
            continue
        rows = positions[low:high]
        images.read(readers, rows.tolist(), raw.take(rows - first) if names else raw, at=done)
        done += len(rows)
        if progress:
            progress(done, len(positions))
    for reader, absent in zip(readers, images.absent, strict=True):
        if not world().sum(np.count_nonzero(~absent)):
            why = f"no file {reader.paths.first}, say" if reader.paths.first else "every row is empty"
            raise UsboostError(f"{source}: column {reader.column!r} holds no image at all: {why}; correct it")
    return images

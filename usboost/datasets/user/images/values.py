"""What stands in a column of images: paths, which may lead to no file, bytes, records of both, base64."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath

import pandas as pd
import pyarrow as pa

from usboost.datasets.image_files import inside, is_contained
from usboost.datasets.user.columns.types import is_binary, is_text, plain_type
from usboost.datasets.user.reading.source import Source
from usboost.errors import UsboostError, option
from usboost.shards.here import here


@dataclass
class Paths:
    """The paths read so far of a column.

    Attributes
    ----------
    given : how many; lost : how many of them led to no file; first : of these.
    """

    column: str
    given: int = 0
    lost: int = 0
    first: Path | None = None

    def add(self, path: Path, *, is_there: bool) -> None:
        """Count one."""
        self.given += 1
        if not is_there:
            self.lost += 1
            self.first = self.first or path

    def of_all_shards(self) -> Paths:
        """Those of all shards' rows, where a shard's were read."""
        every = here().listed([self.given, self.lost, self.first and str(self.first)])
        given, lost, firsts = zip(*every, strict=True)
        first = next(filter(None, firsts), None)
        return Paths(self.column, sum(given), sum(lost), None if first is None else Path(first))

    def __str__(self) -> str:
        what = "path of images leads" if self.lost == 1 else "paths of images lead"
        return f"{self.lost:,} {what} to no file in column {self.column!r}, {self.first} first"


def check_paths(source: Source, found: Iterable[Paths]) -> None:
    """Refuse rows of which no path of a column leads to a file: their folder is another.

    Raises UsboostError, naming the first path.
    """
    for paths in found:
        if paths.given and paths.lost == paths.given:
            raise UsboostError(
                f"{source}: no path in column {paths.column!r} leads to a file: no {paths.first}, say; "
                f"correct them, name the images' folder ({option('images_root')}), or leave the column "
                "empty"
            )


_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_DATA = re.compile(r"data:[^,]*;base64,", re.IGNORECASE)  # as pages and JSON hold images
NAMES = "looks like names of images"
"""What to say of a column of which `are_names_of_images` is true."""

_NAME = re.compile(r"(?i).*\.(jpe?g|png|gif|bmp|tiff?|webp)")
_LOOKED_AT = 100  # values
_SHOWN = 60  # characters of a value in a message


def check_type(source: Source, column: str) -> None:
    """Refuse a column that cannot hold images.

    Raises UsboostError if it holds anything but text, bytes, records of ``bytes`` or ``path``, and nothing.
    """
    if not holds_images(plain_type(source.type_of(column))):
        raise no_images(source, column)


def holds_images(kind: pa.DataType) -> bool:
    """Whether values of a type may be images, or there are none."""
    fields = {field.name: field.type for field in kind} if pa.types.is_struct(kind) else {}
    holds = fields.get("bytes", pa.null())
    is_record = bool({"bytes", "path"} & set(fields)) and (is_binary(holds) or pa.types.is_null(holds))
    return is_binary(kind) or is_text(kind) or pa.types.is_null(kind) or is_record


def no_images(source: Source, column: str) -> UsboostError:
    """What to say of a column of another type."""
    kind = plain_type(source.type_of(column))
    return UsboostError(f"{source}: the image column {column!r} must hold paths or bytes, not {kind}")


def are_names_of_images(values: pd.Series) -> bool:
    """Whether a column that was not called one of images has their names: of the first 100 values, all.

    `values`: strings or categories of strings, NaN or None where missing.
    """
    present = values.dropna().head(_LOOKED_AT)
    return len(present) > 0 and all(bool(_NAME.fullmatch(str(each).strip())) for each in present)


class ImageValues:
    """The values of a column as files or bytes.

    Parameters
    ----------
    source : of the rows. Paths are relative to its folder, which they may not leave; without one text is
        base64.
    column : of images.

    Attributes
    ----------
    paths : those that were read.
    """

    def __init__(self, source: Source, column: str) -> None:
        self._source, self._column = source, column
        self.paths = Paths(column)

    def of(self, row: int, value: object) -> Path | bytes | None:
        """The file or bytes of a row; None where there is none.

        Raises UsboostError, naming the row, if it has an address, a path out of the folder, or no base64
        where that is needed; or if it is of a type that holds no images.
        """
        if isinstance(value, Mapping):
            value = value.get("bytes") or value.get("path")
        if isinstance(value, bytes):
            return value or None
        if value is None or value is pd.NA or value is pd.NaT or _is_nan(value):
            return None
        if not isinstance(value, str):
            raise no_images(self._source, self._column)
        if not value:
            return None
        where = f"{self._source}, row {self._source.number(row)}"
        if data := _DATA.match(value):
            return self._decoded(value[data.end() :], where)
        if _ADDRESS.match(value):
            raise UsboostError(
                f"{where}: column {self._column!r} holds an address, {_short(value)}; download the images "
                "first and give their paths"
            )
        folder = self._source.folder
        return self._decoded(value, where) if folder is None else self._file(value, folder, where)

    def _decoded(self, text: str, where: str) -> bytes:
        try:
            return base64.b64decode("".join(text.split()), validate=True)
        except ValueError:  # binascii.Error, and letters beyond ASCII
            none = f" (paths need the folder in which they begin, {option('images_root')})"
            raise UsboostError(
                f"{where}: column {self._column!r} is not base64: {_short(text)}"
                f"{none if self._source.folder is None else ''}"
            ) from None

    def _file(self, value: str, folder: Path, where: str) -> Path | None:
        value = self._relative(value, folder)
        if _is_absolute(value) and self._source.images_root is None:
            raise UsboostError(
                f"{where}: column {self._column!r} holds an absolute path, {_short(value)}; name the folder "
                f"that the images are in with {option('images_root')}"
            )
        if "\\" in value and _is_missing(folder / value):
            value = PureWindowsPath(value).as_posix()
        # what is not there is missing; a path out of the folder is a mistake all the same
        is_there = not (is_contained(value) and _is_missing(folder / value))
        self.paths.add(folder / value, is_there=is_there)
        return inside(folder, value, where) if is_there else None

    def _relative(self, value: str, folder: Path) -> str:
        """A path as one from the folder; an absolute one may be within it where its root was named."""
        root = self._source.images_root
        if root is None:
            return value
        for start in (folder, folder.absolute(), folder.resolve()):
            if Path(value).is_relative_to(start) and Path(value) != start:
                return str(Path(value).relative_to(start))
        return value


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _is_absolute(value: str) -> bool:
    return PurePosixPath(value).is_absolute() or PureWindowsPath(value).is_absolute()


def _is_missing(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):  # the last of a NUL in it
        return True
    except OSError:  # no permission, say: told by what opens it
        return False
    return False


def _short(value: str) -> str:
    return repr(value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…")

"""The source of raw rows: a table on disk, of any size, or a DataFrame."""

import datetime
import io
import os
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from PIL import Image

from usboost.data.value import canonical, composed
from usboost.datasets.image_files import uniform
from usboost.errors import UsboostError, choices
from usboost.table import files
from usboost.table.content import FAULTS, Content, damaged, even

INDEX_COLUMN = re.compile(r"__index_level_\d+__")
"""Columns that pandas writes for itself."""


class Source(ABC):
    """Raw rows; `str` gives what they are called in messages."""

    as_text: bool = False
    """True if all values are strings, as in a CSV."""
    decimal: str = "."
    """The mark of decimals in numbers that are text, "." or ",", where a column leaves it open."""
    decimal_known: bool = False
    """True if the rows show that mark."""
    images_root: Path | None = None
    """The folder that paths of images may be absolute in, if one was named."""
    notes: Sequence[str] = ()
    """Decisions when it was opened, for a user to read."""
    names: list[str]
    """The columns, in their order."""

    @property
    def folder(self) -> Path | None:
        """Return the folder where paths of images begin; None where rows may name no files."""
        return self.images_root

    def answer_to(self, wanted: Collection[str]) -> None:
        """Call columns as they are asked for, where the names differ in Unicode's form alone."""
        for name in (each for each in wanted if each not in self.names):
            alike = [k for k, own in enumerate(self.names) if composed(own) == composed(name)]
            if len(alike) == 1:
                self.names[alike[0]] = name

    @abstractmethod
    def type_of(self, name: str) -> pa.DataType:
        """Return the type of a column that is there."""

    def number(self, position: int) -> int:
        """Return the number of a row in all of the table, from 1."""
        return position + 1

    def row(self, position: int) -> str:
        """Return the name of a row in messages."""
        return f"{self}, row {self.number(position)}"

    @property
    @abstractmethod
    def n_rows(self) -> int | None:
        """Return the number of rows; None where it is unknown before they are read, as in a CSV."""

    @property
    @abstractmethod
    def declared(self) -> Collection[str]:
        """Return the columns that are categories by their type."""

    def digest(self) -> str:
        """Return the hexadecimal SHA-256 of what is on disk, "" where nothing is."""
        return ""

    @abstractmethod
    def batches(self, names: Collection[str], size: int) -> Iterator[pa.Table]:
        """Read some columns, `size` rows at a time; the last batch may have fewer.

        Raises UsboostError if a file is damaged, or a column holds what Arrow cannot, as several types, say.
        """


@dataclass(frozen=True)
class TableFile(Source):
    """A table on disk: a file of a kind in `files.READERS`, or a folder or pattern of Parquet files.

    Attributes
    ----------
    path : the file, folder or pattern, such as ``rows/*.parquet``.
    content : what it holds.
    images_root : the folder that paths of images are relative to and may not leave; by default the
        table's, of a folder of files this folder itself.
    """

    path: Path
    content: Content
    images_root: Path | None = None

    def __post_init__(self) -> None:
        for name in ("as_text", "decimal", "decimal_known", "notes"):
            object.__setattr__(self, name, getattr(self.content, name))
        object.__setattr__(self, "names", list(self.content.schema.names))

    @classmethod
    def open(cls, path: Path, images_root: Path | None = None) -> "TableFile":
        """Find out the columns.

        Raises UsboostError if the file is missing, damaged or of another kind, or the root of the images is
        no folder.
        """
        path = Path(path)
        if images_root is not None and not Path(images_root).is_dir():
            raise UsboostError(f"the folder of the images, {images_root}, does not exist")
        return cls(path, files.open_content(path), None if images_root is None else Path(images_root))

    def __str__(self) -> str:
        return str(self.path)

    @property
    def folder(self) -> Path:
        return files.base_of(self.path) if self.images_root is None else self.images_root

    def type_of(self, name: str) -> pa.DataType:
        return self.content.schema.field(self.names.index(name)).type

    @property
    def n_rows(self) -> int | None:
        try:
            return self.content.n_rows
        except FAULTS as error:
            raise damaged(self.path, error) from None

    @property
    def declared(self) -> Collection[str]:
        """Return columns that were categories in pandas; Parquet itself keeps that for strings only."""
        try:
            columns = (self.content.schema.pandas_metadata or {}).get("columns", [])
            return [column["name"] for column in columns if column.get("pandas_type") == "categorical"]
        # ignore damaged pandas metadata
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return []

    def digest(self) -> str:
        return files.digest(self.path)

    def row(self, position: int) -> str:
        line = self.content.line(position)
        return super().row(position) + ("" if line is None else f" (line {line})")

    def pieces(self, names: list[str], most: int) -> Iterator[pa.Table]:
        """Read as of `Content`."""
        return self.content.pieces(names, most)

    def batches(self, names: Collection[str], size: int) -> Iterator[pa.Table]:
        names, own = list(dict.fromkeys(names)), dict(zip(self.names, self.content.schema.names, strict=True))
        try:
            for each in even(self.pieces([own[name] for name in names], size), size):
                yield each.rename_columns(names)
        except UsboostError:
            raise
        except FAULTS as error:
            raise damaged(self.path, error) from None


class FrameRows(Source):
    """The rows of a DataFrame.

    Parameters
    ----------
    folder : where the paths of images begin; without one images are bytes or, since JSON has no bytes,
        base64, never paths.
    mixed : whether a column may hold text among numbers or dates; it is text then.
    """

    def __init__(self, frame: pd.DataFrame, folder: Path | None = None, *, mixed: bool = False) -> None:
        self._frame, self.images_root, self._mixed = frame, folder, mixed
        self.names = [str(name) for name in frame.columns]
        self._files: dict[str, pa.Array] = {}  # of images that were given as such
        # of names that are there twice the first; `require` refuses them
        self._places = {name: place for place, name in reversed(list(enumerate(self.names)))}

    def __str__(self) -> str:
        return "the input"

    @property
    def n_rows(self) -> int:
        return len(self._frame)

    @property
    def declared(self) -> Collection[str]:
        types = zip(self.names, self._frame.dtypes, strict=True)
        return [name for name, kind in types if isinstance(kind, pd.CategoricalDtype)]

    def type_of(self, name: str) -> pa.DataType:
        return self._column(name).type

    def batches(self, names: Collection[str], size: int) -> Iterator[pa.Table]:
        table = pa.table({name: self._column(name) for name in names})
        for first in range(0, len(self._frame), size):
            yield table.slice(first, size)

    def _column(self, name: str) -> pa.Array | pa.ChunkedArray:
        if name in self._files:
            return self._files[name]
        values = self._frame.iloc[:, self._places[name] if name in self._places else self.names.index(name)]
        if isinstance(values.dtype, np.dtype) and values.dtype.kind in "iuf":  # Arrow has no others
            kind = np.dtype(np.float64) if values.dtype.itemsize > 8 else values.dtype.newbyteorder("=")
            values = values.astype(kind)
        elif values.dtype == object and any(map(_is_image, values)):
            self._files[name] = pa.array([self._file_of(name, each) for each in values], pa.binary())
            return self._files[name]
        try:
            # paths and intervals become their text, and periods their first day
            if isinstance(values.dtype, pd.CategoricalDtype):
                kind = values.dtype.categories.dtype
                if isinstance(kind, (pd.IntervalDtype, pd.PeriodDtype)):
                    values = values.cat.rename_categories(str)
            elif isinstance(values.dtype, pd.IntervalDtype):
                values = values.astype(object)
            elif isinstance(values.dtype, pd.PeriodDtype):
                values = values.dt.to_timestamp()
            try:
                return pa.array(values, from_pandas=True)
            except pa.ArrowException:
                if self._mixed and all(isinstance(each, _SCALARS) for each in values.dropna()):
                    return pa.array(values.map(canonical, na_action="ignore"), pa.string(), from_pandas=True)
                if not any(isinstance(each, (os.PathLike, pd.Interval)) for each in values):
                    raise
                named = [os.fspath(each) if isinstance(each, os.PathLike) else each for each in values]
                named = [str(each) if isinstance(each, pd.Interval) else each for each in named]
                return pa.array(named, from_pandas=True)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            if isinstance(values.dtype, pd.SparseDtype):
                why = "is sparse; make it dense, values.sparse.to_dense() say"
            elif values.dtype.kind == "c":
                why = "is complex; give real and imaginary part as two columns, or drop it"
            else:
                kinds = list(dict.fromkeys(type(each).__name__ for each in values.dropna()))
                several = f"several types, {', '.join(kinds[:5])}"
                why = (
                    "holds whole numbers of more than 64 bits; turn it into float or text"
                    if kinds == ["int"]
                    else f"holds values of {several if len(kinds) > 1 else f'type {kinds[0]}'}; turn it into "
                    "numbers or text, or drop it"
                )
            raise UsboostError(f"{self}: column {name!r} {why}") from error

    def _file_of(self, name: str, value: Any) -> bytes | None:
        """Return an image in memory as a PNG's bytes; bytes are themselves, and what is missing is None."""
        if not _is_image(value):
            if isinstance(value, bytes) or pd.isna(value):
                return value if isinstance(value, bytes) else None
            raise UsboostError(f"{self}: column {name!r} holds images beside a {type(value).__name__}")
        if isinstance(value, np.ndarray):
            if value.dtype != np.uint8 or value.shape[2:] not in ((), (1,), (3,), (4,)):
                raise UsboostError(
                    f"{self}: column {name!r} holds an array of {value.dtype} of the shape {value.shape}; as "
                    "images give uint8 of (height, width) or (height, width, 3)"
                )
            value = Image.fromarray(value[:, :, 0] if value.shape[2:] == (1,) else value)
        file, is_plain = io.BytesIO(), value.mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
        try:
            plain = value if is_plain else uniform(value, value, f"{self}, column {name!r}")
            plain.save(file, "PNG", compress_level=1, exif=value.getexif())
        except OSError:  # cut short; who reads the images decides
            return b"damaged"
        return file.getvalue()


def _is_image(value: Any) -> bool:
    return isinstance(value, Image.Image) or (isinstance(value, np.ndarray) and value.ndim in (2, 3))


_SCALARS = (str, bool, Real, Decimal, datetime.date, datetime.time)


def require(source: Source, needed: Collection[str]) -> None:
    """Refuse rows that lack a column, or have it twice. Raises UsboostError, naming the columns."""
    source.answer_to(needed)
    if not (names := Counter(source.names)):
        raise UsboostError(f"{source} is empty")
    if absent := [name for name in needed if name not in names]:
        quoted = f"column{'s' * (len(absent) > 1)} {', '.join(map(repr, absent))}"
        raise UsboostError(
            f"{source} lacks {quoted}, required by the model or asked for; "
            f"{choices(absent[0], list(names), 'its columns are')}"
        )
    if twice := [name for name in needed if names[name] > 1]:
        raise UsboostError(f"{source} has two columns called {twice[0]!r}; rename one")

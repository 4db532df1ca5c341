"""A person's table in memory, and how its rows become the views that models read."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from usboost.data.encoding import TableEncoder
from usboost.data.images import Images
from usboost.data.table import Table
from usboost.data.views import View, Views
from usboost.datasets.custom.pictures import PictureReader
from usboost.datasets.custom.prepare import FEWEST, SUFFIX, complete, imputation_of
from usboost.datasets.custom.rows import Kind, batches
from usboost.datasets.custom.table import read_table, schema_of
from usboost.datasets.prepared.image_store import BUDGET
from usboost.errors import UsboostError

Progress = Callable[[int, int], None]
"""Called with (done, in all)."""

_PICTURES = 4096  # rows whose paths are read at once


@dataclass(frozen=True)
class OwnTable:
    """The labelled rows of a table.

    Attributes
    ----------
    path : the file.
    features : n rows; float64 numbers (NaN is missing) and pandas categories of strings.
    labels : int64 codes of shape (n,); classes : their names.
    pictures : the rows' pictures, or None.
    label, image : the columns with these roles; dropped : those left out.
    skipped : how many rows of the file had no picture and are not among the n.
    """

    path: Path
    features: pd.DataFrame
    labels: np.ndarray
    classes: list[str]
    pictures: Images | None
    label: str
    image: str | None
    dropped: tuple[str, ...]
    skipped: int = 0

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def kinds(self) -> dict[str, Kind]:
        """What each column holds."""
        return {
            str(name): "number" if isinstance(self.features[name].dtype, np.dtype) else "category"
            for name in self.features
        }

    def views(self, encoding: Encoding, rows: np.ndarray) -> Views:
        """The views of some rows, U and S."""
        pictures = None if self.pictures is None else self.pictures[rows]
        return as_views(encoding(self.features.iloc[rows]), pictures)


@dataclass(frozen=True)
class Encoding:
    """From raw columns to numbers and codes, learnt from the rows that a model is fitted to.

    Attributes
    ----------
    imputation : for each numeric column the ``value`` that stands for a missing one, and whether an
        ``indicator`` column tells where.
    encoder : of the completed columns.
    """

    imputation: dict[str, dict[str, Any]]
    encoder: TableEncoder

    @classmethod
    def fit(cls, features: pd.DataFrame) -> Encoding:
        """Learn from the rows given, as `usboost.datasets.custom.prepare.prepare` does."""
        imputation = imputation_of(features)
        completed = complete(features, imputation)
        if clash := list(completed.columns[completed.columns.duplicated()]):
            raise UsboostError(
                f"the column {clash[0]!r} is in the way of one to be added, which tells where "
                f"{clash[0].removesuffix(SUFFIX)!r} is missing; rename it"
            )
        return cls(imputation, TableEncoder.fit(completed, list(completed.columns)))

    def __call__(self, features: pd.DataFrame) -> Table:
        return self.encoder.transform(complete(features, self.imputation))


def as_views(table: Table, pictures: Images | None) -> Views:
    """S, the table, and U: the pictures or, where there are none, the same table.

    So without pictures the network and the trees of a model both read every column. (The papers'
    tables have two kinds of columns; a table of one's own says nothing of the kind, and a split made
    at random, which `usboost.datasets.custom.prepare` makes for the papers' comparison, would hide half
    of the columns from each learner.)
    """
    unstructured: View = table if pictures is None else pictures
    return Views(U=unstructured, S=table)


def read_own(
    path: Path,
    *,
    label: str,
    image: str | None = None,
    categorical: Collection[str] = (),
    drop: Collection[str] = (),
    size: int = 32,
    channels: int = 3,
    skip_missing: bool = False,
    progress: Progress | None = None,
) -> OwnTable:
    """Read a whole table with its labels and pictures.

    Parameters
    ----------
    path, label, image, categorical, drop : as `usboost.datasets.custom.table.read_table`.
    size, channels : of the pictures in memory.
    skip_missing : leave rows without a picture out.
    progress : called with (pictures read, rows).

    Raises
    ------
    UsboostError
        As `read_table` and `PictureReader.read`; or if there is no column beside label and picture,
        there are under 10 rows, a class has one row only, or the pictures take too much memory.
    """
    path = Path(path)
    if image is not None and image in (label, *categorical, *drop):
        raise UsboostError(f"{path}: column {image!r} cannot have two roles")
    left_out = [*drop, *([image] if image is not None else [])]
    raw = read_table(path, label=label, categorical=categorical, drop=left_out)
    pictures, present = None, np.ones(len(raw.labels), dtype=bool)
    if not raw.features.shape[1]:
        raise UsboostError(f"{path} has no column to learn from beside {', '.join([label, *left_out])}")
    if image is not None:
        pictures, present = _pictures(
            path, image, len(present), size=size, channels=channels, skip=skip_missing, progress=progress
        )
    table = OwnTable(
        path,
        raw.features[present].reset_index(drop=True),
        raw.labels[present],
        raw.classes,
        pictures,
        label,
        image,
        tuple(drop),
        int((~present).sum()),
    )
    _check_rows(table)
    return table


def _pictures(
    path: Path, image: str, n: int, *, size: int, channels: int, skip: bool, progress: Progress | None
) -> tuple[Images, np.ndarray]:
    """All pictures that are there, and for each row whether it has one."""
    kind = schema_of(path).field(image).type
    reader = PictureReader(path, image, kind, size=size, channels=channels, skip_missing=skip)
    check_memory(path, n, reader.row_bytes)
    pixels = np.empty((n, channels, size, size), dtype=np.uint8)
    present = np.empty(n, dtype=bool)
    cells = None if reader.in_table else batches(path, [image], _PICTURES)
    for first in range(0, n, _PICTURES):
        count = min(_PICTURES, n - first)
        rows = slice(first, first + count)
        pixels[rows], present[rows] = reader.read(first, count, None if cells is None else next(cells)[image])
        if progress:
            progress(first + count, n)
    return Images(pixels if present.all() else pixels[present]), present


def check_memory(path: Path, n: int, row_bytes: int) -> None:
    """Refuse pictures that would take more memory than `image_store.BUDGET` when decoded."""
    if n * row_bytes > BUDGET:
        raise UsboostError(
            f"{path}: {n:,} pictures of this size take {n * row_bytes / 1e9:,.0f} GB of memory; choose a "
            "smaller --size, or prepare the table by params.yaml, which reads pictures from disk"
        )


def _check_rows(table: OwnTable) -> None:
    counts = np.bincount(table.labels, minlength=len(table.classes))
    if len(table) < FEWEST:
        raise UsboostError(f"{table.path} has {len(table)} rows to learn from; {FEWEST} or more are needed")
    if (counts < 2).any():
        name, count = table.classes[int(counts.argmin())], int(counts.min())
        raise UsboostError(
            f"{table.path}: class {name!r} of {table.label!r} has {count} row{'s' * (count != 1)}, so it "
            "cannot be learnt and checked; add rows of it or leave it out"
        )

"""A fitted model's predictions on labelled rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from usboost.data.progress import Progress
from usboost.data.views import Views
from usboost.datasets.user.columns.column import Column
from usboost.datasets.user.columns.labels import codes_of, targets_of
from usboost.datasets.user.images.image_set import ImageSet
from usboost.datasets.user.images.paths import Paths, check_paths
from usboost.datasets.user.reading.source import TableFile, require
from usboost.datasets.user.rows import joined
from usboost.errors import UsboostError, option
from usboost.multimodal.fit.bundle import Bundle

_BATCH = 1 << 16  # labels read at a time


@dataclass(frozen=True)
class Scored:
    """Labelled rows of a table as a model sees them.

    Attributes
    ----------
    file : where they are from.
    frame : the n rows' columns as they are in the table, without the bytes of images.
    views : of the n rows.
    labels : int64 codes of shape (n,) of the model's classes, or float64 numbers.
    predicted : as of `Bundle.predicted`.
    without : how many rows have no image, by column.
    unreadable : how many of these could not be read.
    paths : of images, by column.
    rows : the position of each row in the file, int64 of shape (n,); rows without a label are not in it.
    unlabelled : how many rows have no label.
    """

    file: TableFile
    frame: pd.DataFrame
    views: Views
    labels: np.ndarray
    predicted: np.ndarray
    without: dict[str, int]
    unreadable: int
    paths: tuple[Paths, ...]
    rows: np.ndarray
    unlabelled: int = 0

    @property
    def probabilities(self) -> np.ndarray:
        """`predicted`, of classes."""
        return self.predicted

    def __len__(self) -> int:
        return len(self.labels)


def score_table(
    bundle: Bundle,
    path: Path,
    label: str,
    *,
    skip_unreadable: bool = False,
    images_root: Path | None = None,
    progress: Progress | None = None,
) -> Scored:
    """Read the rows that have a label and predict them.

    Raises
    ------
    UsboostError
        If a column is missing, a value or image cannot be read, a label is not a class of the model, or no
        row has one.
    """
    file = TableFile.open(path, images_root)
    require(file, [*bundle.reader.needed, label])
    labels = _labels(file, label, bundle)
    n, form = len(labels), bundle.reader.images
    images = None if form is None else ImageSet(form, n, what=file)
    parts: list[tuple[pd.DataFrame, Views, np.ndarray]] = []
    unreadable = 0
    paths: tuple[Paths, ...] = ()
    for batch in bundle.reader.read(file, skip_unreadable=skip_unreadable, more=(label,), into=images):
        parts.append((batch.raw.to_pandas(), batch.views, bundle.predicted(batch.views)))
        unreadable += batch.unreadable
        paths = batch.paths
        if progress:
            progress(batch.first + len(batch.views), n)
    check_paths(file, paths)
    found = {} if form is None or images is None else dict(zip(form.columns, images.absent, strict=True))
    rows = np.flatnonzero(labels >= 0 if bundle.card.classes else ~np.isnan(labels))
    return Scored(
        file,
        pd.concat([part[0] for part in parts], ignore_index=True).iloc[rows].reset_index(drop=True),
        joined([part[1] for part in parts], None if images is None else images.views())[rows],
        labels[rows],
        np.concatenate([part[2] for part in parts])[rows],
        {column: int(absent[rows].sum()) for column, absent in found.items()},
        unreadable,
        paths,
        rows,
        n - len(rows),
    )


def _labels(file: TableFile, label: str, bundle: Bundle) -> np.ndarray:
    """The labels of all rows as codes, int64 of shape (n,), or numbers, float64; −1 or NaN where missing."""
    known = {name: code for code, name in enumerate(bundle.card.classes)}
    parts: list[np.ndarray] = []
    for raw in file.batches([label], _BATCH):
        first = sum(map(len, parts))
        column = Column(file, label, raw[label], first, bundle.reader.missing)
        parts.append(codes_of(column, known) if known else targets_of(column, several=False))
    if not parts:
        raise UsboostError(f"{file} has no rows to score")
    found = np.concatenate(parts)
    if (found < 0 if known else np.isnan(found)).all():
        raise UsboostError(
            f"{file}: column {label!r} is empty; name the column of labels ({option('label')})"
        )
    return found

"""A fitted model's predictions on labelled rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from usboost.data.progress import Progress
from usboost.data.views import Views
from usboost.datasets.custom.columns import Column
from usboost.datasets.custom.labels import codes_of, numbers_of
from usboost.datasets.custom.picture_set import PictureSet
from usboost.datasets.custom.rows import joined
from usboost.datasets.custom.source import TableFile, require
from usboost.errors import UsboostError
from usboost.multimodal.bundle import Bundle

_BATCH = 1 << 16  # labels read at a time


@dataclass(frozen=True)
class Scored:
    """Labelled rows of a table as a model sees them.

    Attributes
    ----------
    file : where they are from.
    frame : the n rows' columns as they are in the table, without the bytes of pictures.
    views : of the n rows.
    labels : int64 codes of shape (n,) of the model's classes, or float64 numbers.
    predicted : as of `Bundle.predicted`.
    without : how many rows have no picture, by column.
    unreadable : how many of these could not be read.
    """

    file: TableFile
    frame: pd.DataFrame
    views: Views
    labels: np.ndarray
    predicted: np.ndarray
    without: dict[str, int]
    unreadable: int

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
    """Read labelled rows and predict them.

    Raises
    ------
    UsboostError
        If a column is missing, a value or picture cannot be read, a label is missing or is not a class
        of the model, or there are no rows.
    """
    file = TableFile.open(path, images_root)
    require(file, [*bundle.reader.needed, label])
    labels = _labels(file, label, bundle)
    n, form = len(labels), bundle.reader.pictures
    pictures = None if form is None else PictureSet(form, n, what=file)
    parts: list[tuple[pd.DataFrame, Views, np.ndarray]] = []
    unreadable = 0
    for batch in bundle.reader.read(file, skip_unreadable=skip_unreadable, more=(label,), into=pictures):
        parts.append((batch.raw.to_pandas(), batch.views, bundle.predicted(batch.views)))
        unreadable += batch.unreadable
        if progress:
            progress(batch.first + len(batch.views), n)
    found = {} if form is None or pictures is None else dict(zip(form.columns, pictures.absent, strict=True))
    return Scored(
        file,
        pd.concat([part[0] for part in parts], ignore_index=True),
        joined([part[1] for part in parts], None if pictures is None else pictures.views()),
        labels,
        np.concatenate([part[2] for part in parts]),
        {column: int(absent.sum()) for column, absent in found.items()},
        unreadable,
    )


def _labels(file: TableFile, label: str, bundle: Bundle) -> np.ndarray:
    """The labels of all rows as codes, int64 of shape (n,), or numbers, float64."""
    known = {name: code for code, name in enumerate(bundle.card.classes)}
    parts: list[np.ndarray] = []
    for raw in file.batches([label], _BATCH):
        first = sum(map(len, parts))
        column = Column(file, label, raw[label], first, bundle.reader.missing)
        parts.append(codes_of(column, known) if known else numbers_of(column))
    if not parts:
        raise UsboostError(f"{file} has no rows to score")
    return np.concatenate(parts)

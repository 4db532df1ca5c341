"""The labelled rows of a user's table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd

from usboost.data.encoding import TableEncoder
from usboost.data.images import Images
from usboost.data.pooled_images import PooledImages
from usboost.data.table import Table
from usboost.data.views import Views
from usboost.datasets.user.columns.column import Format, Kind
from usboost.datasets.user.columns.encoding import Encoding, is_date
from usboost.datasets.user.columns.texts import is_text
from usboost.datasets.user.images.reader import VIEW, ImageColumns
from usboost.datasets.user.images.values import Paths
from usboost.datasets.user.misfits import Misfits
from usboost.datasets.user.reading.source import Source
from usboost.datasets.user.table_spec import TableSpec
from usboost.files.arrays import PART_ROWS, parts
from usboost.shards.here import here


@dataclass(frozen=True)
class UserTable:
    """The labelled rows of a table.

    Attributes
    ----------
    file : where they are from.
    spec : how they were read.
    features : n rows; float64 numbers (NaN is missing), datetime64 in UTC, pandas categories of strings, and
        strings that are text.
    labels : codes int64 of shape (n,) of the `classes`, or the numbers to predict, float64 of shape (n,).
    classes : names of the classes, numbers in rising order, else alphabetically; none for a regression.
    label_kind : what the labels were: "bool", "int", "float" or "str".
    said : why this is the task, where nobody said it.
    stripped : whether blanks at the ends of labels were removed.
    split : the split of each row as given, str of shape (n,), or None.
    groups, times, weights : of each row, int64 codes, sortable, and float64 of mean 1 over the rows that
        count, of shape (n,), or None.
    rows : the position of each row in the file, int64 of shape (n,); rows without a label are not in it.
    unlabelled : how many rows have no label.
    formats : how numbers and dates are written, of the features that are text in a form of their own.
    left_out : why columns are no features that look like some, by column.
    notes : what a user should know of how columns are read, and of the spec.
    images : the rows' images by view, when they were read and there are any.
    without : how many rows have no image, by column.
    misfits : of these, the images that could not be read; paths : of images, by column.
    sample : of a shard's rows, the rows of all shards by which it was decided what columns are.
    """

    file: Source
    spec: TableSpec
    features: pd.DataFrame
    labels: np.ndarray
    classes: list[str]
    label_kind: str = "str"
    said: str = ""
    stripped: bool = False
    rows: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    split: np.ndarray | None = None
    groups: np.ndarray | None = None
    times: np.ndarray | None = None
    weights: np.ndarray | None = None
    unlabelled: int = 0
    formats: Mapping[str, Format] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    images: Mapping[str, Images | PooledImages] = field(default_factory=dict)
    without: Mapping[str, int] = field(default_factory=dict)
    misfits: tuple[Misfits, ...] = ()
    paths: tuple[Paths, ...] = ()
    sample: UserTable | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def unreadable(self) -> int:
        """How many images could not be read and count as missing."""
        return sum(each.count for each in self.misfits)

    @property
    def task(self) -> str:
        """Whether classes are predicted, or a number."""
        return "classification" if self.classes else "regression"

    @cached_property
    def kinds(self) -> dict[str, Kind]:
        """What each feature holds."""
        return {str(name): _kind(column) for name, column in self.features.items()}

    @property
    def form(self) -> ImageColumns | None:
        """What the images were made, if they were read."""
        return ImageColumns.of(self.spec) if self.images else None

    @property
    def text_model(self) -> str | None:
        """Of sentence-transformers, by which texts are read; None: by n-grams."""
        return self.spec.text_model

    def fit_encoding(self, rows: np.ndarray) -> Encoding:
        """Learn from some rows how the table becomes views.

        With images, U, all columns are S. Without, both views are the whole table, so that the network
        and the trees of a model both read every column. (The papers' tables have two kinds of columns; a
        table of one's own says nothing of the kind.)
        """
        views = ("S",) if self.images else (VIEW, "S")
        return Encoding.fit(self.features.iloc[rows], views, self.text_model)

    def views(self, encoding: Encoding, rows: np.ndarray) -> Views:
        """The views of some rows, those of the images (or U) and S; of many rows of a shard, on disk."""
        images = {name: view[rows] for name, view in self.images.items()}
        if here().count == 1 or len(rows) <= PART_ROWS:
            return encoding.views(self.features.iloc[rows], images)
        made: dict[TableEncoder, Table] = {}  # what is one view under two names stays one
        for encoder in encoding.encoders.values():
            if encoder not in made:
                made[encoder] = Table.on_disk(self._encoded(encoder, encoding, rows))
        return Views({**images, **{name: made[encoder] for name, encoder in encoding.encoders.items()}})

    def _encoded(self, encoder: TableEncoder, encoding: Encoding, rows: np.ndarray) -> Iterator[Table]:
        """Some rows as an encoder reads them, some at a time."""
        for part in parts(len(rows)):
            yield encoder.transform(encoding.complete(self.features.iloc[rows[part]]))


def _kind(column: pd.Series) -> Kind:
    if is_date(column):
        return "date"
    if is_text(column):
        return "text"
    return "number" if isinstance(column.dtype, np.dtype) else "category"

"""The labelled rows of a user's table, read strictly and as a whole: labels, features, images."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from usboost.data.encoding import TableEncoder
from usboost.data.images import Images
from usboost.data.progress import Progress
from usboost.data.table import Table
from usboost.data.views import Views
from usboost.datasets.store import CLEAN, LABEL
from usboost.errors import UsboostError, choices
from usboost.evaluation.folds import Related
from usboost.files.arrays import PART_ROWS, parts
from usboost.shards.collective import world
from usboost.table.columns.column import Column, Format, Kind, is_text
from usboost.table.columns.encoding import Encoding, holds_dates
from usboost.table.columns.kinds import fill_values, kind_of
from usboost.table.columns.labels import classes_of, divided_by, targets_of, task_of, with_positive
from usboost.table.columns.texts import COMPONENTS, FOLDS, holds_text
from usboost.table.images import NAMES, VIEW, ImageColumns, are_names_of_images, check_type, read_images
from usboost.table.notes import Misfits, Paths
from usboost.table.source import INDEX_COLUMN, Source, TableFile
from usboost.table.spec import TableSpec

LARGEST = 500_000_000
"""Values of a table above which it is refused: a small file can stand for any number of rows."""

FEWEST = 10
"""Rows that a table must have to learn from."""

LEFT_OUT = {
    "identifier": "each row has its own value",
    "name": "nearly every row has its own value; `text` takes it as text",
    "index": "it counts rows, as an index that was written",
}
"""Why a column of a kind is no feature."""

_BATCH = 1 << 16  # rows read at once


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
    groups, times, weights : of each row, int64 codes, sortable, and float64 above 0 of mean 1, of shape (n,),
        or None.
    rows : the position of each row in the file, int64 of shape (n,); rows without a label, or of weight 0,
        are not in it.
    unlabelled, weightless : how many rows have no label, and how many of the others the weight 0.
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
    weightless: int = 0
    formats: Mapping[str, Format] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    images: Mapping[str, Images] = field(default_factory=dict)
    without: Mapping[str, int] = field(default_factory=dict)
    misfits: tuple[Misfits, ...] = ()
    paths: tuple[Paths, ...] = ()
    sample: "UserTable | None" = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def unreadable(self) -> int:
        """Count the images that could not be read and count as missing."""
        return sum(each.count for each in self.misfits)

    @property
    def task(self) -> str:
        """Return "classification" or "regression"."""
        return "classification" if self.classes else "regression"

    @cached_property
    def kinds(self) -> dict[str, Kind]:
        """Return the kind of each feature."""
        kinds: dict[str, Kind] = {}
        for name, column in self.features.items():
            if holds_dates(column):
                kinds[str(name)] = "date"
            elif holds_text(column):
                kinds[str(name)] = "text"
            else:
                kinds[str(name)] = "number" if pd.api.types.is_numeric_dtype(column) else "category"
        return kinds

    @property
    def form(self) -> ImageColumns | None:
        """Return the form of the images, if they were read."""
        return ImageColumns.of(self.spec) if self.images else None

    def fit_encoding(self, rows: np.ndarray) -> Encoding:
        """Learn from some rows how the table becomes views.

        With images, U, all columns are S. Without, both views are the whole table, so that the network
        and the trees of a model both read every column. (The papers' tables have two kinds of columns; a
        table of one's own says nothing of the kind.)
        """
        views = ("S",) if self.images else (VIEW, "S")
        return Encoding.fit(self.features.iloc[rows], views, self.text_targets(rows))

    def text_targets(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the targets of some rows' texts, float64 (n, K), and the part in which each row is left out,
        int64 (n,): whole groups, or stretches of time. None of a table without texts."""
        if "text" not in self.kinds.values():
            return None
        y = self.labels[rows]
        if self.classes:
            often = np.argsort(-np.bincount(y, minlength=2), kind="stable")[:COMPONENTS]
            targets = (y[:, None] == (often if len(self.classes) > 2 else 1)).astype(np.float64)
        else:
            scaled = y / (np.abs(y).max() or 1.0)
            targets = (scaled - scaled.mean())[:, None]
        related = Related(self.groups, self.times)[rows]
        if related.several:
            return targets, related.parts(FOLDS, None, 0)
        return targets, np.random.default_rng(0).permutation(len(rows)) % FOLDS

    def views(self, encoding: Encoding, rows: np.ndarray) -> Views:
        """Return the views of some rows, of images (or U) and S; of many rows of a shard, on disk."""
        images = {name: view[rows] for name, view in self.images.items()}
        if world().count == 1 or len(rows) <= PART_ROWS:
            return encoding.views(self.features.iloc[rows], images)

        def encoded(encoder: TableEncoder) -> Iterator[Table]:
            for part in parts(len(rows)):
                yield encoder.transform(encoding.complete(self.features.iloc[rows[part]]))

        # what is one view under two names stays one
        made = {each: Table.on_disk(encoded(each)) for each in dict.fromkeys(encoding.encoders.values())}
        return Views({**images, **{name: made[encoder] for name, encoder in encoding.encoders.items()}})


def read_table(path: Path | Source, spec: TableSpec, *, progress: Progress | None = None) -> UserTable:
    """Read a whole table with its images.

    A row may lack images: where the column is empty, or its path leads to no file. Raises UsboostError as
    `read_columns`, `check_learnable` and `ImageReader.read`; or if images have no room on the disk. `path`: a
    file of a kind in `files.READERS`, a folder or pattern of Parquet files, or a DataFrame's rows.
    `progress`: called with (rows whose images are read, rows).
    """
    table = read_columns(path, spec)
    check_learnable(table)
    return with_images(table, progress)


def with_images(table: UserTable, progress: Progress | None = None) -> UserTable:
    """Read the images of a table, if its spec names columns of them.

    Of a shard's rows the images are read; which are missing or cannot be read is counted in all shards.
    Raises UsboostError as `read_table`.
    """
    spec = table.spec
    if not spec.image:
        return table
    form = ImageColumns.of(spec)
    readers = form.readers(table.file, "images" if spec.skip_unreadable else "none")
    image_set = read_images(table.file, table.rows, form, readers, progress)
    absent = world().sum(image_set.absent.sum(axis=1).astype(np.float64))
    return replace(
        table,
        images=image_set.views(),
        without=dict(zip(form.columns, map(int, absent), strict=True)),
        misfits=tuple(reader.misfits.of_all_shards() for reader in readers),
        paths=tuple(reader.paths.of_all_shards() for reader in readers),
    )


def read_columns(path: Path | Source, spec: TableSpec) -> UserTable:
    """Read a table, `path` as of `read_table`, without its images; perhaps nothing can be learnt from it.

    Kinds of columns are those of `kinds.kind_of`. Identifiers and names are left out, and so are rows without
    a label or of weight 0; the answer says which.

    Raises UsboostError if the file is missing, damaged, of another kind or has more than `LARGEST` values;
    the columns are not those that the spec names; as `kinds.kind_of`; there are no rows; a column holds
    nested or binary values or infinity; a split, group, time or weight is missing; or the labels are of one
    class or are no classes, or no finite numbers that differ.
    """
    file = TableFile.open(path, spec.images_root) if isinstance(path, (str, Path)) else path
    label, table = spec.label, load(file, columns_read(file, spec))
    if not table.num_rows:
        raise UsboostError(f"{file} has no rows")
    columns = {name: Column(file, name, table[name], missing=spec.missing) for name in table.column_names}
    inferred, said = task_of(columns[label])
    if (spec.task or inferred) == "classification":
        labels, classes = with_positive(*classes_of(columns[label]), spec.positive, columns[label])
        labelled = labels >= 0
    else:
        if spec.positive is not None:
            raise UsboostError(f"`positive` is for classes, but {label!r} is predicted as a number")
        labels, classes = targets_of(columns[label]), []
        labelled = ~np.isnan(labels)
    divided = divided_by(columns.__getitem__, spec, labelled)
    rows = divided["rows"]
    nominal = {*spec.categorical, *file.declared}
    features: dict[str, pd.Series] = {}
    formats: dict[str, Format] = {}
    left_out: dict[str, str] = {}
    notes: list[str] = []
    for name, column in columns.items():
        if name in spec.named:
            continue
        decided = kind_of(column, nominal=name in nominal, textual=name in spec.text)
        notes += [f"column {name!r} {note}" for note in decided.notes]
        role = decided.kind
        if role in LEFT_OUT:
            named_images = is_text(column.type) and are_names_of_images(column.plain())
            left_out[name] = f"it {NAMES}" if named_images else LEFT_OUT[role]
            continue
        if role == "nested" or role == "name" or role == "identifier" or role == "index":
            raise column.unusable()
        features[name] = column.feature(role, decided.form)
        if decided.form is not None:
            formats[name] = decided.form
        fills = fill_values(features[name].to_numpy()) if role == "number" else {}
        notes += [
            f"column {name!r} holds {value} in {count:,} rows, far from all its other values; if it stands "
            f"for a missing one, say so (`missing={value!r}`)"
            for value, count in fills.items()
        ]
    for each in spec.image:
        check_type(file, each)
    nowhere = [
        f"no column holds {each!r}, which counts as missing (`missing={each!r}`)"
        for each in spec.missing
        if not any(column.holds(each, formats.get(name)) for name, column in columns.items())
    ]
    texts, kind = columns[label].values, columns[label].type
    blanks = is_text(kind) and bool(pc.any(pc.not_equal(texts, pc.utf8_trim_whitespace(texts))).as_py())
    types = {"bool": pa.types.is_boolean, "int": pa.types.is_integer, "float": pa.types.is_floating}
    frame = pd.DataFrame(features, index=pd.RangeIndex(table.num_rows))
    return UserTable(
        file,
        spec,
        frame if len(rows) == len(frame) else frame.iloc[rows].reset_index(drop=True),
        labels[rows],
        classes,
        label_kind=next((name for name, check in types.items() if check(kind)), "str"),
        said="" if spec.task else said,
        stripped=bool(classes) and blanks,
        **divided,
        formats=formats,
        left_out=left_out,
        notes=(*notes, *nowhere),
    )


def label_task(path: Path, spec: TableSpec) -> tuple[str, str]:
    """Decide what the label asks for, before the rest is read, and say why; see `labels.task_of`.

    Raises UsboostError if the file cannot be read or has no such column.
    """
    file, label = TableFile.open(path), spec.label
    file.answer_to([label])
    if label not in file.names:
        raise UsboostError(f"{file} has no column {label!r}; {choices(label, file.names, 'its columns are')}")
    return task_of(Column(file, label, load(file, [label])[label], missing=spec.missing))


def check_learnable(table: UserTable) -> None:
    """Refuse a table with no column to learn from, under `FEWEST` rows, or a class of one row.

    Raises UsboostError, saying what there is.
    """
    if not table.features.shape[1] and not table.spec.image:
        others = ", ".join([*table.spec.named[:1], *table.spec.drop, *table.left_out, *table.spec.named[1:]])
        raise UsboostError(f"{table.file} has no column to learn from besides {others}")
    that = "" if table.weights is None else " of weight above 0"
    rows, all_rows = (int(world().sum(n)) for n in (len(table), len(table) + table.weightless))
    counts = np.bincount(table.labels, minlength=len(table.classes)) if table.classes else np.empty(0)
    counts = world().sum(counts)
    if all_rows >= FEWEST and (counts < 2).any():
        name, count = table.classes[int(counts.argmin())], int(counts.min())
        few = [each for each, n in zip(table.classes, counts) if n < 2 and each != name]
        more = f"; too few rows, too: {', '.join(map(repr, few[:5]))}{', …' * (len(few) > 5)}" * bool(few)
        has = f"{count} row{'s' * (count != 1)}{that}"
        number = ", or predict the number with `task=regression`" if table.said else ""
        raise UsboostError(
            f"{table.file}: class {name!r} of {table.spec.label!r} has {has}, so it cannot be learnt and "
            f"checked; add rows of it, or take its row out (`missing={name!r}` does, for all columns)"
            f"{number}{more}"
        )
    if rows < FEWEST:
        raise UsboostError(f"{table.file} has {rows} rows{that} to learn from; {FEWEST} or more are needed")


def columns_read(file: Source, spec: TableSpec) -> list[str]:
    """Return the columns of a table that are read, which those of images are not here.

    Raises UsboostError if two columns have the same name, one that is named is absent or has two roles, or
    one that is not the label is called ``label`` or ``clean_label``.
    """
    if not (names := file.names):
        raise UsboostError(f"{file} is empty")
    if repeated := [name for name in names if names.count(name) > 1]:
        raise UsboostError(f"{file} has two columns called {repeated[0]!r}; rename one")
    others = (*spec.categorical, *spec.drop, *spec.text)
    file.answer_to((*spec.named, *others))
    shown = [name for name in names if not INDEX_COLUMN.fullmatch(name)]
    for name in (*spec.named, *others):
        if name not in names:
            raise UsboostError(f"{file} has no column {name!r}; {choices(name, shown, 'its columns are')}")
    twice = [name for name in spec.named if spec.named.count(name) > 1 or name in others]
    if repeated := twice or [name for name in spec.text if name in (*spec.categorical, *spec.drop)]:
        raise UsboostError(f"{file}: column {repeated[0]!r} cannot have two roles")
    for name in (LABEL, CLEAN):
        if name in names and name != spec.label and name not in spec.drop:
            raise UsboostError(f"{file} has a column {name!r} that is not the label; rename or drop it")
    return [name for name in shown if name not in (*spec.drop, *spec.image)]


def load(file: Source, names: list[str], chosen: np.ndarray | None = None) -> pa.Table:
    """Read some columns of all rows, or of those chosen, int (k,) in rising order.

    Their number is checked before and while they are read.
    """

    def check_size(rows: int) -> None:
        if rows * len(names) > LARGEST:
            raise UsboostError(
                f"{file} has {rows:,} rows of {len(names)} columns, more than the {LARGEST:,} values that a "
                "table may have"
            )

    check_size(file.n_rows or 0)
    batches, read = [], 0
    for batch in file.batches(names, _BATCH):
        read += batch.num_rows
        check_size(read)
        if chosen is not None:
            first, last = np.searchsorted(chosen, [read - batch.num_rows, read])
            batch = batch.take(chosen[first:last] - (read - batch.num_rows))
        batches.append(batch)
    if batches:
        return pa.concat_tables(batches)
    return pa.table({name: pa.nulls(0, file.type_of(name)) for name in names})

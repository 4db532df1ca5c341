"""Predictions for the rows of a table: of any size, in bounded memory, or with their labels, to be scored."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from usboost.data.progress import Progress
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.evaluation.task import Slice
from usboost.fit.bundle import Bundle
from usboost.fit.explain import WHY, explain, read_rows, reference_of
from usboost.models.inspection.attribution import check_explainable
from usboost.table.columns.column import Column, is_binary, plain_type
from usboost.table.columns.labels import codes_of, targets_of
from usboost.table.files import is_part
from usboost.table.images import ImageSet
from usboost.table.notes import Tally, check_paths
from usboost.table.rows import joined
from usboost.table.source import TableFile, require
from usboost.table.user_table import load


def predict(
    bundle: Bundle,
    table: Path,
    out: Path,
    *,
    batch: int = 4096,
    keep: Sequence[str] = (),
    strict: bool = False,
    images_root: Path | None = None,
    sets: bool | Literal["per-class"] = False,
    explained: bool = False,
    against: Path | None = None,
    progress: Progress | None = None,
) -> Tally:
    """Write `Bundle.answers` and the columns to keep, a row for each row of the table in its order.

    Returns a tally of the rows, see `usboost.table.notes.notes_of_rows`.

    Raises `UsboostError` if a column is missing, no value of a column of numbers, dates or images can be
    read, no path of a column of images leads to a file, the output cannot be written, or as `explain.explain`
    and `read_rows`; an earlier output stays as it was.

    Parameters
    ----------
    table : as of `usboost.table.user_table.read_table`; only Excel and JSON are in memory as a whole.
    out : a ``.parquet`` or ``.csv`` file; appears when it is complete.
    batch : rows at a time.
    keep : columns of the table that the output holds too.
    strict : refuse values and images that cannot be read, instead of counting them as missing, and columns
        that lack far more values than in training.
    images_root : see `usboost.table.source.TableFile`.
    sets : write the classes that may be a row's, too: ``set``, JSON, see `Bundle.answers`.
    explained : write the columns that speak most for and against each answer, too: `WHY`, see `explain`.
    against : the table whose rows these are then compared with; by default the same.
    progress : called with (rows done, 0 where their number is unknown, as in a CSV).
    """
    table, out = Path(table), Path(out)
    if out.suffix.lower() not in (".parquet", ".pq", ".csv"):
        raise UsboostError(f"{out} must be a .parquet or .csv file")
    if out.is_dir():
        raise UsboostError(f"{out} is a folder; name a file in it")
    for read in (table,) if against is None else (table, Path(against)):
        if is_part(out, read):
            raise UsboostError(f"{out} is, or would be, part of the table {read}; name another file")
    file, more = TableFile.open(table, images_root), tuple(dict.fromkeys(keep))
    require(file, [*bundle.reader.needed, *keep])
    classes = len(bundle.card.classes)
    # a prediction of some row, whose answer has the types of all
    some = bundle.answers(np.ones((1, classes)) if classes else np.zeros(1), sets=sets)
    target, reference = pa.Schema.from_pandas(some, preserve_index=False), None
    if explained or against is not None:
        check_explainable(bundle.model, bundle.card.model)
        others = file if against is None else TableFile.open(Path(against), images_root)
        reference = reference_of(read_rows(bundle, others).views)
        target = target.append(pa.field(WHY, pa.string()))
    for name in more:
        kind = plain_type(file.type_of(name))
        if out.suffix.lower() == ".csv" and (is_binary(kind) or pa.types.is_nested(kind)):
            raise UsboostError(f"{file}: column {name!r} is {kind}, which no CSV holds; write .parquet")
        if name in target.names:
            raise UsboostError(f"{file}: column {name!r} cannot be kept: the output has one of that name")
    target = pa.schema([*target, *(pa.field(name, file.type_of(name)) for name in more)])
    tally = Tally(ignored=bundle.ignored(file, keep))
    with _written(out, target) as writer:
        # batches of images alone would have no column, and are joined as if they had no row
        carried = more if more or bundle.card.columns else tuple(file.names[:1])
        for rows in bundle.reader.read(file, batch=batch, strict=strict, tally=tally, more=carried):
            predicted = bundle.predicted(rows.views)
            answers = bundle.answers(predicted, sets=sets)
            columns = [pa.array(answers[name], from_pandas=False) for name in answers]
            if reference is not None:
                why = explain(bundle, rows.views, reference, predicted).words()
                columns.append(pa.array(why, pa.string()))
            columns += [rows.raw[name].cast(target.field(name).type) for name in more]
            writer.write_table(pa.table(columns, schema=target))
            if progress:
                progress(tally.rows, file.n_rows or 0)
        if not tally.rows:
            raise UsboostError(f"{table} has no rows")
        check_paths(file, tally.paths)
    return tally


@contextmanager
def _written(out: Path, schema: pa.Schema) -> Iterator[pq.ParquetWriter | pyarrow.csv.CSVWriter]:
    """Open a writer to another name next to `out`, which gets its place when the block succeeds."""
    partial = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        kind = pyarrow.csv.CSVWriter if out.suffix.lower() == ".csv" else pq.ParquetWriter
        with kind(partial, schema) as writer:
            yield writer
        partial.replace(out)
    except (pa.ArrowException, OSError) as error:
        raise UsboostError(f"{out} cannot be written: {error}") from None
    finally:
        partial.unlink(missing_ok=True)


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
    tally : counts of all rows of the table.
    rows : the position of each row in the file, int64 of shape (n,); rows without a label are not in it.
    unlabelled : how many rows have no label.
    slices : the scores by the groups of a column, if that was asked for.
    """

    file: TableFile
    frame: pd.DataFrame
    views: Views
    labels: np.ndarray
    predicted: np.ndarray
    without: dict[str, int]
    tally: Tally
    rows: np.ndarray
    unlabelled: int = 0
    slices: Sequence[Slice] = ()

    def __len__(self) -> int:
        return len(self.labels)


def score_table(
    bundle: Bundle,
    path: Path,
    label: str,
    *,
    strict: bool = False,
    images_root: Path | None = None,
    progress: Progress | None = None,
) -> Scored:
    """Read the rows that have a label and predict them; parameters as of `predict`.

    Raises `UsboostError` as `predict`, or if a label is not a class of the model, or no row has one.
    """
    file = TableFile.open(path, images_root)
    require(file, [*bundle.reader.needed, label])
    known = {name: code for code, name in enumerate(bundle.card.classes)}
    column = Column(file, label, load(file, [label])[label], missing=bundle.reader.missing)
    if not len(column.cells):
        raise UsboostError(f"{file} has no rows to score")
    labels = codes_of(column, known) if known else targets_of(column, several=False)
    rows = np.flatnonzero(labels >= 0 if known else ~np.isnan(labels))
    if not len(rows):
        raise UsboostError(f"{file}: column {label!r} is empty; name the column of labels (`label`)")
    n, form = len(labels), bundle.reader.images
    images = None if form is None else ImageSet(form, n, what=file)
    tally, parts = Tally(), list[tuple[pd.DataFrame, Views, np.ndarray]]()
    for batch in bundle.reader.read(file, strict=strict, tally=tally, more=(label,), into=images):
        parts.append((batch.raw.to_pandas(), batch.views, bundle.predicted(batch.views)))
        if progress:
            progress(batch.first + len(batch.views), n)
    check_paths(file, tally.paths)
    lacking = {} if form is None or images is None else dict(zip(form.columns, images.absent, strict=True))
    return Scored(
        file,
        pd.concat([part[0] for part in parts], ignore_index=True).iloc[rows].reset_index(drop=True),
        joined([part[1] for part in parts], None if images is None else images.views())[rows],
        labels[rows],
        np.concatenate([part[2] for part in parts])[rows],
        {column: int(absent[rows].sum()) for column, absent in lacking.items()},
        tally,
        rows,
        n - len(rows),
    )

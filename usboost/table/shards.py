"""A user's table of which each shard of a fit reads its own rows, and none all of them."""

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from usboost.data.progress import Progress
from usboost.errors import UsboostError
from usboost.shards.collective import needs_all_rows, unsharded, world
from usboost.table.columns.column import Column, is_text, is_usable, plain_cells, plain_type
from usboost.table.columns.kinds import check_form
from usboost.table.columns.labels import codes_of, divided_by, targets_of
from usboost.table.files import Parquet, base_of
from usboost.table.source import TableFile
from usboost.table.spec import TableSpec
from usboost.table.user_table import UserTable, check_learnable, columns_read, load, read_columns, with_images

NEAR = 0.1
"""Share of a shard's rows up to which it ends where a row group does, so that none reads the group twice."""

FEW_LABELS = 1000
"""Different labels of a shard up to which rows of each are in the sample that decides what columns are."""

NOT_SHARDED = ("text", "group", "time")
"""Fields of `TableSpec` that need all rows in one place."""


@dataclass(frozen=True)
class ShardFile(TableFile):
    """Rows of a table on disk that follow one another. `rows`: their positions in the table."""

    rows: range = range(0)

    @property
    def n_rows(self) -> int:
        return len(self.rows)

    def number(self, position: int) -> int:
        return self.rows.start + position + 1

    def pieces(self, names: list[str], most: int) -> Iterator[pa.Table]:
        assert isinstance(self.content, Parquet)
        return self.content.pieces(names, most, self.rows)


@dataclass(frozen=True)
class Sample(TableFile):
    """Rows of all shards, in memory: n of those of a table on disk.

    Attributes
    ----------
    raw : their columns, as they were read; positions : in the table, int64 (n,).
    """

    raw: pa.Table = field(default_factory=lambda: pa.table({}))
    positions: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def n_rows(self) -> int:
        return len(self.positions)

    def number(self, position: int) -> int:
        return int(self.positions[position]) + 1

    def digest(self) -> str:
        return ""

    def pieces(self, names: list[str], most: int) -> Iterator[pa.Table]:
        yield self.raw.select(names)


def read_shard(path: Path, spec: TableSpec, *, progress: Progress | None = None) -> UserTable:
    """Read the rows of this shard of a fit; all shards agree on what columns and labels are.

    A sample of about `SAMPLE_ROWS` rows of all shards, or all if they are fewer, is read as a table of its
    own, and decides: the task and the classes, the kinds and forms of the columns. It has rows of each
    label, however rare. Raises UsboostError as `read_table`; if the table is not Parquet, the processes have
    different files or ask for something else, `spec` names what is not done on several shards, a column is
    text, or a value is none of what the sample says of its column. `path`: a Parquet file, a folder of them,
    or a pattern; in all processes with the same files. `progress`: called with (rows whose images are read,
    rows), of this shard.
    """
    check_shared(spec)
    world().agree("what is said of the table", lambda: repr(replace(spec, images_root=None)))

    def opened() -> Parquet:
        content = TableFile.open(path, spec.images_root).content
        if not isinstance(content, Parquet):
            raise UsboostError(f"{path} is not Parquet, which alone is read by shards; write it as .parquet")
        columns_read(TableFile(path, content), spec)
        if not sum(map(sum, content.groups)):
            raise UsboostError(f"{path} has no rows")
        return content

    def files() -> str:
        """Return names and footers of the files: where each column's values are, their range and number."""
        lines = []
        for each in content.paths:
            with each.open("rb") as file:
                file.seek(-8, 2)
                length = int.from_bytes(file.read(4), "little")
                file.seek(-8 - length, 2)
                footer = hashlib.sha256(file.read(length)).hexdigest()
            lines.append(f"{each.relative_to(base_of(path)).as_posix()} {footer}")
        return "\n".join(lines)

    content = world().once(opened)
    world().agree(f"the list of the files of {path}", lambda: world().once(files))
    cut = cuts(list(itertools.chain(*content.groups)), world().count)
    own = ShardFile(path, content, spec.images_root, rows=range(cut[world().number], cut[world().number + 1]))
    table = with_images(_as_decided(own, _decided(own, spec)), progress)
    # what a user is told of the table
    sample = table.sample and replace(table.sample, misfits=table.misfits, paths=table.paths)
    return replace(table, sample=sample)


def check_shared(spec: TableSpec) -> None:
    """Refuse what cannot be read on several shards. Raises UsboostError, naming the option."""
    for name in NOT_SHARDED:
        if getattr(spec, name):
            raise needs_all_rows(name)


def cuts(groups: Sequence[int], shards: int) -> list[int]:
    """Return where each shard's rows begin, and where the last one's end, int (shards + 1,).

    All have about as many. A cut that is near the end of a row group is there. `groups`: rows of each row
    group of the table, in order.

    Examples
    --------
    >>> from usboost.table.shards import cuts
    >>> cuts([50, 48, 102], 4)
    [0, 50, 98, 150, 200]
    """
    ends = np.cumsum([0, *groups])
    even_cuts = ends[-1] * np.arange(shards + 1) // shards
    nearest = ends[np.abs(even_cuts[:, None] - ends).argmin(axis=1)]
    near = np.abs(nearest - even_cuts) <= NEAR * ends[-1] / shards
    return np.where(near, nearest, even_cuts).tolist()


def _decided(own: ShardFile, spec: TableSpec) -> UserTable:
    """Read the table of a sample of all shards' rows."""
    chosen, given = world().sample(len(own.rows)), load(own, [spec.label])[spec.label]
    if is_usable(plain_type(given.type)):
        labels = plain_cells(given).to_pandas()
        if labels.nunique() <= FEW_LABELS:
            chosen = np.union1d(chosen, labels.groupby(labels).head(2).index)
    raw = load(own, columns_read(own, spec), chosen)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, raw.schema) as stream:
        stream.write_table(raw.unify_dictionaries())
    parts = world().gather(np.frombuffer(sink.getvalue(), dtype=np.uint8))
    positions = world().gather(chosen + own.rows.start)

    def read() -> UserTable:
        tables = [pa.ipc.open_stream(part).read_all() for part in parts]
        sample = Sample(own.path, own.content, None, pa.concat_tables(tables), np.concatenate(positions))
        return read_columns(sample, spec)

    return world().once(lambda: unsharded(read))


def _as_decided(own: ShardFile, sample: UserTable) -> UserTable:
    """Read the rows of a shard as the sample says, a column at a time."""
    spec = sample.spec
    for name, kind in sample.kinds.items():
        if kind == "text":
            raise UsboostError(
                f"{own}: column {name!r} is text, which is not read on several shards; leave it out with "
                f"`drop={name!r}`, or take it as categories with "
                f"`categorical={name!r}`"
            )

    def column(name: str) -> Column:
        return Column(own, name, load(own, [name])[name], missing=spec.missing)

    label = column(spec.label)
    if sample.classes:
        labels = codes_of(label, {name: code for code, name in enumerate(sample.classes)})
        labelled = labels >= 0
    elif is_text(label.type):
        raise UsboostError(f"{own}: the label {spec.label!r} is text; write it as numbers to predict them")
    else:
        labels = targets_of(label, several=False)
        labelled = ~np.isnan(labels)
    divided = divided_by(column, spec, labelled)
    rows = divided["rows"]
    features: dict[str, pd.Series] = {}
    for name, kind in sample.kinds.items():
        read, form = column(name), sample.formats.get(name)
        if kind in ("number", "date"):
            check_form(read, form)
        features[name] = read.feature(kind, form)
    frame, all_rows = pd.DataFrame(features, copy=False), world().sum(len(labels))
    notes = sample.notes
    if sample.file.n_rows != all_rows:
        said = f"what columns are is decided by a sample of {sample.file.n_rows:,} of {all_rows:,.0f} rows"
        notes = (*notes, said)
    table = replace(
        sample,
        file=own,
        features=frame if len(rows) == len(frame) else frame.iloc[rows].reset_index(drop=True),
        labels=labels[rows],
        **divided,
        notes=notes,
    )
    check_learnable(table)
    return replace(table, sample=replace(sample, notes=notes))

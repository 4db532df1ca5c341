"""Rows of a table of any size, a batch at a time, as the columns that a model knows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from usboost.datasets.custom.table import feature_of, is_csv, parse_numbers, schema_of
from usboost.errors import UsboostError

Kind = Literal["number", "category"]

_BLOCK = 1 << 22  # bytes of a CSV read at a time; no row may be longer


def columns_of(path: Path, needed: Collection[str]) -> pa.Schema:
    """The columns of a table that must hold some.

    Raises
    ------
    UsboostError
        If the table cannot be read, or lacks one of the columns, or has it twice.
    """
    schema = schema_of(path)
    if absent := [name for name in needed if name not in schema.names]:
        raise UsboostError(
            f"{path} lacks {_listed(absent)} that the model reads or was asked for; "
            f"its columns are {', '.join(schema.names)}"
        )
    if twice := [name for name in needed if schema.names.count(name) > 1]:
        raise UsboostError(f"{path} has two columns called {twice[0]!r}; rename one")
    return schema


def batches(path: Path, names: Collection[str], size: int) -> Iterator[pa.Table]:
    """The named columns, `size` rows at a time (the last batch may have fewer); of a CSV all are strings.

    Raises
    ------
    UsboostError
        If the file is damaged.
    """
    chosen = list(dict.fromkeys(names))
    try:
        if is_csv(path):
            yield from _csv_batches(path, chosen, size)
            return
        # column chunks are read a page at a time, so that no row group has to fit in memory
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
            for batch in file.iter_batches(batch_size=size, columns=chosen):
                table = pa.Table.from_batches([batch]).select(chosen)
                # text that is not UTF-8 would be found only when a value is looked at
                table.validate(full=True)
                yield table
    except UsboostError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise UsboostError(f"{path} is damaged or not what its name says: {error}") from None


def _csv_batches(path: Path, names: list[str], size: int) -> Iterator[pa.Table]:
    reader = pyarrow.csv.open_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(block_size=_BLOCK),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), include_columns=names, strings_can_be_null=False
        ),
    )
    with reader:
        waiting = pa.Table.from_batches([], schema=reader.schema)
        for block in reader:
            waiting = pa.concat_tables([waiting, pa.Table.from_batches([block])])
            while waiting.num_rows >= size:
                yield waiting.slice(0, size)
                waiting = waiting.slice(size)
        if waiting.num_rows:
            yield waiting


def features(batch: pa.Table, kinds: Mapping[str, Kind], path: Path, first: int) -> pd.DataFrame:
    """A batch's columns as `read_table` gives them, by the kinds they had when the model was fitted.

    Parameters
    ----------
    kinds : of each column that the model reads.
    path, first : the file and the position of the batch's first row there, for messages.

    Returns
    -------
    float64 numbers (NaN is missing) and pandas categories of strings.

    Raises
    ------
    UsboostError
        If a column of numbers holds something else, or infinity.
    """
    from_csv = is_csv(path)
    columns: dict[str, pd.Series] = {}
    for name, kind in kinds.items():
        if kind == "category":
            columns[name] = feature_of(path, name, batch[name], from_csv, nominal=True)
            continue
        numbers = parse_numbers(batch[name], from_csv)
        if numbers is None:
            where = _not_a_number(batch[name], path, first) if from_csv else f"{path}"
            raise UsboostError(
                f"{where}: column {name!r} held numbers when the model was fitted; give numbers"
            )
        with np.errstate(over="ignore"):
            infinite = np.isinf(numbers.to_numpy().astype(np.float32))
        if infinite.any():
            row = first + int(infinite.argmax()) + 1
            raise UsboostError(f"{path}, row {row}: column {name!r} holds infinity or a number too large")
        columns[name] = numbers
    return pd.DataFrame(columns, index=pd.RangeIndex(batch.num_rows))


def _not_a_number(column: pa.ChunkedArray, path: Path, first: int) -> str:
    """Where the first field of a CSV's column is that is no number."""
    for k in range(len(column)):
        if parse_numbers(column.slice(k, 1), True) is None:
            return f"{path}, row {first + k + 1}, {column[k].as_py()!r}"
    return str(path)


def _listed(names: Collection[str]) -> str:
    quoted = ", ".join(repr(name) for name in names)
    return f"column {quoted}" if len(names) == 1 else f"columns {quoted}"

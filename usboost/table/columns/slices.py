"""Rows by the groups of one column: categories, quarters of numbers and dates, and rows without a value."""

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa

from usboost.errors import UsboostError
from usboost.table.columns.column import Column, Format, Kind, is_number, is_usable
from usboost.table.columns.kinds import kind_of
from usboost.table.notes import Misfits
from usboost.table.source import Source, require

MOST = 12  # groups of values at most; of more categories the rarest are one group


@dataclass(frozen=True)
class Slices:
    """The groups of a column."""

    column: str
    names: tuple[str, ...]  # in the order of a table; rows without a value are the last one, if there are any
    codes: np.ndarray  # the group of each row, int64 (n,)


def read_slices(
    source: Source,
    name: str,
    rows: np.ndarray,
    *,
    missing: Collection[str] = (),
    kind: Kind | None = None,
    form: Format | None = None,
) -> Slices:
    """Read the groups of a column of a table, whether or not a model reads it.

    `kind` and `form` are what the column holds and how it is written, where that is known; by default as
    `kinds.kind_of` decides. Values that cannot be read are missing. `rows` are positions, int64 (n,). Raises
    UsboostError if there is no such column, or it holds neither numbers, dates nor text.
    """
    require(source, [name])
    cells = pa.concat_tables(source.batches([name], 1 << 16))[name].take(pa.array(rows))
    column = Column(source, name, cells, missing=missing)
    if not is_usable(column.type):
        raise UsboostError(
            f"{source}: column {name!r} is of type {column.type}, which has no groups; name a column of "
            "categories, numbers or dates"
        )
    if kind is None:
        with suppress(UsboostError):  # of numbers and text, say, which are categories
            decided = kind_of(column)
            form, kind = decided.form, "date" if decided.kind == "date" else None
            kind = "number" if decided.kind == "number" or is_number(column.type) else kind
    values = pd.Series(dtype="float64")
    if kind == "number" or kind == "date":
        form, _ = column.format_here(kind, form, None)
        values = column.feature(kind, form, Misfits(name, "numbers"))
    if values.notna().any() and kind == "number":
        names, codes = _of_ordered(values.to_numpy(np.float64), _number)
    elif values.notna().any():
        seconds = values.astype("datetime64[s]").astype(np.int64).to_numpy(np.float64)
        seconds[values.isna()] = np.nan
        is_of_day = np.nanmin(seconds) >= 0 and np.nanmax(seconds) < 86_400  # read as of 1970

        def written(each: float) -> str:
            stamp = pd.Timestamp(each, unit="s")
            return str(stamp.time() if is_of_day else stamp).removesuffix(" 00:00:00")

        names, codes = _of_ordered(seconds, written)
    else:  # by category, the most frequent first; beyond `MOST` the rarest together
        counts = (texts := column.texts()).value_counts()
        order = sorted(counts.index, key=lambda value: (-counts[value], str(value)))
        shown = len(order) if len(order) <= MOST else MOST - 1
        rarer = [f"({len(order) - shown:,} rarer values)"] if shown < len(order) else []
        names = [*map(str, order[:shown]), *rarer]
        codes = np.minimum(pd.Categorical(texts, categories=order).codes, shown)
    if (codes < 0).any():  # rows that have no value
        codes, names = np.where(codes < 0, len(names), codes), [*names, "(missing)"]
    return Slices(name, tuple(names), codes.astype(np.int64))


def _number(value: float) -> str:
    return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.8g}"


def _of_ordered(values: np.ndarray, written: Callable[[float], str]) -> tuple[list[str], np.ndarray]:
    """Group by value where there are few, else in quarters, named by the least and greatest value in them."""
    there = np.isfinite(values)
    present = values[there]
    distinct = np.unique(present)
    edges = distinct if len(distinct) <= MOST else np.unique(np.quantile(present, [0.25, 0.5, 0.75]))
    codes = np.full(len(values), -1)
    codes[there] = np.unique(np.searchsorted(edges, present, side="left"), return_inverse=True)[1]
    names = []
    for k in range(codes.max() + 1):
        low, high = written(values[codes == k].min()), written(values[codes == k].max())
        names.append(low if low == high else f"{low} to {high}")
    return names, codes

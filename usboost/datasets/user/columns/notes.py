"""What a user should know of how a column is read; each follows the column's name."""

from __future__ import annotations

import pandas as pd

from usboost.datasets.user.columns.column import MARKS, Column, Format
from usboost.datasets.user.columns.dates import DateFormat, is_partial
from usboost.errors import option


def of_typed(column: Column, form: Format | None) -> tuple[str, ...]:
    """A note of plain numbers that are text in a file that has types."""
    if column.source.as_text or form is not None:
        return ()
    return (f"holds numbers as text, and is read as numbers; {option('categorical')} takes it as categories",)


def of_marks(values: pd.Series, written: pd.Series) -> tuple[str, ...]:
    marks = values[written.isna() & values.isin(MARKS)].value_counts()
    return tuple(
        f"has {mark!r} in {count:,} row{'s' * (count != 1)}, which counts as missing"
        for mark, count in marks.items()
    )


def of_dates(counts: pd.Series, form: DateFormat) -> tuple[str, ...]:
    """Notes of dates that may be read otherwise than they were meant."""
    first = str(counts.index[0])
    notes = []
    if form.short_years:
        date = form.dates(pd.Series([first], dtype="str")).iloc[0]
        notes.append(f"holds dates such as {first!r}, which is read as {date:%Y-%m-%d}")
    if partial := int(counts[[is_partial(str(each)) for each in counts.index]].sum()):
        which = "1 date that is" if partial == 1 else f"{partial:,} dates that are"
        notes.append(f"holds {which} a month or year alone, of which the first day counts")
    return tuple(notes)


def of_most(present: pd.Series, good: pd.Series, what: str) -> tuple[str, ...]:
    share, other = int(100 * good.mean()), present[~good]
    return (
        f"holds {what} in {share} % of its values, but also {other.iloc[0]!r}, so it is not read as {what}",
    )

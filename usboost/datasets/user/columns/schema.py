"""What a table was read as, column by column, for a user to check before a model is fitted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from usboost.datasets.user.columns.dates import PARTS, DateParts, is_date
from usboost.datasets.user.columns.numbers import NumberFormat
from usboost.datasets.user.columns.suspects import warnings_of
from usboost.datasets.user.columns.texts import COMPONENTS
from usboost.datasets.user.images.values import NAMES
from usboost.datasets.user.table import LEFT_OUT
from usboost.datasets.user.user_table import UserTable
from usboost.errors import option


@dataclass(frozen=True)
class Described:
    """A column.

    Attributes
    ----------
    kind : number, category, date, text, image, label, split or, where it is not read, nothing.
    missing, distinct : rows without a value, and how many values there are; None where they were not counted.
    use : what becomes of it.
    """

    name: str
    kind: str
    missing: int | None
    distinct: int | None
    use: str


@dataclass(frozen=True)
class Schema:
    """A table.

    Attributes
    ----------
    rows : with a label; columns : in the order of the file.
    notes : what was left out or decided; warnings : what may be a mistake in the table.
    """

    rows: int
    columns: tuple[Described, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


def describe(table: UserTable) -> Schema:
    """What a table was read as.

    Parts of dates are those that vary in it; a model keeps those that vary in its training rows.
    """
    spec, notes = table.spec, [*table.file.notes, *filter(None, [table.said])]
    if table.unlabelled:
        one = table.unlabelled == 1
        rows, are = ("1 row has", "is") if one else (f"{table.unlabelled:,} rows have", "are")
        notes.append(f"{rows} no {spec.label!r} and {are} left out")
    if table.stripped:
        notes.append(f"some values of {spec.label!r} have blanks at their ends, which are removed")
    if table.weights is not None and (none := int((table.weights == 0).sum())):
        notes.append(f"{none:,} rows have the weight 0 and take no part")
    notes += [f"column {name!r} is left out: {_with_advice(why)}" for name, why in table.left_out.items()]
    found = (_described(table, name) for name in table.file.names)
    columns = tuple(each for each in found if each is not None)
    return Schema(len(table), columns, tuple(notes), tuple(warnings_of(table)))


def _with_advice(why: str) -> str:
    """Why a column is left out, and what reads it."""
    if why == LEFT_OUT["name"]:
        return f"{why}; {option('text')} takes it as text"
    return f"{why}; {option('image')} reads these" if NAMES in why else why


def _described(table: UserTable, name: str) -> Described | None:
    spec = table.spec
    if name == spec.label:
        distinct = len(table.classes) or len(np.unique(table.labels))
        use = f"{distinct} classes" if table.classes else "a number to predict"
        return Described(name, "label", table.unlabelled, distinct, use)
    if name in spec.image:
        return Described(name, "image", table.without.get(name), None, "image")
    if name == spec.split:
        return Described(name, "split", 0, 3, "split")
    for kind in ("group", "time", "weight"):
        if name == getattr(spec, kind):
            return Described(name, kind, 0, None, kind)
    if name in table.left_out:
        return Described(name, "", None, None, f"left out: {_with_advice(table.left_out[name])}")
    if name in spec.drop:
        return Described(name, "", None, None, "dropped")
    if name not in table.features:
        return None
    column = table.features[name]
    counts = int(column.isna().sum()), int(column.nunique())
    return Described(name, table.kinds[name], *counts, _use(table, name, column))


def _use(table: UserTable, name: str, column: pd.Series) -> str:
    form = table.formats.get(name)
    if is_date(column):
        parts = DateParts.fit(column).parts
        left_out = [part for part in PARTS if part not in parts]
        constant = f"; constant: {', '.join(left_out)}" if left_out else ""
        return f"{len(parts)} number{'s' * (len(parts) != 1)}: {', '.join(parts)}{constant}"
    if isinstance(form, NumberFormat):
        return f"number, written like {form}"
    if table.kinds[name] == "text":
        of = f"embeddings by {table.text_model}" if table.text_model else "character n-grams"
        return f"text: at most {COMPONENTS} components of {of}"
    return "category" if table.kinds[name] == "category" else "number"

"""What a table was read as, column by column, for a user to check before a model is fitted; and what of it
looks like a mistake: columns that give the label away, say nothing, or are there twice."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from usboost.data.pooled_images import PooledImages
from usboost.datasets.user.columns.encoding import PARTS, DateParts, is_date
from usboost.datasets.user.columns.formats import NumberFormat
from usboost.datasets.user.columns.texts import COMPONENTS, is_text
from usboost.datasets.user.images.values import NAMES, are_names_of_images
from usboost.datasets.user.read_table import LEFT_OUT
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
    notes += table.notes
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


GIVEN_AWAY = 0.995
"""AUC, or mean share of rows predicted right over the classes, from which one column alone is suspect."""

FEWEST = 50
"""Rows that a table must have for that; a class that counts has `_OF_CLASS`."""

FEW_SHARED = 0.2
"""Share of rows with the image of an earlier one, above which images are shared on purpose."""

_OF_CLASS = 5
_ROWS = 50_000  # looked at
_BINS = 64


def warnings_of(table: UserTable) -> Iterator[str]:
    """A sentence for each suspect."""
    for name in table.features:
        column = table.features[name]
        if column.nunique(dropna=False) <= 1:
            yield f"column {name!r} has the same value in all rows, so it says nothing"
        elif leaks_target(column, table.labels):
            yield (
                f"column {name!r} alone gives {table.spec.label!r} away; "
                f"drop it with {option('drop', repr(name))} if it is not known before the label"
            )
        if not isinstance(column.dtype, np.dtype) and are_names_of_images(column):
            yield f"column {name!r} {NAMES}; {option('image')} reads these"
    first: dict[str, object] = {}
    for name in table.features:
        same = first.setdefault(_digest(table.features[name]), name)
        if same != name:
            yield f"column {name!r} holds the same as {same!r}; one of them can be dropped"
    shown = _images(table)
    yield from _of_images(shown)
    if table.spec.image and not table.images:
        return  # rows may differ in images that were not read
    if table.features.shape[1]:
        rows = pd.concat([table.features, pd.Series(table.labels), shown], axis=1)
        if repeated := int(rows.duplicated().sum()):
            yield f"{repeated:,} row{'s are' if repeated > 1 else ' is'} equal to an earlier one"
        elif table.groups is None:
            yield from _shared(shown)


def _images(table: UserTable) -> pd.DataFrame:
    """What each row's image is, by column: int64, equal where the pixels are, 0 where there is none."""
    views = table.images.values()
    images = [
        each for view in views for each in (view.columns if isinstance(view, PooledImages) else (view,))
    ]
    found = {}
    for name, each in zip(table.form.columns if table.form else (), images, strict=True):
        digests = each.digests().view(np.int64)[:, 0]
        found[name] = digests if each.absent is None else np.where(each.absent, 0, digests)
    return pd.DataFrame(found)


def _of_images(shown: pd.DataFrame) -> Iterator[str]:
    for k, name in enumerate(shown):
        if shown[name].nunique() == 1:
            yield f"column {name!r} has the same image in all rows, so it says nothing"
        for other in shown.columns[:k]:
            if (shown[other] == shown[name]).all():
                yield f"column {name!r} holds the same images as {other!r}; leave one of them out"
                break


def _shared(shown: pd.DataFrame) -> Iterator[str]:
    """Images that a few rows have in common, so that a model may be scored on what it has seen."""
    for name in shown:
        present = shown.loc[shown[name] != 0, name]
        repeated = int(present.duplicated().sum())
        if 0 < repeated <= FEW_SHARED * len(present):
            yield (
                f"column {name!r}: {repeated:,} row{'s have' if repeated > 1 else ' has'} the image of an "
                f"earlier one; {option('group')} keeps together what belongs together"
            )


def leaks_target(column: pd.Series, labels: np.ndarray) -> bool:
    """Whether one column alone predicts the label.

    Of a number to predict, it explains nearly all of the variance: each row is predicted by the mean of the
    other rows with its value, or in its quantile of 64. Of two classes, by the area under the ROC curve of
    its numbers; else each row gets the class that most others with its value or in its quantile have, and the
    shares that are right are averaged over the classes. Missing values count as a value.

    Parameters
    ----------
    column : n rows of a feature; labels : int64 codes of shape (n,), or float64 numbers.
    """
    n = len(labels)
    if n > _ROWS:
        rows = np.random.default_rng(0).choice(n, _ROWS, replace=False)
        column, labels, n = column.iloc[rows], labels[rows], _ROWS
    if labels.dtype.kind == "f":
        return n >= FEWEST and _explained(_values(column), labels) >= GIVEN_AWAY
    sizes = np.bincount(labels)
    counted = np.flatnonzero(sizes >= _OF_CLASS)
    if n < FEWEST or len(counted) < 2:
        return False
    if isinstance(column.dtype, np.dtype):
        # days, say, rank as their dates do
        numbers = column.rank(method="average").to_numpy()
        present = ~np.isnan(numbers)
        if len(sizes) == 2 and present.all() and _auc(numbers, labels) >= GIVEN_AWAY:
            return True
    values = _values(column)
    table = np.zeros((values.max() + 1, len(sizes)), dtype=np.int64)
    np.add.at(table, (values, labels), 1)
    right = np.zeros(len(sizes))
    for k in range(len(sizes)):
        others = np.delete(table, k, axis=1).max(axis=1)
        right[k] = table[table[:, k] - 1 > others, k].sum()
    return bool((right[counted] / sizes[counted]).mean() >= GIVEN_AWAY)


def _values(column: pd.Series) -> np.ndarray:
    """Codes of a column's values, or of the quantiles of its numbers."""
    if isinstance(column.dtype, np.dtype) and column.nunique() > _BINS:
        # days, say, rank as their dates do
        cut = pd.qcut(column.rank(method="average").to_numpy(), _BINS, duplicates="drop")
        return pd.factorize(cut, use_na_sentinel=False)[0]
    return pd.factorize(column, use_na_sentinel=False)[0]


def _explained(values: np.ndarray, y: np.ndarray) -> float:
    """R² of predicting each row by the mean of the others of its value."""
    counts = np.bincount(values)[values]
    others = (np.bincount(values, weights=y)[values] - y) / np.maximum(counts - 1, 1)
    residual = np.where(counts > 1, y - others, y - y.mean())
    return 1 - float(np.square(residual).sum() / np.square(y - y.mean()).sum())


def _auc(ranks: np.ndarray, labels: np.ndarray) -> float:
    """The larger of the areas under the ROC curve of rising and falling values."""
    ones = int(labels.sum())
    zeros = len(labels) - ones
    area = (ranks[labels == 1].sum() - ones * (ones + 1) / 2) / (ones * zeros)
    return float(max(area, 1 - area))


def _digest(column: pd.Series) -> str:
    if isinstance(column.dtype, np.dtype):
        data = (column.astype("int64") if is_date(column) else column).to_numpy().tobytes()
    elif is_text(column):
        data = repr(column.tolist()).encode()
    else:
        data = column.cat.codes.to_numpy(np.int32).tobytes() + repr(list(column.cat.categories)).encode()
    return hashlib.sha256(data).hexdigest()

"""The schema of a table, for a user to check before a model is fitted; and what of it looks like a mistake:
columns that give the label away, say nothing, or are there twice."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from usboost.data.value import TRUTH
from usboost.evaluation.metrics import auc
from usboost.table.columns.column import MISSING
from usboost.table.columns.encoding import PARTS, DateParts, holds_dates
from usboost.table.columns.formats import NumberFormat
from usboost.table.columns.texts import COMPONENTS
from usboost.table.images import NAMES, are_names_of_images
from usboost.table.notes import sentences
from usboost.table.user_table import UserTable


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
    """Describe what a table was read as.

    Parts of dates are those that vary in it; a model keeps those that vary in its training rows.
    """
    spec, notes = table.spec, [*table.file.notes, *filter(None, [table.said])]
    if table.unlabelled:
        one = table.unlabelled == 1
        rows, are = ("1 row has", "is") if one else (f"{table.unlabelled:,} rows have", "are")
        notes.append(f"{rows} no {spec.label!r} and {are} left out")
    if table.stripped:
        notes.append(f"some values of {spec.label!r} have blanks at their ends, which count for nothing")
    if table.weightless:
        notes.append(f"{table.weightless:,} rows have the weight 0 and take no part")
    notes += table.notes
    notes += [f"column {name!r} is left out: {why}" for name, why in table.left_out.items()]
    columns = filter(None, (_described(table, name) for name in table.file.names))
    return Schema(len(table), tuple(columns), tuple(notes), tuple(warnings_of(table)))


def notes_of_table(table: UserTable, schema: Schema) -> list[str]:
    """Say of a table to be fitted to what was left out or decided, what may be a mistake, and which of its
    images cannot be read. `schema`: of the table, see `describe`."""
    return [*schema.notes, *schema.warnings, *sentences(table.paths, table.misfits)]


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
    for role in ("group", "time", "weight"):
        if name == getattr(spec, role):
            return Described(name, role, 0, None, role)
    if name in table.left_out:
        return Described(name, "", None, None, f"left out: {table.left_out[name]}")
    if name in spec.drop:
        return Described(name, "", None, None, "dropped")
    if name not in table.features:
        return None
    column, kind, form = table.features[name], table.kinds[name], table.formats.get(name)
    use = "category" if kind == "category" else "number"
    if holds_dates(column):
        parts = DateParts.fit(column).parts
        constant = ", ".join(part for part in PARTS if part not in parts)
        use = f"{len(parts)} number{'s' * (len(parts) != 1)}: {', '.join(parts)}"
        use += f"; constant: {constant}" if constant else ""
    elif isinstance(form, NumberFormat):
        use = f"number, written like {form}"
    elif kind == "text":
        use = f"text: scores and at most {COMPONENTS} components of character n-grams"
    return Described(name, kind, int(column.isna().sum()), int(column.nunique()), use)


GIVEN_AWAY = 0.995
"""AUC, or mean share of rows predicted right over the classes, from which one column alone is suspect."""

FEWEST = 50
"""Rows that a table must have for that; a class that counts has `_OF_CLASS`."""

FAR = 10
"""Times the distance of all others from the median at which numbers to predict are said to be far off."""

FEW_SHARED = 0.2
"""Share of rows with the image of an earlier one, above which images are shared on purpose."""

WIDE, DIM, LOOKED_AT = 1000, 26, 200
"""Ratio of a label's quantiles, and brightness of the first images, from which on a note is made."""

_OF_CLASS = 5
_ROWS = 50_000  # looked at
_BINS = 64


def warnings_of(table: UserTable) -> Iterator[str]:
    """Yield a sentence for each suspect."""
    for each in table.classes:
        if each in MISSING:
            yield f"class {each!r} may stand for no label; `missing={each!r}` leaves its rows out"
    held = {"classes": table.classes}
    for name, column in table.features.select_dtypes("category").items():
        if not {*column.cat.categories.str.lower()} <= TRUTH.keys():  # whose spellings are one
            held[f"categories of {name!r}"] = column.cat.categories.tolist()
    for what, names in held.items():
        spelt: dict[str, str] = {}
        for each in names:
            if (other := spelt.setdefault(each.casefold(), each)) != each:
                yield f"the {what} {other!r} and {each!r} differ in case alone; if they are one, write it so"
                break
    if not table.classes and len(table) >= FEWEST:
        off = np.sort(abs(table.labels - np.median(table.labels)))[-(len(table) // 100 + 2) :]
        if len(jumps := np.flatnonzero((off[1:] > FAR * off[:-1]) & (off[:-1] > 0))):
            yield (
                f"in {len(off) - 1 - jumps[0]} of {len(table):,} rows {table.spec.label!r} is over {FAR} "
                "times farther from its median than in others; mend what is a mistake, as the fit follows it"
            )
        ends = np.quantile(table.labels, [0.01, 0.99]) if table.labels.min() > 0 else np.ones(2)
        if ends[1] >= WIDE * ends[0]:
            yield (
                f"{table.spec.label!r} is {ends[0]:.3g} to {ends[1]:.3g}, and its largest values count most; "
                "if ratios matter, make its logarithm the label"
            )
    first: dict[str, object] = {}
    twice = []
    for name, column in table.features.items():
        if column.nunique(dropna=False) <= 1:
            yield f"column {name!r} has the same value in all rows, so it says nothing"
            continue
        if leaks_target(column, table.labels):
            yield (
                f"column {name!r} alone gives {table.spec.label!r} away; "
                f"drop it with `drop={name!r}` if it is not known before the label"
            )
        if not isinstance(column.dtype, np.dtype) and are_names_of_images(column):
            yield f"column {name!r} {NAMES}"
        data = pd.util.hash_pandas_object(column, index=False).to_numpy()
        same = first.setdefault(hashlib.sha256(data).hexdigest(), name)
        if same != name:
            twice.append(f"column {name!r} holds the same as {same!r}; one of them can be dropped")
    yield from twice
    # of each row's image, by column: int64, equal where the pixels are, 0 where there is none
    shown = pd.DataFrame()
    for k, (name, view) in enumerate(zip(table.spec.image, table.images.values())):
        digests = view.digests().view(np.int64)[:, 0]
        shown[name] = digests if view.absent is None else np.where(view.absent, 0, digests)
        there = np.flatnonzero(shown[name])[:LOOKED_AT]
        if len(there) and (brightest := int(view.decode(there).max())) < DIM:
            yield (
                f"{len(there)} images in {name!r} have no pixel above {brightest} of 255; stretch dim 16-bit "
                "ones, which are read from 0 to 65,535, to 8 bits"
            )
        elif shown[name].nunique() == 1:
            yield f"column {name!r} has the same image in all rows, so it says nothing"
        if alike := [other for other in shown.columns[:k] if (shown[other] == shown[name]).all()]:
            yield f"column {name!r} holds the same images as {alike[0]!r}; leave one of them out"
    if (table.spec.image and not table.images) or not table.features.shape[1]:
        return  # rows may differ in images that were not read
    rows = pd.concat([table.features, pd.Series(table.labels), shown], axis=1)
    if repeated := int(rows.duplicated().sum()):
        yield f"{repeated:,} row{'s are' if repeated > 1 else ' is'} equal to an earlier one"
        return
    # images that a few rows have in common: a model may be scored on what it has seen
    for name in shown if table.groups is None else ():
        present = shown.loc[shown[name] != 0, name]
        repeated = int(present.duplicated().sum())
        if 0 < repeated <= FEW_SHARED * len(present):
            yield (
                f"column {name!r}: {repeated:,} row{'s have' if repeated > 1 else ' has'} the image of an "
                f"earlier one; `group` keeps together what belongs together"
            )


def leaks_target(column: pd.Series, labels: np.ndarray) -> bool:
    """Return whether one column alone predicts the label.

    Of a number to predict, it explains nearly all of the variance: each row is predicted by the mean of the
    other rows with its value, or in its quantile of 64. Of two classes, by the area under the ROC curve of
    its numbers; else each row gets the class that most others with its value or in its quantile have, and the
    shares that are right are averaged over the classes. Missing values count as a value. `column`: n rows of
    a feature; `labels`: int64 codes of shape (n,), or float64 numbers.
    """
    n, is_number = len(labels), labels.dtype.kind == "f"
    if n > _ROWS:
        rows = np.random.default_rng(0).choice(n, _ROWS, replace=False)
        column, labels, n = column.iloc[rows], labels[rows], _ROWS
    sizes = np.zeros(0) if is_number else np.bincount(labels)
    counted = np.flatnonzero(sizes >= _OF_CLASS)
    if n < FEWEST or (len(counted) < 2 and not is_number):
        return False
    values: object = column
    if isinstance(column.dtype, np.dtype):
        ranks = column.rank(method="average").to_numpy()  # days, say, rank as their dates do
        if len(sizes) == 2 and not np.isnan(ranks).any():
            area = auc(labels == 1, ranks)
            if max(area, 1 - area) >= GIVEN_AWAY:
                return True
        if column.nunique() > _BINS:
            ends = np.nanquantile(ranks, np.arange(1, _BINS) / _BINS)
            values = np.where(np.isnan(ranks), -1, np.searchsorted(ends, ranks))
    codes = pd.factorize(values, use_na_sentinel=False)[0]
    if is_number:
        counts, total = np.bincount(codes)[codes], labels - labels.mean()
        others = (np.bincount(codes, weights=labels)[codes] - labels) / np.maximum(counts - 1, 1)
        residual = np.where(counts > 1, labels - others, total)
        return bool(1 - np.square(residual).sum() / np.square(total).sum() >= GIVEN_AWAY)
    table = np.zeros((codes.max() + 1, len(sizes)), dtype=np.int64)
    np.add.at(table, (codes, labels), 1)
    right = np.zeros(len(sizes))
    for k in range(len(sizes)):
        most = np.delete(table, k, axis=1).max(axis=1)
        right[k] = table[table[:, k] - 1 > most, k].sum()
    return bool((right[counted] / sizes[counted]).mean() >= GIVEN_AWAY)

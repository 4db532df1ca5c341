"""A column of labels: its classes, and the split that each row is in."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from usboost.data.value import canonical, find, shown
from usboost.errors import UsboostError, choices
from usboost.shards.collective import world
from usboost.table.columns.column import MARKS, MISSING, Column, is_date, is_text, is_usable
from usboost.table.columns.formats import NumberFormat, number_format
from usboost.table.columns.kinds import MOSTLY, kind_of
from usboost.table.spec import TableSpec


def classes_of(column: Column) -> tuple[np.ndarray, list[str]]:
    """Return the column as labels: codes int64 of shape (n,), −1 where it is missing, and the classes' names.

    Labels of one canonical form are one class; of text, it is called as most of these rows have it. Among
    numbers, a mark such as ``?`` is missing. Raises UsboostError if all are missing, they are fractions, all
    of one class, or nearly all of different ones.
    """
    where = f"{column.source}: the label column {column.name!r}"
    if not is_usable(column.type):
        raise UsboostError(f"{where} holds bytes, or values of several parts; name a column of classes")
    texts = column.plain() if is_text(column.type) else column.texts()
    marked = texts.isin([*MISSING, *MARKS])
    numbers = _label_numbers(column) if marked.any() else None
    if numbers is not None and not np.isinf(numbers).any():  # else classes that are called so
        texts = texts.mask(marked)
    if is_text(column.type):
        counts = texts.value_counts(sort=False)
        forms = {name: canonical(name) for name in counts.index}
        called: dict[str, str] = {}  # of equal ones the first of the most frequent
        for name in counts.sort_values(ascending=False, kind="stable").index:
            called.setdefault(forms[name], name)
        if len(called) < len(forms):
            texts = texts.map({name: called[form] for name, form in forms.items()})
    present = texts.dropna()
    if not len(present):
        raise UsboostError(f"{where} is empty; name another")
    numbers = pd.to_numeric(present, errors="coerce").astype("float64")
    are_numbers = bool(numbers.notna().all())
    if np.isinf(numbers).any() and (are_numbers and (not is_text(column.type) or column.source.as_text)):
        raise UsboostError(f"{where} holds infinity; correct it or leave it empty")
    if pa.types.is_floating(column.type) and (numbers % 1 != 0).any():
        raise UsboostError(
            f"{where} holds continuous values, fractions, but classes are needed; predict the number instead "
            f"(`task=regression`, or `MultimodalRegressor`)"
        )
    distinct = present.unique().tolist()
    if len(distinct) == 1:
        raise UsboostError(f"{where} holds one class only, {distinct[0]!r}; give rows of another, too")
    if len(distinct) > max(2, len(present) / 2):
        _check_numbers(column)
        raise UsboostError(
            f"{where} has {len(distinct)} values in {len(present)} rows, but a class needs several rows; "
            "name a column of classes"
        )
    classes = sorted(distinct, key=float) if are_numbers else sorted(distinct)
    known = {value: code for code, value in enumerate(classes)}
    return texts.map(known).fillna(-1).to_numpy(np.int64), classes


def with_positive(
    codes: np.ndarray, classes: list[str], positive: str | None, column: Column
) -> tuple[np.ndarray, list[str]]:
    """Return the same labels with the positive one of two classes second.

    Raises UsboostError if one is named of more classes than two, or there is none of that name. `codes`,
    `classes`: as of `classes_of`; `positive`: its name, by default the rarer class's.
    """
    positive = find({name: name for name in classes}, [positive]).get(positive, positive)
    if positive is not None and (len(classes) != 2 or positive not in classes):
        what = f"has no such class; {choices(positive, classes, 'it has')}"
        if len(classes) != 2:
            what = f"has {len(classes)} classes, but `positive` is one of two; leave it out"
        given = f"`positive={positive!r}`"
        raise UsboostError(f"{column.source}: {given}: the label {column.name!r} {what}")
    if len(classes) != 2:
        return codes, classes
    counts = np.bincount(codes[codes >= 0], minlength=2)
    first = classes[0] == positive if positive is not None else counts[0] < counts[1]
    return (np.where(codes < 0, codes, 1 - codes), classes[::-1]) if first else (codes, classes)


_LARGEST = 1e100
FEW_VALUES, MANY_VALUES = 5, 20
"""Up to so many whole numbers are taken for classes; up to so many if they count from 0 or 1 on."""


def task_of(column: Column) -> tuple[Literal["classification", "regression"], str]:
    """Decide what a column of labels asks for; return a sentence that says so, too.

    Text, booleans and categories are classes. So are whole numbers if there are at most `FEW_VALUES`, or at
    most `MANY_VALUES` that count from 0 or 1 on, each in two rows or more. All other numbers are predicted as
    numbers: years, ages and points follow on each other, too, and counts have rare ends.
    """
    numbers = _label_numbers(column)
    if numbers is None or pa.types.is_boolean(column.type) or column.name in column.source.declared:
        return "classification", ""
    values = numbers.to_numpy(np.float64)
    values, rows = np.unique(values[np.isfinite(values)], return_counts=True)
    whole = bool((values % 1 == 0).all())
    codes = len(values) <= MANY_VALUES and bool((np.diff(values) == 1).all())
    codes = codes and bool(np.isin(values[:1], (0, 1)).all() and (rows > 1).all())
    different = f"{len(values):,} different {'whole numbers' if whole else 'numbers'}"
    if whole and (len(values) <= FEW_VALUES or codes):
        return "classification", f"the label {column.name!r} has {different}, taken as classes"
    return "regression", f"the label {column.name!r} has {different}, so a number is predicted"


def targets_of(column: Column, *, several: bool = True) -> np.ndarray:
    """Return the column as numbers to predict, float64 of shape (n,), NaN where it is missing.

    Raises UsboostError if it holds anything but finite numbers. `several`: refuse a column of which all are
    missing or equal.
    """
    numbers, where = _label_numbers(column), f"{column.source}: the label column {column.name!r}"
    if numbers is None:
        _check_numbers(column)
        instead = "; predict classes instead (`task=classification`, or `MultimodalClassifier`)" * several
        raise UsboostError(f"{where} holds something that is no number{instead}")
    values = numbers.to_numpy(np.float64)
    present = values[~np.isnan(values)]
    if several and not len(present):
        raise UsboostError(f"{where} is empty; name another")
    if not np.isfinite(present).all():
        row = column.row(int(np.isinf(values).argmax()))
        raise UsboostError(f"{row}: the label {column.name!r} is infinite; correct it or leave it empty")
    if np.abs(present).max(initial=0) > _LARGEST:  # whose squares are not finite
        raise UsboostError(f"{where} holds {np.abs(present).max():g}, which is too large; rescale it first")
    if several and np.ptp(present) == 0:
        raise UsboostError(f"{where} holds {present[0]:g} only, so nothing can be learnt; name another")
    return values


def _label_numbers(column: Column) -> pd.Series | None:
    """Return the numbers of a column that holds nothing else, however they are written; None of another."""
    if is_date(column.type) or pa.types.is_boolean(column.type) or not is_usable(column.type):
        return None
    if not is_text(column.type):
        return column.numbers()
    if column.has_limits:
        return None
    try:
        kind = kind_of(column)
    except UsboostError:
        return None
    form = kind.form if isinstance(kind.form, NumberFormat) else None
    return column.numbers(form) if kind.kind in ("number", "identifier", "index") else None


def _check_numbers(column: Column) -> None:
    """Refuse labels that are dates, or of which most are numbers, naming the first that is none."""
    try:
        are_dates = is_date(column.type) or kind_of(column).kind == "date"
    except UsboostError:  # which a column to learn from would have
        are_dates = False
    if are_dates:
        raise UsboostError(
            f"{column.source}: the label column {column.name!r} holds dates, which no model predicts; give "
            "numbers, the days since one of them say, or classes, the months say"
        )
    present = column.written(limits=False).dropna() if is_text(column.type) else pd.Series(dtype="str")
    form, share = number_format(present, column.source.decimal) if len(present) else (NumberFormat(), 0.0)
    if MOSTLY <= share < 1:
        k = int(form.numbers(present).isna().idxmax())
        value = shown(column.plain().iloc[k])
        raise UsboostError(
            f"{column.row(k)}: the label {column.name!r} is {value}, but most are numbers; correct it, or "
            f"count it as missing with `missing={value}`"
        )


def weights_of(column: Column, rows: np.ndarray) -> np.ndarray:
    """Return the column's values in n rows as weights, float64 of shape (n,).

    Raises UsboostError if one is missing, negative or no number, or all are 0.
    """
    numbers = _label_numbers(column)
    numbers = column.numbers() if numbers is None else numbers  # True is 1
    values = np.full(len(rows), np.nan) if numbers is None else numbers.to_numpy(np.float64)[rows]
    good = np.isfinite(values) & (values >= 0)
    if not good.all():
        row = column.row(int(rows[good.argmin()]))
        raise UsboostError(f"{row}: the weight {column.name!r} must be a number of at least 0")
    if not world().highest(bool(values.any())):
        raise UsboostError(f"{column.source}: all weights {column.name!r} are zero")
    return values


def times_of(column: Column, rows: np.ndarray) -> np.ndarray:
    """Return the column's values in n rows as numbers or dates that can be sorted, of shape (n,).

    Raises UsboostError if one is missing, or it holds neither numbers nor dates.
    """
    decided = kind_of(column)
    kind = "number" if decided.kind in ("identifier", "index") else decided.kind
    if kind not in ("number", "date"):
        raise UsboostError(f"{column.source}: the time column {column.name!r} must hold numbers or dates")
    values = column.feature(kind, decided.form).iloc[rows]
    if values.isna().any():
        row = column.row(int(rows[values.isna().argmax()]))
        raise UsboostError(f"{row}: the time {column.name!r} is missing; fill it or leave out the row")
    return values.to_numpy()


def codes_of(column: Column, known: Mapping[str, int]) -> np.ndarray:
    """Return the column as labels of known classes: their codes, int64 of shape (n,), −1 where it is missing.

    They may be written otherwise, see `usboost.data.value.find`. Raises UsboostError, naming the first row
    that has another.
    """
    texts = column.plain() if is_text(column.type) else column.texts()
    codes = texts.map(find(known, texts.dropna().unique()))
    unknown = codes.isna() & texts.notna() & ~texts.isin([*MISSING, *MARKS])
    if unknown.any():
        k = int(unknown.argmax())
        raise UsboostError(
            f"{column.row(k)}: {column.name!r} is {shown(texts.iloc[k])}, which is none of the model's "
            f"classes {', '.join(known)}"
        )
    return codes.fillna(-1).to_numpy(np.int64)


def splits_of(column: Column, rows: np.ndarray) -> np.ndarray:
    """Return the column's values in n rows as names of splits, str of shape (n,).

    Raises UsboostError if one is missing, is none of train, val and test, or train or val is nowhere.
    """
    texts = column.filled(rows).to_numpy()
    unknown = set(texts) - {"train", "val", "test"}
    missing = {name for name in ("train", "val") if not world().highest(name in texts)}
    if unknown or missing:
        what = "unknown" if unknown else "missing from the rows to learn from"
        what = f"{min(unknown or missing)!r} is {what}"
        raise UsboostError(
            f"{column.source}: the split column {column.name!r} must hold train, val and, where rows are for "
            f"the test, test; {what}"
        )
    return texts


def divided_by(column: Callable[[str], Column], spec: TableSpec, labelled: np.ndarray) -> dict[str, Any]:
    """Read which rows count, and how they are divided and weighted, by the field of `UserTable`.

    `column` reads one; its other rows may hold anything. `labelled`, bool (n,): the rows that have a label.
    """
    rows = np.flatnonzero(labelled)
    divided: dict[str, Any] = {"unlabelled": len(labelled) - len(rows)}
    if spec.weight is not None:  # of mean 1
        weights = weights_of(column(spec.weight), rows)
        divided["weightless"] = int((weights == 0).sum())
        rows, weights = rows[weights > 0], weights[weights > 0]
        divided["weights"] = weights / (world().sum(float(weights.sum())) / world().sum(float(len(rows))))
    divided["rows"] = rows
    if spec.split is not None:
        divided["split"] = splits_of(column(spec.split), rows)
    if spec.group is not None:  # int64 codes; none may be missing
        names = column(spec.group).filled(rows)
        divided["groups"] = pd.factorize(names, sort=True)[0].astype(np.int64)
    if spec.time is not None:
        divided["times"] = times_of(column(spec.time), rows)
    return divided

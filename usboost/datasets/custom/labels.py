"""A column of labels: its classes, and the split that each row is in."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import pyarrow as pa

from usboost.datasets.custom.columns import Column
from usboost.errors import UsboostError


def classes_of(column: Column) -> tuple[np.ndarray, list[str]]:
    """The column as labels: codes int64 of shape (n,), −1 where it is missing, and the classes' names.

    Raises
    ------
    UsboostError
        If all are missing, they are fractions, all of one class, or nearly all of different ones.
    """
    texts = column.texts()
    present = texts.dropna()
    if not len(present):
        raise UsboostError(f"{column.source}: the label column {column.name!r} is empty; name another")
    numbers = pd.to_numeric(present, errors="coerce").astype("float64")
    if pa.types.is_floating(column.type) and (numbers % 1 != 0).any():
        raise UsboostError(
            f"{column.source}: the label column {column.name!r} holds fractions, but classes are needed"
        )
    distinct = present.unique().tolist()
    if len(distinct) == 1:
        raise UsboostError(
            f"{column.source}: the label column {column.name!r} holds one class only, {distinct[0]!r}; "
            "give rows of another, too"
        )
    if len(distinct) > max(2, len(present) / 2):
        raise UsboostError(
            f"{column.source}: the label column {column.name!r} has {len(distinct)} values in {len(present)} "
            "rows, but a class needs several rows; name a column of classes"
        )
    classes = sorted(distinct, key=float) if numbers.notna().all() else sorted(distinct)
    known = {value: code for code, value in enumerate(classes)}
    return texts.map(known).fillna(-1).to_numpy(np.int64), classes


def codes_of(column: Column, known: Mapping[str, int]) -> np.ndarray:
    """The column as labels of known classes: their codes, int64 of shape (n,).

    Raises
    ------
    UsboostError
        Naming the first row that has none, or another.
    """
    texts = column.filled()
    codes = texts.map(known)
    if codes.isna().any():
        k = int(np.flatnonzero(codes.isna())[0])
        raise UsboostError(
            f"{column.row(k)}: {column.name!r} is {texts.iloc[k]!r}, which is none of the model's "
            f"classes {', '.join(known)}"
        )
    return codes.to_numpy(np.int64)


def splits_of(column: Column) -> np.ndarray:
    """The column as names of splits, str of shape (n,).

    Raises
    ------
    UsboostError
        If one is missing, is none of train, val and test, or one of these is nowhere.
    """
    texts = column.filled().to_numpy()
    found, wanted = set(texts), {"train", "val", "test"}
    if found != wanted:
        extra = sorted(found - wanted) or sorted(wanted - found)
        what = "unknown" if found - wanted else "missing"
        raise UsboostError(
            f"{column.source}: the split column {column.name!r} must hold train, val and test; "
            f"{extra[0]!r} is {what}"
        )
    return texts

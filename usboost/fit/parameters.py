"""Checks of what a user of Python gives: X in place of a file, and the estimators' parameters."""

import math
import numbers
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy.sparse import issparse
from sklearn.utils import check_random_state

from usboost.data.value import canonical
from usboost.errors import UsboostError, listed, warn


def frame_of(X: Any, names: Sequence[str] | None = None) -> pd.DataFrame:
    """Return X as a DataFrame whose columns have strings for names.

    Raises UsboostError if X is sparse, complex, or has not two dimensions.

    Parameters
    ----------
    X : a table with names, of pandas, or of pyarrow, polars, dask or another library that gives its columns
        as Arrow or pandas does; or array (n, p), of which the columns are called x0, x1, …
    names : of the columns that a model was fitted to. What has no names, an array or a DataFrame with the
        columns 0, 1, … that pandas gives, has these in their order; a warning says so where they are names.
    """
    if issparse(X):
        raise UsboostError("X is a sparse matrix, which is not supported; give X.toarray() or a DataFrame")
    frame = _named_columns(X)
    if frame is not None:
        if frame.columns.nlevels > 1:
            raise UsboostError("X has columns of several levels; give each column one name")
        counted = isinstance(frame.columns, pd.RangeIndex) and list(frame.columns) == [*range(frame.shape[1])]
        frame = frame.rename(columns=str)
        if names is None or not counted or set(names) & set(frame.columns):
            return frame
    else:
        array = np.asarray(X)
        if isinstance(X, (list, tuple)) and array.ndim == 2 and array.dtype.kind in "US":
            # in which NaN and numbers stay what they are
            array = pd.DataFrame(list(X)).to_numpy(dtype=object)
        if array.ndim != 2:
            raise UsboostError(
                f"Expected 2D array or DataFrame, got {array.ndim}D array instead. Reshape your data with "
                "X.reshape(-1, 1) if it has a single column, or X.reshape(1, -1) if it is a single row."
            )
        if np.iscomplexobj(array):
            raise UsboostError("Complex data not supported; give real and imaginary part as two columns")
        frame = pd.DataFrame(array)
    width = frame.shape[1]
    if names is None or len(names) != width:  # another number is refused by who knows of what
        return frame.set_axis([f"x{k}" for k in range(width)], axis=1)
    if sorted(names) not in (sorted(map(str, range(width))), sorted(f"x{k}" for k in range(width))):
        warn(f"X has no names of columns, which are taken in the order of the fit: {listed(names)}")
    return frame.set_axis(list(names), axis=1)


def has_names(X: Any) -> bool:
    """Return whether the columns of X have names, as those of an array do not."""
    return hasattr(X, "columns") or bool(getattr(getattr(X, "dtype", None), "names", None))


def _named_columns(X: Any) -> pd.DataFrame | None:
    """Return a table of any library as a DataFrame; None of what has no names of columns."""
    if isinstance(X, pd.DataFrame) or not has_names(X):
        return X if isinstance(X, pd.DataFrame) else None
    for lazy in ("compute", "collect"):  # dask's, polars'
        if hasattr(X, lazy):
            return _named_columns(getattr(X, lazy)())
    if hasattr(X, "__arrow_c_stream__"):
        table = pa.table(X)
        exact = {kind: pd.ArrowDtype(kind) for kind in table.schema.types if not pa.types.is_dictionary(kind)}
        return table.to_pandas(types_mapper=exact.get)
    for name in ("to_pandas", "toPandas"):
        if hasattr(X, name):
            return _named_columns(getattr(X, name)())
    return pd.DataFrame.from_records(X) if isinstance(X, np.ndarray) and X.ndim == 1 else None


def column_of(values: Any) -> Any:
    """Return labels, groups, times or weights as an array, of any shape.

    Of a list some of which are missing, NaN stays missing among strings and booleans. Bytes are text.
    """
    kind = getattr(getattr(values, "dtype", None), "kind", "O" if isinstance(values, (list, tuple)) else "")
    if kind in ("S", "O") and np.ndim(values) == 1 and any(isinstance(each, bytes) for each in values):
        try:
            values = [each.decode() if isinstance(each, bytes) else each for each in values]
        except UnicodeDecodeError as error:
            raise UsboostError(f"{error.object!r} is no UTF-8; decode such bytes first") from None
    if isinstance(values, (pd.Series, pd.Index)):
        return values.array
    array = np.asarray(values)
    if isinstance(values, (list, tuple)) and array.ndim == 1 and len(array):
        given = pd.Series(list(values), dtype=object)
        present = np.asarray(given.dropna().tolist())
        if given.isna().any() and present.dtype.kind in "USb":
            array = np.full(len(given), None, dtype=object)
            array[given.notna()] = present
    return array


def label_name(value: Any) -> str:
    """Return what a label's class is called, however it is typed or written; bytes are text."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    return canonical(text.strip() if isinstance(text, str) else text)


def _is_truth(value: Any) -> bool:
    return isinstance(value, (bool, np.bool_))


def _is_whole(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not _is_truth(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not _is_truth(value) and math.isfinite(value)


_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "rounds": (lambda value: _is_whole(value) and value >= 1, "a whole number of at least 1"),
    "size": (
        lambda value: value == "auto" if isinstance(value, str) else _is_whole(value) and value >= 8,
        "'auto' or a whole number of pixels, 8 or more",
    ),
    "time_limit": (lambda value: _is_number(value) and value >= 0, "a number of seconds"),
    "threshold": (
        lambda value: value == "f1" if isinstance(value, str) else _is_number(value) and 0 < value < 1,
        "'f1' or a number between 0 and 1",
    ),
    "finetune": (lambda value: value in ("auto", "none", "last", "all"), "'auto', 'none', 'last' or 'all'"),
    "device": (
        lambda value: str(value).partition(":")[0] in ("auto", "cpu", "cuda"),
        "'auto', 'cpu' or 'cuda'",
    ),
    "callbacks": (lambda value: isinstance(value, Iterable), "a list of callbacks"),
    **dict.fromkeys(("calibrate", "refit", "skip_unreadable"), (_is_truth, "True or False")),
}


def check_parameters(estimator: Any) -> None:
    """Refuse a value that would be found out only after a fit, or never. None is always allowed.

    Raises UsboostError, naming the parameter, and what it may be.
    """
    for name, (holds, words) in _CHECKS.items():
        value = getattr(estimator, name, None)
        if value is not None and not holds(value):
            raise UsboostError(f"{name} is {value!r}; it must be {words}")


def seed_of(random_state: Any) -> int:
    """Return the seed that is set by scikit-learn's `random_state`: None and a RandomState draw one.

    Raises UsboostError if it is none of these, or a number below 0.
    """
    if _is_whole(random_state) and 0 <= random_state < 2**32:
        return int(random_state)
    if random_state is None or isinstance(random_state, np.random.RandomState):
        return int(check_random_state(random_state).randint(2**31 - 1))
    raise UsboostError(f"random_state is {random_state!r}; give a whole number from 0, None or a RandomState")

"""Plain arrays and DataFrames as what methods with a single view read."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import pandas as pd

from usboost.errors import UsboostError
from usboost.views import Table, Views

VIEW = "x"
"""Name of the one view."""


def as_table(X: Any, n_columns: int | None = None) -> Table:
    """X as a table: a `Table` as it is, Views' tables side by side, else an array (n, p) of numbers.

    Raises
    ------
    UsboostError
        If X is not numeric or finite, or has not `n_columns` columns.
    """
    if isinstance(X, Views):
        X = X[VIEW] if VIEW in X.names else reduce(Table.beside, (X[name] for name in X.names))
    if not isinstance(X, Table):
        names = tuple(map(str, X.columns)) if isinstance(X, pd.DataFrame) else ()
        try:
            values = np.asarray(X, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise UsboostError(f"X is not numeric ({error}); encode it, or pass a Table") from error
        if values.ndim != 2:
            raise UsboostError(f"X must have two dimensions (rows, columns), not {values.ndim}")
        wrong = np.argwhere(~(np.abs(values) <= np.finfo(np.float32).max))
        if len(wrong):
            i, j = wrong[0]
            column = names[j] if names else j
            raise UsboostError(f"row {i} of X holds {values[i, j]} in column {column}; fill it in")
        X = Table.from_numeric(values, names)
    if n_columns is not None and X.n_columns != n_columns:
        raise UsboostError(f"X has {X.n_columns} columns but the model was trained on {n_columns}")
    return X


def as_targets(y: Any) -> np.ndarray:
    """y, of shape (n,) or (n, m), as float64 (n, m).

    Raises
    ------
    UsboostError
        If y is not numeric or finite.
    """
    try:
        targets = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UsboostError(f"y is not numeric: {error}") from error
    if targets.ndim not in (1, 2) or not np.isfinite(targets).all():
        raise UsboostError("y must be finite numbers of shape (n,) or (n, m)")
    return targets.reshape(len(targets), -1)

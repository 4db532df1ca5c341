"""Plain arrays and DataFrames as what methods with a single view read."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import pandas as pd

from usboost.data.table import Table
from usboost.data.views import Views
from usboost.errors import UsboostError

VIEW = "x"
"""Name of the one view."""


def as_table(X: Any, n_columns: int | None = None) -> Table:
    """X as a table: a `Table` as it is, Views' tables side by side, else an array (n, p) of numbers.

    Raises
    ------
    UsboostError
        If X is empty, not numeric or not finite, or has not `n_columns` columns.
    TypeError
        If X is sparse, or holds objects that stand for no number (both as scikit-learn has it).
    """
    if isinstance(X, Views):
        X = X[VIEW] if VIEW in X.names else reduce(Table.beside, (X[name] for name in X.names))
    if not isinstance(X, Table):
        from sklearn.utils.validation import check_array

        names = tuple(map(str, X.columns)) if isinstance(X, pd.DataFrame) else ()
        try:
            values = check_array(
                X,
                dtype=np.float64,
                ensure_all_finite=False,
                ensure_2d=False,
                allow_nd=True,
                ensure_min_samples=0,
                ensure_min_features=0,
            )
        except ValueError as error:
            raise UsboostError(f"X is not numeric ({error}); encode it, or pass a Table") from error
        if values.ndim != 2:
            raise UsboostError(
                f"X must have two dimensions (rows, columns), not {values.ndim}: Reshape your data, with "
                "reshape(1, -1) if it is one sample"
            )
        for length, what in zip(values.shape[::-1], ("feature", "sample")):
            if not length and (what == "feature" or n_columns is None):
                raise UsboostError(
                    f"X has 0 {what}(s) (shape={values.shape}) while a minimum of 1 is required."
                )
        wrong = np.argwhere(~(np.abs(values) <= np.finfo(np.float32).max))
        if len(wrong):
            i, j = wrong[0]
            column = names[j] if names else j
            raise UsboostError(
                f"row {i} of X holds {values[i, j]} in column {column}; fill it in, since neither NaN nor "
                "infinity is taken"
            )
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
    if y is None:
        raise UsboostError("fit requires y to be passed, but the target y is None; pass the targets")
    try:
        targets = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UsboostError(f"y is not numeric: {error}") from error
    if targets.ndim not in (1, 2) or not np.isfinite(targets).all():
        raise UsboostError("y must be finite numbers of shape (n,) or (n, m)")
    return targets.reshape(len(targets), -1)

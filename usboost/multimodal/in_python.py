"""What is given from Python in place of a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import issparse

from usboost.errors import UsboostError


def frame_of(X: Any, names: Sequence[str] | None = None) -> pd.DataFrame:
    """X as a DataFrame whose columns have strings for names.

    Parameters
    ----------
    X : DataFrame, or array (n, p); the columns of an array are called x0, x1, …
    names : of the columns that a model was fitted to; if these are 0, 1, …, so are an array's.

    Raises
    ------
    UsboostError
        If X is sparse, complex, or has not two dimensions.
    """
    if isinstance(X, pd.DataFrame):
        if X.columns.nlevels > 1:
            raise UsboostError("X has columns of several levels; give each column one name")
        return X.rename(columns=str)
    if issparse(X):
        raise UsboostError("X is a sparse matrix, which is not supported; give X.toarray() or a DataFrame")
    array = np.asarray(X)
    if array.ndim != 2:
        raise UsboostError(
            f"Expected 2D array or DataFrame, got {array.ndim}D array instead. Reshape your data with "
            "X.reshape(-1, 1) if it has a single column, or X.reshape(1, -1) if it is a single row."
        )
    if np.iscomplexobj(array):
        raise UsboostError("Complex data not supported; give real and imaginary part as two columns")
    counted = [str(k) for k in range(array.shape[1])]
    prefix = "" if names is not None and set(names) == set(counted) else "x"
    return pd.DataFrame(array, columns=[prefix + each for each in counted])

"""What a person of Python gives in place of a file, and reads in place of the command's options."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import issparse

from usboost.errors import UsboostError

_ESTIMATORS = {
    "--task regression": "`MultimodalRegressor`",
    "--task classification": "`MultimodalClassifier`",
}
_OPTION = re.compile(r"--([a-z][a-z-]*)( '[^']*')?")
_PARAMETERS = {"image": "images"}


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


def in_python(message: str) -> str:
    """A message in which the command's options are called by the estimators' parameters."""
    for option, estimator in _ESTIMATORS.items():
        message = message.replace(option, estimator)

    def named(found: re.Match[str]) -> str:
        option, value = found.groups()
        name = _PARAMETERS.get(option, option.replace("-", "_"))
        return f"`{name}={value.strip()}`" if value else f"`{name}`"

    return _OPTION.sub(named, message)


@contextmanager
def parameters_named() -> Iterator[None]:
    """Errors that name options of the command name parameters instead."""
    try:
        yield
    except UsboostError as error:
        error.args = (in_python(str(error)), *error.args[1:])
        raise

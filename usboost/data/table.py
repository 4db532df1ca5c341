"""A table as a view: encoded numbers and categories."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from usboost.data.views import Views
from usboost.errors import UsboostError


@dataclass(frozen=True)
class Table:
    """Numeric and categorical columns of n samples, encoded.

    Attributes
    ----------
    numeric : float32 array of shape (n, p)
        Numeric columns, already scaled by the encoder; finite.
    codes : int32 array of shape (n, q)
        Categories as codes; 0 stands for a value the training split did not hold.
    cardinalities : tuple of q ints
        Number of codes of each categorical column, code 0 included.
    names : tuple of p + q column names, numeric first.
    absent : bool array of shape (n,), or None
        Rows that have none of it, such as embeddings of images that are missing: a learner of this table
        adds 0 to them, whatever the columns hold.

    Examples
    --------
    >>> import numpy as np
    >>> from usboost import Table
    >>> colours = np.array([[1], [2], [0]], dtype=np.int32)  # red, blue, one that training did not have
    >>> sizes = np.zeros((3, 1), dtype=np.float32)
    >>> table = Table(sizes, colours, cardinalities=(3,), names=("size", "colour"))
    >>> table[:2].n_columns
    2
    """

    numeric: np.ndarray
    codes: np.ndarray
    cardinalities: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    absent: np.ndarray | None = None

    kind: ClassVar[str] = "table"

    @classmethod
    def from_numeric(cls, values: np.ndarray, names: tuple[str, ...] = ()) -> Table:
        """A table without categories, from an array of shape (n, p)."""
        values = np.ascontiguousarray(values, dtype=np.float32)
        if values.ndim != 2:
            raise UsboostError(f"a numeric view needs two dimensions (rows, columns), not {values.ndim}")
        return cls(values, np.empty((len(values), 0), dtype=np.int32), (), names)

    def __post_init__(self) -> None:
        if len(self.numeric) != len(self.codes):
            raise UsboostError(
                f"numeric columns have {len(self.numeric)} rows but categorical ones {len(self.codes)}"
            )
        if self.codes.shape[1] != len(self.cardinalities):
            raise UsboostError(
                f"{self.codes.shape[1]} categorical columns but {len(self.cardinalities)} cardinalities"
            )
        if self.absent is not None and (self.absent.dtype != bool or self.absent.shape != (len(self),)):
            raise UsboostError(f"absent must be {len(self)} booleans, one for each row")
        if not self.names:
            object.__setattr__(self, "names", tuple(f"x{j}" for j in range(self.n_columns)))

    def __len__(self) -> int:
        return len(self.numeric)

    def __getitem__(self, rows: Any) -> Table:
        absent = None if self.absent is None else self.absent[rows]
        return Table(self.numeric[rows], self.codes[rows], self.cardinalities, self.names, absent)

    @property
    def n_numeric(self) -> int:
        return self.numeric.shape[1]

    @property
    def n_columns(self) -> int:
        return self.numeric.shape[1] + self.codes.shape[1]

    @property
    def categorical(self) -> tuple[int, ...]:
        """Positions of the categorical columns in `matrix`."""
        return tuple(range(self.n_numeric, self.n_columns))

    def filled(self, missing: str | None = None) -> Table:
        """The same with 0 (the unknown category) in absent rows, and none absent: to be put beside others.

        Parameters
        ----------
        missing : name of a further numeric column, 1 where a row was absent and else 0, if it is wanted
        """
        if self.absent is None and missing is None:
            return self
        absent = np.zeros(len(self), dtype=bool) if self.absent is None else self.absent
        columns = [np.where(absent[:, None], np.float32(0), self.numeric)]
        names = list(self.names)
        if missing is not None:
            columns.append(absent[:, None].astype(np.float32))
            names.insert(self.n_numeric, missing)
        codes = np.where(absent[:, None], np.int32(0), self.codes)
        return Table(np.concatenate(columns, axis=1), codes, self.cardinalities, tuple(names))

    def beside(self, other: Table) -> Table:
        """The columns of both tables of the same rows: numeric ones first, as always; none is absent."""
        names = [*self.names[: self.n_numeric], *other.names[: other.n_numeric]]
        names += [*self.names[self.n_numeric :], *other.names[other.n_numeric :]]
        return Table(
            np.concatenate((self.numeric, other.numeric), axis=1),
            np.concatenate((self.codes, other.codes), axis=1),
            (*self.cardinalities, *other.cardinalities),
            tuple(names),
        )

    def matrix(self) -> np.ndarray:
        """All columns side by side as trees read them: float32 (n, p + q), column-major."""
        out = np.empty((len(self), self.n_columns), dtype=np.float32, order="F")
        out[:, : self.n_numeric] = self.numeric
        out[:, self.n_numeric :] = self.codes
        return out


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
    return targets[:, None] if targets.ndim == 1 else targets

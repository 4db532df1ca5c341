"""A table as a view: encoded numbers and categories."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from usboost.data.coded import code_type
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.files.mapped import mapped, nameless, rows_of, side_by_side


@dataclass(frozen=True)
class Table:
    """Numeric and categorical columns of n samples, encoded.

    Attributes
    ----------
    numeric : float32 array of shape (n, p)
        Numeric columns, already scaled by the encoder; finite.
    codes : int32 array of shape (n, q), or uint8 or int16 where that is enough
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

    @classmethod
    def on_disk(cls, parts: Iterable[Table], folder: Path | str | None = None) -> Table:
        """The rows of some tables, one after the other, in files that are read as they are needed.

        What a fit makes of such a table for each row and column is in files, too; memory holds a few numbers
        for each row. The files have no name and are gone with the table.

        Parameters
        ----------
        parts : one at least, of the same columns; each is let go before the next is asked for
        folder : where the files are; by default that of temporary files, which the variable TMPDIR names

        Raises
        ------
        UsboostError
            If a part has other columns than the first, or the disk is full.

        Examples
        --------
        >>> import numpy as np
        >>> from usboost import Table
        >>> parts = (Table.from_numeric(np.full((1000, 3), k)) for k in range(5))
        >>> table = Table.on_disk(parts)
        >>> len(table), float(table.numeric[-1, 0])
        (5000, 4.0)
        """
        n, first, absent = 0, None, []
        with nameless(folder) as numbers, nameless(folder) as codes:
            for part in parts:
                if first is None:
                    first, narrow = part[:0], code_type(max(part.cardinalities, default=0))
                if (part.names, part.cardinalities) != (first.names, first.cardinalities):
                    raise UsboostError("the parts of a table have not all the same columns")
                numbers.write(np.ascontiguousarray(part.numeric, dtype=np.float32).data)
                codes.write(np.ascontiguousarray(part.codes, dtype=narrow).data)
                absent.append(np.zeros(len(part), dtype=bool) if part.absent is None else part.absent)
                n += len(part)
            if first is None:
                raise UsboostError("a table is made of one part at least")
            lacking = np.concatenate(absent)
            return cls(
                mapped(numbers, (n, first.n_numeric), np.float32),
                mapped(codes, (n, len(first.cardinalities)), narrow),
                first.cardinalities,
                first.names,
                lacking if lacking.any() else None,
            )

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
        numeric, codes = rows_of(self.numeric, rows), rows_of(self.codes, rows)
        return Table(numeric, codes, self.cardinalities, self.names, absent)

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
            side_by_side((self.numeric, other.numeric)),
            side_by_side((self.codes, other.codes)),
            (*self.cardinalities, *other.cardinalities),
            tuple(names),
        )

    def matrix(self) -> np.ndarray:
        """All columns side by side as trees read them: float32 (n, p + q), column-major."""
        return side_by_side((self.numeric, self.codes), np.float32, "F")


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

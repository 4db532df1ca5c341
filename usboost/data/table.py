"""A table as a view: encoded numbers and categories; and one of columns with few different numbers each."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from usboost.data.views import Views
from usboost.errors import UsboostError, warn
from usboost.files.arrays import mapped, nameless, rows_of, side_by_side

_STEPS = 64
"""Fewer values of float32 than these, between the ends of a column, are too few."""


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
    def from_numeric(cls, values: np.ndarray, names: tuple[str, ...] = ()) -> "Table":
        """Make a table without categories, from an array of shape (n, p), stored as float32: with 7 digits.

        Warns of a column whose numbers differ by little next to their size, so that many become one. Raises
        UsboostError if a number is not finite, or too large for float32.
        """
        with np.errstate(over="ignore"):
            numbers = np.ascontiguousarray(values, dtype=np.float32)
        if np.ndim(values) != 2:
            raise UsboostError(f"a numeric view needs two dimensions (rows, columns), not {np.ndim(values)}")
        if numbers.size and not np.isfinite([numbers.min(), numbers.max()]).all():
            i, j = np.argwhere(~np.isfinite(numbers))[0]
            raise UsboostError(
                f"row {i} of X holds {values[i][j]} in column {names[j] if names else j}; fill it in, since "
                "neither NaN nor infinity is taken"
            )
        warn_of_lost(values, names)
        return cls(numbers, np.empty((len(numbers), 0), dtype=np.int32), (), names)

    @classmethod
    def on_disk(cls, parts: "Iterable[Table]", folder: Path | str | None = None) -> "Table":
        """Put the rows of some tables, one after the other, in files that are read as they are needed.

        What a fit makes of such a table for each row and column is in files, too; memory holds a few numbers
        for each row. The files have no name and are gone with the table.

        Raises UsboostError if a part has other columns than the first, or the disk is full.

        Parameters
        ----------
        parts : one at least, of the same columns; each is let go before the next is asked for
        folder : where the files are; by default that of temporary files, which the variable TMPDIR names

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
            raise UsboostError(f"numeric columns have {len(self.numeric)} rows, others {len(self.codes)}")
        if self.codes.shape[1] != len(self.cardinalities):
            raise UsboostError(f"{self.codes.shape[1]} columns, {len(self.cardinalities)} cardinalities")
        if self.absent is not None and (self.absent.dtype != bool or self.absent.shape != (len(self),)):
            raise UsboostError(f"absent must be {len(self)} booleans, one for each row")
        if not self.names:
            object.__setattr__(self, "names", tuple(f"x{j}" for j in range(self.n_columns)))

    def __len__(self) -> int:
        return len(self.numeric)

    def __getitem__(self, rows: Any) -> "Table":
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

    def filled(self, missing: str | None = None, instead: Any = 0.0) -> "Table":
        """Put `instead`, and category 0, in absent rows, so that none is absent, as other columns need it.

        `missing` is the name of a further numeric column, 1 where a row was absent and else 0.
        """
        if self.absent is None and missing is None:
            return self
        absent = np.zeros(len(self), dtype=bool) if self.absent is None else self.absent
        columns = [np.where(absent[:, None], np.float32(instead), self.numeric)]
        names = list(self.names)
        if missing is not None:
            columns.append(absent[:, None].astype(np.float32))
            names.insert(self.n_numeric, missing)
        codes = np.where(absent[:, None], np.int32(0), self.codes)
        return Table(np.concatenate(columns, axis=1), codes, self.cardinalities, tuple(names))

    def beside(self, other: "Table") -> "Table":
        """Join the columns of two tables of the same rows: numeric ones first, as always; none is absent."""
        names = [*self.names[: self.n_numeric], *other.names[: other.n_numeric]]
        names += [*self.names[self.n_numeric :], *other.names[other.n_numeric :]]
        numeric = side_by_side((self.numeric, other.numeric))
        codes = side_by_side((self.codes, other.codes))
        return Table(numeric, codes, (*self.cardinalities, *other.cardinalities), tuple(names))

    def matrix(self) -> np.ndarray:
        """Put all columns side by side as trees read them: float32 (n, p + q), column-major."""
        return side_by_side((self.numeric, self.codes), np.float32, "F")


def warn_of_lost(X: Any, names: Sequence[str] = ()) -> None:
    """Warn of a column of an array (n, p) of which float32 makes a few numbers at most."""
    values = np.asarray(X)
    if values.ndim != 2 or not len(values) or values.dtype.kind not in "iuf" or values.dtype.itemsize <= 4:
        return
    with np.errstate(all="ignore"):
        spread, size = np.ptp(values, axis=0), np.abs(values.astype(np.float64)).max(axis=0)
        few = np.flatnonzero((spread > 0) & (spread < _STEPS * np.finfo(np.float32).eps * size))
    for j in few[:1]:
        warn(
            f"column {names[j] if len(names) else f'x{j}'!r} holds numbers near {size[j]:.4g} that differ by "
            f"{spread[j]:.4g} at most, which float32 hardly tells apart; subtract what they have in common"
        )


VIEW = "x"
"""Name of the one view."""


def as_table(X: Any, n_columns: int | None = None) -> "Table":
    """Take X as a table: a `Table` as it is, Views' tables side by side, else an array (n, p) of numbers.

    Raises UsboostError if X is empty, not numeric or not finite, or has not `n_columns` columns; TypeError if
    it is sparse, or holds objects that stand for no number (both as scikit-learn has it).
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
        X = Table.from_numeric(values, names)
    if n_columns is not None and X.n_columns != n_columns:
        raise UsboostError(f"X has {X.n_columns} columns but the model was trained on {n_columns}")
    return X


def as_targets(y: Any) -> np.ndarray:
    """Take y, of shape (n,) or (n, m), as float64 (n, m). Raises UsboostError if it is no finite numbers."""
    if y is None:
        raise UsboostError("fit requires y to be passed, but the target y is None; pass the targets")
    try:
        targets = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UsboostError(f"y is not numeric: {error}") from error
    if targets.ndim not in (1, 2) or not np.isfinite(targets).all():
        raise UsboostError("y must be finite numbers of shape (n,) or (n, m)")
    return targets[:, None] if targets.ndim == 1 else targets


COLUMNS = 32  # of a `CodedTable`, written out at the same time


def code_type(n_codes: int) -> type[np.integer[Any]]:
    """Return the smallest type for codes 0 to `n_codes` − 1 that numpy and torch both reckon with."""
    return np.uint8 if n_codes <= 256 else np.int16 if n_codes <= 1 << 15 else np.int32


@dataclass(frozen=True)
class CodedTable:
    """float32 (n, p) of which each column has few different numbers, at a quarter of the memory, or half.

    Attributes
    ----------
    codes : uint8, int16 or int32 (n, p)
    values : float32, of one column after the other: code c of column j stands for ``values[starts[j] + c]``
    starts : int32 (p,)

    Examples
    --------
    >>> import numpy as np
    >>> from usboost.data.table import CodedTable
    >>> table = CodedTable.of([np.array([0.5, 7.0, 0.5]), np.array([1.0, 2.0, 3.0])])
    >>> table.codes.dtype, table.numbers(slice(1)).ravel()
    (dtype('uint8'), array([0.5, 7. , 0.5], dtype=float32))
    """

    codes: np.ndarray
    values: np.ndarray
    starts: np.ndarray

    kind: ClassVar[str] = "coded_table"

    @classmethod
    def of(cls, columns: Iterable[np.ndarray]) -> "CodedTable":
        """Make it of its columns, float (n,) each; there is one at least."""
        values, codes = zip(*(np.unique(column, return_inverse=True) for column in columns))
        narrow = [each.astype(code_type(each.max(initial=0) + 1)) for each in codes]
        return cls.of_codes(np.column_stack(narrow), values)

    @classmethod
    def of_codes(cls, codes: np.ndarray, values: Sequence[np.ndarray]) -> "CodedTable":
        """Make it of codes (n, p) and the numbers that those of each column stand for."""
        starts = np.cumsum([0, *map(len, values)], dtype=np.int32)[:-1]
        return cls(codes, np.concatenate(values, dtype=np.float32), starts)

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Any) -> "CodedTable":
        return replace(self, codes=self.codes[rows])

    @property
    def n_columns(self) -> int:
        return self.codes.shape[1]

    def numbers(self, columns: slice) -> np.ndarray:
        """Write out the numbers of some columns, float32 (n, k)."""
        return self.values.take(self.codes[:, columns] + self.starts[columns])

    def blocks(self) -> Iterator[np.ndarray]:
        """Write out all columns, about 32 at a time; never one alone where there are two."""
        cuts = np.linspace(0, self.n_columns, max(1, self.n_columns // COLUMNS) + 1).astype(int).tolist()
        return (self.numbers(slice(*ends)) for ends in pairwise(cuts))

    def changed(self, change: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> "CodedTable":
        """Take other numbers: `change` is given all numbers (k,) and the column of each, int (k,)."""
        counts = np.diff(self.starts, append=len(self.values))
        return replace(self, values=change(self.values, np.repeat(np.arange(self.n_columns), counts)))

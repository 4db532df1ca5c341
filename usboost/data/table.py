"""A table as a view: encoded numbers and categories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

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

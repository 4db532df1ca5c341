"""A table of numbers of which each column has few different ones: codes, and what they stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

COLUMNS = 32
"""Columns whose numbers are written out at the same time."""


def code_type(n_codes: int) -> type[np.integer[Any]]:
    """The smallest type for codes 0 to `n_codes` − 1 that numpy and torch both reckon with."""
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
    >>> from usboost.data.coded import CodedTable
    >>> table = CodedTable.of([np.array([0.5, 7.0, 0.5]), np.array([1.0, 2.0, 3.0])])
    >>> table.codes.dtype, table.numbers(slice(1)).ravel()
    (dtype('uint8'), array([0.5, 7. , 0.5], dtype=float32))
    """

    codes: np.ndarray
    values: np.ndarray
    starts: np.ndarray

    kind: ClassVar[str] = "coded_table"

    @classmethod
    def of(cls, columns: Iterable[np.ndarray]) -> CodedTable:
        """From its columns, float (n,) each; there is one at least."""
        values, codes = zip(*(np.unique(column, return_inverse=True) for column in columns))
        return cls.of_codes(
            np.column_stack([each.astype(code_type(each.max(initial=0) + 1)) for each in codes]), values
        )

    @classmethod
    def of_codes(cls, codes: np.ndarray, values: Sequence[np.ndarray]) -> CodedTable:
        """From codes (n, p) and the numbers that those of each column stand for."""
        starts = np.cumsum([0, *map(len, values)], dtype=np.int32)[:-1]
        return cls(codes, np.concatenate(values, dtype=np.float32), starts)

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Any) -> CodedTable:
        return replace(self, codes=self.codes[rows])

    @property
    def n_columns(self) -> int:
        return self.codes.shape[1]

    def numbers(self, columns: slice) -> np.ndarray:
        """Some of the columns as they stand for, float32 (n, k)."""
        return self.values.take(self.codes[:, columns] + self.starts[columns])

    def blocks(self) -> Iterator[np.ndarray]:
        """The numbers of all columns, some columns at a time; never one alone where there are two."""
        cuts = np.linspace(0, self.n_columns, max(1, self.n_columns // COLUMNS) + 1).astype(int).tolist()
        return (self.numbers(slice(*ends)) for ends in pairwise(cuts))

    def changed(self, change: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> CodedTable:
        """With other numbers: `change` is given all numbers (k,) and the column of each, int (k,)."""
        counts = np.diff(self.starts, append=len(self.values))
        return replace(self, values=change(self.values, np.repeat(np.arange(self.n_columns), counts)))

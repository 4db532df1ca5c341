"""Single values of a column, in rising order: one pass over a file, a few rows in memory."""

from __future__ import annotations

from collections.abc import Iterator

from usboost.datasets.user.reading.source import Source
from usboost.errors import UsboostError

_ROWS = 32  # in memory at once


class Cursor:
    """The values of a column by the position of their row; one before those at hand starts a new pass."""

    def __init__(self, source: Source, column: str) -> None:
        self._source, self._column = source, column
        self._first = 0
        self._values: list[object] = []
        self._batches = self._pass()

    def __call__(self, row: int) -> object:
        if row < self._first:
            self._first, self._values, self._batches = 0, [], self._pass()
        while row >= self._first + len(self._values):
            self._first += len(self._values)
            try:
                self._values = next(self._batches)
            except StopIteration:
                raise UsboostError(f"{self._source} has no row {row + 1}; it is damaged") from None
        return self._values[row - self._first]

    def _pass(self) -> Iterator[list[object]]:
        for batch in self._source.batches([self._column], _ROWS):
            yield batch[self._column].to_pylist()

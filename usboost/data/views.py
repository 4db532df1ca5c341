"""The modalities of a sample: row-aligned views that weak learners read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from usboost.errors import UsboostError


class View(Protocol):
    """Anything with a length and row indexing: one modality of n samples."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any) -> View: ...


class Views:
    """Row-aligned views of the same n samples, by name.

    ``views["U"]`` is one view; ``views[rows]`` with a slice, mask or index array is the same
    views of fewer samples, so scikit-learn's splitters can cut them.

    Raises
    ------
    UsboostError
        If there is no view, or their numbers of rows differ.

    Examples
    --------
    >>> import numpy as np
    >>> from usboost import Table, Views
    >>> views = Views(sound=Table.from_numeric(np.zeros((9, 40))), age=Table.from_numeric(np.zeros((9, 1))))
    >>> views[np.arange(9) % 3 == 0]
    Views(sound, age; 3 rows)
    """

    def __init__(self, views: Mapping[str, View] | None = None, **named: View) -> None:
        self._views: dict[str, View] = {**(views or {}), **named}
        if not self._views:
            raise UsboostError("at least one view is needed")
        lengths = {name: len(view) for name, view in self._views.items()}
        if len(set(lengths.values())) > 1:
            rows = ", ".join(f"{name} has {n}" for name, n in lengths.items())
            raise UsboostError(f"the views' rows do not match: {rows}")
        self._n = next(iter(lengths.values()))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._views)

    @property
    def shape(self) -> tuple[int, int]:
        """(samples, views): what scikit-learn's splitters ask for."""
        return self._n, len(self._views)

    def __len__(self) -> int:
        return self._n

    def __iter__(self) -> Iterator[Views]:
        return (self[i : i + 1] for i in range(self._n))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            if key not in self._views:
                raise UsboostError(f"unknown view {key!r}; the views are {', '.join(self.names)}")
            return self._views[key]
        if isinstance(key, tuple) and len(key) == 2 and key[1] is Ellipsis:
            key = key[0]  # how scikit-learn cuts what has a shape
        if isinstance(key, (int, np.integer)):
            key = slice(key, key + 1 or None)
        return Views({name: view[key] for name, view in self._views.items()})

    def with_view(self, name: str, view: View) -> Views:
        """The same samples with one view added or replaced."""
        return Views({**self._views, name: view})

    def __repr__(self) -> str:
        return f"Views({', '.join(self.names)}; {self._n} rows)"

"""The modalities of a sample: row-aligned views that weak learners read; sequences as views of frames."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from usboost.errors import UsboostError


class View(Protocol):
    """Anything with a length and row indexing: one modality of n samples."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any) -> "View": ...


class Views:
    """Row-aligned views of the same n samples, by name.

    ``views["U"]`` is one view; ``views[rows]`` with a slice, mask or index array is the same
    views of fewer samples, so scikit-learn's splitters can cut them.

    Raises UsboostError if there is no view, or their numbers of rows differ.

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
        for name, view in self._views.items():
            if hasattr(view, "dtypes"):  # a data frame's rows are not cut by [ ]
                raise UsboostError(f"view {name!r} is a {type(view).__name__}; make a Table of its columns")
        lengths = {name: len(view) for name, view in self._views.items()}
        if len(set(lengths.values())) > 1:
            rows = ", ".join(f"{name} has {n}" for name, n in lengths.items())
            raise UsboostError(f"the views' rows do not match: {rows}")
        self.names = tuple(self._views)
        # (samples, views): what scikit-learn's splitters ask for
        self.shape = (next(iter(lengths.values())), len(self._views))

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> "Iterator[Views]":
        return (self[i : i + 1] for i in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            if key not in self._views:
                raise UsboostError(f"unknown view {key!r}; the views are {', '.join(self.names)}")
            return self._views[key]
        if isinstance(key, tuple) and len(key) == 2 and key[1] is Ellipsis:
            key = key[0]  # how scikit-learn cuts what has a shape
        if isinstance(key, tuple):  # columns of a matrix
            self.__array__()
        if isinstance(key, (int, np.integer)):
            key = slice(key, key + 1 or None)
        return Views({name: view[key] for name, view in self._views.items()})

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        """Refuse to be one array, which scikit-learn's tools make of what they do not know."""
        raise UsboostError(
            "views are several arrays, and one is asked for; wrap the model in `usboost.SplitColumns`, which "
            "takes a matrix"
        )

    def with_view(self, name: str, view: View) -> "Views":
        """Add or replace one view of the same samples."""
        return Views({**self._views, name: view})

    def __repr__(self) -> str:
        return f"Views({', '.join(self.names)}; {len(self)} rows)"


@dataclass(frozen=True)
class Frame:
    """One time frame of n sequences.

    Attributes
    ----------
    values : float64 (n, d); 0 where a sequence has no such frame
    present : bool (n,); False where the sequence has ended
    """

    values: np.ndarray
    present: np.ndarray
    kind: ClassVar[str] = "frame"

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: Any) -> "Frame":
        return Frame(self.values[rows], self.present[rows])


def frame_name(t: int) -> str:
    """Name the view that holds frame t, from 1; the same in prepared datasets."""
    return f"frame_{t:03d}"


@dataclass(frozen=True)
class Sequences:
    """n sequences of up to T frames.

    Attributes
    ----------
    values : float64 (n, T, d), finite; 0 after a sequence's end
    lengths : int (n,), the number of frames T_i of each sequence

    Examples
    --------
    >>> import numpy as np
    >>> from usboost import Sequences
    >>> sequences = Sequences(np.zeros((2, 5, 3)), lengths=np.array([5, 4]))
    >>> sequences.n_frames, sequences.n_features
    (5, 3)
    >>> sequences.frame(5).present
    array([ True, False])
    """

    values: np.ndarray
    lengths: np.ndarray

    def __len__(self) -> int:
        return len(self.values)

    @property
    def n_frames(self) -> int:
        return self.values.shape[1]

    @property
    def n_features(self) -> int:
        return self.values.shape[2]

    def frame(self, t: int) -> Frame:
        """Return frame t, from 1; past the longest sequence it is there for none."""
        if t > self.n_frames:
            return Frame(np.zeros((len(self), self.n_features)), np.zeros(len(self), dtype=bool))
        return Frame(self.values[:, t - 1], self.lengths >= t)

    def views(self, n_frames: int) -> Views:
        """Return the frames 1..n_frames as row-aligned views."""
        return Views({frame_name(t): self.frame(t) for t in range(1, n_frames + 1)})


def as_sequences(X: Any, n_features: int | None = None, n_frames: int | None = None) -> Sequences:
    """Check and take sequences in any of the accepted forms.

    Raises UsboostError if a number is NaN or infinite, a sequence has no frame, or dimensions do not match. A
    sequence that ends early belongs in a list of arrays: NaN does not stand for its end.

    Parameters
    ----------
    X : numeric array (n, T, d); array or DataFrame (n, T) for d = 1; or a list of n arrays of shape
        (T_i, d), or (T_i,) for d = 1, whose lengths may differ; or Views of T numeric tables, the
        frames in the order of the numbers at the end of their names
    n_features, n_frames : what a fitted model was trained on; d must be the former, and no sequence
        may be longer than the latter
    """
    if isinstance(X, Sequences):
        taken = X
    elif isinstance(X, Views):
        number = {name: re.search(r"\d+$", name) for name in X.names}
        if unnumbered := [name for name, match in number.items() if match is None]:
            raise UsboostError(f"view {unnumbered[0]!r} is no frame: name it as {frame_name(1)!r}")
        if coded := [name for name in X.names if X[name].codes.shape[1]]:
            raise UsboostError(f"view {coded[0]!r} has categories, which no frame reads; make them numbers")
        order = sorted(X.names, key=lambda name: int(number[name].group()))  # type: ignore[union-attr]
        values = np.stack([X[name].numeric for name in order], axis=1).astype(np.float64)
        taken = Sequences(values, np.full(len(values), values.shape[1]))
    elif isinstance(X, (list, tuple)) or (isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1):
        taken = _from_list(X)
    else:
        values = _numbers(X, "X")
        if values.ndim == 2:
            values = values[:, :, None]
        if values.ndim != 3 or 0 in values.shape:
            raise UsboostError(f"X needs the shape (sequences, frames, features), none 0, not {np.shape(X)}")
        taken = Sequences(values, np.full(len(values), values.shape[1]))
    if len(wrong := np.argwhere(~np.isfinite(taken.values))):
        i, t, j = wrong[0]
        raise UsboostError(
            f"sequence {i} has {taken.values[i, t, j]} in frame {t + 1}, feature {j}; fill it in, or cut the "
            "sequence before it and pass X as a list of arrays"
        )
    if n_features is not None and taken.n_features != n_features:
        raise UsboostError(f"the frames have {taken.n_features} features, those of the fit {n_features}")
    if n_frames is not None and taken.n_frames > n_frames:
        raise UsboostError(
            f"a sequence has {taken.n_frames} frames but the model was trained on {n_frames}; "
            f"give it the first {n_frames}"
        )
    return taken


def _from_list(X: Any) -> Sequences:
    parts = [_numbers(part, f"sequence {i}") for i, part in enumerate(X)]
    if not parts:
        raise UsboostError("X has no sequences")
    parts = [part[:, None] if part.ndim == 1 else part for part in parts]
    for i, part in enumerate(parts):
        if part.ndim != 2 or 0 in part.shape:
            raise UsboostError(f"sequence {i} needs the shape (frames, features), none 0, not {part.shape}")
        if part.shape[1] != parts[0].shape[1]:
            raise UsboostError(f"sequence {i} has {part.shape[1]} features, sequence 0 {parts[0].shape[1]}")
    lengths = np.array([len(part) for part in parts])
    values = np.zeros((len(parts), lengths.max(), parts[0].shape[1]))
    for row, part in zip(values, parts):
        row[: len(part)] = part
    return Sequences(values, lengths)


def _numbers(X: Any, what: str) -> np.ndarray:
    try:
        return np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UsboostError(f"{what} is not an array of numbers: {error}") from error

"""Sequences of samples cut into frames: what a learner of round t may see of each sample."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from usboost.data.views import Views
from usboost.errors import UsboostError


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

    def __getitem__(self, rows: Any) -> Frame:
        return Frame(self.values[rows], self.present[rows])


def frame_name(t: int) -> str:
    """Name of the view that holds frame t, from 1; the same in prepared datasets."""
    return f"frame_{t:03d}"


def frame_number(name: str) -> int:
    """t of the name of a frame.

    Raises
    ------
    UsboostError
        If the name does not end with a number.
    """
    found = re.search(r"\d+$", name)
    if found is None:
        raise UsboostError(
            f"view {name!r} is no frame: its name ends with no number, as in {frame_name(1)!r}"
        )
    return int(found.group())


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
        """Frame t, from 1; past the longest sequence it is there for none."""
        if t > self.n_frames:
            return Frame(np.zeros((len(self), self.n_features)), np.zeros(len(self), dtype=bool))
        return Frame(self.values[:, t - 1], self.lengths >= t)

    def views(self, n_frames: int) -> Views:
        """The frames 1..n_frames as row-aligned views."""
        return Views({frame_name(t): self.frame(t) for t in range(1, n_frames + 1)})


def as_sequences(X: Any, n_features: int | None = None, n_frames: int | None = None) -> Sequences:
    """Check and take sequences in any of the accepted forms.

    Parameters
    ----------
    X : numeric array (n, T, d); array or DataFrame (n, T) for d = 1; or a list of n arrays of shape
        (T_i, d), or (T_i,) for d = 1, whose lengths may differ; or Views of T numeric tables, the
        frames in the order of the numbers at the end of their names
    n_features, n_frames : what a fitted model was trained on; d must be the former, and no sequence
        may be longer than the latter

    Raises
    ------
    UsboostError
        If a number is NaN or infinite, a sequence has no frame, or dimensions do not match. A
        sequence that ends early belongs in a list of arrays: NaN does not stand for its end.
    """
    if isinstance(X, Sequences):
        taken = X
    elif isinstance(X, Views):
        frames = [X[name].numeric for name in sorted(X.names, key=frame_number)]
        values = np.stack(frames, axis=1).astype(np.float64)
        taken = Sequences(values, np.full(len(values), values.shape[1]))
    elif isinstance(X, (list, tuple)) or (isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1):
        taken = _from_list(X)
    else:
        values = _numbers(X, "X")
        if values.ndim == 2:
            values = values[:, :, None]
        if values.ndim != 3 or 0 in values.shape:
            raise UsboostError(
                f"X must have the shape (sequences, frames, features), none of them 0, not {np.shape(X)}"
            )
        taken = Sequences(values, np.full(len(values), values.shape[1]))
    _check_finite(taken.values)
    if n_features is not None and taken.n_features != n_features:
        raise UsboostError(
            f"the frames have {taken.n_features} features but the model was trained on {n_features}"
        )
    if n_frames is not None and taken.n_frames > n_frames:
        raise UsboostError(
            f"a sequence has {taken.n_frames} frames but the model was trained on {n_frames}; "
            f"give it the first {n_frames}"
        )
    return taken


def _from_list(X: Sequence[Any] | np.ndarray) -> Sequences:
    parts = [_numbers(part, f"sequence {i}") for i, part in enumerate(X)]
    if not parts:
        raise UsboostError("X has no sequences")
    parts = [part[:, None] if part.ndim == 1 else part for part in parts]
    for i, part in enumerate(parts):
        if part.ndim != 2 or 0 in part.shape:
            raise UsboostError(
                f"sequence {i} must have the shape (frames, features), neither of them 0, not {part.shape}"
            )
        if part.shape[1] != parts[0].shape[1]:
            raise UsboostError(
                f"sequence {i} has {part.shape[1]} features but sequence 0 has {parts[0].shape[1]}"
            )
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


def _check_finite(values: np.ndarray) -> None:
    wrong = np.argwhere(~np.isfinite(values))
    if len(wrong):
        i, t, j = wrong[0]
        raise UsboostError(
            f"sequence {i} has {values[i, t, j]} in frame {t + 1}, feature {j}; fill it in, or cut the "
            "sequence before it and pass X as a list of arrays"
        )

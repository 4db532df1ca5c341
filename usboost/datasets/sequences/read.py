"""Datasets of the smaller methods: sequences for Earlyboost, and Iris for boosted networks.

`digits_rows` and `iris` come with scikit-learn; pen-digits (UCI) and ``.ts`` files (the UCR archive's
format, which aeon reads) are raw files of a user's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from usboost.datasets.files.sources import RemoteFile
from usboost.datasets.sequences.ts_format import parse_ts
from usboost.errors import UsboostError

_PENDIGITS_URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/pendigits"
PENDIGITS_FILES = (
    RemoteFile(
        "pendigits.tra",
        f"{_PENDIGITS_URL}/pendigits.tra",
        "e2b9eb9f0d0467e2b64a4816a3420edf2b8043447576f4b84337aba44a9f97d3",
    ),
    RemoteFile(
        "pendigits.tes",
        f"{_PENDIGITS_URL}/pendigits.tes",
        "8bd03229c5c5291fefe43e45465dd948d2645bf23328b9d993e0b777666b2015",
    ),
)
"""Training and test file, by different writers."""

# float64 (n, T, d), or n arrays (T_i, d) where lengths differ
Frames = np.ndarray | list[np.ndarray]


@dataclass(frozen=True)
class SequenceSplit:
    """Labelled sequences, for training and for testing.

    Attributes
    ----------
    X_train, X_test : float64 (n, T, d), or lists of arrays (T_i, d) where lengths differ
    y_train, y_test : (n,) labels
    """

    X_train: Frames
    y_train: np.ndarray
    X_test: Frames
    y_test: np.ndarray


def digits_rows(test_fraction: float = 0.3, seed: int = 0) -> SequenceSplit:
    """scikit-learn's 1,797 handwritten digits, read row by row from the top: T = 8, d = 8, K = 10.

    Pixels are divided by 16, into [0, 1]. The split is stratified.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    bunch = load_digits()
    try:
        train, test = train_test_split(
            np.arange(len(bunch.target)), test_size=test_fraction, stratify=bunch.target, random_state=seed
        )
    except ValueError as error:
        raise UsboostError(f"test_fraction {test_fraction} cannot be set aside: {error}") from error
    X, y = bunch.images / 16.0, bunch.target
    return SequenceSplit(X[train], y[train], X[test], y[test])


def iris() -> tuple[np.ndarray, np.ndarray]:
    """Fisher's Iris: 150 flowers, float64 (150, 4) in centimetres, and the three species' names (150,)."""
    from sklearn.datasets import load_iris

    bunch = load_iris()
    return bunch.data, bunch.target_names[bunch.target]


def pendigits(folder: Path | str) -> SequenceSplit:
    """Pen-digits by its official split, from a folder with ``pendigits.tra`` and ``pendigits.tes``.

    7,494 training and 3,498 test digits; see `read_pendigits`.
    """
    train, test = (read_pendigits(Path(folder) / file.name) for file in PENDIGITS_FILES)
    return SequenceSplit(*train, *test)


def read_pendigits(path: Path | str) -> tuple[np.ndarray, np.ndarray]:
    """Read a pen-digits file: 8 points (x, y) in drawing order, 0..100, and the digit, on a line.

    Returns
    -------
    float64 (n, 8, 2) and the digits, int64 (n,).

    Raises
    ------
    UsboostError
        If the file is missing or empty, or a line is not 16 whole numbers 0..100 and a digit.
    """
    path = Path(path)
    rows: list[list[int]] = []
    for number, line in _lines(path):
        fields = [field.strip() for field in line.split(",")]
        if not all(field.isdecimal() and len(field) < 10 for field in fields):
            raise UsboostError(f"{path}, line {number}: not whole numbers separated by commas")
        row = [int(field) for field in fields]
        if len(row) != 17:
            raise UsboostError(f"{path}, line {number}: {len(row)} fields, not 16 coordinates and a digit")
        if not (all(0 <= value <= 100 for value in row) and row[-1] <= 9):
            raise UsboostError(f"{path}, line {number}: a coordinate is not 0..100 or the digit not 0..9")
        rows.append(row)
    if not rows:
        raise UsboostError(f"{path} holds no line of data")
    table = np.array(rows, dtype=np.int64)
    return table[:, :16].reshape(-1, 8, 2).astype(np.float64), table[:, 16]


def ts_split(folder: Path | str, name: str) -> SequenceSplit:
    """The official split of a dataset in the UCR archive: ``<name>_TRAIN.ts`` and ``<name>_TEST.ts``.

    Raises
    ------
    UsboostError
        If a file cannot be read (see `read_ts`) or the two do not have the same dimensions.
    """
    paths = [Path(folder) / f"{name}_{split}.ts" for split in ("TRAIN", "TEST")]
    (X_train, y_train), (X_test, y_test) = (read_ts(path) for path in paths)
    d, d_test = X_train[0].shape[1], X_test[0].shape[1]
    if d != d_test:
        raise UsboostError(f"{paths[1]} has {d_test} dimensions but {paths[0].name} has {d}")
    return SequenceSplit(X_train, y_train, X_test, y_test)


def read_ts(path: Path | str, missing: str = "refuse") -> tuple[Frames, np.ndarray]:
    """Read labelled sequences in the ``.ts`` format.

    A line of data is the d dimensions separated by colons, each T_i numbers separated by commas, and the
    class label; the header before ``@data`` says what to expect, and the data must agree with it.

    Parameters
    ----------
    path : the file
    missing : {"refuse", "last"}
        What to do about ``?`` or ``NaN``. Missing values at the end of all dimensions stand for the
        end of the sequence. For others, "last" carries that dimension's last value on: never a later
        one, which an early classifier could not have seen. ``@missing false`` allows none at all.

    Returns
    -------
    X : float64 (n, T, d), or a list of n arrays (T_i, d) where lengths differ
    y : (n,) labels as strings

    Raises
    ------
    UsboostError
        If the file is missing, has no data or no class labels, has time stamps, or a line does not fit;
        the message names the line.
    """
    if missing not in ("refuse", "last"):
        raise UsboostError(f"missing values can be handled by 'refuse' or 'last', not {missing!r}")
    sequences, labels = parse_ts(Path(path), list(_lines(Path(path))), missing)
    equal = len({len(sequence) for sequence in sequences}) == 1
    return np.stack(sequences) if equal else sequences, np.array(labels)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Line numbers from 1 and the lines that are not blank, stripped."""
    try:
        with path.open(encoding="utf-8") as stream:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    yield number, line.strip()
    except OSError as error:
        raise UsboostError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsboostError(f"{path} is not a text file ({error.reason})") from error

"""Datasets of the smaller methods: sequences for Earlyboost, and Iris for boosted networks.

`digits_rows` and `iris` come with scikit-learn; pen-digits (UCI) and ``.ts`` files (the UCR archive's
format, which aeon reads) are raw files of a user's own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from usboost.data.views import frame_name
from usboost.datasets.sources import RemoteFile
from usboost.datasets.store import LABEL, Prepared, describe
from usboost.errors import UsboostError
from usboost.evaluation.folds import stratified_parts, stream

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
    """Labelled sequences, for training and for testing, of any lengths, and their labels (n,)."""

    X_train: Frames
    y_train: np.ndarray
    X_test: Frames
    y_test: np.ndarray


def digits_rows(seed: int = 0) -> SequenceSplit:
    """Load scikit-learn's 1,797 handwritten digits, read row by row from the top: T = 8, d = 8, K = 10.

    Pixels are divided by 16, into [0, 1]. The split is stratified; three of ten are for the test.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    bunch = load_digits()
    rows = np.arange(len(bunch.target))
    train, test = train_test_split(rows, test_size=0.3, stratify=bunch.target, random_state=seed)
    X, y = bunch.images / 16.0, bunch.target
    return SequenceSplit(X[train], y[train], X[test], y[test])


def iris() -> tuple[np.ndarray, np.ndarray]:
    """Load Fisher's Iris: 150 flowers, float64 (150, 4) in centimetres, and their species' names (150,)."""
    from sklearn.datasets import load_iris

    bunch = load_iris()
    return bunch.data, bunch.target_names[bunch.target]


def pendigits(folder: Path | str) -> SequenceSplit:
    """Read pen-digits by its official split, from a folder with ``pendigits.tra`` and ``pendigits.tes``.

    7,494 training and 3,498 test digits; see `read_pendigits`.
    """
    train, test = (read_pendigits(Path(folder) / file.name) for file in PENDIGITS_FILES)
    return SequenceSplit(*train, *test)


def read_pendigits(path: Path | str) -> tuple[np.ndarray, np.ndarray]:
    """Read a pen-digits file: 8 points (x, y) in drawing order, 0..100, and the digit, on a line.

    Returns float64 (n, 8, 2) and the digits, int64 (n,). Raises UsboostError if the file is missing or empty,
    or a line is not 16 whole numbers 0..100 and a digit.
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
    """Read the official split of a dataset in the UCR archive: ``<name>_TRAIN.ts`` and ``<name>_TEST.ts``.

    Raises UsboostError if a file cannot be read (see `read_ts`) or the two do not have the same dimensions.
    """
    paths = [Path(folder) / f"{name}_{split}.ts" for split in ("TRAIN", "TEST")]
    (X_train, y_train), (X_test, y_test) = (read_ts(path) for path in paths)
    d, d_test = X_train[0].shape[1], X_test[0].shape[1]
    if d != d_test:
        raise UsboostError(f"{paths[1]} has {d_test} dimensions but {paths[0].name} has {d}")
    return SequenceSplit(X_train, y_train, X_test, y_test)


def read_ts(path: Path | str) -> tuple[Frames, np.ndarray]:
    """Read labelled sequences in the ``.ts`` format.

    A line of data is the d dimensions separated by colons, each T_i numbers separated by commas, and the
    class label; the header before ``@data`` says what to expect, and the data must agree with it.

    Returns X, float64 (n, T, d), or a list of n arrays (T_i, d) where lengths differ; and labels as strings.
    Missing values, ``?`` or ``NaN``, at the end of all dimensions stand for the end of the sequence.
    Raises UsboostError if the file is missing, has no data or no class labels, has time stamps, or a line
    does not fit or has other missing values; the message names the line.
    """
    path = Path(path)
    header = _Header(path, list(_lines(path)))
    sequences: list[np.ndarray] = []
    labels: list[str] = []
    for number, line in header.data:
        if line.startswith(("#", "%")):
            continue
        *dimensions, label = line.split(":")
        where, label = f"{path}, line {number}", label.strip()
        if label not in header.labels:
            raise UsboostError(f"{where}: {label[:40]!r} is not a label that @classLabel lists")
        expected = header.dimensions or len(sequences[0].T if sequences else dimensions)
        if len(dimensions) != expected or not dimensions:
            raise UsboostError(f"{where}: {len(dimensions)} dimensions, not {expected}")
        sequences.append(_sequence(where, dimensions, header))
        labels.append(label)
    if not sequences:
        raise UsboostError(f"{path} has no data after @data")
    equal = len({len(sequence) for sequence in sequences}) == 1
    return np.stack(sequences) if equal else sequences, np.array(labels)


class _Header:
    """The directives before ``@data``; None where there is none."""

    def __init__(self, path: Path, lines: list[tuple[int, str]]) -> None:
        self.values: dict[str, str] = {}
        for position, (number, line) in enumerate(lines):
            if line.startswith(("#", "%")):
                continue
            if not line.startswith("@"):
                raise UsboostError(f"{path}, line {number}: a directive (@…) or @data comes before data")
            name, *values = line.split()
            if name.lower() == "@data":
                self.data = lines[position + 1 :]
                break
            self.values[{"@dimension": "@dimensions"}.get(name.lower(), name.lower())] = " ".join(values)
        else:
            raise UsboostError(f"{path} has no @data line, so it is no .ts file")
        if not self.data:
            raise UsboostError(f"{path} has no data after @data")
        if self._boolean(path, "@timestamps"):
            raise UsboostError(f"{path} has time stamps; only sequences without them can be read")
        with_labels, *self.labels = self.values.get("@classlabel", "false").split() or ["false"]
        if with_labels != "true" or not self.labels:
            raise UsboostError(f"{path} has no class labels (@classLabel true ...)")
        self.missing = self._boolean(path, "@missing")
        self.dimensions = 1 if self._boolean(path, "@univariate") else self._count(path, "@dimensions")
        self.equal = self._boolean(path, "@equallength")
        self.length = self._count(path, "@serieslength") if self.equal else None

    def _boolean(self, path: Path, name: str) -> bool | None:
        value = self.values.get(name, "").lower()
        if name in self.values and value not in ("true", "false"):
            raise UsboostError(f"{path}: {name} must be true or false, not {value!r}")
        return value == "true" if name in self.values else None

    def _count(self, path: Path, name: str) -> int | None:
        value = self.values.get(name, "1")
        if not value.isdecimal() or len(value) > 9 or int(value) < 1:
            raise UsboostError(f"{path}: {name} must be a positive whole number, not {value!r}")
        return int(value) if name in self.values else None


def _sequence(where: str, dimensions: list[str], header: _Header) -> np.ndarray:
    """Parse one line of data, (T, d)."""
    fields = [[field.strip() for field in dimension.split(",")] for dimension in dimensions]
    lengths = {len(dimension) for dimension in fields}
    if len(lengths) > 1:
        raise UsboostError(f"{where}: the dimensions have different lengths, {sorted(lengths)}")
    length = lengths.pop()
    if header.equal and header.length is None:
        header.length = length
    if header.equal and length != header.length:
        raise UsboostError(f"{where}: {length} values, not the {header.length} of @equalLength true")
    try:
        if any("_" in dimension for dimension in dimensions):  # float() would take 1_000
            raise ValueError
        gaps = "?", "nan"
        values = np.array([[np.nan if f.lower() in gaps else float(f) for f in part] for part in fields]).T
    except ValueError:
        raise UsboostError(f"{where}: a value is not a number") from None
    if np.isinf(values).any():
        raise UsboostError(f"{where}: a value is infinite")
    absent = np.isnan(values)
    if not absent.any():
        return values
    if header.missing is False:
        raise UsboostError(f"{where}: a value is missing although the header says @missing false")
    if absent.all():
        raise UsboostError(f"{where}: all values are missing")
    end = 1 + np.flatnonzero(~absent.all(axis=1))[-1]
    if absent[:end].any():
        raise UsboostError(f"{where}: a value is missing before the end; fill it in from those before it")
    return values[:end]


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line numbers from 1 and the lines that are not blank, stripped."""
    try:
        with path.open(encoding="utf-8-sig") as stream:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    yield number, line.strip()
    except OSError as error:
        raise UsboostError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsboostError(f"{path} is not a text file ({error.reason})") from error


VAL_SHARE = 0.15  # of the training sequences, to watch the accuracy on; nothing is chosen by it


def prepare(
    split: SequenceSplit, *, dataset: str, profile: str, seed: int, sources: Mapping[str, str]
) -> Prepared:
    """Make a dataset of sequences of equal length, (n, T, d): the views frame_001..frame_T of d numbers.

    The published test part is the test split; a part of the training sequences, stratified and seeded, is the
    validation split. Raises UsboostError if lengths differ.
    """
    if isinstance(split.X_train, list) or isinstance(split.X_test, list):
        raise UsboostError(f"{dataset}: sequences of unequal length have no prepared form; use the estimator")
    classes = np.unique(split.y_train)
    fitted, val = stratified_parts(split.y_train, (1 - VAL_SHARE, VAL_SHARE), stream(seed, 0))
    parts = {
        "train": (split.X_train[fitted], split.y_train[fitted]),
        "val": (split.X_train[val], split.y_train[val]),
        "test": (split.X_test, split.y_test),
    }
    n_frames, n_features = split.X_train.shape[1:]
    views = {frame_name(t): [f"t{t:03d}_x{j}" for j in range(n_features)] for t in range(1, n_frames + 1)}
    sequences = {"frames": n_frames, "features": n_features}
    about = {"dataset": dataset, "profile": profile, "seed": seed, "sources": sources, "sequences": sequences}
    return _prepared(parts, views, classes, "its frame", about)


def prepare_table(
    x: np.ndarray, y: np.ndarray, *, dataset: str, profile: str, seed: int, folds: int
) -> Prepared:
    """Make a small plain table that is scored by repeated stratified k-fold: one split, one view "x"."""
    about = {"dataset": dataset, "profile": profile, "seed": seed, "sources": {}, "folds": folds}
    views = {"x": [f"x{j}" for j in range(x.shape[1])]}
    return _prepared({"train": (x, y)}, views, np.unique(y), "the only view", about)


def _prepared(
    parts: Mapping[str, tuple[Any, np.ndarray]],
    views: dict[str, list[str]],
    classes: np.ndarray,
    why: str,
    about: Mapping[str, Any],
) -> Prepared:
    """Make a dataset of float32 columns of the numbers and labels of each split, (n, ...) and (n,)."""
    frames, names = {}, [name for columns in views.values() for name in columns]
    for split, (x, y) in parts.items():
        frames[split] = pd.DataFrame(x.reshape(len(x), -1).astype(np.float32), columns=names)
        frames[split][LABEL] = np.searchsorted(classes, y).astype(np.int16)
    columns: dict[str, dict[str, object]] = {
        name: {"view": view, "kind": "continuous", "why": why} for view, of in views.items() for name in of
    }
    columns[LABEL] = {"view": None, "kind": "label", "why": "what is predicted"}
    called = [str(name) for name in classes]
    return Prepared(frames, views, called, describe(frames, views, called, columns=columns, **about))

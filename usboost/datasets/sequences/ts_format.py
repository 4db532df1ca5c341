"""The ``.ts`` text format of the UCR archive: a header of directives, then one labelled case a line."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from usboost.errors import UsboostError

_MISSING = ("?", "nan")
_BOOLEANS = {"true": True, "false": False}

Lines = list[tuple[int, str]]


class _Header:
    """What the directives say; None where they say nothing."""

    def __init__(self, path: Path, lines: Lines) -> None:
        self.values: dict[str, list[str]] = {}
        self.data: Lines = []
        for position, (number, line) in enumerate(lines):
            if line.startswith(("#", "%")):
                continue
            if not line.startswith("@"):
                raise UsboostError(
                    f"{path}, line {number}: a directive (@...) or @data must come before the data"
                )
            name, *values = line.split()
            if name.lower() == "@data":
                self.data = lines[position + 1 :]
                break
            name = {"@dimension": "@dimensions"}.get(name.lower(), name.lower())
            self.values[name] = values
        else:
            raise UsboostError(f"{path} has no @data line, so it is no .ts file")
        if not self.data:
            raise UsboostError(f"{path} has no data after @data")
        if self._boolean(path, "@timestamps"):
            raise UsboostError(f"{path} has time stamps; only sequences without them can be read")
        labels = self.values.get("@classlabel", ["false"])
        if labels[:1] != ["true"] or len(labels) < 2:
            raise UsboostError(f"{path} has no class labels (@classLabel true ...)")
        self.labels = labels[1:]
        self.missing = self._boolean(path, "@missing")
        self.dimensions = 1 if self._boolean(path, "@univariate") else self._count(path, "@dimensions")
        self.equal = self._boolean(path, "@equallength")
        self.length = self._count(path, "@serieslength") if self.equal else None

    def _boolean(self, path: Path, name: str) -> bool | None:
        if name not in self.values:
            return None
        value = " ".join(self.values[name]).lower()
        if value not in _BOOLEANS:
            raise UsboostError(f"{path}: {name} must be true or false, not {value!r}")
        return _BOOLEANS[value]

    def _count(self, path: Path, name: str) -> int | None:
        if name not in self.values:
            return None
        value = " ".join(self.values[name])
        if not value.isdecimal() or len(value) > 9 or int(value) < 1:
            raise UsboostError(f"{path}: {name} must be a positive whole number, not {value!r}")
        return int(value)


def parse_ts(path: Path, lines: Lines, missing: str) -> tuple[list[np.ndarray], list[str]]:
    """Sequences (T_i, d) and labels of a file's numbered, stripped, non-blank lines.

    `missing` is as in `usboost.datasets.sequences.read.read_ts`; errors too.
    """
    header = _Header(path, lines)
    sequences: list[np.ndarray] = []
    labels: list[str] = []
    for number, line in header.data:
        if line.startswith(("#", "%")):
            continue
        *dimensions, label = line.split(":")
        where = f"{path}, line {number}"
        if label.strip() not in header.labels:
            raise UsboostError(f"{where}: {label.strip()[:40]!r} is not a label that @classLabel lists")
        expected = header.dimensions or len(sequences[0].T if sequences else dimensions)
        if len(dimensions) != expected or not dimensions:
            raise UsboostError(f"{where}: {len(dimensions)} dimensions, not {expected}")
        sequences.append(_sequence(where, dimensions, header, missing))
        labels.append(label.strip())
    if not sequences:
        raise UsboostError(f"{path} has no data after @data")
    return sequences, labels


def _sequence(where: str, dimensions: list[str], header: _Header, missing: str) -> np.ndarray:
    fields = [[field.strip() for field in dimension.split(",")] for dimension in dimensions]
    lengths = {len(dimension) for dimension in fields}
    if len(lengths) > 1:
        raise UsboostError(f"{where}: the dimensions have different lengths, {sorted(lengths)}")
    length = lengths.pop()
    if header.equal and header.length is None:
        header.length = length
    if header.equal and length != header.length:
        raise UsboostError(
            f"{where}: {length} values, not {header.length} although the header says @equalLength true"
        )
    if any("_" in dimension for dimension in dimensions):  # float() would take 1_000
        raise UsboostError(f"{where}: a value is not a number")
    try:
        values = np.array(
            [[np.nan if f.lower() in _MISSING else float(f) for f in part] for part in fields]
        ).T
    except ValueError:
        raise UsboostError(f"{where}: a value is not a number") from None
    if np.isinf(values).any():
        raise UsboostError(f"{where}: a value is infinite")
    absent = np.isnan(values)
    if not absent.any():
        return values
    if header.missing is False:
        raise UsboostError(f"{where}: a value is missing although the header says @missing false")
    kept = np.flatnonzero(~absent.all(axis=1))
    if not len(kept):
        raise UsboostError(f"{where}: all values are missing")
    values, absent = values[: kept[-1] + 1], absent[: kept[-1] + 1]
    if absent.any() and missing == "refuse":
        raise UsboostError(
            f"{where}: values are missing; read the file with missing='last' to carry the last one on"
        )
    if absent[0].any():
        raise UsboostError(f"{where}: the first value of a dimension is missing, so none can be carried on")
    for t in range(1, len(values)):
        values[t, absent[t]] = values[t - 1, absent[t]]
    return values

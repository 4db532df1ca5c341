"""Room for arrays: in memory, or on disk for what is made of an array that is there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from usboost.errors import UsboostError
from usboost.files import NO_ROOM

LEAST = 1 << 20
"""Bytes up to which what is made of an array on disk is kept in memory."""

PART_ROWS = 1 << 16
"""Rows that are read and written in one go."""


def is_mapped(array: np.ndarray) -> bool:
    """Whether the array's numbers are in a file, of which the system reads what is needed."""
    return getattr(array, "_mmap", None) is not None


def room(
    beside: np.ndarray, shape: tuple[int, ...], dtype: Any, order: Literal["C", "F"] = "C"
) -> np.ndarray:
    """An array to write to: in memory, or if `beside` is mapped and it is large, in a file in its folder.

    The file has lost its name: it is gone with the array, and with the process, however that ends.

    Raises
    ------
    UsboostError
        If the disk is full.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if not is_mapped(beside) or size <= LEAST:
        return np.empty(shape, dtype=dtype, order=order)
    with nameless(Path(beside.filename).parent) as file:  # type: ignore[attr-defined]
        _reserve(file, size)
        return mapped(file, shape, dtype, order)


@contextmanager
def nameless(folder: Path | str | None = None) -> Iterator[IO[bytes]]:
    """A file to write to and map, in a folder, by default that of temporary files.

    Raises `UsboostError` if it cannot be written.
    """
    folder = Path(folder or tempfile.gettempdir())
    began = False
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix="usboost-rows-") as file:
            began = True
            yield file.file
    except OSError as error:
        if began and error.errno not in NO_ROOM:  # what is written may come of another file
            raise
        raise UsboostError(
            f"rows cannot be kept in {folder} ({error.strerror}); make room there, or set the variable "
            "TMPDIR to another folder"
        ) from error


def mapped(file: IO[bytes], shape: tuple[int, ...], dtype: Any, order: Literal["C", "F"] = "C") -> np.ndarray:
    """The array that a file holds."""
    file.flush()
    if not np.prod(shape):  # no system maps nothing
        return np.empty(shape, dtype=dtype, order=order)
    return np.memmap(file, dtype=dtype, mode="r+", shape=shape, order=order)


def _reserve(file: IO[bytes], size: int) -> None:
    """Make the file so large; else a disk that is full later would end the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
    else:
        file.truncate(size)


def parts(n: int) -> Iterator[slice]:
    """n rows, some at a time."""
    return (slice(start, min(start + PART_ROWS, n)) for start in range(0, n, PART_ROWS))


def rows_of(array: np.ndarray, rows: Any) -> np.ndarray:
    """``array[rows]``; of a mapped array a mapped one, if they are many."""
    if not (is_mapped(array) and isinstance(rows, np.ndarray)):
        return array[rows]
    rows = np.flatnonzero(rows) if rows.dtype == bool else rows
    out = room(array, (len(rows), *array.shape[1:]), array.dtype)
    for part in parts(len(rows)):
        out[part] = array[rows[part]]
    return out


def side_by_side(
    arrays: Sequence[np.ndarray], dtype: Any = None, order: Literal["C", "F"] = "C"
) -> np.ndarray:
    """Columns of the same rows in one array; it is mapped if one of them is."""
    n, widths = len(arrays[0]), [array.shape[1] for array in arrays]
    beside = next(filter(is_mapped, arrays), arrays[0])
    out = room(beside, (n, sum(widths)), dtype or np.result_type(*arrays), order)
    ends = np.cumsum([0, *widths]).tolist()
    for part in parts(n):
        for array, start, stop in zip(arrays, ends, ends[1:]):
            out[part, start:stop] = array[part]
    return out

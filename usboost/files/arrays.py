"""Arrays and JSON in files, digests of them, and finished things on disk, so that what is killed goes on.

Room for arrays, too: in memory, or on disk for what is made of an array that is there.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal, TypeVar

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from usboost.errors import UsboostError, warn
from usboost.files import NO_ROOM, write_atomically

Arrays = dict[str, np.ndarray]
Entry = TypeVar("Entry")
Order = Literal["C", "F"]

LEAST = 1 << 20
"""Bytes up to which what is made of an array on disk stays in memory."""

PART_ROWS = 1 << 16
"""Rows that are read and written in one go."""


def write_arrays(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    """Write arrays by name as safetensors."""
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)


def read_arrays(path: Path) -> Arrays:
    """Read what `write_arrays` wrote. Raises UsboostError if there is none, or it is cut short or damaged."""
    try:
        return load_file(path)
    # numpy refuses some headers that safetensors lets pass
    except (OSError, SafetensorError, ValueError, TypeError, KeyError) as error:
        raise UsboostError(f"{path} cannot be read as safetensors: {error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """Read the JSON object in a file. Raises UsboostError if there is none."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UsboostError(f"{path} cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise UsboostError(f"{path} does not hold a JSON object")
    return document


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def key_of(decides: Any) -> str:
    """Return the key of what some JSON decides: its SHA-256, in hex."""
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


class Store:
    """Finished things by key, each a file or folder in a folder, which is there whole or not at all.

    The folder is made with the first entry.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)

    def get(self, key: str, read: Callable[[Path], Entry]) -> Entry | None:
        """Return what `read` makes of an entry; None without one, and with a warning if it is damaged."""
        path = self.folder / key
        if not path.exists():
            return None
        try:
            return read(path)
        except (UsboostError, ValueError, KeyError, TypeError, AttributeError) as error:
            warn(f"{path} is damaged, so it is made again: {type(error).__name__}: {error}")
            return None

    def put(self, key: str, write: Callable[[Path], None]) -> None:
        """Let `write` make an entry, as a whole."""
        write(self.folder / key)

    def get_json(self, key: str, read: Callable[[Mapping[str, Any]], Entry]) -> Entry | None:
        """Return what `read` makes of an entry by `put_json`, as `get`."""
        return self.get(f"{key}.json", lambda path: read(read_json(path)))

    def put_json(self, key: str, document: Mapping[str, Any]) -> None:
        """Write a JSON object as an entry."""
        self.put(f"{key}.json", lambda path: write_atomically(path, json.dumps(document).encode()))


def is_mapped(array: np.ndarray) -> bool:
    """Tell whether the array's numbers are in a file, of which the system reads what is needed."""
    return getattr(array, "_mmap", None) is not None


def room(like: np.ndarray, shape: tuple[int, ...], dtype: Any, order: Order = "C") -> np.ndarray:
    """Make an array to write to: in memory, or if it is large and `like` is mapped, in a file there.

    The file has lost its name: it is gone with the array, and with the process, however that ends. Raises
    UsboostError if the disk is full.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if not is_mapped(like) or size <= LEAST:
        return np.empty(shape, dtype=dtype, order=order)
    return zeros_on_disk(shape, dtype, order, Path(like.filename).parent)  # type: ignore[attr-defined]


def zeros_on_disk(
    shape: tuple[int, ...], dtype: Any, order: Order = "C", folder: Path | None = None
) -> np.ndarray:
    """Make zeros to write to, in a file as of `nameless`, which takes all of its space now."""
    with nameless(folder) as file:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if hasattr(os, "posix_fallocate"):  # else a disk that is full later would end the process
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)
        return mapped(file, shape, dtype, order)


@contextmanager
def nameless(folder: Path | str | None = None) -> Iterator[IO[bytes]]:
    """Open a file to write to and map, by default in the folder of temporary files; refuse a full disk."""
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


def mapped(file: IO[bytes], shape: tuple[int, ...], dtype: Any, order: Order = "C") -> np.ndarray:
    """Map the array that a file holds."""
    file.flush()
    if not np.prod(shape):  # no system maps nothing
        return np.empty(shape, dtype=dtype, order=order)
    return np.memmap(file, dtype=dtype, mode="r+", shape=shape, order=order)


def parts(n: int, size: int | None = None) -> Iterator[slice]:
    """Cut n rows into parts of one size, by default `PART_ROWS`, the last one smaller."""
    size = size or PART_ROWS
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def rows_of(array: np.ndarray, rows: Any) -> np.ndarray:
    """Take ``array[rows]``; of a mapped array a mapped one, if they are many."""
    if not (is_mapped(array) and isinstance(rows, np.ndarray)):
        return array[rows]
    rows = np.flatnonzero(rows) if rows.dtype == bool else rows
    out = room(array, (len(rows), *array.shape[1:]), array.dtype)
    for part in parts(len(rows)):
        out[part] = array[rows[part]]
    return out


def side_by_side(arrays: Sequence[np.ndarray], dtype: Any = None, order: Order = "C") -> np.ndarray:
    """Put columns of the same rows in one array; it is mapped if one of them is."""
    n, widths = len(arrays[0]), [array.shape[1] for array in arrays]
    like = next(filter(is_mapped, arrays), arrays[0])
    out = room(like, (n, sum(widths)), dtype or np.result_type(*arrays), order)
    ends = np.cumsum([0, *widths]).tolist()
    for part in parts(n):
        for array, start, stop in zip(arrays, ends, ends[1:]):
            out[part, start:stop] = array[part]
    return out

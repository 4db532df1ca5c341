"""Arrays and JSON in files, digests of them, and finished things on disk, so that what is killed goes on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from usboost.errors import UsboostError, warn
from usboost.files import write_atomically

Arrays = dict[str, np.ndarray]


def write_arrays(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    """Write arrays by name as safetensors."""
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)


def read_arrays(path: Path) -> Arrays:
    """What `write_arrays` wrote. Raises UsboostError if the file is missing, cut short or no safetensors."""
    try:
        return load_file(path)
    # numpy refuses some headers that safetensors lets pass
    except (OSError, SafetensorError, ValueError, TypeError, KeyError) as error:
        raise UsboostError(f"{path} cannot be read as safetensors: {error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises UsboostError if there is none."""
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise UsboostError(f"{path} cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise UsboostError(f"{path} does not hold a JSON object")
    return document


def digest_of(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


Entry = TypeVar("Entry")


def key_of(decides: Any) -> str:
    """The key of what some JSON decides: its SHA-256, in hex."""
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


class Store:
    """Finished things by key, each a file or folder in a folder, which is there whole or not at all.

    Parameters
    ----------
    folder : is made with the first entry.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)

    def get(self, key: str, read: Callable[[Path], Entry]) -> Entry | None:
        """What `read` makes of an entry; None without one, and with a warning if it is damaged."""
        path = self.folder / key
        if not path.exists():
            return None
        try:
            return read(path)
        except (UsboostError, ValueError, KeyError, TypeError, AttributeError) as error:
            reason = f"{path} is damaged, so it is made again: {type(error).__name__}: {error}"
            warn(reason)
            return None

    def put(self, key: str, write: Callable[[Path], None]) -> None:
        """Let `write` make an entry, as a whole."""
        write(self.folder / key)

    def get_json(self, key: str, read: Callable[[Mapping[str, Any]], Entry]) -> Entry | None:
        """As `get`, of an entry by `put_json`."""
        return self.get(f"{key}.json", lambda path: read(read_json(path)))

    def put_json(self, key: str, document: Mapping[str, Any]) -> None:
        """Write a JSON object as an entry."""
        self.put(f"{key}.json", lambda path: write_atomically(path, json.dumps(document).encode()))

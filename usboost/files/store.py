"""Finished things on disk, so that what is killed goes on from them."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from usboost.errors import UsboostError
from usboost.files.arrays import read_json
from usboost.files.writing import write_atomically

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
            warnings.warn(reason, stacklevel=2)
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

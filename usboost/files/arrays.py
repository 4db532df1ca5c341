"""Arrays and JSON in files, and digests of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from usboost.errors import UsboostError

Arrays = dict[str, np.ndarray]


def write_arrays(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    """Write arrays by name as safetensors."""
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)


def read_arrays(path: Path) -> Arrays:
    """What `write_arrays` wrote.

    Raises
    ------
    UsboostError
        If the file is missing, cut short or no safetensors.
    """
    try:
        return load_file(path)
    # numpy refuses some headers that safetensors lets pass
    except (OSError, SafetensorError, ValueError, TypeError, KeyError) as error:
        raise UsboostError(f"{path} cannot be read as safetensors: {error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises
    ------
    UsboostError
        If there is none.
    """
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

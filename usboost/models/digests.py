"""The files of a saved model and their digests: one changed bit is seen."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from usboost.errors import UsboostError
from usboost.files.arrays import digest_of

_FILE = re.compile(r"((point|lower|upper|m\d+-\d+)/)?(gbm/)?[a-z0-9-]+\.(safetensors|json|cbm)")


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of each file in a folder, by its path there."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): digest_of(path) for path in files}


def check_digests(document: Mapping[str, Any], folder: Path) -> None:
    """The files that a document lists are those that were saved.

    Raises
    ------
    UsboostError
        Naming the first that is missing or changed, or is no file of a model.
    """
    for name, digest in document.get("files", {}).items():
        if not _FILE.fullmatch(name):
            raise UsboostError(f"{folder} lists {name!r}, which is no file of a model")
        try:
            found = digest_of(folder / name)
        except OSError as error:
            raise UsboostError(f"{folder / name} cannot be read: {error.strerror}") from None
        if found != digest:
            raise UsboostError(f"{folder / name} is not the file that was saved; copy or train it again")

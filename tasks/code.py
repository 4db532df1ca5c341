"""Digests of what decides an output: code, files, settings."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from usboost.boosting.code import PACKAGE, closure
from usboost.files.arrays import key_of

NOT_DECIDING = (
    *(
        "tasks.folders",
        "tasks.fits.identity",
        "tasks.fits.models",
        "tasks.fits.results",
        "tasks.pages.flow_page",
    ),
    *("tasks.running", "tasks.settings", "tasks.tracking", "usboost.models.build"),
)
"""Modules that decide no number: what they give to a step is in its fingerprint, or nowhere."""


def code_of(modules: Iterable[str]) -> dict[str, Path]:
    """The modules, of `tasks` or the library, that decide what these do, with their source files."""
    return closure(modules, [Path(__file__).parent, PACKAGE], NOT_DECIDING)


def digest_of(decided: Mapping[str, Any]) -> str:
    """Of everything that decides an output, as JSON."""
    return key_of(decided)


def sha(path: Path) -> str:
    """Of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

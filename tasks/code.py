"""The code that decides an output."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from usboost.boosting.code import PACKAGE, closure

NOT_DECIDING = (
    *("tasks.folders", "tasks.fits.cell", "tasks.fits.models", "tasks.fits.results", "tasks.pages.flow_page"),
    *("tasks.machine", "tasks.settings", "tasks.tracking", "usboost.models.build"),
)
"""Modules that decide no number: what they give to a step is in its fingerprint, or nowhere."""


def code_of(modules: Iterable[str]) -> dict[str, Path]:
    """Return the modules, of `tasks` or the library, that decide what these do, with their source files."""
    return closure(modules, [Path(__file__).parent, PACKAGE], NOT_DECIDING)

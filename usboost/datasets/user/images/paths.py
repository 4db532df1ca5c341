"""The paths in a column of images: how many there were, and which led to no file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from usboost.datasets.user.reading.source import Source
from usboost.errors import UsboostError, option


@dataclass
class Paths:
    """The paths read so far of a column.

    Attributes
    ----------
    given : how many; lost : how many of them led to no file; first : of these.
    """

    column: str
    given: int = 0
    lost: int = 0
    first: Path | None = None

    def add(self, path: Path, *, is_there: bool) -> None:
        """Count one."""
        self.given += 1
        if not is_there:
            self.lost += 1
            self.first = self.first or path

    def __str__(self) -> str:
        what = "path of images leads" if self.lost == 1 else "paths of images lead"
        return f"{self.lost:,} {what} to no file in column {self.column!r}, {self.first} first"


def check_paths(source: Source, found: Iterable[Paths]) -> None:
    """Refuse rows of which no path of a column leads to a file: their folder is another.

    Raises
    ------
    UsboostError
        Naming the first path.
    """
    for paths in found:
        if paths.given and paths.lost == paths.given:
            raise UsboostError(
                f"{source}: no path in column {paths.column!r} leads to a file: no {paths.first}, say; "
                f"correct them, name the images' folder ({option('images_root')}), or leave the column "
                "empty"
            )

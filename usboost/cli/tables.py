"""How the commands read a user's table.

torch is not imported here, so that mistakes in a table are reported at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from usboost.cli.console import note, progress

if TYPE_CHECKING:
    from usboost.datasets.custom.table import OwnTable


def read(
    path: Path,
    label: str,
    *,
    image: Collection[str] | None,
    drop: Collection[str] | None,
    categorical: Collection[str] | None,
    size: int,
    grey: bool,
    pool: bool,
    skip_unreadable: bool,
) -> OwnTable:
    """The whole training table; notes how many rows have no picture."""
    from usboost.datasets.custom.table import read_own

    with progress("reading pictures") as show:
        table = read_own(
            path,
            label=label,
            image=image or (),
            drop=drop or (),
            categorical=categorical or (),
            size=size,
            channels=1 if grey else 3,
            pool="mean" if pool else None,
            skip_unreadable=skip_unreadable,
            progress=show,
        )
    note_missing(len(table), table.without, table.unreadable)
    return table


def note_missing(rows: int, without: Mapping[str, int], unreadable: int) -> None:
    """Say how many rows have no picture, by column, and how many pictures could not be read."""
    for column, missing in without.items():
        if missing:
            where = f" in column {column!r}" if len(without) > 1 else ""
            note(f"{missing:,} of {rows:,} rows have no picture{where}")
    if unreadable:
        note(f"{unreadable:,} of these pictures cannot be read")


def check(path: Path) -> None:
    """Refuse a file that is not a table, before the model is loaded."""
    from usboost.datasets.custom.source import TableFile

    TableFile.open(path)

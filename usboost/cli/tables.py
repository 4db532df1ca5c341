"""How the commands read a user's table.

torch is not imported here, so that mistakes in a table are reported at once.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from usboost.cli.console import note, progress

if TYPE_CHECKING:
    from usboost.datasets.custom.table import OwnTable


def read(
    path: Path,
    label: str,
    *,
    image: str | None,
    drop: Collection[str] | None,
    categorical: Collection[str] | None,
    size: int,
    grey: bool,
    skip_missing: bool,
) -> OwnTable:
    """The whole training table; notes how many rows without a picture are left out."""
    from usboost.datasets.custom.table import read_own

    with progress("reading pictures") as show:
        table = read_own(
            path,
            label=label,
            image=image,
            drop=drop or (),
            categorical=categorical or (),
            size=size,
            channels=1 if grey else 3,
            skip_missing=skip_missing,
            progress=show,
        )
    if table.skipped:
        note(f"{table.skipped:,} rows without a picture are left out")
    return table


def check(path: Path) -> None:
    """Refuse a file that is not a table, before the model is loaded."""
    from usboost.datasets.custom.source import TableFile

    TableFile.open(path)

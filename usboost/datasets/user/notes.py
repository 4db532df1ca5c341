"""What a user is told of a table, or of rows to predict, in sentences.

The command line prints them, the estimators warn of them, a served model logs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from usboost.datasets.user.images.values import Paths
from usboost.datasets.user.misfits import Misfits, Tally

if TYPE_CHECKING:
    from usboost.datasets.user.columns.schema import Schema
    from usboost.datasets.user.user_table import UserTable


def of_table(table: UserTable, schema: Schema) -> list[str]:
    """Of a table to be fitted to: what was left out or decided, what may be a mistake, what of its images
    cannot be read. `schema`: of the table, see `columns.schema.describe`."""
    return [*schema.notes, *schema.warnings, *_of_paths(table.paths), *map(_misfits, _some(table.misfits))]


def of_rows(tally: Tally) -> list[str]:
    """Of rows that a model reads: what it ignores, has not seen, or could not read."""
    found = []
    if tally.ignored:
        found.append(f"columns ignored, since the model does not know them: {', '.join(tally.ignored)}")
    return [*found, *_of_paths(tally.paths), *map(_misfits, _some(tally.misfits.values()))]


def of_images(rows: int, without: Mapping[str, int]) -> list[str]:
    """How many rows have no image, by column; nothing of a column in which all have one."""
    several = len(without) > 1
    return [
        f"{missing:,} of {rows:,} rows have no image" + (f" in column {column!r}" if several else "")
        for column, missing in without.items()
        if missing
    ]


def _of_paths(paths: Iterable[Paths]) -> list[str]:
    return [f"{each}; such rows count as without an image" for each in paths if each.lost]


def _some(misfits: Iterable[Misfits]) -> list[Misfits]:
    return [each for each in misfits if each.count]


def _misfits(found: Misfits) -> str:
    one = found.count == 1
    of = f"column {found.column!r}: {found.count:,} of {found.given:,}"
    first = f"{'in' if one else 'the first in'} {found.row}, {found.value}"
    if found.what == "images":
        end = f"counts as missing: {found.error}" if one else f"count as missing, the first: {found.error}"
        return f"{of} images cannot be read and {end}"
    if found.what == "categories":
        if found.count == found.given:
            return f"column {found.column!r}: no row has a category that was in the training rows"
        return f"{of} rows {'has' if one else 'have'} a category that was not in the training rows, {first}"
    are = f"is no {found.what[:-1]} and counts" if one else f"are no {found.what} and count"
    return f"{of} values {are} as missing, {first}"

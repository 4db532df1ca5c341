"""Read a user's table for the commands, and show what it was read as.

torch is not imported here, so that mistakes in a table are reported at once.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from usboost.cli.console import as_flag, begin, console, note, progress, silent
from usboost.errors import listed, rewrite_options
from usboost.table.spec import TableSpec

if TYPE_CHECKING:
    from usboost.table.notes import Tally
    from usboost.table.user_table import UserTable

_SHOWN = 60  # columns of a wide table


def read(path: Path, spec: TableSpec) -> "UserTable":
    """Read the whole training table, or of a fit on shards, this one's rows; note how many have no image."""
    from usboost.shards.collective import world
    from usboost.table.notes import notes_of_images
    from usboost.table.shards import read_shard
    from usboost.table.user_table import read_table

    begin(f"reading {path}")
    with progress("reading images") as show:
        table = (read_shard if world().count > 1 else read_table)(path, spec, progress=show)
    for each in notes_of_images(int(world().sum(len(table))), table.without):
        note(each)
    return table


def show(table: "UserTable") -> None:
    """Show what the table was read as: its columns, and notes and warnings, on stderr."""
    if silent.get():
        return
    from rich.markup import escape
    from rich.table import Table

    from usboost.shards.collective import unsharded
    from usboost.table.schema import describe, notes_of_table

    table = table.sample or table
    schema = unsharded(lambda: describe(table))
    for each in notes_of_table(table, schema):
        note(each)
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("column", "kind", "missing", "distinct", "use"):
        shown.add_column(title, justify="right" if title in ("missing", "distinct") else "left")
    for column in schema.columns[:_SHOWN]:
        counts = ("" if each is None else f"{each:,}" for each in (column.missing, column.distinct))
        name, use = listed([column.name]), rewrite_options(column.use, as_flag)
        shown.add_row(escape(name), column.kind, *counts, escape(use))
    stderr = console(err=True)
    stderr.print(f"{schema.rows:,} rows, {len(schema.columns):,} columns")
    stderr.print(shown)
    if len(schema.columns) > _SHOWN:
        stderr.print(f"and {len(schema.columns) - _SHOWN:,} more columns")
    begin("loading what fits the models")


def show_slices(by_column: str, table: Mapping[str, Any]) -> None:
    """Show scores by groups of a column, of `usboost.evaluation.task`; intervals where there is room."""
    from rich.table import Table
    from rich.text import Text

    stdout, columns = console(), table["columns"]
    rows = [[listed([row["name"]]), *(row["cells"][key] for key in columns)] for row in table["rows"]]
    titles = [listed([by_column]), *columns.values()]
    for shown in range(len(columns), 0, -1):  # columns with what stands next to their values
        lines = [
            [name, *(" ".join(filter(None, cell[: 1 + (k < shown)])) for k, cell in enumerate(cells))]
            for name, *cells in rows
        ]
        if sum(max(map(len, each)) + 2 for each in zip(titles, *lines, strict=True)) <= stdout.width:
            break
    made = Table(box=None, pad_edge=False, header_style="bold")
    for k, title in enumerate(titles):
        made.add_column(Text(title), justify="right" if k else "left", overflow="fold")
    for line in lines:
        made.add_row(*map(Text, line))
    stdout.print(made)


def note_rows(tally: "Tally", rows: int, without: Mapping[str, int]) -> None:
    """Print the notes on rows to predict; `without` counts those without an image, by column."""
    from usboost.table.notes import notes_of_images, notes_of_rows

    for each in (*notes_of_images(rows, without), *notes_of_rows(tally)):
        note(each)

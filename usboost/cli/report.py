"""``usboost report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from usboost.cli import tables
from usboost.cli.console import exit_on_error, note, progress, say
from usboost.cli.options import Import, ModelPath, SkipMissing, TablePath, import_named


def report(
    model: ModelPath,
    table: TablePath,
    out: Annotated[Path, typer.Option("--out", help="An .html file to write.")],
    label: Annotated[
        str | None,
        typer.Option(
            "--label",
            help="Column of the classes [default: as in training].",
            show_default=False,
        ),
    ] = None,
    skip_missing: SkipMissing = False,
    imports: Import = None,
) -> None:
    """Score a model on labelled rows, best on unseen ones, and write a one-page report."""
    with exit_on_error():
        from usboost.multimodal import bundle

        tables.check(table)
        import_named(imports)
        loaded = bundle.load(model)
        from usboost.multimodal.report import write_report

        with progress("scoring") as show:
            scored = write_report(loaded, table, out, label=label, skip_missing=skip_missing, progress=show)
        if scored.skipped:
            note(f"{scored.skipped:,} rows without a picture are left out")
        say(f"written {out}: {len(scored):,} rows")

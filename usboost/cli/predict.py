"""``usboost predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from usboost.cli import tables
from usboost.cli.console import exit_on_error, note, progress, say
from usboost.cli.options import (
    ImagesRoot,
    Import,
    ModelPath,
    SkipUnreadable,
    TablePath,
    TextModel,
    import_named,
    permit,
)


def predict(
    model: ModelPath,
    table: TablePath,
    out: Annotated[Path, typer.Option("--out", help="A .parquet or .csv file to write.")],
    keep: Annotated[
        list[str] | None, typer.Option("--keep", help="Column of the table to copy; repeatable.")
    ] = None,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Rows in memory at a time.")] = 4096,
    skip_unreadable: SkipUnreadable = False,
    images_root: ImagesRoot = None,
    text_model: TextModel = None,
    imports: Import = None,
) -> None:
    """Write each row's label and class probabilities; the table may be larger than memory."""
    with exit_on_error():
        from usboost.multimodal.fit import bundle
        from usboost.multimodal.predict.predict import predict as predict_table

        tables.check(table)
        import_named(imports)
        permit(text_model)
        loaded = bundle.load(model)
        with progress("predicting") as show:
            done = predict_table(
                loaded,
                table,
                out,
                batch=batch,
                keep=keep or (),
                skip_unreadable=skip_unreadable,
                images_root=images_root,
                progress=show,
            )
        if done.ignored:
            note(f"columns ignored, since the model does not know them: {', '.join(done.ignored)}")
        for name in done.unseen:
            note(f"column {name!r}: no row has a category that was in the training rows")
        tables.note_missing(done.rows, done.without, done.unreadable, done.paths)
        say(f"written {out}: {done.rows:,} rows")

"""``usboost predict``, ``usboost report`` and ``usboost export``: what is done with a saved model."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from usboost.cli import options, tables
from usboost.cli.console import begin, echo, exit_on_error, note, progress
from usboost.files.registry import import_parts

if TYPE_CHECKING:
    from usboost.fit.bundle import Bundle


def _loaded(model: Path, table: Path, columns: Sequence[str], imports: list[str] | None) -> "Bundle":
    """Load the model, if the table is one and has these columns."""
    begin(f"loading {model}")
    from usboost.fit import bundle
    from usboost.table.source import TableFile, require

    require(TableFile.open(table), columns)
    import_parts(imports or (), Path())
    return bundle.load(model)


def predict(
    model: options.ModelPath,
    table: options.TablePath,
    out: Annotated[Path, typer.Option("--out", help="A .parquet or .csv file to write.")],
    keep: Annotated[
        list[str] | None, typer.Option("--keep", help="Column of the table to copy; repeatable.")
    ] = None,
    sets: Annotated[
        bool,
        typer.Option(
            "--sets", help="Add the set of classes that may be a row's: 9 in 10 sets hold the true one."
        ),
    ] = False,
    sets_per_class: Annotated[
        bool, typer.Option("--sets-per-class", help="Such sets that hold 9 in 10 rows of each class.")
    ] = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Add the columns that speak most for and against each answer; takes longer."
        ),
    ] = False,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            help="Table whose rows --explain and --explain-page compare each row with, such as the training "
            "table, which a saved model does not hold; the page then shows the 3 nearest of its first 4,096.",
            show_default="the same table",
        ),
    ] = None,
    explain_page: Annotated[
        Path | None,
        typer.Option(
            "--explain-page",
            help="An .html file: the first 12 rows explained by columns and squares of images, in one unit.",
        ),
    ] = None,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Rows in memory at a time.")] = 4096,
    strict: options.Strict = False,
    images_root: options.ImagesRoot = None,
    imports: options.Import = None,
) -> None:
    """Write each row's label and class probabilities; the table may be larger than memory."""
    with exit_on_error():
        for place in filter(None, (out, explain_page)):
            options.check_out(place, file=True)
        loaded = _loaded(model, table, keep or (), imports)
        from usboost.fit.predict import predict as predict_table

        if explain_page is not None:
            from usboost.report.explained import write_page

            how: dict[str, Any] = {"against": against, "strict": strict, "images_root": images_root}
            with progress("explaining") as show:
                n = write_page(loaded, table, explain_page, progress=show, **how)
            echo(f"written {explain_page}: {n} rows explained")
        with progress("predicting") as show:
            done = predict_table(
                loaded,
                table,
                out,
                batch=batch,
                keep=keep or (),
                strict=strict,
                images_root=images_root,
                sets="per-class" if sets_per_class else sets,
                explained=explain,
                against=against if explain or not explain_page else None,
                progress=show,
            )
        tables.note_rows(done, done.rows, done.without)
        echo(f"written {out}: {done.rows:,} rows")


def report(
    model: options.ModelPath,
    table: options.TablePath,
    out: Annotated[Path, typer.Option("--out", help="An .html file to write.")],
    label: Annotated[
        str | None, typer.Option("--label", help="Column of the true answers.", show_default="as in training")
    ] = None,
    by_column: options.ByColumn = None,
    strict: options.Strict = False,
    images_root: options.ImagesRoot = None,
    occlusion_maps: Annotated[
        bool,
        typer.Option(
            "--occlusion-maps",
            help="Map where the model looks in the worst rows' images; slow: some 50 predictions each.",
        ),
    ] = False,
    imports: options.Import = None,
) -> None:
    """Score a model on labelled rows, best on unseen ones, and write a one-page report."""
    with exit_on_error():
        options.check_out(out, file=True)
        loaded = _loaded(model, table, [label] if label else (), imports)
        from usboost.report.model_page import write_report

        with progress("scoring") as show, progress("covering") as looking:
            scored = write_report(
                loaded,
                table,
                out,
                label=label,
                strict=strict,
                images_root=images_root,
                occlusion_maps=occlusion_maps,
                by_column=by_column,
                progress=show,
                looking=looking,
            )
        if scored.unlabelled:
            note(f"{scored.unlabelled:,} rows have no {label or loaded.card.label!r} and are not scored")
        if loaded.card.weight:
            note(f"the model was fitted with weights, {loaded.card.weight!r}; here each row counts once")
        tables.note_rows(scored.tally, len(scored), scored.without)
        if by_column is not None:
            from usboost.evaluation.task import table_of

            tables.show_slices(by_column, table_of(scored.slices))
        echo(f"written {out}: {len(scored):,} rows")


def export(
    model: options.ModelPath,
    out: Annotated[Path, typer.Option("--out", help="A folder to write.")],
    imports: options.Import = None,
) -> None:
    """Write the model as an ONNX file, with a script and a page that ask it without usboost."""
    with exit_on_error():
        import_parts(imports or (), Path())
        from usboost.export.folder import export as write
        from usboost.fit import bundle

        size = write(bundle.load(model), out, model)
        echo(f"written {out}: model.onnx of {size / 1e6:,.1f} MB, card.json, predict.py, index.html")

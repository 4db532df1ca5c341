"""``usboost compare``."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from usboost.cli import options, tables
from usboost.cli.console import console, echo, echo_command, exit_on_error, fitting, note
from usboost.cli.interrupts import CODE, interrupts
from usboost.errors import UsboostError, listed
from usboost.evaluation.ranking import METRICS_OF, RANKING, check_metric
from usboost.files.registry import import_parts
from usboost.fit.options import ImageOptions
from usboost.models.entry import read_settings
from usboost.table.spec import TableSpec

if TYPE_CHECKING:
    from usboost.fit.compare import Comparison


def compare(
    table: options.TablePath,
    spec: TableSpec,
    images: ImageOptions,
    models: options.Models = None,
    others: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="MODULE:CLASS",
            help="A scikit-learn estimator to compare with, sklearn.svm:SVC say; repeatable.",
        ),
    ] = None,
    folds: Annotated[int, typer.Option("--folds", min=2, help="Folds of the cross-validation.")] = 5,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Repeats of the cross-validation.")] = 1,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Fits at a time.")] = 1,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            help=f"Score to rank by: {options.BY}, or any other of scikit-learn's names.",
            show_default="accuracy, RMSE",
        ),
    ] = None,
    by_column: options.ByColumn = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder for the comparison and its finished fits, from which the same command goes on.",
        ),
    ] = None,
    rounds: options.Rounds = None,
    settings: options.SettingsFile = None,
    imports: options.Import = None,
    seed: options.Seed = 0,
) -> None:
    """Compare models on the same folds of a table, with a test of each difference.

    With --out, fits that are finished are kept there: a comparison that is killed goes on, and one with
    more models or --repeats makes only the new fits. Ctrl-C shows what is there.
    """
    with exit_on_error():
        images.check(spec)
        options.check_compared(by, out, "comparison", "comparison.csv", "model,repeat,fold")
        title, page = f"{table.name}: {spec.label}", (out or Path()) / "comparison.md"
        if out and page.exists() and not page.read_text(encoding="utf-8").startswith(f"# {title}\n"):
            raise UsboostError(f"{page} is of another table or label; name another folder, --out")
        given = None if models is None else options.parsed_names(models)
        chosen = read_settings(settings) if settings is not None else {}
        options.check_settings(settings, chosen, others or ())
        import_parts(imports or (), Path())
        own = tables.read(table, spec)
        tables.show(own)
        if others:
            sys.path.insert(0, str(Path.cwd()))  # where a user's own class may be
        names = options.names_of(given, own, others or ())
        check_metric(by or METRICS_OF[own.task][0], RANKING[own.task])
        # imported late, so that mistakes are reported without loading torch
        from usboost.check import beside_fit
        from usboost.fit import compare_results as results
        from usboost.fit.compare import compare as compare_models

        read = images if spec.image else None
        models_to_fit = options.builders(names, own, read, rounds, chosen)
        with fitting("comparing") as show:
            comparison = compare_models(
                own,
                models_to_fit,
                folds=folds,
                repeats=repeats,
                seed=seed,
                jobs=jobs,
                by=by,
                by_column=by_column,
                keep=out,
                progress=show,
                running=show.running,
                slow=note,
            )
        for each in beside_fit(own, next(iter(models_to_fit.values()))(seed)):
            note(f"{each}; see usboost check")
        if comparison.cached:
            note(f"{comparison.cached:,} of {comparison.fits:,} fits were finished before, see {out}")
        flags = {"settings": settings, "import": imports, "seed": seed or None}
        again = {"rounds": rounds, "models": models, "with": others, "folds": folds, "by": by, "out": out}
        again |= {"by_column": by_column, "repeats": max(3, 2 * repeats)}
        more = shlex.join(["usboost", "compare", str(table), *options.typed(spec, images, **flags, **again)])
        # a column of times or splits divides the rows in one way only
        more = "" if spec.time or spec.split else more
        steps = results.next_steps(
            comparison, lambda name: options.fit_command(table, name, rounds, spec, images, **flags), more
        )
        inputs_of = {name: results.inputs(name, own, read) for name in names}
        sentences, reads = results.summary(comparison, inputs_of), results.what_is_read(inputs_of)
        echo_comparison(comparison, sentences, reads, steps, by_column, out, title)
        if len(comparison.failures) == len(names):
            raise UsboostError("every model failed; the lines below the table give the reasons")


def echo_comparison(
    comparison: "Comparison",
    sentences: Sequence[str],
    reads: Sequence[str],
    steps: Sequence[tuple[str, str]],
    by_column: str | None,
    out: Path | None,
    title: str,
) -> None:
    """Show a comparison, what it says, what models read and what to do next; write it to `out`."""
    from usboost.fit import compare_results as results

    stdout = console()
    stdout.print(results.rendered(comparison, stdout.width))
    for name, reason in comparison.failures.items():
        echo(f"{name} failed: {reason}")
    for lines in ([] if comparison.interrupted else sentences, results.notes(comparison), reads):
        echo("\n".join(["", *lines]))
    if comparison.interrupted:
        finished = f"{len(comparison.scores):,} of {comparison.fits:,} fits are finished"
        then = "the same command goes on from there" if out is not None else "give --out to keep such fits"
        echo(f"\ninterrupted: {finished}; {then}")
        interrupts.reported()
        raise typer.Exit(CODE)
    sliced = results.sliced(comparison)
    if by_column is not None and sliced:
        echo(f"\n{sliced['score']} by {listed([by_column])}:")
        tables.show_slices(by_column, sliced)
        echo(results.SLICED)
    for words, command in steps:
        echo_command(f"\n{words}", command)
    if out is not None:
        below = [*reads, *(f"{words}\n\n    {command}" for words, command in steps)]
        if by_column is not None and sliced:
            below = [results.slices_as_markdown(by_column, sliced), results.SLICED, *below]
        results.write(comparison, out, title, sentences, below)
        echo(f"\nwritten {out / 'comparison.csv'} and {out / 'comparison.md'}")

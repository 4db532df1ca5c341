"""``usboost tune``."""

import os
from pathlib import Path
from time import time as now
from typing import TYPE_CHECKING, Annotated, Any

import typer

from usboost.cli import options, tables
from usboost.cli.console import console, echo, echo_command, exit_on_error, fitting, note
from usboost.cli.interrupts import CODE, interrupts
from usboost.errors import UsboostError
from usboost.evaluation.ranking import RANKING, check_metric, metric_name
from usboost.files.registry import import_parts
from usboost.fit.options import ImageOptions
from usboost.models import catalogue
from usboost.models.entry import parsed_settings, read_settings
from usboost.table.spec import TableSpec

if TYPE_CHECKING:
    from usboost.fit.tune import SearchResult


def tune(
    table: options.TablePath,
    spec: TableSpec,
    images: ImageOptions,
    models: options.Models = None,
    trials: Annotated[int, typer.Option("--trials", min=1, help="Trials of each model.")] = 20,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            min=1,
            help="Trials at a time; it changes no result.",
            show_default="processors, at most --batch",
        ),
    ] = None,
    batch: Annotated[
        int, typer.Option("--batch", min=1, help="Trials of a model that are proposed together.")
    ] = 4,
    folds: Annotated[
        int | None,
        typer.Option(
            "--folds",
            min=0,
            help="Folds of a cross-validation; 0: the rows that fit holds out.",
            show_default="5 of under 2,000 rows without --time and --split, else 0",
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option("--by", help=f"Score to choose by: {options.BY}.", show_default="log_loss, rmse"),
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune/--no-prune", help="End fits early that are behind others.")
    ] = True,
    time_limit: Annotated[
        float | None, typer.Option("--time-limit", min=0, help="Seconds after which no new round begins.")
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", help="Folder of the search, from which the same command goes on.")
    ] = Path("tuned"),
    rounds: options.Rounds = None,
    settings: options.Set = None,
    settings_file: options.SettingsFile = None,
    imports: options.Import = None,
    seed: options.Seed = 0,
) -> None:
    """Choose the settings of models, on rows that they are not fitted to.

    Every model gets as many trials; the first has its settings as they are, and these are kept if no other
    is better by more than a standard error. What --set gives is not chosen, and with --settings the search
    begins there. All is kept in --out: a search that is killed goes on, and
    loses a round of the fits that ran. Ctrl-C shows what is there. Rows whose --split is test are not seen.
    """
    with exit_on_error():
        if folds == 1:
            raise UsboostError("--folds is 1; it must be 0, or 2 or more")
        deadline = float("inf") if time_limit is None else now() + time_limit
        images.check(spec)
        options.check_compared(by, out, "search", "trials.csv", "model,trial,state")
        given = None if models is None else options.parsed_names(models)
        fixed = parsed_settings(settings)
        begin = {} if settings_file is None else read_settings(settings_file)
        options.check_settings(settings_file, begin)
        import_parts(imports or (), Path())
        own = tables.read(table, spec)
        tables.show(own)
        names = options.names_of(given, own)
        if by is not None:
            by = check_metric(by, RANKING[own.task])
        # imported late, so that mistakes are reported without loading torch
        from usboost.fit import tune as tuned
        from usboost.fit.tune import DEFAULT, Plan, default_folds, fixed_of
        from usboost.fit.tune import tune as tune_models

        build = options.builders(names, own, images if spec.image else None, rounds, begin)
        always = {name: {**begin.get(name, {}), **each} for name, each in fixed_of(build, fixed).items()}
        plan = Plan(trials, batch, seed, prune, jobs or min(batch, os.cpu_count() or 1), deadline)
        score = by or DEFAULT[own.task]
        parts = default_folds(own, seed) if folds is None else folds
        try:
            with fitting("tuning") as show:
                how: dict[str, Any] = {"out": out, "folds": parts, "by": score, "fixed": fixed, "plan": plan}
                result = tune_models(own, build, **how, on_trial_end=lambda trial, *ended: show(*ended))
            what = f"{table.name}: {spec.label}, by {metric_name(score)}" + f" of {parts} folds" * bool(parts)
            files = tuned.write(result.models, always, out, what)
            best = echo_search(result, score, parts, out)
            if best in catalogue.CATALOGUE:
                flags = {"settings": out / tuned.SETTINGS, "import": imports, "seed": seed or None}
                command = options.fit_command(table, best, rounds, spec, images, **flags)
                echo_command("Next, to fit with these settings and save:", command)
            echo(f"written {' and '.join(map(str, files))}")
            if result.interrupted and time_limit is None:
                interrupts.reported()
                raise typer.Exit(CODE)
        except KeyboardInterrupt:
            note(f"trials that have ended are kept in {out}; the same command goes on from there")
            raise


def echo_search(result: "SearchResult", score: str, folds: int, out: Path) -> str:
    """Show the results; return the best model, "" where an interrupted search has none yet."""
    from usboost.fit import tune as tuned

    console().print(tuned.rendered(result.models, score))
    if any(trial.state == "finished" for each in result.models.values() for trial in each.trials):
        means = f"Scores are means of {folds} folds. " if folds else ""
        what = "Those of the chosen settings are of the rows that chose them, so they are optimistic."
        echo(f"\n{means}{what}")
    if result.interrupted:
        note("ended before all trials had; the same command goes on from there")
    first = tuned.ranked(result.models)[0]
    if first.chosen is None and not result.interrupted:
        raise UsboostError(f"no trial has finished; {out / tuned.CSV} gives the reasons")
    return first.model if first.chosen is not None else ""

"""``usboost tune``."""

from __future__ import annotations

import os
from pathlib import Path
from time import time as now
from typing import TYPE_CHECKING, Annotated

import typer

from usboost.cli import several, tables
from usboost.cli.console import console, exit_on_error, fitting, kept_when_interrupted, note, say, say_command
from usboost.cli.interrupts import CODE, interrupts
from usboost.cli.options import (
    BY,
    Import,
    Models,
    Rounds,
    Seed,
    Set,
    SettingsFile,
    TablePath,
    import_named,
    parsed_names,
)
from usboost.datasets.user.table_spec import TableSpec
from usboost.errors import UsboostError
from usboost.evaluation.names import RANKING, check_metric, metric_name
from usboost.models.catalogue import catalogue
from usboost.models.catalogue.settings_file import parsed_settings, read_settings
from usboost.multimodal.options import ImageOptions

if TYPE_CHECKING:
    from usboost.tuning.search import SearchResult


def tune(
    table: TablePath,
    spec: TableSpec,
    images: ImageOptions,
    models: Models = None,
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
        str | None, typer.Option("--by", help=f"Score to choose by: {BY}.", show_default="log_loss, rmse")
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
    rounds: Rounds = None,
    settings: Set = None,
    settings_file: SettingsFile = None,
    imports: Import = None,
    seed: Seed = 0,
) -> None:
    """Choose the settings of models, on rows that they are not fitted to.

    Every model gets as many trials; the first has its settings as they are, and these are kept if no other
    is better by more than a standard error. What --set gives is not chosen, and with --settings the search
    begins there. All is kept in --out: a search that is killed goes on, and
    loses a round of the fits that ran. Ctrl-C shows what is there. Rows whose --split is test are not seen.
    """
    with exit_on_error():
        deadline = float("inf") if time_limit is None else now() + time_limit
        several.check(by, out, "search")
        given = None if models is None else parsed_names(models)
        fixed = parsed_settings(settings)
        begin = {} if settings_file is None else read_settings(settings_file)
        import_named(imports)
        own = tables.read(table, spec)
        tables.show(own)
        names = several.names_of(given, own)
        if by is not None:
            by = check_metric(by, RANKING[own.task])
        # imported late, so that mistakes are reported without loading torch
        from usboost.multimodal import tune as tuned
        from usboost.multimodal.tune import DEFAULT, default_folds, fixed_of
        from usboost.multimodal.tune import tune as tune_models
        from usboost.tuning.search import Plan

        build = several.builders(names, own, images if spec.image else None, rounds, begin)
        always = {name: {**begin.get(name, {}), **each} for name, each in fixed_of(build, fixed).items()}
        plan = Plan(trials, batch, seed, prune, jobs or min(batch, os.cpu_count() or 1), deadline)
        score = by or DEFAULT[own.task]
        parts = default_folds(own, seed) if folds is None else folds
        with kept_when_interrupted(f"trials that have ended are kept in {out}"):
            with fitting("tuning") as show:
                found = tune_models(
                    own,
                    build,
                    out=out,
                    folds=parts,
                    by=score,
                    fixed=fixed,
                    plan=plan,
                    on_trial_end=lambda trial, ended, total: show(ended, total),
                )
            of_folds = f" of {parts} folds" if parts else ""
            what = f"{table.name}: {spec.label}, by {metric_name(score)}{of_folds}"
            files = tuned.write(found.models, always, out, what)
            _show(found, score, parts)
            first = tuned.ranked(found.models)[0]
            if first.chosen is None and not found.interrupted:
                raise UsboostError(f"no trial has finished; {out / tuned.CSV} gives the reasons")
            if first.chosen is not None and first.model in catalogue.CATALOGUE:
                kept = {"settings": out / tuned.SETTINGS, "seed": seed or None}
                command = several.fit_command(table, first.model, rounds, spec, images, **kept)
                say_command("Next, to fit with these settings and save:", command)
            say(f"written {' and '.join(map(str, files))}")
            if found.interrupted and time_limit is None:
                interrupts.told()
                raise typer.Exit(CODE)


def _show(found: SearchResult, score: str, folds: int) -> None:
    """The table of a search, and how to read it."""
    from usboost.multimodal import tune as tuned

    console().print(tuned.rendered(found.models, score))
    if any(trial.state == "finished" for each in found.models.values() for trial in each.trials):
        means = f"Scores are means of {folds} folds. " if folds else ""
        what = "Those of the chosen settings are of the rows that chose them, so they are optimistic."
        say(f"\n{means}{what}")
    if found.interrupted:
        note("ended before all trials had; the same command goes on from there")

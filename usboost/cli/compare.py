"""``usboost compare``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from usboost.cli import tables
from usboost.cli.console import console, exit_on_error, fitting, note, say
from usboost.cli.interrupts import CODE, interrupts
from usboost.cli.options import (
    BY,
    DEFAULT_BACKBONE,
    OUTSIDE,
    SCORES,
    BackboneName,
    Finetune,
    Models,
    Rounds,
    Seed,
    SettingsFile,
    TablePath,
    given_options,
    parsed_names,
    reads_table,
    typed,
)
from usboost.datasets.user.table_spec import TableSpec
from usboost.errors import UsboostError
from usboost.evaluation.names import METRICS_OF, RANKING, check_metric
from usboost.models.catalogue import catalogue
from usboost.models.catalogue.settings_file import read_settings


@reads_table
def compare(
    table: TablePath,
    spec: TableSpec,
    models: Models = None,
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
            help=f"Score to rank by: {BY}, or any other of scikit-learn's names.",
            show_default="accuracy, RMSE",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder for the comparison and its finished fits, from which the same command goes on.",
        ),
    ] = None,
    rounds: Rounds = None,
    settings: SettingsFile = None,
    backbone: BackboneName = DEFAULT_BACKBONE,
    finetune: Finetune = "auto",
    seed: Seed = 0,
) -> None:
    """Compare models on the same folds of a table, with a test of each difference.

    With --out, fits that are finished are kept there: a comparison that is killed goes on, and one with
    more models or --repeats makes only the new fits. Ctrl-C shows what is there.
    """
    with exit_on_error():
        if by is not None:
            check_metric(by, SCORES)
        given = None if models is None else parsed_names(models)
        chosen = read_settings(settings) if settings is not None else {}
        if out is not None and out.exists() and not out.is_dir():
            raise UsboostError(f"{out} is a file; name a folder for the comparison")
        own = tables.read(table, spec)
        tables.show(own)
        names = given or catalogue.compared(one_table=not spec.image, task=own.task)
        if others:
            sys.path.insert(0, str(Path.cwd()))  # where a user's own class may be
            names = list(dict.fromkeys([*names, *others]))
        for name in names:
            if name not in OUTSIDE and name not in (others or ()):
                catalogue.for_table(name, own.task)
        check_metric(by or METRICS_OF[own.task][0], RANKING[own.task])
        # imported late, so that mistakes are reported without loading torch
        from usboost.models.baselines.packages import check_outside
        from usboost.multimodal.compare import results
        from usboost.multimodal.compare.compare import compare as compare_models
        from usboost.multimodal.compare.results import inputs, summary
        from usboost.multimodal.fit.fit import ImageOptions, by_name, limited

        for name in names:
            if name not in catalogue.CATALOGUE:
                check_outside(name, own.task)
        read = ImageOptions(backbone, finetune, spec.size) if spec.image else None
        views = tuple(own.images) or ("U",)

        models_to_fit = by_name(
            names, images=read, image_views=views, rounds=rounds, settings=chosen, task=own.task
        )
        with fitting("comparing") as show:
            comparison = compare_models(
                own,
                models_to_fit,
                folds=folds,
                repeats=repeats,
                seed=seed,
                jobs=jobs,
                by=by,
                keep=out,
                progress=show,
                running=show.running,
            )
        if comparison.kept:
            note(f"{comparison.kept:,} of {comparison.fits:,} fits were finished before, see {out}")
        found = {name: inputs(name, own, read) for name in names}
        reads = {name: str(each) for name, each in found.items()}
        common = [str(table), *typed(spec, backbone, finetune, settings=settings, seed=seed or None)]
        asked = given_options(
            {
                "rounds": rounds,
                "models": models,
                "with": others,
                "folds": folds,
                "repeats": max(3, 2 * repeats),
                "by": by,
                "out": out,
            }
        )

        def fit_again(name: str) -> str:
            most = given_options({"rounds": rounds if limited(name) else None})
            return shlex.join(["usboost", "fit", *common, *most, "--model", name, "--out", "model"])

        once = bool(spec.time or spec.split)  # these divide the rows in one way only
        repeated = "" if once else shlex.join(["usboost", "compare", *common, *asked])
        said = summary(comparison, found, (fit_again, repeated))
        stdout = console()
        stdout.print(results.rendered(comparison, stdout.width, reads))
        if comparison.interrupted:
            done = len(comparison.scores)
            again = "the same command goes on from there" if out else "give --out to keep such fits"
            say(f"\ninterrupted: {done:,} of {comparison.fits:,} fits are finished; {again}")
            interrupts.told()
            raise typer.Exit(CODE)
        for line in said:
            say(f"\n{line}")
        if out is not None:
            results.write(comparison, out, f"{table.name}: {spec.label}", reads, said)
            say(f"\nwritten {out / 'comparison.csv'} and {out / 'comparison.md'}")
        if len(comparison.failures) == len(names):
            raise UsboostError("every model failed; the table above gives the reasons")

"""``usboost fit``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from usboost.cli import tables
from usboost.cli.console import exit_on_error, progress, say
from usboost.cli.options import (
    NAMES,
    Categorical,
    Drop,
    Grey,
    Image,
    Import,
    Label,
    Seed,
    Size,
    SkipMissing,
    TablePath,
    chosen_learners,
    import_named,
)
from usboost.evaluation.names import METRICS, f1_of, metric_name
from usboost.models import zoo


def fit(
    table: TablePath,
    label: Label,
    image: Image = None,
    model: Annotated[str, typer.Option("--model", help=f"One of {NAMES}.")] = "2wl_logistic",
    out: Annotated[Path, typer.Option("--out", help="Folder to save the model in.")] = Path("model"),
    drop: Drop = None,
    categorical: Categorical = None,
    learner: Annotated[
        list[str] | None,
        typer.Option("--learner", help="Another kind of weak learner, as in S=regressor; repeatable."),
    ] = None,
    imports: Import = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            "--rounds", min=1, help="Boosting rounds, epochs or trees at most; stopped early anyway."
        ),
    ] = None,
    size: Size = 32,
    grey: Grey = False,
    seed: Seed = 0,
    skip_missing: SkipMissing = False,
) -> None:
    """Fit a model to a table and save it.

    85 % of each class's rows are fitted to, the others say when to stop and are scored. Without pictures
    the network and the trees of a model both read the whole table.
    """
    with exit_on_error():
        zoo.for_table(model)
        learners = chosen_learners(learner)
        import_named(imports)
        from usboost.multimodal.bundle import check_place

        check_place(out)
        own = tables.read(
            table,
            label,
            image=image,
            drop=drop,
            categorical=categorical,
            size=size,
            grey=grey,
            skip_missing=skip_missing,
        )
        # from here on nothing is refused quickly: this loads what trains
        from usboost.boosting.callbacks import ShowRounds
        from usboost.multimodal.fit import fit as fit_table

        with progress(model) as show:
            shown = ShowRounds(progress=show)
            fitted = fit_table(own, model, seed=seed, rounds=rounds, learners=learners, callbacks=[shown])
        fitted.bundle.save(out)
        train, held = fitted.rows
        scores = ", ".join(f"{metric_name(key)} {fitted.scores[key]:.4f}" for key in METRICS)
        say(f"{model}: {train:,} rows fitted to, {held:,} of validation, {fitted.seconds:,.1f} s")
        say(f"validation: {scores}; F1 is {f1_of(own.classes)}")
        say(f"these rows also chose what is kept, round {fitted.best_round}, so fresh rows may score lower")
        say(f"saved {out}")

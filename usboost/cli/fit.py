"""``usboost fit``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from usboost.cli import tables
from usboost.cli.console import exit_on_error, note, progress, say
from usboost.cli.options import (
    NAMES,
    BackboneName,
    Categorical,
    Drop,
    Finetune,
    Grey,
    Image,
    ImagesRoot,
    Import,
    Label,
    Missing,
    PoolImages,
    Seed,
    Size,
    SkipUnreadable,
    TablePath,
    chosen_learners,
    import_named,
)
from usboost.datasets.custom import SIZE
from usboost.evaluation.names import METRICS, f1_of, metric_name
from usboost.models import zoo


def fit(
    table: TablePath,
    label: Label,
    image: Image = None,
    model: Annotated[str, typer.Option("--model", help=f"One of {NAMES}.")] = "linear_trees",
    out: Annotated[Path, typer.Option("--out", help="Folder to save the model in.")] = Path("model"),
    drop: Drop = None,
    categorical: Categorical = None,
    missing: Missing = None,
    images_root: ImagesRoot = None,
    learner: Annotated[
        list[str] | None,
        typer.Option("--learner", help="Another kind of weak learner, as in S=regressor; repeatable."),
    ] = None,
    imports: Import = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            "--rounds",
            min=1,
            help="Most boosting rounds, epochs or trees; still stops early.",
        ),
    ] = None,
    backbone: BackboneName = "tf_efficientnet_lite0",
    finetune: Finetune = "none",
    size: Size = SIZE,
    grey: Grey = False,
    pool_images: PoolImages = False,
    skip_unreadable: SkipUnreadable = False,
    seed: Seed = 0,
) -> None:
    """Fit a model to a table and save it.

    Trains on 85 % of each class's rows; early stops on the others and scores them. Without pictures the
    network and the trees of a model both read the whole table.
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
            missing=missing,
            images_root=images_root,
            size=size,
            grey=grey,
            pool=pool_images,
            skip_unreadable=skip_unreadable,
        )
        tables.show(own)
        # imported late, so that mistakes are reported without loading torch
        from usboost.boosting.callbacks import ShowRounds
        from usboost.learners.networks import embeddings
        from usboost.multimodal.fit import fit as fit_table
        from usboost.multimodal.models import Pictures

        with progress(model) as show, progress("pictures") as told, embeddings.progress(told):
            shown = ShowRounds(progress=show)
            fitted = fit_table(
                own,
                model,
                seed=seed,
                rounds=rounds,
                learners=learners,
                pictures=Pictures(backbone, finetune, size),
                callbacks=[shown],
            )
        fitted.bundle.save(out)
        if fitted.pictures_help is False:
            left_out = getattr(fitted.bundle.model, "left_out_", ())
            what = "are not read: they do not help on rows that were not fitted to"
            note(f"the pictures {what if left_out else 'do not help on the validation rows'}")
        if fitted.losses is not None:
            found = ", ".join(f"{name} {loss:.4f}" for name, loss in fitted.losses.items())
            say(f"log-loss of the validation rows: {found}; {fitted.bundle.card.model} is kept")
        train, held = fitted.rows
        scores = ", ".join(f"{metric_name(key)} {fitted.scores[key]:.4f}" for key in METRICS)
        say(f"{model}: trained on {train:,} rows, validated on {held:,}, {fitted.seconds:,.1f} s")
        say(f"validation: {scores}; F1 is {f1_of(own.classes)}")
        say(f"best round {fitted.best_round}, chosen on the validation rows, so these scores are optimistic")
        say(f"saved {out}")

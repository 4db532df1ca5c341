"""``usboost compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from usboost.cli import tables
from usboost.cli.console import console, exit_on_error, progress, say
from usboost.cli.options import (
    NAMES,
    BackboneName,
    Categorical,
    Drop,
    Finetune,
    Grey,
    Group,
    Image,
    ImagesRoot,
    Label,
    Missing,
    PoolImages,
    Positive,
    Seed,
    Size,
    SkipUnreadable,
    Split,
    TablePath,
    TaskName,
    Time,
    Weight,
)
from usboost.datasets.custom import SIZE
from usboost.errors import UsboostError
from usboost.evaluation.names import METRICS_OF, check_metric, task_of
from usboost.models import zoo
from usboost.models.entry import KINDS

BY = ", ".join(each for metrics in METRICS_OF.values() for each in metrics)


def compare(
    table: TablePath,
    label: Label,
    image: Image = None,
    models: Annotated[
        str | None, typer.Option("--models", help=f"Separated by commas, of {NAMES}.", show_default=False)
    ] = None,
    folds: Annotated[int, typer.Option("--folds", min=2, help="Folds of the cross-validation.")] = 5,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Repeats of the cross-validation.")] = 1,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Fits at a time.")] = 1,
    by: Annotated[
        str | None,
        typer.Option("--by", help=f"Score to rank by: {BY} [default: accuracy, RMSE].", show_default=False),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for comparison.csv and comparison.md.")
    ] = None,
    drop: Drop = None,
    categorical: Categorical = None,
    missing: Missing = None,
    images_root: ImagesRoot = None,
    task: TaskName = None,
    positive: Positive = None,
    group: Group = None,
    time: Time = None,
    weight: Weight = None,
    split: Split = None,
    rounds: Annotated[
        int | None,
        typer.Option("--rounds", min=1, help="Most rounds or epochs; not for LightGBM."),
    ] = None,
    backbone: BackboneName = "tf_efficientnet_lite0",
    finetune: Finetune = "none",
    size: Size = SIZE,
    grey: Grey = False,
    pool_images: PoolImages = False,
    skip_unreadable: SkipUnreadable = False,
    seed: Seed = 0,
) -> None:
    """Compare models on the same folds of a table, with a test of each difference."""
    with exit_on_error():
        if by is not None and task_of(by) is None:
            raise UsboostError(f"unknown score {by!r}; choose among {BY}")
        given = None if models is None else _names(models)
        if out is not None and out.exists() and not out.is_dir():
            raise UsboostError(f"{out} is a file; name a folder for the comparison")
        own = tables.read(
            table,
            label,
            task=task,
            positive=positive,
            group=group,
            time=time,
            weight=weight,
            split=split,
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
        names = given or zoo.compared(one_table=not image, task=own.task)
        for name in names:
            zoo.for_table(name, own.task)
        check_metric(by or METRICS_OF[own.task][0], own.task)
        # imported late, so that mistakes are reported without loading torch
        from usboost.learners.networks import embeddings
        from usboost.multimodal import results
        from usboost.multimodal.compare import compare as compare_models
        from usboost.multimodal.models import Pictures
        from usboost.multimodal.models import build as build_model

        read = Pictures(backbone, finetune, size) if image else False

        def build(name: str) -> Any:
            most = rounds if KINDS[zoo.find(name).kind].comparable else None
            return lambda seed: build_model(
                name,
                pictures=read,
                image_views=tuple(own.pictures) or ("U",),
                seed=seed,
                rounds=most,
                task=own.task,
            )

        with progress("comparing") as show, progress("pictures") as told, embeddings.progress(told):
            comparison = compare_models(
                own,
                {name: build(name) for name in names},
                folds=folds,
                repeats=repeats,
                seed=seed,
                jobs=jobs,
                by=by,
                progress=show,
            )
        stdout = console()
        stdout.print(results.rendered(comparison, stdout.width))
        if out is not None:
            results.write(comparison, out, f"{table.name}: {label}")
            say(f"written {out / 'comparison.csv'} and {out / 'comparison.md'}")
        if len(comparison.failures) == len(names):
            raise UsboostError("every model failed; the table above gives the reasons")


def _names(models: str) -> list[str]:
    """The models to compare, each once."""
    names = list(dict.fromkeys(name.strip() for name in models.split(",") if name.strip()))
    if not names:
        raise UsboostError(f"--models names no model; choose among {NAMES}")
    for name in names:
        if name not in zoo.OFFERED_FOR["regression"]:
            zoo.for_table(name)
    return names

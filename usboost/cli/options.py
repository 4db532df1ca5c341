"""Arguments and options shared by several commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from usboost.cli.table_options import of_field
from usboost.errors import UsboostError
from usboost.files.parts import import_parts
from usboost.models.catalogue import catalogue

NAMES = ", ".join(catalogue.OFFERED)
DEFAULT_BACKBONE = "tf_efficientnet_lite0"

TablePath = Annotated[
    Path,
    typer.Argument(
        metavar="TABLE",
        help="A CSV, TSV, Excel, JSON-lines, Parquet or Feather file, or a folder of Parquet files.",
    ),
]
ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="A folder that `usboost fit` saved.")]


BackboneName = Annotated[
    str, typer.Option("--backbone", help="Network that reads the images, by its name in timm.")
]
Finetune = Annotated[
    Literal["none", "last", "all"],
    typer.Option("--finetune", help="What is trained of the backbone: none of it, its last block, or all."),
]
TextModel = Annotated[str | None, of_field("text_model")]
ImagesRoot = Annotated[Path | None, of_field("images_root")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of splits and models.")]
SkipUnreadable = Annotated[bool, of_field("skip_unreadable")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="A parameter of the model, as in shrinkage=0.1 or learners__S__max_depth=5; repeatable.",
    ),
]
SettingsFile = Annotated[
    Path | None, typer.Option("--settings", help="File of models' settings, as `usboost tune` writes it.")
]
Import = Annotated[
    list[str] | None,
    typer.Option(
        "--import", help="Module, in this folder or installed, that registers your own learners; repeatable."
    ),
]


def import_named(modules: list[str] | None) -> None:
    """Import what `--import` names, for the parts that it registers."""
    import_parts(modules or (), Path())


def permit(text_model: str | None) -> None:
    """Let the text model that a saved model names be loaded."""
    if text_model is not None:
        from usboost.datasets.user.columns.text_models import allow

        allow(text_model)


def chosen_learners(given: list[str] | None) -> dict[str, str]:
    """``["S=ridge"]`` as a mapping of learner to kind.

    Raises
    ------
    UsboostError
        If one is not of that form.
    """
    pairs = [each.partition("=") for each in given or []]
    for name, _, kind in pairs:
        if not (name and kind):
            raise UsboostError(f"--learner {name!r} names no kind; write --learner S=regressor, say")
    return {name: kind for name, _, kind in pairs}

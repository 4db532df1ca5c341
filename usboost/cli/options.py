"""Arguments and options shared by several commands."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from usboost.datasets.custom import SIZE
from usboost.errors import UsboostError
from usboost.files.parts import import_parts
from usboost.models import zoo

NAMES = ", ".join(zoo.OFFERED)
DEFAULT_BACKBONE = "tf_efficientnet_lite0"

TablePath = Annotated[
    Path,
    typer.Argument(
        metavar="TABLE",
        help="A CSV, TSV, Excel, JSON-lines, Parquet or Feather file, or a folder of Parquet files.",
    ),
]
ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="A folder that `usboost fit` saved.")]
Label = Annotated[str, typer.Option("--label", help="Column to predict: classes, or numbers.")]
TaskName = Annotated[
    Literal["classification", "regression"] | None,
    typer.Option("--task", help="What the label asks for.", show_default="what it looks like"),
]
Positive = Annotated[
    str | None,
    typer.Option("--positive", help="Of two classes, the one that F1 is of.", show_default="the rarer"),
]
Group = Annotated[
    str | None,
    typer.Option(
        "--group",
        help="Column of which rows with the same value stay on one side of a split. No model reads it.",
    ),
]
Time = Annotated[
    str | None,
    typer.Option(
        "--time", help="Column of numbers or dates: the later rows are held out. No model reads it."
    ),
]
Weight = Annotated[
    str | None,
    typer.Option("--weight", help="Column of numbers: how much each row counts, 0 for not at all."),
]
Split = Annotated[
    str | None, typer.Option("--split", help="Column that says of each row train, val or test.")
]
Image = Annotated[
    list[str] | None,
    typer.Option(
        "--image",
        help="Column of pictures: paths relative to the table, or bytes; repeatable. A row may have none.",
    ),
]
PoolImages = Annotated[
    bool,
    typer.Option(
        "--pool-images", help="Read several columns of pictures as one, by the mean of their embeddings."
    ),
]
BackboneName = Annotated[
    str, typer.Option("--backbone", help="Network that reads the pictures, by its name in timm.")
]
Finetune = Annotated[
    Literal["none", "last", "all"],
    typer.Option("--finetune", help="What is trained of the backbone: none of it, its last block, or all."),
]
Drop = Annotated[list[str] | None, typer.Option("--drop", help="Column to leave out; may be repeated.")]
Categorical = Annotated[
    list[str] | None,
    typer.Option("--categorical", help="Column that is a category although it holds numbers; repeatable."),
]
Text = Annotated[
    list[str] | None,
    typer.Option("--text", help="Column that is text whatever it looks like; repeatable."),
]
TextModel = Annotated[
    str | None,
    typer.Option(
        "--text-model",
        help="Model of the package sentence-transformers, by its name or path, that reads texts. "
        "One that is not on this machine is downloaded.",
        show_default="character n-grams",
    ),
]
Missing = Annotated[
    list[str] | None,
    typer.Option("--missing", help="Value that counts as missing, in all columns; repeatable."),
]
ImagesRoot = Annotated[
    Path | None,
    typer.Option(
        "--images-root", help="Folder of the pictures, if it is not the table's; paths may then be absolute."
    ),
]
Size = Annotated[int, typer.Option("--size", min=8, max=1024, help="Side of the pictures in pixels.")]
Grey = Annotated[bool, typer.Option("--grey", help="Read pictures in grey.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of splits and models.")]
SkipUnreadable = Annotated[
    bool,
    typer.Option("--skip-unreadable", help="Count pictures that cannot be read as missing."),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="A parameter of the model, as in shrinkage=0.1 or learners__S__max_depth=5; repeatable.",
    ),
]
SettingsFile = Annotated[
    Path | None,
    typer.Option("--settings", help="File of models' settings, as `usboost tune` writes it."),
]
Import = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        help="Module, in this folder or installed, that registers your own learners; repeatable.",
    ),
]


def import_named(modules: list[str] | None) -> None:
    """Import what `--import` names, for the parts that it registers."""
    import_parts(modules or (), Path())


def permit(text_model: str | None) -> None:
    """Let the text model that a saved model names be loaded."""
    if text_model is not None:
        from usboost.datasets.custom.text_models import allow

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


def table_options(
    *,
    backbone: str,
    finetune: str,
    size: int,
    seed: int,
    **given: str | int | Path | list[str] | None,
) -> list[str]:
    """The options by which a table was read and its pictures are, as they would be typed again.

    Parameters
    ----------
    given : the other options by parameter, ``pool_images`` say.
    """
    others = {
        "--backbone": backbone if backbone != DEFAULT_BACKBONE else None,
        "--finetune": finetune if finetune != "none" else None,
        "--size": size if size != SIZE else None,
        "--seed": seed or None,
    }
    return given_options({f"--{name.replace('_', '-')}": value for name, value in given.items()} | others)


def given_options(options: Mapping[str, Any]) -> list[str]:
    """Options as they would be typed; those without a value are left out."""
    found: list[str] = []
    for name, value in options.items():
        if value is True:
            found.append(name)
        elif isinstance(value, list):
            found += [word for each in value for word in (name, str(each))]
        elif value is not None and value is not False:
            found += [name, str(value)]
    return found

"""Arguments and options of several commands; those that say how a table is read are fields of `TableSpec`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import typer

from usboost.cli.console import as_flag, exit_on_error
from usboost.datasets.user.table_spec import Help, Names, TableSpec
from usboost.errors import UsboostError
from usboost.evaluation.names import METRICS_OF, RANKING
from usboost.files.registry import import_parts
from usboost.models.catalogue import catalogue

_DEFAULTS = {each.name: each.default for each in fields(TableSpec)}
_FIELDS: dict[str, tuple[Any, Help]] = {
    name: (said[0], said[1])
    for name, hint in get_type_hints(TableSpec, include_extras=True).items()
    if isinstance((said := get_args(hint) or (hint,))[-1], Help)
}
"""The type and the help of each field that is an option."""


def of_field(name: str) -> Any:
    """Typer's option for a field, as its `Help` says."""
    said = _FIELDS[name][1]
    shown = said.default or True
    return typer.Option(as_flag(name), help=said.text, min=said.least, max=said.most, show_default=shown)


def reads_table(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of a `TableSpec` in place of its parameter ``spec``."""

    @wraps(command)
    def made(**given: Any) -> None:
        with exit_on_error():
            spec = TableSpec(**{name: given.pop(name) for name in _FIELDS})
        command(spec=spec, **given)

    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for each in signature.parameters.values():
        parameters += map(_parameter, _FIELDS) if each.name == "spec" else [each]
    named = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    made.__signature__ = signature.replace(parameters=named)  # type: ignore[attr-defined]
    return made


def _parameter(name: str) -> inspect.Parameter:
    """Of a command, for a field."""
    kind: Any = _FIELDS[name][0]
    default: Any = _DEFAULTS[name]
    if kind == Names:
        kind, default = list[str] | None, None
    if default is MISSING:
        default = inspect.Parameter.empty
    hint: Any = Annotated[kind, of_field(name)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def typed(spec: TableSpec, backbone: str, finetune: str, **others: Any) -> list[str]:
    """The options by which a table was read, and others by name, as they would be typed again."""
    given = {name: value for name in _FIELDS if (value := getattr(spec, name)) != _DEFAULTS[name]}
    given["backbone"] = backbone if backbone != DEFAULT_BACKBONE else None
    given["finetune"] = finetune if finetune != "auto" else None
    return given_options({**given, **others})


def given_options(options: Mapping[str, Any]) -> list[str]:
    """Options by name as they would be typed; those without a value are left out."""
    found: list[str] = []
    for option, value in options.items():
        name = as_flag(option)
        if value is True:
            found.append(name)
        elif isinstance(value, (list, tuple)):
            found += [word for each in value for word in (name, str(each))]
        elif value is not None and value is not False:
            found += [name, str(value)]
    return found


NAMES = ", ".join(catalogue.OFFERED)
DEFAULT_BACKBONE = "tf_efficientnet_lite0"

OUTSIDE = ("catboost", "xgboost", "tabpfn", "tabicl")
"""Packages that `usboost.models.baselines.packages` knows, which is not imported for a help text."""

BY = ", ".join(each for metrics in METRICS_OF.values() for each in metrics)

SCORES = tuple(each for scores in RANKING.values() for each in scores)
"""Of all tasks."""

TablePath = Annotated[
    Path,
    typer.Argument(
        metavar="TABLE",
        help="A CSV, TSV, Excel, JSON-lines, Parquet or Feather file, or a folder of Parquet files, or a "
        "pattern in quotation marks, 'rows/*.parquet' say.",
    ),
]
ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="A folder that `usboost fit` saved.")]


BackboneName = Annotated[
    str, typer.Option("--backbone", help="Network that reads the images, by its name in timm.")
]
Finetune = Annotated[
    Literal["auto", "none", "last", "all"],
    typer.Option(
        "--finetune",
        help="What of the backbone is tuned on the label: none, its last blocks, or all of it; auto is last "
        "where that takes some minutes.",
    ),
]
TextModel = Annotated[str | None, of_field("text_model")]
ImagesRoot = Annotated[Path | None, of_field("images_root")]
ByColumn = Annotated[
    str | None,
    typer.Option(
        "--by-column",
        help="Column by whose groups the rows are scored, too: categories, quarters of numbers and dates.",
    ),
]
Models = Annotated[
    str | None,
    typer.Option(
        "--models",
        help=f"Separated by commas, of {NAMES}; and {', '.join(OUTSIDE)}, if installed.",
        show_default=False,
    ),
]
Rounds = Annotated[
    int | None, typer.Option("--rounds", min=1, help="Most rounds or epochs; not for LightGBM.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of splits and models.")]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="Refuse what cannot be read, which else counts as missing."),
]
SkippedAnyway = Annotated[
    bool, typer.Option("--skip-unreadable", hidden=True, help="What is done without it, too.")
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


def chosen_learners(given: list[str] | None) -> dict[str, str]:
    """``["S=ridge"]`` as a mapping of learner to kind. Raises UsboostError if one is not of that form."""
    pairs = [each.partition("=") for each in given or []]
    for name, _, kind in pairs:
        if not (name and kind):
            raise UsboostError(f"--learner {name!r} names no kind; write --learner S=regressor, say")
    return {name: kind for name, _, kind in pairs}


def parsed_names(models: str) -> list[str]:
    """The models to compare, each once."""
    names = list(dict.fromkeys(name.strip() for name in models.split(",") if name.strip()))
    if not names:
        raise UsboostError(f"--models names no model; choose among {NAMES}")
    for name in names:
        if name not in catalogue.OFFERED_FOR["regression"] and name not in OUTSIDE:
            catalogue.for_table(name)
    return names

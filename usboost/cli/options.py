"""Arguments and options of several commands; fields of `Options` with a `Help` are options, too."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from usboost.cli.console import as_flag, exit_on_error
from usboost.cli.help import HELP_ALL
from usboost.datasets.user.table_spec import Help, Names, Options, TableSpec
from usboost.errors import UsboostError
from usboost.evaluation.names import METRICS_OF, RANKING
from usboost.files.registry import import_parts
from usboost.models.catalogue import catalogue
from usboost.multimodal.options import AnswerOptions


def options_of(kind: type) -> dict[str, inspect.Parameter]:
    """A command's parameters for the fields of a dataclass that have a `Help`."""
    found: dict[str, inspect.Parameter] = {}
    defaults = {each.name: each.default for each in fields(kind)}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        of, *_, said = get_args(hint) or (None, None)
        if not isinstance(said, Help):
            continue
        of, default, flag = said.typed or of, defaults[name], as_flag(name)
        if bool in (of, *get_args(of)) and default is not False:
            flag = f"{flag}/{as_flag(f'no_{name}')}"
        if of == Names:
            of, default = list[str] | None, None
        if default is MISSING:
            default = inspect.Parameter.empty
        shown = said.default or True
        option = typer.Option(flag, help=said.text, min=said.least, max=said.most, show_default=shown)
        hint = Annotated[of, option]
        found[name] = inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint
        )
    return found


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with ``--help-all``, and with the fields of each parameter of `Options` in its place."""
    signature = inspect.signature(command, eval_str=True)
    kinds = {
        name: each.annotation
        for name, each in signature.parameters.items()
        if isinstance(each.annotation, type) and issubclass(each.annotation, Options)
    }

    @wraps(command)
    def made(help_all: bool = False, **given: Any) -> None:
        with exit_on_error():
            chosen = {
                name: kind(**{field: given.pop(field) for field in options_of(kind)})
                for name, kind in kinds.items()
            }
        command(**chosen, **given)

    by_name = inspect.Parameter.KEYWORD_ONLY
    parameters: list[inspect.Parameter] = []
    for name, each in signature.parameters.items():
        parameters += options_of(kinds[name]).values() if name in kinds else [each]
    named = [each.replace(kind=by_name) for each in parameters]
    named.append(inspect.Parameter("help_all", by_name, default=False, annotation=HELP_ALL))
    made.__signature__ = signature.replace(parameters=named)  # type: ignore[attr-defined]
    return made


def typed(*chosen: Options, **others: Any) -> list[str]:
    """The options that were given, and others by name, as they would be typed again."""
    given = {
        name: value
        for each in chosen
        for name, parameter in options_of(type(each)).items()
        if (value := getattr(each, name)) != parameter.default
    }
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


def _option(kind: type, name: str) -> Any:
    """That of one field."""
    return get_args(options_of(kind)[name].annotation)[1]


TextModel = Annotated[str | None, _option(TableSpec, "text_model")]
ImagesRoot = Annotated[Path | None, _option(TableSpec, "images_root")]
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
Seed = Annotated[int, _option(AnswerOptions, "seed")]
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

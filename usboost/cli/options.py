"""Arguments, options and help of several commands; fields of `Options` with a `Help` are options, too.

Help lists options in groups, as wide as the terminal; rare ones with ``--help-all`` only.
"""

import inspect
import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer
from typer.core import TyperCommand

from usboost.cli.console import as_flag, exit_on_error
from usboost.errors import UsboostError, choices
from usboost.evaluation.ranking import METRICS_OF, RANKING, check_metric
from usboost.files import check_local
from usboost.fit.options import AnswerOptions, ImageOptions
from usboost.models import catalogue
from usboost.table.spec import Help, Names, Options, TableSpec

if TYPE_CHECKING:
    from usboost.table.user_table import UserTable

GROUPS = {
    "Data": ("label", "missing", "task", "positive", "group", "time", "weight", "split", "strict"),
    "Columns": ("drop", "categorical", "text", "keep"),
    "Images": (
        *("image", "images_root", "size", "grey", "skip_unreadable"),
        *("backbone", "finetune", "occlusion_maps"),
    ),
    "Model": (
        *("model", "models", "preset", "others", "learner", "settings", "settings_file", "imports"),
        *("calibrate", "class_weight", "threshold", "refit", "seed"),
    ),
    "Scores": ("trials", "folds", "repeats", "by", "by_column", "prune"),
    "Time": ("jobs", "batch", "rounds", "time_limit", "device", "shards"),
    "Output": ("out", "force", "sets", "sets_per_class", "explain", "explain_page", "against"),
}
"""Parameters of the commands by group, in the order of the help; those of no group are listed last."""

RARE = frozenset(
    (
        *("text", "images_root", "grey", "finetune", "learner", "imports"),
        *("calibrate", "class_weight", "refit", "prune", "batch", "device", "against"),
        "shards",
    )
)
"""Parameters that only ``--help-all`` lists."""

_ALL = "usboost.help_all"


class Command(TyperCommand):
    """A command whose help lists its options by group; one that takes one value is given once."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given = Counter(each.partition("=")[0] for each in args)
        for each in (one for one in self.get_params(ctx) if one.param_type_name == "option"):
            if max(map(given.__getitem__, each.opts)) > 1 and not getattr(each, "multiple", True):
                raise typer.BadParameter("given twice; give it once", ctx, param_hint=repr(each.opts[0]))
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        parameters = self.get_params(ctx)
        options = {each.name: each for each in parameters if each.param_type_name == "option"}
        groups = {"Arguments": [each for each in parameters if each.param_type_name == "argument"]}
        for group, names in GROUPS.items():
            groups[group] = [options.pop(name) for name in names if name in options]
        groups["Other"], left_out = list(options.values()), 0
        for name, every in groups.items():
            shown = [each for each in every if each.name not in RARE or _ALL in ctx.meta]
            left_out += len(every) - len(shown)
            # that an option may be repeated, or has limits, is in its text; a default in words has no
            # brackets of its own
            rows = [
                (
                    re.sub(r"<list\[(\w+)\]>|<(\w+) range>", r"<\1\2>", option),
                    re.sub(r"\[default: \((.*?)\)", r"[default: \1", text),
                )
                for option, text in filter(None, (each.get_help_record(ctx) for each in shown))
            ]
            if rows:
                with formatter.section(name):
                    formatter.write_dl(rows, col_max=34)  # a longer option has a line of its own
        if left_out:
            formatter.write_paragraph()
            formatter.write_text(f"{left_out} more options, which are rarely needed: --help-all")


def _show_all(ctx: typer.Context, requested: bool) -> None:
    if requested:
        ctx.meta[_ALL] = True
        typer.echo(ctx.get_help())
        raise typer.Exit


HELP_ALL = Annotated[
    bool, typer.Option("--help-all", is_eager=True, callback=_show_all, help="List all options and exit.")
]


def options_of(kind: type) -> dict[str, inspect.Parameter]:
    """Make a command's parameters for the fields of a dataclass that have a `Help`."""
    parameters: dict[str, inspect.Parameter] = {}
    defaults = {each.name: each.default for each in fields(kind)}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        of, *_, about = get_args(hint) or (None, None)
        if not isinstance(about, Help):
            continue
        of, default, flag = about.typed or of, defaults[name], as_flag(name)
        if bool in (of, *get_args(of)) and default is not False:
            flag = f"{flag}/{as_flag(f'no_{name}')}"
        if of == Names:
            of, default = list[str] | None, None
        if default is MISSING:
            default = inspect.Parameter.empty
        shown = about.default or True
        option = typer.Option(flag, help=about.text, min=about.least, max=about.most, show_default=shown)
        only, hint = inspect.Parameter.KEYWORD_ONLY, Annotated[of, option]
        parameters[name] = inspect.Parameter(name, only, default=default, annotation=hint)
    return parameters


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--help-all`` to a command, and the fields of each parameter of `Options` in its place."""
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
    """List the options that were given, and others by name, as they would be typed again."""
    given = {
        name: value
        for each in chosen
        for name, parameter in options_of(type(each)).items()
        if (value := getattr(each, name)) != parameter.default
    }
    return given_options({**given, **others})


def given_options(options: Mapping[str, Any]) -> list[str]:
    """List options by name as they would be typed; those without a value are left out."""
    words: list[str] = []
    for option, value in options.items():
        name = as_flag(option)
        if value is True:
            words.append(name)
        elif isinstance(value, (list, tuple)):
            words += [word for each in value for word in (name, str(each))]
        elif value is not None and value is not False:
            words += [name, str(value)]
    return words


NAMES = ", ".join(catalogue.OFFERED)

OUTSIDE = ("catboost", "xgboost", "tabpfn", "tabicl")
"""Packages that `usboost.models.baselines.packages` knows, which is not imported for a help text."""

BY = ", ".join(each for metrics in METRICS_OF.values() for each in metrics)

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
    return get_args(options_of(kind)[name].annotation)[1]


NameOfBackbone = Annotated[str, _option(ImageOptions, "backbone")]
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
Rounds = Annotated[int | None, typer.Option("--rounds", min=1, help="Most rounds, epochs; not for LightGBM.")]
Seed = Annotated[int, _option(AnswerOptions, "seed")]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse what cannot be read; else it is missing.")]
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


def chosen_learners(given: list[str] | None) -> dict[str, str]:
    """Map learner to kind, of ``["S=ridge"]``. Raises UsboostError if one is not of that form."""
    pairs = [each.partition("=") for each in given or []]
    for name, _, kind in pairs:
        if not (name and kind):
            raise UsboostError(f"--learner {name!r} names no kind; write --learner S=regressor, say")
    return {name: kind for name, _, kind in pairs}


def parsed_names(models: str) -> list[str]:
    """List the models to compare, each once."""
    names = list(dict.fromkeys(name.strip() for name in models.split(",") if name.strip()))
    if not names:
        raise UsboostError(f"--models names no model; choose among {NAMES}")
    for name in names:
        if name not in catalogue.OFFERED_FOR["regression"] and name not in OUTSIDE:
            catalogue.for_table(name)
    return names


def check_compared(by: str | None, out: Path | None, what: str, result: str, begins: str) -> None:
    """Refuse a score that no task has, a file in place of the folder, and a file of `result`'s name in it
    that begins otherwise."""
    if by is not None:
        check_metric(by, tuple(each for scores in RANKING.values() for each in scores))
    if out is not None and out.exists() and not out.is_dir():
        raise UsboostError(f"{out} is a file; name a folder for the {what}")
    if out is not None:
        check_out(out)
        if (file := out / result).exists():
            with file.open("rb") as there:
                if there.read(len(begins)) != begins.encode():
                    raise UsboostError(f"{file} is no result of a {what}; name another folder, --out")


def check_out(out: Path, file: bool = False) -> None:
    """Refuse a place that cannot be written before anything takes time; of a file also a missing folder."""
    check_local(out)
    if file and not out.parent.exists():
        raise UsboostError(f"there is no folder {out.parent}; make it, or name another --out")
    place = next(each for each in (out, *out.absolute().parents) if each.exists())
    if not (place.is_dir() or place == out) or not os.access(place, os.W_OK):
        raise UsboostError(f"{out} cannot be written: {place} is a file or not yours; name another --out")


def names_of(models: Sequence[str] | None, table: "UserTable", others: Collection[str] = ()) -> list[str]:
    """List the models named, or the usual ones, and others by path; refuse those that read no such table."""
    usual = catalogue.compared(one_table=not table.spec.image, task=table.task)
    names = list(dict.fromkeys([*(models or usual), *others]))
    for name in names:
        if name not in OUTSIDE and name not in others:
            catalogue.for_table(name, table.task)
    return names


def check_settings(file: Path | None, settings: Mapping[str, Any], others: Sequence[str] = ()) -> None:
    """Refuse a file with settings of a model that there is not; `others` are there by their paths."""
    known = [*catalogue.CATALOGUE, *OUTSIDE, *others]
    if unknown := [name for name in settings if name not in known]:
        raise UsboostError(f"{file}: there is no model {unknown[0]!r}; {choices(unknown[0], known)}")


def builders(
    names: Sequence[str],
    table: "UserTable",
    images: ImageOptions | None,
    rounds: int | None,
    settings: Mapping[str, Any],
) -> dict[str, Callable[[int], Any]]:
    """Find what builds each model, see `usboost.fit.build.by_name`; refuse what is not installed."""
    from usboost.fit.build import by_name
    from usboost.models.baselines.packages import check_outside

    for name in names:
        if name not in catalogue.CATALOGUE:
            check_outside(name, table.task)
    views = tuple(table.images) or ("U",)
    images = images and replace(images, size=table.spec.size)
    return by_name(names, images=images, image_views=views, rounds=rounds, settings=settings, task=table.task)


def fit_command(table: Path, model: str, rounds: int | None, *chosen: Options, **others: Any) -> str:
    """Write the command that fits one of the models as it was fitted here, and saves it."""
    from usboost.fit.build import limited

    again = typed(*chosen, rounds=rounds if limited(model) else None, **others)
    return shlex.join(["usboost", "fit", str(table), *again, "--model", model, "--out", "model"])

"""Help of the commands: options in groups, as wide as the terminal; rare ones with ``--help-all`` only."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

GROUPS = {
    "Data": ("label", "task", "positive", "split", "group", "time", "weight", "missing", "strict"),
    "Columns": ("drop", "categorical", "text", "text_model", "keep"),
    "Images": (
        *("image", "size", "backbone", "skip_unreadable", "occlusion_maps"),
        *("images_root", "grey", "pool_images", "finetune"),
    ),
    "Model": (
        *("model", "models", "others", "preset", "settings", "settings_file", "threshold", "seed"),
        *("learner", "imports", "calibrate", "class_weight", "refit", "fast_predict"),
    ),
    "Scores": ("by", "by_column", "folds", "repeats", "trials", "prune"),
    "Time": ("rounds", "time_limit", "jobs", "batch", "device", "shards"),
    "Output": ("out", "force", "sets", "explain", "against"),
}
"""Parameters of the commands by group; those of no group are listed last."""

RARE = frozenset(
    {
        *("text", "text_model", "images_root", "grey", "pool_images", "finetune", "learner", "imports"),
        *(
            "calibrate",
            "class_weight",
            "refit",
            "fast_predict",
            "prune",
            "batch",
            "device",
            "against",
            "shards",
        ),
    }
)
"""Parameters that only ``--help-all`` lists."""

_ALL = "usboost.help_all"
_WIDE = 34  # of an option with its value; a longer one has a line of its own


class Command(TyperCommand):
    """A command whose help lists its options by group."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in ("Arguments", *GROUPS, "Other")}
        everything, left_out = _ALL in ctx.meta, 0
        for each in self.get_params(ctx):
            said = each.get_help_record(ctx)
            if said is None:
                continue
            if each.name in RARE and not everything:
                left_out += 1
                continue
            groups[_group_of(each)].append((_option(said[0]), _text(said[1])))
        for name, rows in groups.items():
            if rows:
                with formatter.section(name):
                    formatter.write_dl(rows, col_max=_WIDE)
        if left_out:
            formatter.write_paragraph()
            formatter.write_text(f"{left_out} more options, which are rarely needed: --help-all")


def _group_of(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return "Arguments"
    return next((group for group, names in GROUPS.items() if parameter.name in names), "Other")


def _option(said: str) -> str:
    """An option and its value; that it may be repeated, or has limits, is in its text."""
    return re.sub(r"<list\[(\w+)\]>|<(\w+) range>", r"<\1\2>", said)


def _text(said: str) -> str:
    """The text of an option; a default in words has no brackets of its own."""
    return re.sub(r"\[default: \((.*?)\)", r"[default: \1", said)


def _show_all(ctx: typer.Context, asked: bool) -> None:
    if asked:
        ctx.meta[_ALL] = True
        typer.echo(ctx.get_help())
        raise typer.Exit


def with_help_all(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option ``--help-all``."""

    @wraps(command)
    def made(**given: Any) -> None:
        given.pop("help_all", None)
        command(**given)

    said = typer.Option(
        "--help-all", is_eager=True, callback=_show_all, expose_value=False, help="List all options and exit."
    )
    signature = inspect.signature(command, eval_str=True)
    named = [
        *(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in signature.parameters.values()),
        inspect.Parameter(
            "help_all", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, said]
        ),
    ]
    made.__signature__ = signature.replace(parameters=named)  # type: ignore[attr-defined]
    return made

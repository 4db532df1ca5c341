"""Help of the commands: options in groups, as wide as the terminal; rare ones with ``--help-all`` only."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

GROUPS = {
    "Data": ("label", "missing", "task", "positive", "group", "time", "weight", "split", "strict"),
    "Columns": ("drop", "categorical", "text", "keep", "text_model"),
    "Images": (
        *("image", "images_root", "size", "grey", "pool_images", "skip_unreadable"),
        *("backbone", "finetune", "occlusion_maps"),
    ),
    "Model": (
        *("model", "models", "preset", "others", "learner", "settings", "settings_file", "imports"),
        *("calibrate", "class_weight", "threshold", "fast_predict", "refit", "seed"),
    ),
    "Scores": ("trials", "folds", "repeats", "by", "by_column", "prune"),
    "Time": ("jobs", "batch", "rounds", "time_limit", "device", "shards"),
    "Output": ("out", "force", "sets", "explain", "against"),
}
"""Parameters of the commands by group, in the order of the help; those of no group are listed last."""

RARE = frozenset(
    (
        *("text", "text_model", "images_root", "grey", "pool_images", "finetune", "learner", "imports"),
        *("calibrate", "class_weight", "refit", "fast_predict", "prune", "batch", "device", "against"),
        "shards",
    )
)
"""Parameters that only ``--help-all`` lists."""

_ALL = "usboost.help_all"
_WIDE = 34  # of an option with its value; a longer one has a line of its own


class Command(TyperCommand):
    """A command whose help lists its options by group."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in ("Arguments", *GROUPS, "Other")}
        everything, left_out = _ALL in ctx.meta, 0
        for each in sorted(self.get_params(ctx), key=_place):
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


_GROUP_OF = {name: group for group, names in GROUPS.items() for name in names}
_PLACES = list(_GROUP_OF)


def _group_of(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return "Arguments"
    return _GROUP_OF.get(parameter.name, "Other")


def _place(parameter: Any) -> int:
    """That of the table above; arguments, and options of no group, stay in their order."""
    return -1 if _group_of(parameter) in ("Arguments", "Other") else _PLACES.index(parameter.name)


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


HELP_ALL = Annotated[
    bool,
    typer.Option("--help-all", is_eager=True, callback=_show_all, help="List all options and exit."),
]

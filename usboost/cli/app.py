"""The command `usboost`: fit, compare, tune, predict, report on a table; export; draw a demo.

A command checks its arguments before it imports torch, so that help and error messages are quick.
"""

from importlib.metadata import version
from inspect import getdoc
from typing import Annotated

import typer

from usboost.cli.check import check
from usboost.cli.compare import compare
from usboost.cli.console import exit_on_error
from usboost.cli.demo import demo
from usboost.cli.fit import fit
from usboost.cli.options import Command, with_options
from usboost.cli.ranks import ranks
from usboost.cli.saved_model import export, predict, report
from usboost.cli.tune import tune
from usboost.errors import UsboostError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # boxes of several columns leave little width for the texts
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Boosting and deep learning for a table with images: a file with a label column, "
    "numbers, categories and perhaps columns of image paths (relative to the table) or bytes.",
)


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"usboost {version('usboost')}")
        raise typer.Exit


@app.callback()
def usboost(
    called: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    with exit_on_error():
        # each process of another command than fit would write the same files
        if called.invoked_subcommand not in (None, "fit") and ranks() > 1:
            raise UsboostError(
                f"torchrun has started {ranks()} processes, but usboost {called.invoked_subcommand} runs in "
                "one; start it without torchrun"
            )


for command in (check, fit, compare, tune, predict, report, export, demo):
    # each paragraph in one line, which the terminal breaks where it ends
    text = "\n\n".join(" ".join(each.split()) for each in (getdoc(command) or "").split("\n\n"))
    app.command(help=text, short_help=text.partition("\n")[0], cls=Command)(with_options(command))

"""The command `usboost`: fit, compare, tune, predict and report on a user's table.

A command checks its arguments before it imports torch, so that help and error messages are quick.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from usboost.cli.compare import compare
from usboost.cli.fit import fit
from usboost.cli.predict import predict
from usboost.cli.report import report
from usboost.cli.tune import tune

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Boosting and deep learning for a table with pictures: a file with a label column, "
    "numbers, categories and perhaps columns of picture paths (relative to the table) or bytes.",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"usboost {version('usboost')}")
        raise typer.Exit


@app.callback()
def usboost(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


for command in (fit, compare, tune, predict, report):
    app.command()(command)

"""Output of the commands: results on stdout; notes, errors and a progress bar on stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from usboost.errors import UsboostError

if TYPE_CHECKING:
    from rich.console import Console

    from usboost.data.progress import Progress


def say(text: str) -> None:
    """A line of the result."""
    typer.echo(text)


def note(text: str) -> None:
    """A remark beside the result."""
    typer.echo(f"note: {text}", err=True)


@contextmanager
def exit_on_error() -> Iterator[None]:
    """A user's mistake prints one sentence, exit code 1; an interruption has exit code 130."""
    try:
        yield
    except UsboostError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo("interrupted; nothing already on disk was changed", err=True)
        raise typer.Exit(130) from None


@contextmanager
def progress(what: str) -> Iterator[Progress]:
    """A progress bar on stderr while the block runs, on a terminal only; removed at the end."""
    from rich.progress import Progress as Bars

    stderr = console(err=True)
    with Bars(console=stderr, transient=True, disable=not stderr.is_terminal) as bars:
        task = bars.add_task(what, total=None)

        def show(done: int, total: int) -> None:
            bars.update(task, completed=done, total=total or None)

        yield show


def console(err: bool = False) -> Console:
    """A console for output with a layout, such as a table."""
    from rich.console import Console

    found = Console(stderr=err, highlight=False)
    # a file or pipe has no width that lines would have to fit
    return found if found.is_terminal else Console(stderr=err, highlight=False, width=200)

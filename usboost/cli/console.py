"""Output of the commands: results on stdout; notes, errors and a progress bar on stderr."""

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import typer

from usboost.cli.interrupts import CODE, interrupts
from usboost.errors import UsboostError, rewrite_options, within_memory

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bars


def width(err: bool = False) -> int | None:
    """Count the columns of the terminal, or as many as the variable COLUMNS says; None of a file or pipe."""
    stream = sys.stderr if err else sys.stdout
    is_set = os.environ.get("COLUMNS", "").isdecimal()
    return shutil.get_terminal_size().columns if is_set or stream.isatty() else None


def _lines(text: str, err: bool) -> str:
    """Write options as flags; wrap text so that a terminal's line breaks no word, a pipe gets it whole."""
    text = rewrite_options(text, as_flag)
    if not (sys.stderr if err else sys.stdout).isatty():
        return text
    fill = textwrap.TextWrapper(width(err) or 80, break_long_words=False, break_on_hyphens=False).fill
    return "\n".join(map(fill, text.split("\n")))


silent: ContextVar[bool] = ContextVar("silent", default=False)
"""True in a shard of a fit for which another shard prints."""


def echo(text: str) -> None:
    """Print a line of the result."""
    if not silent.get():
        typer.echo(_lines(text, err=False))


def echo_command(words: str, command: str) -> None:
    """Print what to do next, and the command in a line of its own, whole, to copy."""
    echo(words)
    if not silent.get():
        typer.echo(f"  {command}")


def note(text: str) -> None:
    """Print a remark on stderr, above the progress bars that are on the screen."""
    if silent.get():
        return
    if _SHOWN:
        _SHOWN[-1].console.print(f"note: {text}", markup=False)
    else:
        typer.echo(_lines(f"note: {text}", err=True), err=True)


def begin(text: str) -> None:
    """Print on a terminal what begins, before an import or a read that takes seconds."""
    if not silent.get() and sys.stderr.isatty():
        typer.echo(f"{text} …", err=True)


def as_flag(name: str, value: str = "") -> str:
    """Write an option as it is typed: ``skip_unreadable`` is ``--skip-unreadable``."""
    return f"--{name.replace('_', '-')} {value}".rstrip()


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Print a user's mistake as one sentence, exit code 1; an interruption has exit code 130."""
    try:
        with within_memory():
            yield
    except UsboostError as error:
        typer.echo(_lines(f"error: {error}", err=True), err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        interrupts.report()
        raise typer.Exit(CODE) from None


class Bar:
    """A progress bar: called with (done, in all); `running` shows in words what runs."""

    def __init__(self, bars: "Bars", what: str, *, inner: bool) -> None:
        self._bars, self._what, self._inner = bars, what, inner
        self._task = bars.add_task(what, total=None, visible=not inner)

    def __call__(self, done: int, total: int) -> None:
        visible = not self._inner or done < total
        self._bars.update(self._task, completed=done, total=total or None, visible=visible)

    def running(self, what: Sequence[str]) -> None:
        """Show what runs at this moment."""
        self._bars.update(self._task, description=": ".join([self._what, ", ".join(what)][: 1 + bool(what)]))


@contextmanager
def progress(what: str) -> Iterator[Bar]:
    """Show a progress bar on stderr while the block runs, on a terminal only; removed at the end.

    One within another, such as of images that are embedded while a model is fitted, is a second bar; it
    is there from the first call until all is done.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    if _OPEN.get():
        yield Bar(_OPEN.get()[-1], what, inner=True)
        return
    stderr = console(err=True)
    what_runs = TextColumn("{task.description}")  # the bar leaves it most of the line
    columns = (what_runs, BarColumn(12), MofNCompleteColumn(), TimeRemainingColumn())
    hidden = silent.get() or not stderr.is_terminal
    with Bars(*columns, console=stderr, transient=True, disable=hidden) as bars:
        within = _OPEN.set((bars,))
        _SHOWN.extend([] if hidden else [bars])
        try:
            yield Bar(bars, what, inner=False)
        finally:
            _OPEN.reset(within)
            _SHOWN.clear()


@contextmanager
def fitting(what: str) -> Iterator[Bar]:
    """Show `progress` of fits, in which images that are embedded have a bar of their own."""
    # imported late, so that mistakes are reported without loading torch
    from usboost.learners.networks import embeddings, finetuning

    def tuning(images: int, epochs: int, seconds: float) -> None:
        if not epochs:
            minutes = f"about {max(1, round(seconds / 60))} min" if seconds > 45 else "less than a minute"
            note(f"the image network is tuned on {images:,} images, {minutes}; --finetune none leaves it out")

    with (
        progress(what) as show,
        progress("images") as inner,
        embeddings.progress(inner),
        finetuning.progress(tuning),
    ):
        yield show


_OPEN: "ContextVar[tuple[Bars, ...]]" = ContextVar("open", default=())  # the bars of this thread, if any
_SHOWN: "list[Bars]" = []  # those on the screen, whose lines no thread may print over


def console(err: bool = False) -> "Console":
    """Make a console for output with a layout, such as a table."""
    from rich.console import Console

    # a file or pipe has no width that lines would have to fit
    return Console(stderr=err, highlight=False, width=width(err) or 200)

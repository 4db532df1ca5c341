"""How far the fits of a dataset are, on the terminal: a line for each, and a bar with the time left."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from tasks.fits import results
from tasks.fits.cells import Cell
from usboost.evaluation.names import metric_name, number

SHOWN = ("f1", "log_loss", "rmse", "r2")
"""The scores of the test split that a line has."""


class Progress:
    """Prints a line when a fit has ended; on a terminal a bar stands below the lines.

    Parameters
    ----------
    cells : all fits; done : those that need not be made
    """

    def __init__(self, dataset: str, cells: Sequence[Cell], done: Collection[Cell]) -> None:
        self._console = Console(highlight=False, markup=False, soft_wrap=True)
        self._total, self._done = len(cells), len(done)
        self._began = time.monotonic()
        self._bar = Bars(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task(f"fits of {dataset}", total=len(cells) - len(done))
        todo = len(cells) - len(done)
        self.say(f"{dataset}: {todo} of {len(cells)} fits to make" if todo else f"{dataset}: nothing to fit")

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        self._console.print(text)

    def ended(self, cell: Cell) -> None:
        """A fit has ended, and its result is there."""
        self._done += 1
        self._bar.advance(self._task)
        found = (r for r in results.records(cell.dataset, cell.model) if r["seed"] == cell.seed)
        record = next(found, {})
        scores = record.get("scores", {}).get("test", {})
        listed = "  ".join(f"{metric_name(name)} {number(scores[name])}" for name in SHOWN if name in scores)
        count = f"[{self._done:>{len(str(self._total))}}/{self._total}]"
        seconds = record.get("fit_seconds", time.monotonic() - self._began)
        self.say(f"{count} {cell.model + ' seed ' + str(cell.seed):<24} {seconds:6.1f} s  {listed}")

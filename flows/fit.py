"""Fit the models of a dataset, with every seed, side by side; skip the fits that nothing has changed."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from flows.local import runtime

runtime.configure()

import mlflow  # noqa: E402
import typer  # noqa: E402
from prefect import runtime as prefect_runtime  # noqa: E402
from pydantic import Field  # noqa: E402

from flows.data import data  # noqa: E402
from flows.flow import Dataset, Model, flow  # noqa: E402
from tasks import machine, tracking  # noqa: E402
from tasks import settings as params  # noqa: E402
from tasks.fits import cells as fits  # noqa: E402
from tasks.fits import results, run_locally, run_on_workers  # noqa: E402
from tasks.fits.cells import Cell  # noqa: E402
from tasks.fits.identity import of_task, plan  # noqa: E402
from tasks.folders import results_folder, work_folder  # noqa: E402
from tasks.pages import flow_page as page  # noqa: E402
from tasks.prepared import task_of  # noqa: E402
from usboost.errors import UsboostError  # noqa: E402
from usboost.evaluation.ranking import metric_name, number  # noqa: E402

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


@flow(name="fit", flow_run_name="fit-{dataset}")
def fit(
    dataset: Dataset,
    models: Sequence[Model] = (),
    seeds: Annotated[int, Field(ge=1)] | None = None,
    new_data: bool = False,
) -> Path:
    """Fit a dataset's models; data/results/<dataset>, a table, an MLflow run for each fit.

    A fit whose data, settings and code have not changed is skipped, whoever has made it. One that fails
    leaves the others alone; run again, only those that are missing are fitted.

    Args:
        dataset: prepared dataset, e.g. ci_a
        models: models to fit, e.g. 2wl; empty: all that params.yaml names for the dataset
        seeds: number of seeds; empty: as in params.yaml
        new_data: first read the raw data again, and prepare the dataset if they have changed
    """
    if new_data:
        data(dataset)
    settings = params.load()
    task = task_of(dataset)
    chosen = list(models) or of_task(dataset, settings.models_of(dataset), settings)
    cells = fits.grid(dataset, chosen, seeds or settings.sizes.seeds, settings)
    running = f"the fits of {dataset} are running in this folder; wait for them"
    with runtime.alone(work_folder(dataset) / "fit.lock", running):
        tracking.experiment_id(f"usboost-{settings.profile}", [task.name])  # before several processes make it
        done = fits.finished(cells)
        todo = [cell for cell in cells if cell not in done]
        page.say(f"{dataset}: {len(cells)} fits, {len(done)} of them as they were")
        with Progress(dataset, cells, done) as progress:
            reasons = run_cells(dataset, todo, settings, progress)
        if not models:
            results.keep_only(dataset, [(cell.model, cell.seed) for cell in cells])
        results.write_metrics(dataset, settings.models_of(dataset))
    records = [{"model": model, **each} for model in chosen for each in results.records(dataset, model)]
    page.show_scores(page.key("scores", dataset), records, f"Scores of the fits of {dataset}")
    if len(todo) > len(reasons):
        page.emit("usboost.fitted", dataset, {"dataset": dataset})
    if reasons:
        cell = next(cell for cell in cells if cell in reasons)
        raise UsboostError(
            f"{len(reasons)} of {len(cells)} fits of {dataset} failed, {cell.name} because: "
            f"{reasons[cell].rstrip('.')}; the others are kept, and the same command fits what is missing"
        )
    return runtime.finished(results_folder(dataset))


def run_cells(
    dataset: str, cells: list[Cell], settings: params.Settings, progress: Progress
) -> dict[Cell, str]:
    """Fit cells as params.yaml says, and bring their results; why those failed that failed."""

    def ended(cell: Cell) -> None:
        fits.finished([cell])
        progress.ended(cell)

    if settings.fits.runner == "deployments":
        reasons = run_on_workers.run_cells(dataset, cells, settings.fits, ended, progress.say)
    else:
        reasons = run_locally.run_cells(cells, settings, ended)
    for cell, reason in reasons.items():
        progress.say(f"{cell.name} failed: {reason}")
        page.say(f"{cell.name} failed: {reason}")
    return reasons


@flow(name="fit-one", flow_run_name="fit-{dataset}-{model}-seed{seed}")
def fit_one(dataset: Dataset, model: Model, seed: Annotated[int, Field(ge=0)] = 0, expected: str = "") -> str:
    """Fit one model with one seed, unless that has been done; the id of its MLflow run.

    The flow `fit` starts these on the workers of a pool, and gathers their results.

    Args:
        dataset: prepared dataset, e.g. ci_a
        model: a model of the catalogue or of params.yaml, e.g. 2wl
        seed: seed of the fit
        expected: fingerprint that the fit must have; empty: any
    """
    settings = params.load()
    fingerprint = expected or plan(dataset, model, seed, settings).fingerprint
    task = fits.fit_cell.with_options(retries=settings.fits.retries)
    with run_on_workers.heartbeat(prefect_runtime.flow_run.id, settings.fits.lost_after / 4):
        cell = Cell(dataset, model, seed, fingerprint)
        return str(task(cell, settings, mlflow.get_tracking_uri(), machine.thread_share(1)))


def main(
    dataset: Annotated[str, typer.Argument(help="prepared dataset, e.g. ci_a")],
    model: Annotated[
        list[str] | None, typer.Option(help="a model; repeatable; default: all that params.yaml names")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="number of seeds; default: as in params.yaml")
    ] = None,
    new_data: Annotated[
        bool, typer.Option("--new-data", help="first read the raw data again, and prepare what has changed")
    ] = False,
) -> None:
    """Fit the models of a dataset that are not fitted yet; data/results/<dataset>."""
    runtime.run(lambda: fit(dataset, model or (), seeds, new_data))


if __name__ == "__main__":
    typer.run(main)

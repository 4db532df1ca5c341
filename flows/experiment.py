"""Fit a grid of datasets × models × seeds side by side, and compare."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from flows.local import runtime

runtime.configure()

import mlflow  # noqa: E402
import pandas as pd  # noqa: E402
import typer  # noqa: E402
from prefect import runtime as prefect_runtime  # noqa: E402
from pydantic import Field  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from flows.flow import Dataset, flow  # noqa: E402
from tasks import comparison, machine, page, run_locally, run_on_workers, tracking  # noqa: E402
from tasks import settings as params  # noqa: E402
from tasks.experiment import Cell, fit_cell, grid, reconcile, record_of  # noqa: E402
from tasks.folders import experiment_folder, prepared_folder  # noqa: E402
from tasks.identity import of_task, plan, task_of  # noqa: E402
from tasks.new_data import refresh  # noqa: E402
from usboost.datasets.prepared import store  # noqa: E402
from usboost.errors import UsboostError  # noqa: E402

Runner = Literal["configured", "threads", "processes", "dask", "deployments"]
NAME = "^[a-z0-9]+(-[a-z0-9]+)*$"


class Incomplete(UsboostError):
    """Cells of an experiment are missing; what there is has been compared."""


@flow(name="experiment", flow_run_name="experiment-{name}")
def experiment(
    datasets: Sequence[Dataset] = (),
    models: Sequence[str] = (),
    seeds: Annotated[int, Field(ge=0)] = 0,
    runner: Runner = "configured",
    workers: Annotated[int, Field(ge=0)] = 0,
    name: Annotated[str, Field(pattern=NAME)] = "grid",
    new_data: bool = False,
) -> Path:
    """Fit every cell that is not there yet, and compare; data/experiments/<name>.

    Cells whose data, settings and code have not changed are skipped. A cell that fails leaves the
    others alone; the comparison names it.

    Args:
        datasets: prepared datasets, e.g. ci_a; empty: params.yaml's run.datasets
        models: models, e.g. 2wl; empty: all of params.yaml's run
        seeds: number of seeds; 0: as in params.yaml
        runner: what runs the cells; configured: experiment.runner of params.yaml
        workers: cells at a time; 0: experiment.workers of params.yaml
        name: name of the experiment and of its folder in data/experiments
        new_data: first read the raw data again, and prepare what has changed
    """
    settings = params.load()
    if new_data:
        refresh(datasets or settings.run.datasets, settings)
    changes: dict[str, Any] = {"workers": workers} if workers else {}
    if runner != "configured":
        changes["runner"] = runner
    settings = settings.model_copy(update={"experiment": settings.experiment.model_copy(update=changes)})
    cells = [
        cell
        for dataset in dict.fromkeys(datasets or settings.run.datasets)
        for cell in grid(
            [dataset],
            models or of_task(dataset, settings.model_names, settings),
            seeds or settings.sizes.seeds,
            settings,
        )
    ]
    running = f"the experiment {name} is running in this folder; wait for it, or give another --name"
    with runtime.alone(experiment_folder(name) / ".lock", running):
        for dataset in dict.fromkeys(cell.dataset for cell in cells):
            # makes MLflow's store before several processes would
            profile = store.read_card(prepared_folder(dataset))["profile"]
            tracking.experiment_id(f"usboost-{profile}", [task_of(dataset).name])
        done = reconcile(name, cells)
        todo = [cell for cell in cells if cell not in done]
        if done:
            print(f"{len(done)} of {len(cells)} cells are as they were and are skipped")
        page.say(f"{len(cells)} cells, {len(done)} as they were; fits {len(todo)}")
        reasons = run_cells(name, todo, settings)
        missing = [cell for cell in cells if cell not in reconcile(name, cells)]
        comparison.compare(name, cells, reasons)
    for cell, reason in reasons.items():
        page.say(f"{cell.name} failed: {reason}")
    for dataset in dict.fromkeys(cell.dataset for cell in todo if cell not in missing):
        page.emit("usboost.compared", dataset, {"dataset": dataset, "experiment": name})
    if missing:
        first = missing[0]
        raise Incomplete(
            f"{len(missing)} of {len(cells)} cells are missing, {first.name} because: "
            f"{reasons.get(first, 'it was not run').rstrip('.')}; "
            f"see {experiment_folder(name)}/comparison.md, and run the experiment again for those"
        )
    return experiment_folder(name)


def run_cells(name: str, cells: list[Cell], settings: params.Settings) -> dict[Cell, str]:
    """Run the cells as the settings say; why those failed that failed."""
    if settings.experiment.runner == "deployments":
        return run_on_workers.run_cells(name, cells, settings.experiment, print)
    return run_locally.run_cells(name, cells, settings)


@flow(name="train-cell", flow_run_name="{name}-{dataset}-{model}-seed{seed}")
def train_cell(
    dataset: Dataset,
    model: str,
    seed: Annotated[int, Field(ge=0)] = 0,
    name: Annotated[str, Field(pattern=NAME)] = "grid",
    expected: str = "",
) -> str:
    """Fit one cell of an experiment, as a worker does; the id of its MLflow run.

    Args:
        dataset: prepared dataset, e.g. ci_a
        model: a model of params.yaml, e.g. 2wl
        seed: seed of the fit
        name: experiment that the cell belongs to
        expected: fingerprint that the cell must have; empty: any
    """
    settings = params.load()
    chosen = settings.experiment
    cell = Cell(dataset, model, seed, expected or plan(dataset, model, seed, settings).fingerprint)
    task = fit_cell.with_options(retries=chosen.retries)
    with run_on_workers.heartbeat(prefect_runtime.flow_run.id, chosen.lost_after / 4):
        run_id = str(task(name, cell, settings, mlflow.get_tracking_uri(), machine.thread_share(1)))
    if record := record_of(name, cell):
        page.show_scores(page.key("scores", name, cell.name), [record], f"Scores of {cell.name}")
    return run_id


def show(name: str) -> None:
    """Print the comparison of an experiment."""
    frame = pd.read_csv(experiment_folder(name) / "comparison.csv", dtype={"missing": object})
    frame["missing"] = frame["missing"].fillna("")
    table = Table(*comparison.headings(frame), title=f"experiment {name}, {comparison.SPLIT} split")
    for row in comparison.printed(frame):
        table.add_row(*row)
    Console().print(table)


def checked(name: str) -> str:
    """The name, if Prefect's artifacts and the file system can have it."""
    if not re.match(NAME, name):
        raise typer.BadParameter("lower-case letters, digits and single dashes, e.g. first-grid")
    return name


def main(
    dataset: Annotated[list[str] | None, typer.Option(help="a prepared dataset; may be repeated")] = None,
    model: Annotated[list[str] | None, typer.Option(help="a model; may be repeated")] = None,
    seeds: Annotated[int, typer.Option(min=0, help="number of seeds; 0: as in params.yaml")] = 0,
    runner: Annotated[Runner, typer.Option(help="what runs the cells")] = "configured",
    workers: Annotated[int, typer.Option(min=0, help="cells at a time; 0: as in params.yaml")] = 0,
    name: Annotated[
        str, typer.Option(help="name of the experiment and of its folder", callback=checked)
    ] = "grid",
    new_data: Annotated[
        bool, typer.Option("--new-data", help="first read the raw data again, and prepare what has changed")
    ] = False,
) -> None:
    """Fit datasets × models × seeds side by side; data/experiments/<name>, and a comparison."""

    def work() -> None:
        try:
            experiment(dataset or (), model or (), seeds, runner, workers, name, new_data)
        except Incomplete:
            show(name)
            raise
        show(name)

    runtime.run(work)


if __name__ == "__main__":
    typer.run(main)

"""The MLflow runs of cells: which is finished elsewhere, which does not count any more."""

import shutil
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlflow
from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from tasks import tracking
from tasks.fits import results
from tasks.fits.cell import Cell
from tasks.folders import prepared_folder
from usboost.datasets import store
from usboost.files import replacing

ARTIFACT = "cell"
"""The folder of a run that holds its cell's record, for a results folder elsewhere."""


def place() -> str:
    """Return this folder on this machine."""
    return f"{socket.gethostname()}:{Path.cwd()}"


def of_dataset(dataset: str, wanted: str) -> list[Run]:
    """Search the runs of a dataset's fits that count and fit the filter, newest first."""
    profile = store.read_card(prepared_folder(dataset))["profile"]
    experiments = [tracking.experiment_id(f"usboost-{profile}")]
    wanted = f"{wanted} and tags.dataset = '{dataset}'"
    found: Any = mlflow.search_runs(experiments, wanted, order_by=["start_time DESC"], output_format="list")
    return [run for run in found if run.data.tags.get(tracking.SUPERSEDED) != "true"]


def finished(cell: Cell) -> Run | None:
    """Search the finished run of a cell, whoever has fitted it."""
    runs = of_dataset(cell.dataset, f"attributes.status = 'FINISHED' and tags.cell = '{cell.name}'")
    return next((run for run in runs if run.data.tags.get("fingerprint") == cell.fingerprint), None)


def missing(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells to be fitted: those without a record here, which nobody has fitted elsewhere either.

    The record of one that was fitted elsewhere is downloaded from MLflow.
    """
    left = {(cell.name, cell.fingerprint): cell for cell in cells if not results.is_finished(cell)}
    with tracking.one_sentence():
        for run in of_dataset(cells[0].dataset, "attributes.status = 'FINISHED'") if left else ():
            key = run.data.tags.get("cell", ""), run.data.tags.get("fingerprint", "")
            if key in left and download(left[key], run):
                del left[key]
    return list(left.values())


def download(cell: Cell, run: Run) -> bool:
    """Put the record that a run has logged among the results; a run without it does not count any more."""
    if not MlflowClient().list_artifacts(run.info.run_id, ARTIFACT):
        tracking.supersede(run.info.run_id)
        return False
    with tempfile.TemporaryDirectory() as folder:
        write(cell, Path(MlflowClient().download_artifacts(run.info.run_id, ARTIFACT, folder)))
    shutil.rmtree(cell.checkpoint, ignore_errors=True)
    return True


def write(cell: Cell, record: Path) -> None:
    """Put the files of a cell's record in place, all or none of them."""
    with replacing(cell.results) as fresh:
        shutil.copytree(record, fresh, dirs_exist_ok=True)


def end_abandoned(cell: Cell, resumed: str | None) -> None:
    """Supersede runs of a cell that processes of this folder have left RUNNING, but the one to be resumed."""
    for run in of_dataset(cell.dataset, f"attributes.status = 'RUNNING' and tags.cell = '{cell.name}'"):
        if run.data.tags.get("place") == place() and run.info.run_id != resumed:
            tracking.supersede(run.info.run_id)

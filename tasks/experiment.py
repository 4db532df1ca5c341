"""The cells of an experiment: what each comes from, fitting one, and which MLflow run stands for it."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlflow
from mlflow.entities import Run
from mlflow.tracking import MlflowClient
from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks import machine, tracking, training
from tasks.folders import experiment_folder, prepared_folder
from tasks.identity import plan
from tasks.settings import Settings
from usboost.datasets.prepared import store
from usboost.errors import UsboostError
from usboost.files import replacing

SUPERSEDED = "superseded"


@dataclass(frozen=True)
class Cell:
    """One fit of an experiment.

    Attributes
    ----------
    fingerprint : a digest of everything that decides its result.
    devices : those that its model names; none for trees alone.
    """

    dataset: str
    model: str
    seed: int
    fingerprint: str
    devices: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def name(self) -> str:
        return f"{self.dataset}/{self.model}/seed-{self.seed}"


def grid(datasets: Sequence[str], chosen: Sequence[str], seeds: int, settings: Settings) -> list[Cell]:
    """Every cell of an experiment.

    Raises
    ------
    UsboostError
        If a dataset is not prepared, a model unknown, or BFV+DNN's features are not there.
    """

    def cell(dataset: str, model: str, seed: int) -> Cell:
        planned = plan(dataset, model, seed, settings)
        return Cell(dataset, model, seed, planned.fingerprint, frozenset(devices(planned.identity["model"])))

    return [
        cell(dataset, model, seed)
        for dataset in dict.fromkeys(datasets)
        for model in dict.fromkeys(chosen)
        for seed in range(seeds)
    ]


def devices(description: Any) -> set[str]:
    """The devices that a described model names; none for trees alone."""
    if not isinstance(description, Mapping):
        return set()
    found = {value.strip("'") for key, value in description.items() if key == "device"}
    return found.union(*(devices(value) for value in description.values()))


@task(cache_policy=NO_CACHE, task_run_name="{cell.name}", retry_delay_seconds=1)
def fit_cell(name: str, cell: Cell, settings: Settings, tracking_uri: str, threads: int) -> str:
    """Fit one cell of the experiment `name` in an MLflow run; its record and trace go to MLflow and disk.

    Raises
    ------
    UsboostError
        If this machine's data or settings are not those of the experiment, or the fit fails.
    """
    mlflow.set_tracking_uri(tracking_uri)
    planned = plan(cell.dataset, cell.model, cell.seed, settings)
    if planned.fingerprint != cell.fingerprint:
        raise UsboostError(
            f"{cell.name}: params.yaml, the data or the code here are not those of the experiment {name}; "
            "bring this worker's folder up to date"
        )
    wanted = devices(planned.identity["model"])
    tags = {"experiment": name, "cell": cell.name, "fingerprint": cell.fingerprint}
    with machine.gpu_slot(wanted, settings.experiment.gpu_slots), machine.limited_threads(threads):
        for run in runs_of(name, cell.dataset, cell.name):
            if counts(run, cell):  # by a process that had been given up and was only slow
                return str(run.info.run_id)
            if run.info.status == "RUNNING":  # of a process that died, or was given up
                supersede(run)
        with (
            training.seed_run(planned, tags) as run_id,
            tempfile.TemporaryDirectory() as out,
        ):
            record = training.fit(planned, Path(out), run_id)
            keep(cell, record, run_id, Path(out))
            if MlflowClient().get_run(run_id).data.tags.get(SUPERSEDED):
                raise tracking.Superseded(f"{cell.name} was given to another worker; its result counts")
    bring(name, cell, run_id)
    return run_id


def keep(cell: Cell, record: Mapping[str, Any], run_id: str, out: Path) -> None:
    """Log what the experiment needs of a fit, ``cell/record.json`` and ``cell/trace.parquet``, to MLflow."""
    more = {"dataset": cell.dataset, "model": cell.model, "fingerprint": cell.fingerprint}
    profile = store.read_card(prepared_folder(cell.dataset))["profile"]
    with tempfile.TemporaryDirectory() as folder:
        document = {**more, "profile": profile, "mlflow_run_id": run_id, **record}
        (Path(folder) / "record.json").write_text(json.dumps(document, indent=1) + "\n")
        shutil.copy(out / f"seed-{cell.seed}.parquet", Path(folder) / "trace.parquet")
        MlflowClient().log_artifacts(run_id, folder, "cell")


def bring(name: str, cell: Cell, run_id: str) -> None:
    """Put a finished cell's record and trace into the experiment's folder, whoever fitted it."""
    with tempfile.TemporaryDirectory() as folder:
        got = Path(mlflow.artifacts.download_artifacts(run_id=run_id, artifact_path="cell", dst_path=folder))
        with replacing(experiment_folder(name) / cell.name) as fresh:
            for file in got.iterdir():
                shutil.copy(file, fresh / file.name)


def record_of(name: str, cell: Cell) -> dict[str, Any] | None:
    """The record on disk of a cell, if it comes from what the cell comes from now."""
    try:
        record = json.loads((experiment_folder(name) / cell.name / "record.json").read_text())
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and record.get("fingerprint") == cell.fingerprint else None


def runs_of(name: str, dataset: str, cell: str | None = None) -> Iterator[Run]:
    """The MLflow runs of an experiment's cells on a dataset that have not been superseded, newest first."""
    profile = store.read_card(prepared_folder(dataset))["profile"]
    wanted = f"tags.experiment = '{name}' and tags.dataset = '{dataset}'"
    wanted += f" and tags.cell = '{cell}'" if cell else ""
    client, token = MlflowClient(), None
    experiment = tracking.experiment_id(f"usboost-{profile}")
    while True:
        page = client.search_runs([experiment], wanted, order_by=["start_time DESC"], page_token=token)
        yield from (run for run in page if run.data.tags.get(SUPERSEDED) != "true")
        token = page.token
        if not token:
            return


def counts(run: Run, cell: Cell) -> bool:
    """Whether a run has the cell's result as it would be now."""
    return bool(run.info.status == "FINISHED" and run.data.tags["fingerprint"] == cell.fingerprint)


def supersede(run: Run) -> None:
    """Mark a run as one that does not count; KILLED unless it has failed by itself."""
    client = MlflowClient()
    client.set_tag(run.info.run_id, SUPERSEDED, "true")
    if run.info.status != "FAILED":
        client.set_terminated(run.info.run_id, status="KILLED")


def reconcile(name: str, cells: Sequence[Cell]) -> dict[Cell, str]:
    """Leave each finished cell the one MLflow run that counts, and bring its record here.

    Runs still RUNNING are superseded, too: call it when nothing of the experiment runs.

    Returns
    -------
    dict
        The finished cells and their MLflow runs.
    """
    finished: dict[Cell, str] = {}
    for dataset in dict.fromkeys(cell.dataset for cell in cells):
        wanted = {cell.name: cell for cell in cells if cell.dataset == dataset}
        runs = [run for run in runs_of(name, dataset) if run.data.tags["cell"] in wanted]
        for run in runs:
            cell = wanted[run.data.tags["cell"]]
            if counts(run, cell):
                finished.setdefault(cell, run.info.run_id)
        for run in runs:
            kept = finished.get(wanted[run.data.tags["cell"]])
            if run.info.status == "RUNNING" or kept not in (None, run.info.run_id):
                supersede(run)
    for cell, run_id in finished.items():
        record = record_of(name, cell)
        if record is None or record["mlflow_run_id"] != run_id:
            bring(name, cell, run_id)
    return finished

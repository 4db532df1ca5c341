"""The fits of a dataset: what each comes from, which are finished, and fitting one."""

from __future__ import annotations

import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlflow
from mlflow.entities import Run
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks import machine, tracking
from tasks.fits import fit_cell as training
from tasks.fits import results
from tasks.fits.features import fit_features
from tasks.fits.identity import Planned, plan
from tasks.folders import checkpoints_folder, prepared_folder
from tasks.running import if_free, worth_retrying
from tasks.settings import Settings
from tasks.tracking.patience import away
from usboost.boosting.checkpoint import Checkpoint
from usboost.datasets import store
from usboost.errors import UsboostError

SUPERSEDED = "superseded"

ARTIFACT = "cell"
"""The folder of an MLflow run that holds what `training.fit` has written, for a results folder elsewhere."""


@dataclass(frozen=True)
class Cell:
    """One fit of a dataset.

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


def grid(dataset: str, chosen: Sequence[str], seeds: int, settings: Settings) -> list[Cell]:
    """Every fit of a dataset by some models with the seeds 0 to `seeds` − 1.

    Raises `UsboostError` if the dataset is not prepared, or a model unknown.
    """

    def cell(model: str, seed: int) -> Cell:
        planned = plan(dataset, model, seed, settings)
        return Cell(dataset, model, seed, planned.fingerprint, frozenset(devices(planned.identity["model"])))

    return [cell(model, seed) for model in dict.fromkeys(chosen) for seed in range(seeds)]


def devices(description: Any) -> set[str]:
    """The devices that a described model names; none for trees alone."""
    if not isinstance(description, Mapping):
        return set()
    found = {value.strip("'") for key, value in description.items() if key == "device"}
    return found.union(*(devices(value) for value in description.values()))


def finished(cells: Sequence[Cell]) -> set[Cell]:
    """Those whose result is there: among a dataset's results, or in MLflow, from where it is then brought."""
    found = {cell for cell in cells if results.has(cell.dataset, cell.model, cell.seed, cell.fingerprint)}
    left = {(cell.name, cell.fingerprint): cell for cell in cells if cell not in found}
    if not left:
        return found
    for run in runs_of(cells[0].dataset, "attributes.status = 'FINISHED'"):
        key = run.data.tags.get("cell", ""), run.data.tags.get("fingerprint", "")
        if key in left and bring(left[key], run):
            found.add(left.pop(key))
    return found


def bring(cell: Cell, run: Run) -> bool:
    """Put a finished fit among the dataset's results, whoever fitted it.

    Where its artifacts are gone it is not finished: the run does not count any more.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            got = mlflow.artifacts.download_artifacts(
                run_id=run.info.run_id, artifact_path=ARTIFACT, dst_path=folder
            )
        except MlflowException as error:
            if away(error):
                raise
            supersede(run)
            return False
        results.add(cell.dataset, cell.model, cell.seed, Path(got))
    shutil.rmtree(checkpoints_folder(cell.dataset, cell.model, cell.seed), ignore_errors=True)
    return True


@task(
    cache_policy=NO_CACHE,
    task_run_name="{cell.name}",
    retry_delay_seconds=1,
    retry_condition_fn=worth_retrying,
)
def fit_cell(cell: Cell, settings: Settings, tracking_uri: str, threads: int) -> str:
    """Fit one cell in an MLflow run, which has its result as artifacts; the run's id.

    Raises `UsboostError` if this machine's data or settings are not those of the cell, or the fit fails.
    """
    mlflow.set_tracking_uri(tracking_uri)
    planned = plan(cell.dataset, cell.model, cell.seed, settings)
    if planned.fingerprint != cell.fingerprint:
        raise UsboostError(
            f"{cell.name}: params.yaml, the data or the code here are not those of the flow that asks; "
            "bring this worker's folder up to date"
        )
    machine.limit_threads(threads)
    with machine.gpu_slot(devices(planned.identity["model"]), settings.fits.gpu_slots):
        for run in runs_of(cell.dataset, f"attributes.status = 'FINISHED' and tags.cell = '{cell.name}'"):
            if run.data.tags.get("fingerprint") == cell.fingerprint:  # by a process that was only slow
                return str(run.info.run_id)
        if planned.entry.needs_features:
            fit_features(cell.dataset, cell.seed, settings, planned.identity["features"])
        with checkpoint(planned) as kept:
            return _fit(cell, planned, kept)


def _fit(cell: Cell, planned: Planned, kept: Checkpoint) -> str:
    named = kept.folder / "mlflow.json"
    end_abandoned(cell, named)
    kept.begin(planned.identity)  # also of models without rounds, whose run is resumed all the same
    tags = {"cell": cell.name, "fingerprint": cell.fingerprint, "place": place()}
    with training.seed_run(planned, tags, named) as run_id, tempfile.TemporaryDirectory() as out:
        training.fit(planned, Path(out), run_id, kept)
        tracking.retry("the results", lambda: MlflowClient().log_artifacts(run_id, out, ARTIFACT))
        if MlflowClient().get_run(run_id).data.tags.get(SUPERSEDED):
            raise tracking.Superseded(f"{cell.name} was given to another worker; its result counts")
    return run_id


@contextmanager
def checkpoint(planned: Planned) -> Iterator[Checkpoint]:
    """Where the rounds of a fit are kept until its result is; one of other data, settings or code goes.

    While another process fits the same here (one that was given up, but is only slow), it is elsewhere.
    """
    folder = checkpoints_folder(planned.dataset, planned.model, planned.seed)
    with if_free(folder.with_suffix(".lock")) as mine, tempfile.TemporaryDirectory() as elsewhere:
        kept = Checkpoint(folder if mine else Path(elsewhere) / "kept", planned.identity)
        if kept.of_another_fit():
            print(f"{kept.folder} is of other data, parameters or code; starting again", file=sys.stderr)
            tracking.supersede_kept(kept.folder / "mlflow.json")
            kept.clear()
        try:
            yield kept
        except BaseException:
            if not kept.began():
                kept.clear()
            raise
        kept.clear()


def place() -> str:
    """This folder on this machine."""
    return f"{socket.gethostname()}:{Path.cwd()}"


def end_abandoned(cell: Cell, kept: Path) -> None:
    """Supersede runs of a cell that processes of this folder have left RUNNING, but the one to be resumed."""
    resumed = tracking.kept_run(kept)
    for run in runs_of(cell.dataset, f"attributes.status = 'RUNNING' and tags.cell = '{cell.name}'"):
        if run.data.tags.get("place") == place() and run.info.run_id != resumed:
            supersede(run)


def runs_of(dataset: str, wanted: str) -> Iterator[Run]:
    """The MLflow runs of a dataset's fits that have not been superseded and fit the filter, newest first."""
    profile = store.read_card(prepared_folder(dataset))["profile"]
    wanted = f"{wanted} and tags.dataset = '{dataset}'"
    client, token = MlflowClient(), None
    experiment = tracking.experiment_id(f"usboost-{profile}")
    while True:
        page = client.search_runs([experiment], wanted, order_by=["start_time DESC"], page_token=token)
        yield from (run for run in page if run.data.tags.get(SUPERSEDED) != "true")
        token = page.token
        if not token:
            return


def supersede(run: Run) -> None:
    """Mark a run as one that does not count; KILLED unless it has failed by itself."""
    client = MlflowClient()
    client.set_tag(run.info.run_id, SUPERSEDED, "true")
    if run.info.status != "FAILED":
        client.set_terminated(run.info.run_id, status="KILLED")

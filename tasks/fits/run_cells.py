"""Run the fits of a dataset: on a task runner of this machine, or as a deployment's flow runs, on workers."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import mlflow
from mlflow.entities import Run
from mlflow.tracking import MlflowClient
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import State, StateType
from prefect.deployments import run_deployment
from prefect.events import AutomationCore
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import EventTrigger
from prefect.exceptions import ObjectNotFound
from prefect.futures import as_completed
from prefect.states import Cancelled
from prefect.task_runners import ProcessPoolTaskRunner, ThreadPoolTaskRunner

from tasks import machine, mlflow_runs
from tasks.fits.fit_cell import fit_cell
from tasks.fits.models import Cell
from tasks.folders import ARTIFACT, CHECKPOINTS
from tasks.settings import FitsSection
from usboost.errors import UsboostError
from usboost.process import thread_share

RUNNERS: dict[str, Any] = {"threads": ThreadPoolTaskRunner, "processes": ProcessPoolTaskRunner}
POLL_SECONDS = 2.0
LIVE = [StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING, StateType.PAUSED]

SIGNS = ("Completed", "Failed", "Cancelled", "Crashed", "heartbeat", "Running")
LOST = {"heartbeat": ("usboost, silent fits", 120), "Pending": ("usboost, fits that do not start", 240)}
"""Automations of Prefect's server by the event after which they wait, with the seconds until a run is lost.

A heartbeat comes every 30 seconds (prefect.yaml, at `fit-one`), the first when a run's process has started.
"""


def missing(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells to be fitted: those without a record here, which nobody has fitted elsewhere either.

    The record of one that was fitted elsewhere is downloaded from MLflow.
    """
    left = {(cell.name, cell.fingerprint): cell for cell in cells if not cell.is_finished()}
    with mlflow_runs.one_sentence():
        for run in mlflow_runs.runs_of(cells[0].dataset, "attributes.status = 'FINISHED'") if left else ():
            key = run.data.tags.get("cell", ""), run.data.tags.get("fingerprint", "")
            if key in left and download(left[key], run):
                del left[key]
    return list(left.values())


def download(cell: Cell, run: Run) -> bool:
    """Put the record that a run has logged among the results; return False if it is not to be seen."""
    if not MlflowClient().list_artifacts(run.info.run_id, ARTIFACT):
        return False
    with tempfile.TemporaryDirectory() as folder:
        got = MlflowClient().download_artifacts(run.info.run_id, ARTIFACT, folder)
        cell.write(Path(got))
    shutil.rmtree(CHECKPOINTS / cell.name, ignore_errors=True)
    return True


def run_locally(
    cells: Sequence[Cell], chosen: FitsSection, on_end: Callable[[Cell], None]
) -> dict[Cell, str]:
    """Fit the cells; return the reasons of those that failed, a sentence each.

    A cell that raises is retried by Prefect. One whose process died took its pool with it, and others that
    were in it: they are tried again in a new one.

    Parameters
    ----------
    on_end : called with each cell that has been fitted
    """
    task = fit_cell.with_options(retries=chosen.retries)
    at_once = chosen.workers if machine.HALF not in os.environ else max(1, chosen.workers // 2)
    reasons: dict[Cell, str] = {}
    left = list(cells)
    for _ in range(1 + chosen.retries):
        if not left:
            break
        with RUNNERS[chosen.runner](max_workers=at_once) as runner:
            threads = thread_share(chosen.workers)
            given = {"tracking_uri": mlflow.get_tracking_uri(), "threads": threads}
            futures = {runner.submit(task, {"cell": cell, **given}): cell for cell in left}
            left = []
            for future in as_completed(list(futures)):
                cell = futures[future]
                try:
                    future.result()
                except Exception as error:
                    reasons[cell] = str(error) or type(error).__name__
                    if not future.state.is_final():
                        reasons[cell] = f"its process died ({type(error).__name__})"
                        left.append(cell)
                else:
                    reasons.pop(cell, None)
                    on_end(cell)
    return reasons


def run_on_workers(
    dataset: str,
    cells: Sequence[Cell],
    chosen: FitsSection,
    on_end: Callable[[Cell], None],
    tell: Callable[[str], None],
) -> dict[Cell, str]:
    """Submit the cells and wait for them; return the reasons of those that failed, a sentence each.

    A cell whose flow run is Crashed, by itself or by an automation of `LOST`, is submitted again, `retries`
    times at most.

    Raises `UsboostError` if the deployment is not there.

    Parameters
    ----------
    on_end : called with each cell that has been fitted
    tell : called with what a user should know
    """
    reasons: dict[Cell, str] = {}
    with get_client(sync_client=True) as client:
        try:
            pool = client.read_deployment_by_name(chosen.deployment).work_pool_name
        except ObjectNotFound:
            raise UsboostError(
                f"the Prefect server has no deployment {chosen.deployment!r}; "
                "run `prefect --no-prompt deploy --all`"
            ) from None
        crash_lost_runs(client)
        _cancel_leftovers(client, dataset)
        waiting = {_submit(cell, chosen): (cell, 0) for cell in cells}
        workers = client.read_workers_for_work_pool(str(pool))
        if cells and not any(worker.status == "ONLINE" for worker in workers):
            tell(f"no worker of the pool {pool} is online; the cells wait for one")
        while waiting:
            time.sleep(POLL_SECONDS)
            for run_id, (cell, number) in list(waiting.items()):
                state: State | None = None
                with suppress(ObjectNotFound):
                    state = client.read_flow_run(run_id).state
                if state and state.type in LIVE:
                    continue
                del waiting[run_id]
                if state and state.is_completed():
                    on_end(cell)
                    continue
                _supersede(dataset, run_id)
                reason = "its flow run was deleted" if state is None else "it was cancelled"
                if state and state.is_failed():
                    reason = state.message or "it failed"
                elif state and state.is_crashed():
                    reason = f"its process died ({state.message})"
                    if number < chosen.retries:
                        tell(f"{cell.name}: {reason}; submitted again")
                        waiting[_submit(cell, chosen)] = (cell, number + 1)
                        continue
                reasons[cell] = reason
    return reasons


def crash_lost_runs(client: SyncPrefectClient) -> None:
    """Have Prefect's server crash the runs of cells whose worker has died, unless its automations are there.

    This is Prefect's recipe to detect zombie flow runs, with a second one for a process that never starts.
    """
    for event, (name, seconds) in LOST.items():
        if client.read_automations_by_name(name):
            continue
        named = "prefect.resource.id"
        waited = {
            "after": [f"prefect.flow-run.{event}"],
            "expect": [f"prefect.flow-run.{name}" for name in SIGNS],
            "match": {named: "prefect.flow-run.*"},
            "match_related": {"prefect.resource.role": "tag", named: "prefect.tag.fits:*"},
            "for_each": [named],
            "posture": "Proactive",
            "threshold": 1,
            "within": seconds,
        }
        trigger = EventTrigger.model_validate(waited)
        message = f"no sign of life of its worker for {seconds} seconds"
        crash = ChangeFlowRunState(name=None, state=StateType.CRASHED, message=message, force=False)
        client.create_automation(AutomationCore(name=name, trigger=trigger, actions=[crash]))


def _supersede(dataset: str, flow_run_id: UUID) -> None:
    """Let what a flow run that was given up may still be doing in MLflow not count."""
    wanted = f"attributes.status = 'RUNNING' and tags.`prefect.flow_run_id` = '{flow_run_id}'"
    for run in mlflow_runs.runs_of(dataset, wanted):
        mlflow_runs.supersede(run.info.run_id)


def _tags(dataset: str) -> list[str]:
    return [f"fits:{dataset}", f"from {machine.place()}"]  # another folder's dataset may have that name


def _submit(cell: Cell, chosen: FitsSection) -> UUID:
    of = {"dataset": cell.dataset, "model": cell.model, "seed": cell.seed, "expected": cell.fingerprint}
    run: Any = run_deployment(chosen.deployment, parameters=of, timeout=0, tags=_tags(cell.dataset))
    return UUID(str(run.id))


def _cancel_leftovers(client: SyncPrefectClient, dataset: str) -> None:
    """Cancel what an earlier flow of this dataset submitted from here and did not wait for."""
    wanted = {"tags": {"all_": _tags(dataset)}, "state": {"type": {"any_": LIVE}}}
    live = FlowRunFilter.model_validate(wanted)
    while left := client.read_flow_runs(flow_run_filter=live):
        for run in left:
            client.set_flow_run_state(run.id, Cancelled(message="the fits were started anew"), force=True)
            _supersede(dataset, run.id)

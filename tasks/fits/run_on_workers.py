"""The fits of a dataset as flow runs of a deployment, so that any number of workers shares them."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Crashed

from tasks.fits import cells as fits
from tasks.fits.cells import Cell
from tasks.settings import Fits
from usboost.errors import UsboostError

BEAT = "usboost.beat"
POLL_SECONDS = 2.0
START_SECONDS = 90.0  # from Pending to Running: a process that imports everything, on a busy machine
PAGE = 100
LIVE = [StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING, StateType.PAUSED]


@contextmanager
def heartbeat(flow_run_id: str | None, every: float) -> Iterator[None]:
    """Count up a label of this flow run for as long as the block runs: its process is alive.

    Prefect's own heartbeats come twice a minute at most, too seldom for a `lost_after` of seconds.
    """
    if not flow_run_id:
        yield
        return
    ended = threading.Event()

    def beat() -> None:
        count = 0
        with get_client(sync_client=True) as client:
            while True:
                count += 1
                with suppress(Exception):  # the server may be down; the next heartbeat retries
                    client.update_flow_run_labels(UUID(flow_run_id), {BEAT: count})
                if ended.wait(every):
                    return

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(timeout=5)


@dataclass
class Attempt:
    """A flow run that fits a cell, and when something of it was last seen to change."""

    cell: Cell
    flow_run_id: UUID
    number: int
    sign: tuple[object, ...] = ()
    since: float = 0.0

    def silent_for(self, run: FlowRun) -> float:
        """Seconds without a sign of life, by this process's clock: those of machines may differ."""
        sign = (run.state and run.state.id, run.labels.get(BEAT))
        if sign != self.sign:
            self.sign, self.since = sign, time.monotonic()
        return time.monotonic() - self.since


def run_cells(
    dataset: str,
    cells: Sequence[Cell],
    chosen: Fits,
    ended: Callable[[Cell], None],
    say: Callable[[str], None],
) -> dict[Cell, str]:
    """Submit the cells and wait for them; why those failed that failed, each in a sentence.

    A flow run that is Running and gives no sign of life for `lost_after` seconds is Crashed, and its
    cell submitted again, as are cells whose flow run crashes by itself; `retries` times at most.

    Raises `UsboostError` if the deployment is not there.

    Parameters
    ----------
    ended : called with each cell that has been fitted
    say : called with what a user should know
    """
    reasons: dict[Cell, str] = {}
    with get_client(sync_client=True) as client:
        pool = _pool(client, chosen.deployment)
        _end_leftovers(client, dataset)
        attempts = [_submit(cell, chosen, 0) for cell in cells]
        if cells and not _workers(client, pool):
            say(f"no worker of the pool {pool} is online; the cells wait for one")
        while attempts:
            time.sleep(POLL_SECONDS)
            runs = _read(client, [attempt.flow_run_id for attempt in attempts])
            going = []
            for attempt in attempts:
                reason, again = _judge(client, attempt, runs.get(attempt.flow_run_id), chosen)
                if reason is None:
                    going.append(attempt)
                elif reason == "":
                    ended(attempt.cell)
                else:
                    _supersede(attempt.cell.dataset, attempt.flow_run_id)
                    if again and attempt.number < chosen.retries:
                        say(f"{attempt.cell.name}: {reason}; submitted again")
                        going.append(_submit(attempt.cell, chosen, attempt.number + 1))
                    else:
                        reasons[attempt.cell] = reason
            attempts = going
    return reasons


def _judge(
    client: SyncPrefectClient, attempt: Attempt, run: FlowRun | None, chosen: Fits
) -> tuple[str | None, bool]:
    """(None while it runs, "" when it is done, else the error; whether to retry)."""
    if run is None or run.state is None:
        return "its flow run was deleted", False
    state = run.state
    silence = attempt.silent_for(run)
    if state.is_completed():
        return "", False
    if state.is_failed():
        return state.message or "it failed", False
    if state.is_crashed():
        return f"its process died ({state.message})", True
    if state.is_cancelled() or state.is_cancelling():
        return "it was cancelled", False
    allowed = {StateType.RUNNING: chosen.lost_after, StateType.PENDING: chosen.lost_after + START_SECONDS}
    if silence > allowed.get(state.type, math.inf):
        reason = f"no heartbeat of its worker for {silence:.0f} seconds"
        client.set_flow_run_state(run.id, Crashed(message=reason), force=True)
        return reason, True
    return None, False


def _supersede(dataset: str, flow_run_id: UUID) -> None:
    """What a flow run that was given up may still be doing in MLflow does not count."""
    wanted = f"attributes.status = 'RUNNING' and tags.`prefect.flow_run_id` = '{flow_run_id}'"
    for run in fits.runs_of(dataset, wanted):
        fits.supersede(run)


def _submit(cell: Cell, chosen: Fits, number: int) -> Attempt:
    run: Any = run_deployment(
        chosen.deployment,
        parameters={
            "dataset": cell.dataset,
            "model": cell.model,
            "seed": cell.seed,
            "expected": cell.fingerprint,
        },
        timeout=0,
        tags=[_tag(cell.dataset)],
    )
    return Attempt(cell, run.id, number, since=time.monotonic())


def _tag(dataset: str) -> str:
    return f"fits:{dataset}"


def _read(client: SyncPrefectClient, ids: Sequence[UUID]) -> dict[UUID, FlowRun]:
    found: list[FlowRun] = []
    for start in range(0, len(ids), PAGE):
        some = FlowRunFilter.model_validate({"id": {"any_": ids[start : start + PAGE]}})
        found += client.read_flow_runs(flow_run_filter=some, limit=PAGE)
    return {run.id: run for run in found}


def _end_leftovers(client: SyncPrefectClient, dataset: str) -> None:
    """Cancel what an earlier flow of this dataset submitted and did not wait for."""
    live = FlowRunFilter.model_validate(
        {"tags": {"all_": [_tag(dataset)]}, "state": {"type": {"any_": LIVE}}}
    )
    while left := client.read_flow_runs(flow_run_filter=live, limit=PAGE):
        for run in left:
            state: Any = Cancelled(message="the fits were started anew")
            client.set_flow_run_state(run.id, state, force=True)
            _supersede(dataset, run.id)


def _pool(client: SyncPrefectClient, deployment: str) -> str:
    try:
        return str(client.read_deployment_by_name(deployment).work_pool_name)
    except ObjectNotFound:
        raise UsboostError(
            f"the Prefect server has no deployment {deployment!r}; run `prefect --no-prompt deploy --all`"
        ) from None


def _workers(client: SyncPrefectClient, pool: str) -> bool:
    """Whether any worker of the pool is online."""
    found = client.request(
        "POST", "/work_pools/{work_pool_name}/workers/filter", path_params={"work_pool_name": pool}
    )
    return any(worker["status"] == "ONLINE" for worker in found.json())

"""Fits on workers: two share them, one is killed in the middle, every fit counts once."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest

from tests.flows.conftest import ROOT, Workspace
from tests.flows.local import detached

pytestmark = pytest.mark.long

MODELS, SEEDS = ["baseline", "2wl", "2wl2o"], [0, 1, 2, 3]
CELLS = [f"ci_b/{m}/seed-{s}" for m in MODELS for s in SEEDS]

ASK = """
import json, sys
from prefect.client.orchestration import get_client
with get_client(sync_client=True) as client:
    runs = client.request("POST", "/flow_runs/filter", json={"sort": "START_TIME_ASC"}).json()
kept = ("id", "name", "state_name", "labels", "parameters", "deployment_id")
json.dump([{key: run[key] for key in kept} for run in runs], sys.stdout)
"""

RUNS = """
import mlflow, sys
found = mlflow.search_runs(search_all_experiments=True)
found.to_json(sys.stdout)
"""


@pytest.fixture
def services(reproduced, tmp_path):
    """A workspace with the code beside it, and the services of its own home."""
    workspace = reproduced.copy(tmp_path / "copy")
    shutil.copy(ROOT / "prefect.yaml", workspace.folder)
    workspace.params(
        lambda p: (
            p["fits"].update(retries=2, runner="deployments"),
            p["profiles"]["demo"]["boosting"].update(rounds=40),
        )
    )
    shutil.rmtree(workspace.folder / "data/results")
    own = Workspace(workspace.folder, tmp_path / "home")
    own.environment |= {
        "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "true",  # which crash what a dead worker has left
        "USBOOST_PREFECT_PORT": "0",
        "USBOOST_MLFLOW_PORT": "0",
        "PREFECT_WORKER_QUERY_SECONDS": "2",
    }
    own.flow("local.services", "start")
    try:
        own.state = detached.state(tmp_path / "home")
        own.environment["PREFECT_API_URL"] = own.state["prefect"]
        own.environment["MLFLOW_TRACKING_URI"] = own.state["mlflow"]
        yield own
    finally:
        own.flow("local.services", "stop", check=False)


def kill_tree(pid: int) -> None:
    """SIGKILL a process and everything it started, children first found."""
    parent = psutil.Process(pid)
    for process in [*parent.children(recursive=True), parent]:
        process.send_signal(signal.SIGKILL)


def cell_runs(services) -> list[dict]:
    runs = json.loads(services.run(sys.executable, "-c", ASK).stdout)
    return [run for run in runs if "seed" in run["parameters"]]


def test_a_killed_workers_cell_is_given_to_another(services):
    first = next(worker for worker in services.state["workers"] if worker["pool"] == "gpu")
    words = [*(f"--model={m}" for m in MODELS), "--seeds=4"]
    command = [sys.executable, "-m", "flows.fit", "ci_b", *words]
    log = (services.folder / "fit.log").open("w")
    running = subprocess.Popen(
        command, cwd=services.folder, env=services.environment, stdout=log, stderr=subprocess.STDOUT
    )
    second = subprocess.Popen(
        [sys.executable, "-m", "prefect", "worker", "start", "--pool", "gpu", "--name", "second"],
        cwd=services.folder,
        env={**services.environment, "USBOOST_CODE": str(services.folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        killed = kill_in_the_middle(services, first)
        assert running.wait(timeout=480) == 0, Path(log.name).read_text()[-3000:]
    finally:
        for process in (running, second):
            if process.poll() is None:
                kill_tree(process.pid)
    runs = cell_runs(services)
    by_id = {run["id"]: run for run in runs}
    assert by_id[killed]["state_name"] == "Crashed"
    assert {run["labels"].get("prefect.worker.name") for run in runs} >= {first["name"], "second"}
    done = [run for run in runs if run["state_name"] == "Completed"]
    assert sorted(cell_of(run) for run in done) == sorted(CELLS)
    assert cell_of(by_id[killed]) in {cell_of(run) for run in done}
    found = pd.DataFrame(json.loads(services.run(sys.executable, "-c", RUNS).stdout))
    superseded = found["tags.superseded"] == "true" if "tags.superseded" in found else found.status.isna()
    counting = found[~superseded]
    assert sorted(counting["tags.cell"]) == sorted(CELLS)
    assert set(counting["status"]) == {"FINISHED"}
    assert set(found.loc[superseded, "status"]) <= {"KILLED", "FAILED"}
    assert set(counting["tags.prefect.flow_run_id"]) == {run["id"] for run in done}
    for model in MODELS:
        assert [services.record("ci_b", model, seed)["seed"] for seed in SEEDS] == SEEDS


def cell_of(run: dict) -> str:
    return "{dataset}/{model}/seed-{seed}".format(**run["parameters"])


def kill_in_the_middle(services, worker: dict) -> str:
    """Wait until the worker fits its second cell or a later one, and kill it; the flow run's id."""
    deadline = time.monotonic() + 150
    while time.monotonic() < deadline:
        mine = [r for r in cell_runs(services) if r["labels"].get("prefect.worker.name") == worker["name"]]
        running = [run for run in mine if run["state_name"] == "Running"]
        if running and any(run["state_name"] == "Completed" for run in mine):
            os.kill(worker["pid"], signal.SIGSTOP)
            kill_tree(worker["pid"])
            return running[0]["id"]
        time.sleep(0.2)
    raise AssertionError("the first worker did not fit a cell within 150 seconds")

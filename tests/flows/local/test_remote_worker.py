"""A worker on another machine: code by clone, data by `dvc pull`, results through MLflow, no shared disk."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from flows.local.workspace import CODE
from tests.flows.conftest import ROOT, Workspace
from tests.flows.local.detached import state

pytestmark = pytest.mark.long

RUNS = """
import mlflow, sys
mlflow.search_runs(search_all_experiments=True).to_json(sys.stdout)
"""

COMMITTED = ("params.yaml", "dvc.yaml", "dvc.lock", "prefect.yaml", ".dvcignore", ".dvc/config")


def git(folder: Path, *words: str) -> None:
    author = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    subprocess.run(["git", *author, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def team(reproduced: Workspace, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A checkout whose code is in a repository and whose data are in a DVC remote, and the two servers."""
    first = reproduced.copy(tmp_path / "first")
    for name in CODE:
        (first.folder / name).unlink()
        shutil.copytree(ROOT / name, first.folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "prefect.yaml", first.folder)
    first.params(lambda p: p["fits"].update(runner="deployments"))
    # the package is installed from elsewhere on this machine: what it says tells which code ran
    metrics = first.folder / "usboost/evaluation/metrics.py"
    metrics.write_text(
        metrics.read_text().replace('"accuracy": accuracy', '"cloned": 1.0, "accuracy": accuracy')
    )
    first.run("dvc", "remote", "add", "--default", "team", str(tmp_path / "remote"))
    first.run("dvc", "push", "--quiet", "data")
    git(first.folder, "init", "--quiet", "--initial-branch=main")
    git(first.folder, "add", "--force", *COMMITTED, *CODE)
    git(first.folder, "commit", "--quiet", "--message=all but the data")
    git(tmp_path, "clone", "--quiet", "--bare", "first", "code.git")
    servers = Workspace(first.folder, tmp_path / "servers")
    servers.environment |= {"USBOOST_PREFECT_PORT": "0", "USBOOST_MLFLOW_PORT": "0", "PYTHONPATH": "."}
    servers.flow("local.services", "start", "--artifacts", str(tmp_path / "artifacts"), "--worker", "cpu")
    try:
        yield {
            "servers": servers,
            "state": state(tmp_path / "servers"),
            "repository": str(tmp_path / "code.git"),
            "remote": str(tmp_path / "remote"),
        }
    finally:
        servers.folder = ROOT
        servers.flow("local.services", "stop", check=False)


def stop(worker: subprocess.Popen[bytes], place: Path) -> None:
    """End the worker when it has cleared up after its runs; by force if it does not end by itself."""
    for _ in range(60):
        if not list(place.rglob("params.yaml")):
            break
        time.sleep(1)
    try:
        os.killpg(worker.pid, signal.SIGTERM)
        worker.wait(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()


def test_a_worker_with_nothing_but_addresses_fits(team: dict[str, Any], tmp_path: Path) -> None:
    here = tmp_path / "asking"
    team["servers"].folder.rename(here)  # a path of the first checkout would lead nowhere
    place = tmp_path / "another-machine"
    place.mkdir()
    addresses = {"PREFECT_API_URL": team["state"]["prefect"], "MLFLOW_TRACKING_URI": team["state"]["mlflow"]}
    machine = {
        "PATH": team["servers"].environment["PATH"],
        "HOME": str(place),
        "OMP_NUM_THREADS": "1",
        "USBOOST_HOME": str(place / "home"),
        "USBOOST_REPOSITORY": team["repository"],
        "USBOOST_REMOTE": team["remote"],
        "PREFECT_HOME": str(place / "prefect"),
        "PREFECT_WORKER_QUERY_SECONDS": "2",
        **addresses,
    }
    log = (tmp_path / "worker.log").open("w")
    worker = subprocess.Popen(
        [sys.executable, "-m", "prefect", "worker", "start", "--pool", "gpu", "--name", "elsewhere"],
        cwd=place,
        env=machine,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    asking = Workspace(here, tmp_path / "own")
    asking.environment |= addresses | {"PYTHONPATH": "."}
    shutil.rmtree(here / "data/results")
    try:
        for dataset in ("user_table", "ci_b"):
            asking.flow("fit", dataset, "--model=2wl", "--model=bfv_dnn")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{Path(log.name).read_text()[-3000:]}") from error
    finally:
        stop(worker, place)
    assert len(list((here / "data/results").glob("*/*/seed-0/record.json"))) == 4
    runs = pd.DataFrame(json.loads(asking.run(sys.executable, "-c", RUNS).stdout))
    assert sorted(runs["tags.cell"]) == sorted(
        f"{dataset}/{model}/seed-0" for dataset in ("user_table", "ci_b") for model in ("2wl", "bfv_dnn")
    )
    assert set(runs["status"]) == {"FINISHED"}
    assert set(runs["metrics.test/cloned"]) == {1.0}
    assert runs["tags.prefect.flow_run_id"].notna().all()
    assert not list(place.rglob("params.yaml")), "the clone lies in the run's own folder and goes with it"
    assert list((place / "home").rglob("dvc-cache"))

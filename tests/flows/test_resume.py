"""A flow that is killed goes on: same results, same MLflow run, no round twice."""

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from flows.local.servers import free_port
from tests.flows.test_pipeline import runs
from tests.flows.user_table import running, wait_for

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _learner_of_ones_own(workspace):
    shutil.copy(Path(__file__).parents[1] / "examples/least_squares.py", workspace.folder)


def longer(document):
    sizes = document["profiles"]["demo"]
    sizes["boosting"]["rounds"], sizes["boosting"]["batch_size"] = 30, 16
    sizes["networks"]["epochs"] = 5
    document["imports"] = ["least_squares"]
    learners = {"U": {"kind": "network"}, "S": {"kind": "least_squares", "alpha": 10.0}}
    document["models"]["mine"] = {"like": "2wl", "learners": learners}


def killed_after(workspace, model, file):
    """Start a training flow and SIGKILL it as soon as a file of its checkpoint is there."""
    process = subprocess.Popen(
        ["python", "-m", "flows.fit", "ci_b", "--model", model],
        cwd=workspace.folder,
        env=workspace.warm.shim(workspace.environment),  # which kills what is killed here
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    path = workspace.folder / "data/checkpoints/ci_b" / model / "seed-0" / file
    deadline = time.monotonic() + 120
    while not path.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    assert process.poll() is None, process.stderr.read().decode()
    process.kill()
    process.wait()


def result(workspace, model):
    record = workspace.record("ci_b", model)
    record.pop("fit_seconds"), record.pop("made")
    return record, workspace.trace("ci_b", model)


@pytest.mark.parametrize("model", ["mine", pytest.param("baseline", marks=pytest.mark.long)])
def test_a_killed_flow_goes_on(workspace, tmp_path, model):
    """`mine` has a weak learner of one's own, in a module that params.yaml names."""
    workspace.params(longer)
    whole = workspace.copy(tmp_path / "whole")
    # what one has fitted, the other need not
    whole.environment["MLFLOW_TRACKING_URI"] = f"sqlite:///{tmp_path / 'whole.db'}"
    whole.flow("fit", "ci_b", "--model", model)
    known = set(runs(workspace).run_id)
    killed_after(workspace, model, "round-000005.safetensors")
    done = workspace.flow("fit", "ci_b", "--model", model)
    assert "starting again" not in done.stderr
    scores, trace = result(workspace, model)
    expected_scores, expected_trace = result(whole, model)
    assert scores == expected_scores
    pd.testing.assert_frame_equal(trace, expected_trace, check_exact=True)
    logged = runs(workspace)
    assert list(logged[~logged.run_id.isin(known)].status) == ["FINISHED"]
    assert not (workspace.folder / "data/checkpoints/ci_b" / model / "seed-0").exists()


@pytest.mark.long
def test_changed_parameters_begin_anew(workspace):
    workspace.params(longer)
    known = set(runs(workspace).run_id)
    killed_after(workspace, "2wl", "round-000003.safetensors")
    workspace.params(lambda document: document["profiles"]["demo"]["boosting"].update(shrinkage=0.5))
    done = workspace.flow("fit", "ci_b", "--model", "2wl")
    assert "is of other data, parameters or code; starting again" in done.stderr
    logged = runs(workspace)
    new = logged[~logged.run_id.isin(known)].sort_values("status")
    assert list(new.status) == ["FINISHED", "KILLED"]
    assert new["tags.superseded"].tolist()[1] == "true"


@pytest.mark.long
def test_a_flow_without_its_prefect_server(workspace):
    workspace.params(longer)
    url = f"http://127.0.0.1:{(port := free_port())}/api"
    words = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with running(words, workspace.folder, workspace.environment, signal.SIGKILL) as server:
        wait_for(f"{url}/health", server)
        flow = subprocess.Popen(
            [sys.executable, "-m", "flows.fit", "ci_b", "--model", "2wl"],
            cwd=workspace.folder,
            env={**workspace.environment, "PREFECT_API_URL": url, "PREFECT_CLIENT_MAX_RETRIES": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        path = workspace.folder / "data/checkpoints/ci_b/2wl/seed-0/round-000003.safetensors"
        while not path.exists() and flow.poll() is None:
            time.sleep(0.005)
    _, told = flow.communicate(timeout=200)
    assert flow.returncode == 0, told
    assert "Prefect's server went away; the work is done" in told
    assert "Traceback" not in told
    assert workspace.record("ci_b", "2wl")["rounds"] > 3  # it went on

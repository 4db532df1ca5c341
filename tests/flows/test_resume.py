"""A training flow that is killed goes on: same results, same MLflow run, no round twice."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pandas as pd
import pytest

from tests.flows.test_pipeline import runs

pytestmark = pytest.mark.slow


def longer(document):
    sizes = document["profiles"]["demo"]
    sizes["boosting"]["rounds"], sizes["boosting"]["batch_size"] = 30, 16
    sizes["networks"]["epochs"] = 12


def killed_after(workspace, model, file):
    """Start a training flow and SIGKILL it as soon as a file of its checkpoint is there."""
    process = subprocess.Popen(
        [sys.executable, "-m", "flows.train", "ci_a", model],
        cwd=workspace.folder,
        env=workspace.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    path = workspace.folder / "data/checkpoints/ci_a" / model / "seed-0" / file
    deadline = time.monotonic() + 120
    while not path.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    assert process.poll() is None, process.stderr.read().decode()
    process.kill()
    process.wait()


def result(workspace, model):
    folder = workspace.folder / "data/results/ci_a" / model
    scores = json.loads((folder / "scores.json").read_text())
    for seed in scores["seeds"]:
        seed.pop("fit_seconds")
    trace = pd.read_parquet(folder / "trace.parquet")
    return scores, trace[[name for name in trace if not name.startswith("seconds")]]


@pytest.mark.parametrize("model", ["2wl", "baseline"])
def test_a_killed_flow_goes_on(workspace, tmp_path, model):
    workspace.params(longer)
    whole = workspace.copy(tmp_path / "whole")
    whole.flow("train", "ci_a", model)
    known = set(runs(workspace).run_id)
    killed_after(workspace, model, "round-000003.safetensors")
    killed_after(workspace, model, "round-000008.safetensors")
    done = workspace.flow("train", "ci_a", model)
    assert "anew" not in done.stderr
    scores, trace = result(workspace, model)
    expected_scores, expected_trace = result(whole, model)
    assert scores == expected_scores
    pd.testing.assert_frame_equal(trace, expected_trace, check_exact=True)
    logged = runs(workspace)
    assert list(logged[~logged.run_id.isin(known)].status) == ["FINISHED"]
    assert not (workspace.folder / "data/checkpoints/ci_a" / model / "seed-0").exists()


def test_changed_parameters_begin_anew(workspace):
    workspace.params(longer)
    known = set(runs(workspace).run_id)
    killed_after(workspace, "2wl", "round-000003.safetensors")
    workspace.params(lambda document: document["boosting"].update(shrinkage=0.5))
    done = workspace.flow("train", "ci_a", "2wl")
    assert "is of other data, parameters or code; beginning anew" in done.stderr
    logged = runs(workspace)
    new = logged[~logged.run_id.isin(known)].sort_values("status")
    assert list(new.status) == ["FINISHED", "KILLED"]
    assert new["tags.superseded"].tolist()[1] == "true"

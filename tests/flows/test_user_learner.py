"""A learner of one's own, named by params.yaml: fitted, killed, resumed."""

import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

USER_TABLE = Path(__file__).parents[1] / "examples/least_squares.py"


def mine(document: dict) -> None:
    document["imports"] = ["least_squares"]
    document["models"]["mine"] = {"like": "2wl", "learners": {"S": {"kind": "least_squares", "alpha": 10.0}}}
    document["profiles"]["demo"]["boosting"] |= {"rounds": 60, "batch_size": 16}  # seconds, to be killed in


@pytest.mark.slow
def test_it_is_chosen_in_params_yaml_killed_and_resumed(workspace, tmp_path: Path) -> None:
    shutil.copy(USER_TABLE, workspace.folder)
    workspace.params(mine)
    whole = workspace.copy(tmp_path / "whole")
    # what one has fitted, the other need not
    whole.environment["MLFLOW_TRACKING_URI"] = f"sqlite:///{tmp_path / 'whole.db'}"
    whole.flow("fit", "ci_b", "--model", "mine")
    command = ["python", "-m", "flows.fit", "ci_b", "--model", "mine"]
    environment = workspace.warm.shim(workspace.environment)  # which kills what is killed here
    process = subprocess.Popen(command, cwd=workspace.folder, env=environment)
    kept = workspace.folder / "data/checkpoints/ci_b/mine/seed-0"
    limit = time.monotonic() + 120
    while len(list(kept.glob("round-*"))) < 5:
        assert process.poll() is None and time.monotonic() < limit
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    workspace.flow("fit", "ci_b", "--model", "mine")
    scores = [each.record("ci_b", "mine")["scores"] for each in (whole, workspace)]
    assert scores[0] == scores[1]

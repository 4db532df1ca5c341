"""The flow fit-sharded: the ranks that it starts on one machine or several, and what MLflow has of them."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from mlflow.tracking import MlflowClient

from flows.local.servers import free_port
from tasks.ranks import torchrun
from tests.conftest import refuses
from tests.flows.conftest import ROOT, Workspace
from tests.flows.local.detached import end_below
from usboost.boosting.checkpoint import Checkpoint
from usboost.boosting.rounds import Round

SHARDED = pytest.mark.skipif(
    "--shards" not in (ROOT / "usboost/cli/fit.py").read_text(), reason="usboost fit has no --shards"
)
OPTIONS = ("--shards", "3", "--option=--model=2wl_newton", "--option=--rounds=4")


def test_the_command_of_one_machine_and_of_several() -> None:
    python, program = [sys.executable, "-m", "torch.distributed.run"], ["-m", "usboost", "fit"]
    assert torchrun(program, 4) == [*python, "--nproc-per-node=4", "--standalone", *program]
    assert torchrun(program, 2, nodes=3, node=1, meet="first.example:29400") == [
        *(*python, "--nproc-per-node=2", "--nnodes=3", "--node-rank=1"),
        *("--master-addr=first.example", "--master-port=29400", *program),
    ]
    for meet in ("", "first.example", "first.example:", ":29400"):
        refuses("meet is host:port of machine 0, where all 2 meet", torchrun, program, 2, nodes=2, meet=meet)
    place = {"nodes": 2, "node": 2, "meet": "first.example:29400"}
    refuses("node is the number of this machine, 0 to 1, not 2", torchrun, program, 2, **place)


def test_rounds_are_read_while_another_process_fits(tmp_path: Path) -> None:
    writing, reading = Checkpoint(tmp_path), Checkpoint(tmp_path)
    assert reading.round_at(1) is None
    written = Round(1, None, {"risk_train": 0.5}, {"wait": 0.1, "total": 1.0}, (30, 20))
    writing.keep(written)
    assert reading.round_at(1) == written
    assert reading.round_at(2) is None


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Workspace]:
    """A workspace with three files of rows."""
    g = np.random.default_rng(0)
    (tmp_path / "work/rows").mkdir(parents=True)
    shutil.copy(ROOT / "params.yaml", tmp_path / "work")
    for part in range(3):
        frame = pd.DataFrame(g.normal(size=(200, 3)), columns=["a", "b", "c"])
        frame["kind"] = np.where(frame["a"] + g.normal(size=200) > 0, "yes", "no")
        frame.to_parquet(tmp_path / f"work/rows/{part}.parquet")
    try:
        yield Workspace(tmp_path / "work", tmp_path / "home")
    finally:
        end_below(tmp_path)


def started(folder: Workspace, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "flows.fit_sharded", "rows/*.parquet", "--label", "kind", *OPTIONS]
    given = {"cwd": folder.folder, "env": folder.environment, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*command, *words], **given)


def ended(*processes: subprocess.Popen[str]) -> None:
    for process in processes:
        said = process.communicate(timeout=400)[1]
        assert process.returncode == 0, said


@SHARDED
@pytest.mark.long
def test_the_same_model_comes_of_one_machine_and_of_two(folder: Workspace) -> None:
    folder.environment["PYTHONPATH"] = str(ROOT)
    began = time.time()
    ended(started(folder, "--out", "one", "--ranks", "2"))
    meet = f"127.0.0.1:{free_port()}"
    nodes = ["--out", "two", "--ranks", "1", "--nodes", "2", "--meet", meet]
    ended(started(folder, *nodes, "--node", "0"), started(folder, *nodes, "--node", "1"))
    one, two = (folder.folder / name for name in ("one", "two"))
    files = [(each / "model/arrays-00000.safetensors").read_bytes() for each in (one, two)]
    assert files[0] == files[1]
    assert not list(folder.folder.glob("*.part"))
    client = MlflowClient(f"sqlite:///{folder.environment['USBOOST_HOME']}/mlflow.db")
    (experiment,) = (each for each in client.search_experiments() if each.name == "usboost-sharded")
    runs = client.search_runs([experiment.experiment_id], order_by=["attributes.start_time"])
    assert [run.info.run_name for run in runs] == ["one", "two"]
    for run, machines in zip(runs, ("1", "2"), strict=True):
        assert run.info.status == "FINISHED"
        assert (run.data.params["ranks"], run.data.params["machines"]) == ("2", machines)
        rounds = {
            name: client.get_metric_history(run.info.run_id, name) for name in ("risk/train", "seconds/wait")
        }
        for history in rounds.values():  # those that are too quick to be read have no seconds
            assert [each.step for each in history] == [1, 2, 3, 4][: len(history)]
        assert len(rounds["risk/train"]) == 4
        assert all(0 < each.value < time.time() - began for each in rounds["seconds/wait"])
        found = run.data.metrics
        assert found["ranks/number"] == 2
        assert 100 < found["ranks/rows_least"] < found["ranks/rows_most"] < 400
        assert 0.5 < found["val/auc"] < 1
        card = json.loads((folder.folder / run.info.run_name / "card.json").read_text())
        assert found["val/auc"] == pytest.approx(card["scores"]["auc"])


@SHARDED
@pytest.mark.long
def test_the_sentence_of_the_ranks_is_that_of_the_flow(folder: Workspace) -> None:
    folder.environment["PYTHONPATH"] = str(ROOT)
    process = started(folder, "--label", "none")
    said = process.communicate(timeout=400)[1]
    assert process.returncode == 1
    assert said.strip().splitlines()[-1].startswith("error: rows/*.parquet has no column 'none'")

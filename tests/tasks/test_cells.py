"""Cells that need no fit: by the records on disk, by MLflow's runs, and not by a run that lost its files."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pytest
from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from tasks import folders, mlflow_runs
from tasks.fits.models import Cell
from tasks.fits.run_cells import missing
from tests.conftest import refuses
from tests.workspaces import mlflow_store, with_cards

CELL = Cell("ci_a", "2wl", 0, "fingerprint", *[None] * 5)


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(with_cards(tmp_path, "ci_a"))
    with mlflow_store(tmp_path):
        yield


def logged(fingerprint: str, *, status: str = "FINISHED", files: bool = True) -> Run:
    """A run of the cell, with what a fit leaves."""
    client = MlflowClient()
    tags = {"dataset": "ci_a", "cell": CELL.name, "fingerprint": fingerprint}
    run = client.create_run(mlflow_runs.experiment_id("usboost-demo"), tags=tags)
    if files:
        fit = Path(f"fit-{run.info.run_id}")
        fit.mkdir()
        record = {"seed": 0, "fingerprint": fingerprint, "scores": {}, "run": run.info.run_id}
        (fit / folders.RECORD).write_text(json.dumps(record))
        pd.DataFrame({"seed": [0], "round": [1]}).to_parquet(fit / folders.TRACE)
        client.log_artifacts(run.info.run_id, str(fit), folders.ARTIFACT)
    client.set_terminated(run.info.run_id, status)
    return run


def test_a_finished_run_with_the_fingerprint_is_brought_once() -> None:
    logged("of other settings")
    logged("fingerprint", status="FAILED")
    assert missing([CELL]) == [CELL]
    run = logged("fingerprint")
    assert missing([CELL]) == []
    (record,) = folders.records("ci_a", "2wl")
    assert record["run"] == run.info.run_id
    logged("fingerprint")  # a second one changes nothing: the result is there
    assert missing([CELL]) == []
    assert folders.records("ci_a", "2wl") == [record]


def test_a_run_whose_files_are_not_to_be_seen_is_left_as_it_is() -> None:
    lost = logged("fingerprint", files=False)
    assert missing([CELL]) == [CELL]
    assert folders.records("ci_a", "2wl") == []
    assert "superseded" not in MlflowClient().get_run(lost.info.run_id).data.tags
    logged("fingerprint")
    assert missing([CELL]) == []


def test_a_run_whose_files_cannot_be_reached_counts_when_they_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    client = MlflowClient()
    client.create_experiment("usboost-demo", "http://127.0.0.1:9/api/2.0/mlflow-artifacts/artifacts/away")
    found = logged("fingerprint", files=False)
    refuses("MLflow", missing, [CELL])
    assert "superseded" not in client.get_run(found.info.run_id).data.tags
    assert client.get_run(found.info.run_id).info.status == "FINISHED"


def test_fits_that_begin_at_once_list_the_same_datasets() -> None:
    """MLflow looks for a dataset and makes it if there is none; two that look at once both make it."""
    own = {split: {"rows": 1, "sha256": 64 * split[0], "classes": {}} for split in ("train", "val", "other")}
    card = {"dataset": "ci_a", "columns": {}, "splits": own}
    client, at_once = MlflowClient(), threading.Barrier(8)
    experiment = mlflow_runs.experiment_id("usboost-demo")
    runs = [client.create_run(experiment).info.run_id for _ in range(8)]

    def log(run_id: str) -> None:
        at_once.wait()
        mlflow_runs.log_datasets(run_id, card, Path("data/prepared/ci_a"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(log, runs))
    assert {len(client.get_run(run_id).inputs.dataset_inputs) for run_id in runs} == {3}

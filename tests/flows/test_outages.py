"""MLflow away, locked or unwritable in the middle of a fit: one sentence, and nothing is logged twice."""

import json
import os
import sqlite3
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

import mlflow
import pytest
from mlflow.server.constants import (
    ARTIFACT_ROOT_ENV_VAR,
    ARTIFACTS_DESTINATION_ENV_VAR,
    BACKEND_STORE_URI_ENV_VAR,
    SERVE_ARTIFACTS_ENV_VAR,
)
from mlflow.tracking import MlflowClient

from flows.local.servers import free_port
from tasks import mlflow_log, mlflow_runs
from tests.conftest import make_views
from tests.warm import Warm
from tests.workspaces import mlflow_store
from usboost.boosting.callbacks import Callback
from usboost.boosting.checkpoint import Checkpoint
from usboost.learners.networks.learner import NetworkLearner
from usboost.learners.tree_learner import TreeLearner
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier

pytestmark = pytest.mark.slow

ROUNDS = 12


class Server:
    """A real MLflow server that can be ended and started again on the same store.

    Its process is a fork with the environment of `mlflow server`, which takes 15 s of a core to start.
    """

    def __init__(self, folder: Path, warm: Warm) -> None:
        self.folder, self.warm, self.port, self.process = folder, warm, free_port(), None
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        environment = {
            **os.environ,
            BACKEND_STORE_URI_ENV_VAR: f"sqlite:///{self.folder / 'mlflow.db'}",
            ARTIFACTS_DESTINATION_ENV_VAR: str(self.folder / "artifacts"),
            ARTIFACT_ROOT_ENV_VAR: "mlflow-artifacts:/",
            SERVE_ARTIFACTS_ENV_VAR: "true",
        }
        words = ["python", "-m", "uvicorn", "mlflow.server.fastapi_app:app"]
        self.process = subprocess.Popen(
            [*words, "--host", "127.0.0.1", "--port", str(self.port)],
            env=self.warm.shim(environment),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=2):
                    return
            except OSError:
                time.sleep(0.2)
        raise AssertionError("the MLflow server did not start")

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()  # and with it the server
            self.process.wait()
            self.process = None


@pytest.fixture(scope="module")
def server(tmp_path_factory, reproduced):
    found = Server(tmp_path_factory.mktemp("mlflow"), reproduced.warm)
    found.start()
    yield found
    found.end()


@pytest.fixture
def impatient(tmp_path, monkeypatch):
    """Rounds are sent one by one, and a request to a server that is gone fails at once.

    A server that is gone refuses the connection: the time limit is for one that is slow on a busy machine.
    """
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")
    monkeypatch.setattr(mlflow_log, "FLUSH_ROUNDS", 1)
    monkeypatch.setattr(mlflow_log, "FLUSH_SECONDS", 0.2)
    with mlflow_store(tmp_path):
        yield


class At(Callback):
    """Does something after a round."""

    def __init__(self, **work) -> None:
        self.work = {int(name.removeprefix("round_")): each for name, each in work.items()}

    def on_round(self, round_) -> bool:
        self.work.get(round_.index, lambda: None)()
        return False


def model(**settings):
    learners = {"U": NetworkLearner((4,), device="cpu"), "S": TreeLearner()}
    return TwoWeakLearnerClassifier(learners, n_rounds=ROUNDS, patience=None, **settings)


def fit(folder: Path, *watchers: Callback) -> tuple[str, TwoWeakLearnerClassifier]:
    """A fit in its MLflow run, kept in a folder: the run's id and the model."""
    kept = Checkpoint(folder / "kept")
    with mlflow_runs.tracked_run("outages", "fit", {}, folder / "mlflow.json") as run_id:
        fitted = model(callbacks=[*watchers, mlflow_log.MLflowCallback(run_id)], checkpoint=kept)
        return run_id, fitted.fit(*make_views(n=200))


def assert_logged_once(run_id: str, fitted) -> None:
    client = MlflowClient()
    assert client.get_run(run_id).info.status == "FINISHED"
    logged = client.get_metric_history(run_id, "risk/train")
    assert [metric.step for metric in sorted(logged, key=lambda m: m.step)] == list(range(1, ROUNDS + 1))
    by_step = {metric.step: metric.value for metric in logged}
    for row in fitted.history_:
        assert by_step[row["round"]] == row["risk_train"]
    names = [item.path for item in client.list_artifacts(run_id, "learners")]
    assert names == ["learners/arrays-00000.safetensors", "learners/stages.json"]
    text = mlflow.artifacts.load_text(f"runs:/{run_id}/learners/stages.json")
    assert len(json.loads(text)) == ROUNDS


def test_a_server_that_goes_ends_the_fit_and_the_same_command_goes_on(server, impatient, tmp_path):
    mlflow.set_tracking_uri(server.url)
    with pytest.raises(mlflow_runs.Unlogged, match=r"does not answer .* the same command goes on"):
        fit(tmp_path, At(round_5=server.end))
    server.start()
    assert 4 <= len(Checkpoint(tmp_path / "kept").rounds()) < ROUNDS
    run_id, fitted = fit(tmp_path)
    assert_logged_once(run_id, fitted)
    assert run_id == json.loads((tmp_path / "mlflow.json").read_text())["run_id"]


def test_a_locked_database(impatient, tmp_path):
    """Another process holds SQLite's lock for a moment: the rounds wait, and arrive."""
    MlflowClient().search_experiments()
    held = threading.Event()

    def hold() -> None:
        connection = sqlite3.connect(tmp_path / "mlflow.db", isolation_level=None)
        connection.execute("BEGIN EXCLUSIVE")
        held.set()
        time.sleep(2)
        connection.execute("ROLLBACK")
        connection.close()

    thread = threading.Thread(target=hold)
    run_id, fitted = fit(tmp_path, At(round_4=lambda: (thread.start(), held.wait())))
    thread.join()
    assert_logged_once(run_id, fitted)


def test_an_artifact_store_that_cannot_be_written(impatient, tmp_path):
    blocked = tmp_path / "mlartifacts"
    blocked.write_text("a file where the store's folder should be")
    with pytest.raises(mlflow_runs.Unlogged, match="artifacts cannot be written"):
        fit(tmp_path)
    blocked.unlink()
    run_id, fitted = fit(tmp_path)
    assert_logged_once(run_id, fitted)

"""The registry's alias moves only to what is better on the test split, and what it names can be served."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pandas as pd
import pytest

from flows.local import runtime
from tests.flows.conftest import Workspace

pytestmark = pytest.mark.slow

CHAMPION = """
import sys, json, mlflow
from mlflow.tracking import MlflowClient
version = MlflowClient().get_model_version_by_alias("usboost-demo-custom", "champion")
json.dump({"model": version.tags["model"], "f1": float(version.tags["test_f1"])}, sys.stdout)
"""

PREDICT = """
import sys, json, mlflow, pandas as pd
model = mlflow.pyfunc.load_model("models:/usboost-demo-custom@champion")
rows = model.input_example
found = model.predict(rows)
rows = rows.assign(picture=[cell.hex() for cell in rows["picture"]])
json.dump({"rows": json.loads(rows.to_json(orient="split")), "found": found.to_dict("list")}, sys.stdout)
"""


@pytest.fixture(scope="module")
def promoted(reproduced: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Fits of three models, promoted one after the other."""
    workspace = reproduced.copy(tmp_path_factory.mktemp("promoted") / "copy")
    best = -1.0
    for model in ("lgbm", "2wl", "baseline"):
        done = workspace.flow("promote", "custom", f"--model={model}")
        assert done.stdout.splitlines()[-1] == "models:/usboost-demo-custom@champion"
        score = json.loads((workspace.folder / f"data/results/custom/{model}/scores.json").read_text())
        reached = score["seeds"][0]["scores"]["test"]["f1"]
        said = "is the champion now" if reached > best else "which stays the champion"
        assert said in done.stdout
        best = max(best, reached)
        champion = json.loads(workspace.run(sys.executable, "-c", CHAMPION, **store(workspace)).stdout)
        assert champion["f1"] == pytest.approx(best)
    return workspace


def store(workspace: Workspace) -> dict[str, str]:
    return {"MLFLOW_TRACKING_URI": f"sqlite:///{workspace.environment['USBOOST_HOME']}/mlflow.db"}


def test_the_champion_is_not_registered_twice(promoted: Workspace) -> None:
    champion = json.loads(promoted.run(sys.executable, "-c", CHAMPION, **store(promoted)).stdout)
    again = promoted.flow("promote", "custom", f"--model={champion['model']}")
    assert "it is the champion already" in again.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["custom", "--model=3wl"], "no finished run of 3wl on custom"),
        (["custom", "--model=9wl"], "no models.9wl"),
        (["nowhere"], "nowhere"),
    ],
)
def test_mistakes_get_one_sentence(promoted: Workspace, words: list[str], said: str) -> None:
    done = promoted.flow("promote", *words, check=False)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


RECORD = """
import sys, json, mlflow
found = mlflow.search_runs(experiment_names=["usboost-demo-custom-monitor"], order_by=["start_time"])
found.filter(regex="metrics|params|version").to_json(sys.stdout, orient="records")
"""


def test_a_monitor_says_whether_requests_are_like_the_training_rows(promoted: Workspace) -> None:
    rows = pd.read_csv(promoted.folder / "data/raw/custom/table.csv")
    rows.to_csv(promoted.folder / "same.csv", index=False)
    rows.assign(picture="").to_csv(promoted.folder / "blind.csv", index=False)
    same = promoted.flow("monitor", "custom", "same.csv")
    assert "none of" in same.stdout
    blind = promoted.flow("monitor", "custom", "blind.csv", check=False)
    assert blind.returncode == 1
    assert "picture: 100% missing" in blind.stderr.splitlines()[-1]
    first, second = json.loads(promoted.run(sys.executable, "-c", RECORD, **store(promoted)).stdout)
    assert (first["metrics.drifted_columns"], second["metrics.drifted_columns"]) == (0, 1)
    assert (first["metrics.missing/picture"], second["metrics.missing/picture"]) == (0, 1)
    assert first["params.psi_limit"] == "0.2"


@pytest.fixture
def served(promoted: Workspace) -> Iterator[str]:
    port = runtime.free_port()
    words = ["--model-uri", "models:/usboost-demo-custom@champion", "--env-manager", "local"]
    server = subprocess.Popen(
        [sys.executable, "-m", "mlflow", "models", "serve", *words, "--port", str(port)],
        cwd=promoted.folder,
        env={**promoted.environment, **store(promoted)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(f"{address}/ping", server)
        yield address
    finally:
        server.terminate()
        server.wait(timeout=30)


def wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
    raise AssertionError("the model's server did not start")


def test_a_served_model_answers_a_row_with_a_picture(promoted: Workspace, served: str) -> None:
    known = json.loads(promoted.run(sys.executable, "-c", PREDICT, **store(promoted)).stdout)
    rows = pd.DataFrame(known["rows"]["data"], columns=known["rows"]["columns"])
    rows["picture"] = [base64.b64encode(bytes.fromhex(cell)).decode() for cell in rows["picture"]]
    body = json.dumps({"dataframe_records": json.loads(rows.to_json(orient="records"))}).encode()
    request = urllib.request.Request(
        f"{served}/invocations", body, {"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        answer = pd.DataFrame(json.load(reply)["predictions"])
    expected = pd.DataFrame(known["found"])
    assert answer["label"].tolist() == expected["label"].tolist()
    probabilities = [column for column in expected if column.startswith("p_")]
    pd.testing.assert_frame_equal(answer[probabilities], expected[probabilities], rtol=1e-6)

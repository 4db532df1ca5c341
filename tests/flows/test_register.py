"""A model that the command line fitted, through MLflow's registry and server: the same answers."""

import base64
import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from flows.local.servers import free_port
from tests.conftest import ROOT
from tests.fit.conftest import accepted
from tests.flows.user_table import running, wait_for
from usboost.table.demo import write_demo

pytestmark = pytest.mark.slow
PREDICT = """
import base64, json, sys
import mlflow, pandas as pd
rows = pd.DataFrame(json.load(open("rows.json")))
rows["image"] = [base64.b64decode(cell) if isinstance(cell, str) else None for cell in rows["image"]]
found = mlflow.pyfunc.load_model(sys.argv[1]).predict(rows)
found.to_json("found.json", orient="records", double_precision=15)
"""


@pytest.fixture(scope="module")
def registered(tmp_path_factory, warm_flows) -> tuple[Path, dict[str, str], str]:
    """A folder with a model, and three rows: one whole, one with gaps, one with an unseen category."""
    folder = tmp_path_factory.mktemp("registered")
    write_demo(folder, rows_train=80, rows_test=20, seed=0)
    fit = ("fit", folder / "table.csv", "--label", "batch", "--image", "image", "--size", 32)
    quick = ("--drop", "split", "--model", "2wl_ridge", "--rounds", 4, "--no-refit")
    accepted(*fit, *quick, "--out", folder / "model")
    rows = pd.read_csv(folder / "table.csv").drop(columns=["batch", "split"]).head(3)
    rows.loc[1, [name for name in rows if rows[name].dtype == float]] = np.nan
    texts = [name for name in rows if not pd.api.types.is_numeric_dtype(rows[name]) and name != "image"]
    rows.loc[2, texts] = "of no training row"
    rows.loc[1, "image"] = None
    rows.to_csv(folder / "rows.csv", index=False)
    cells = [None if isinstance(cell, float) or cell is None else cell for cell in rows["image"]]
    coded = [c and base64.b64encode((folder / c).read_bytes()).decode() for c in cells]
    records = json.loads(rows.assign(image=coded).to_json(orient="records"))
    (folder / "rows.json").write_text(json.dumps(records))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "USBOOST_HOME": str(folder / "home")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    for name in ("MLFLOW_TRACKING_URI", "PREFECT_API_URL"):
        environment.pop(name, None)
    done = warm_flows.run(["-m", "flows.register", "model", "--name", "parts"], folder, environment)
    assert done.returncode == 0, done.stderr
    environment["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder}/home/mlflow.db"
    return folder, environment, done.stdout.strip()


@pytest.fixture(scope="module")
def expected(registered) -> pd.DataFrame:
    """What `usboost predict` answers."""
    folder, _, _ = registered
    accepted("predict", folder / "model", folder / "rows.csv", "--out", folder / "p.parquet")
    return pd.read_parquet(folder / "p.parquet")


def test_loaded_in_python_it_answers_as_the_command(registered, expected, warm_flows):
    folder, environment, uri = registered
    assert uri == "models:/parts@champion"
    done = warm_flows.run(["-c", PREDICT, uri], folder, environment)
    assert done.returncode == 0, done.stderr
    found = pd.DataFrame(json.loads((folder / "found.json").read_text()))
    pd.testing.assert_frame_equal(found, expected, check_dtype=False, rtol=1e-6)


@pytest.mark.long
def test_served_it_answers_as_the_command(registered, expected):
    folder, environment, uri = registered
    port = free_port()
    words = ["mlflow", "models", "serve", "--model-uri", uri, "--env-manager", "local", "--port", str(port)]
    body = json.dumps({"dataframe_records": json.loads((folder / "rows.json").read_text())}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/invocations", body, {"Content-Type": "application/json"}
    )
    with running(words, folder, environment) as server:
        wait_for(f"http://127.0.0.1:{port}/ping", server)
        with urllib.request.urlopen(request, timeout=60) as reply:
            found = pd.DataFrame(json.load(reply)["predictions"])
    pd.testing.assert_frame_equal(found, expected, check_dtype=False, rtol=1e-6)


def test_mistakes_are_one_sentence(registered, warm_flows):
    folder, environment, _ = registered
    for words, message in (
        (["gone", "--name", "parts"], "error: gone is no model that usboost fit saved"),
        (["model", "--name", "a/b"], "error: 'a/b' is no name for a model in MLflow"),
    ):
        done = warm_flows.run(["-m", "flows.register", *words], folder, environment)
        assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith(message)

"""The alias goes to the model that validation chooses, as in the report, and what it names can be served."""

import json
import sys
import urllib.request
from pathlib import Path

import pandas as pd
import pytest

from flows.local.servers import free_port
from flows.local.workspace import changes_for
from tests.flows.conftest import Workspace
from tests.flows.user_table import asked, served
from usboost.evaluation import ranking
from usboost.report.pages import write_pages
from usboost.report.results import chosen, collect, read_cell
from usboost.table.demo import IMAGE, LABEL, SPLIT, write_demo
from usboost.table.spec import TableSpec

pytestmark = pytest.mark.slow

MODELS = ("lgbm_s", "logistic")
NAME = "usboost-user-user_table"

CHAMPION = """
import sys, json, mlflow
from mlflow.tracking import MlflowClient
client = MlflowClient()
version = client.get_model_version_by_alias("usboost-user-user_table", "champion")
experiment = client.get_experiment(client.get_run(version.run_id).info.experiment_id).name
found = {"model": version.tags["model"], "run": version.run_id, "experiment": experiment}
told = client.get_registered_model("usboost-user-user_table").description
json.dump({**found, "told": told, "why": version.description}, sys.stdout)
"""

PREDICT = """
import sys, json, mlflow, pandas as pd
model = mlflow.pyfunc.load_model("models:/usboost-user-user_table@champion")
rows = model.input_example
found = model.predict(rows)
json.dump({"rows": json.loads(rows.to_json(orient="split")), "found": found.to_dict("list")}, sys.stdout)
"""

UPSIDE_DOWN = """
import sys
from mlflow.tracking import MlflowClient
for run, score in zip(sys.argv[1].split(","), (0.99, 0.01)):
    MlflowClient().log_metric(run, "test/f1", score)
"""


@pytest.fixture(scope="module")
def fitted(reproduced: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A user's table and three models of it."""
    workspace = reproduced.copy(tmp_path_factory.mktemp("promoted") / "copy")
    write_demo(workspace.folder / "parts", rows_train=60, rows_test=30, seed=3)
    table = workspace.folder / "parts/table.csv"
    changes = changes_for(table, TableSpec(LABEL, image=[IMAGE], split=SPLIT))

    def user(document: dict) -> None:
        document["profile"] = "user"
        document["profiles"]["user"]["data"]["user_table"]["image_size"] = 24
        for key, value in changes.items():
            section, name = key.split(".")
            document[section][name] = value

    workspace.params(user)
    (workspace.folder / "dvc.lock").unlink()  # it has the demo's digests
    # where docs/team.md has the store
    (workspace.folder / ".usboost").symlink_to(workspace.environment["USBOOST_HOME"])
    workspace.flow("data", "user_table")
    workspace.flow("fit", "user_table", *(f"--model={model}" for model in MODELS))
    return workspace


def store(workspace: Workspace) -> dict[str, str]:
    return {"MLFLOW_TRACKING_URI": f"sqlite:///{workspace.environment['USBOOST_HOME']}/mlflow.db"}


def champion(workspace: Workspace) -> dict[str, str]:
    found: dict[str, str] = json.loads(
        workspace.run(sys.executable, "-c", CHAMPION, **store(workspace)).stdout
    )
    return found


@pytest.fixture(scope="module")
def promoted(fitted: Workspace) -> Workspace:
    """The worst on validation promoted first, then the best; MLflow's test scores say the opposite."""
    results = fitted.folder / "data/results"
    fits = {model: read_cell(results, "user_table", model)[0] for model in MODELS}
    ranked = sorted(MODELS, key=lambda model: ranking.rank(fits[model].scores["val"], "f1"))
    assert fits[ranked[0]].scores["val"]["f1"] < fits[ranked[-1]].scores["val"]["f1"]
    ids = ",".join(fits[model].made["mlflow_run"] for model in ranked)
    fitted.run(sys.executable, "-c", UPSIDE_DOWN, ids, **store(fitted))
    for words, said, holder in (
        ([f"--model={ranked[0]}"], "is the champion now", ranked[0]),
        ([], "is the champion now", ranked[-1]),
        ([f"--model={ranked[0]}"], "which stays the champion", ranked[-1]),
        ([], "it is the champion already", ranked[-1]),
    ):
        done = fitted.flow("promote", "user_table", *words)
        assert done.stdout.splitlines()[-1] == f"models:/{NAME}@champion"
        assert said in done.stdout
        assert champion(fitted)["model"] == holder
    return fitted


def test_the_report_and_the_registry_name_the_same_model(promoted: Workspace) -> None:
    found, folder = champion(promoted), promoted.folder
    assert found["experiment"] == "usboost-user"
    assert f"models:/{NAME}@champion" in found["told"]
    assert found["why"].startswith(f"user_table {found['model']} seed 0: f1 ")
    assert f"`python -m flows.fit user_table --model {found['model']}" in found["why"]
    frame = collect(folder / "data/results", ["user_table"], MODELS)
    model, seed = chosen(frame, "user_table", "f1")
    assert (model, seed) == (found["model"], 0)
    fit = read_cell(folder / "data/results", "user_table", model)[0]
    assert fit.made["mlflow_run"] == found["run"]
    page = write_pages(
        *(folder / "data/results", folder / "data/prepared", folder / "out"),
        datasets=["user_table"],
        models=MODELS,
    ).read_text()
    assert f"models:/{NAME}@champion" in page and "Your data" in page and "demo data" not in page.lower()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["user_table", "--model=3wl"], "no finished run of 3wl on user_table"),
        (["user_table", "--model=9wl"], "no models.9wl"),
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
found = mlflow.search_runs(experiment_names=["usboost-user-user_table-monitor"], order_by=["start_time"])
found.filter(regex="metrics|params|version").to_json(sys.stdout, orient="records")
"""


def test_a_monitor_says_whether_requests_are_like_the_training_rows(promoted: Workspace) -> None:
    rows = pd.read_csv(promoted.folder / "parts/table.csv")
    rows.assign(image="").to_csv(promoted.folder / "parts/blind.csv", index=False)
    same = promoted.flow("monitor", "user_table", "parts/table.csv")
    assert "none of" in same.stdout
    blind = promoted.flow("monitor", "user_table", "parts/blind.csv", check=False)
    assert blind.returncode == 1
    assert "image: 100% missing" in blind.stderr.splitlines()[-1]
    first, second = json.loads(promoted.run(sys.executable, "-c", RECORD, **store(promoted)).stdout)
    assert (first["metrics.drifted_columns"], second["metrics.drifted_columns"]) == (0, 1)
    assert (first["metrics.missing/image"], second["metrics.missing/image"]) == (0, 1)
    assert first["params.psi_limit"] == "0.2"


@pytest.mark.long
def test_the_pages_commands_serve_it_and_a_row_may_have_gaps(promoted: Workspace) -> None:
    known = json.loads(promoted.run(sys.executable, "-c", PREDICT, **store(promoted)).stdout)
    rows = pd.DataFrame(known["rows"]["data"], columns=known["rows"]["columns"])
    body = json.dumps({"dataframe_records": json.loads(rows.to_json(orient="records"))}).encode()
    port = free_port()
    with served(promoted.folder, promoted.environment, port) as address:
        request = urllib.request.Request(
            f"{address}/invocations", body, {"Content-Type": "application/json"}, method="POST"
        )
        with urllib.request.urlopen(request, timeout=60) as reply:
            answer = pd.DataFrame(json.load(reply)["predictions"])
        gaps = asked(next(Path(promoted.folder / "parts/images").glob("*.png")), port)
    expected = pd.DataFrame(known["found"])
    assert answer["label"].tolist() == expected["label"].tolist()
    probabilities = [column for column in expected if column.startswith("p_")]
    pd.testing.assert_frame_equal(answer[probabilities], expected[probabilities], rtol=1e-6)
    assert gaps["label"] in {name.removeprefix("p_") for name in probabilities}
    assert sum(gaps[name] for name in probabilities) == pytest.approx(1)


LEVEL = """
import sys
from mlflow.tracking import MlflowClient
for run, loss in zip(sys.argv[1].split(","), (9.0, 8.0)):
    for name, value in (("val/f1", 0.9), ("val/log_loss", loss), ("test/log_loss", loss)):
        MlflowClient().log_metric(run, name, value)
"""


def test_a_tie_and_probabilities_worse_than_the_priors_are_said(promoted: Workspace) -> None:
    """The last test: it changes the scores in MLflow."""
    fits = {model: read_cell(promoted.folder / "data/results", "user_table", model)[0] for model in MODELS}
    ids = ",".join(fits[model].made["mlflow_run"] for model in MODELS)
    promoted.run(sys.executable, "-c", LEVEL, ids, **store(promoted))
    said = promoted.flow("promote", "user_table").stdout
    assert "2 models tie at validation F1 0.9000; the lowest validation log-loss breaks the tie" in said
    assert "worse than the prior’s: log-loss 8.0000 against " in said
    assert f"user_table {MODELS[1]} seed 0: f1 0.9000" in said

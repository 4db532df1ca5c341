"""A user's table with a number to predict through the pipeline: DVC, Prefect, MLflow, report, champion."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from flows.local import workspace
from flows.local.workspace import changes_for
from tests.flows.conftest import Workspace
from tests.warm import Warm
from usboost.fit.bundle import load
from usboost.models import catalogue
from usboost.report.model_page import write_report
from usboost.table.demo import IMAGE, LABEL, SPLIT, write_demo
from usboost.table.spec import TableSpec

pytestmark = pytest.mark.long

RUN = ["baseline", "bfv_dnn", "linear_trees", "lgbm_s", "ridge", "prior"]

ASK = """
import sys, json, mlflow, pandas as pd
from mlflow.tracking import MlflowClient
model = mlflow.pyfunc.load_model("models:/usboost-user-user_table@champion")
first = pd.DataFrame(json.load(open("request.json")))
first["image"] = [bytes.fromhex(cell) for cell in first["image"]]
gaps = first.assign(weight=None, colour=None, note=None, image=None)
names = [column["name"] for column in model.metadata.signature.outputs.to_dict()]
tags = MlflowClient().get_model_version_by_alias("usboost-user-user_table", "champion").tags
found = [model.predict(rows).to_dict("records") for rows in (first, gaps)]
json.dump({"names": names, "tags": tags, "found": found, "example": len(model.input_example)}, sys.stdout)
"""

RUNS = """
import sys, mlflow
mlflow.search_runs(experiment_names=["usboost-user"]).filter(regex="metrics|tags.model$").to_json(sys.stdout)
"""


def write_table(folder: Path) -> pd.DataFrame:
    """The demo's parts with a note and a price that columns and images both tell of, some images gone."""
    write_demo(folder, rows_train=90, rows_test=40, seed=4)
    table, rng = pd.read_csv(folder / "table.csv"), np.random.default_rng(0)
    words = np.array(["worn", "polished", "bent", "greased", "new", "scratched", "drilled", "painted"])
    notes = [" ".join(rng.choice(words, rng.integers(3, 7))) for _ in range(len(table))]
    shape = table.pop(LABEL).map({"mixed": 0, "wedges": 30, "plates": 60})
    table["note"] = notes
    table["price"] = 1000 + shape + table["hardness"] * 5 + rng.normal(0, 2, len(table))
    table.loc[table.index % 9 == 1, IMAGE] = None
    table.to_csv(folder / "table.csv", index=False)
    return table


@pytest.fixture(scope="module")
def made(warm_flows: Warm, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The workspace that the own table's path makes, with fewer models, after `dvc repro`."""
    place = tmp_path_factory.mktemp("number")
    write_table(place / "parts")
    changes = changes_for(
        place / "parts/table.csv", TableSpec("price", image=[IMAGE], split=SPLIT, drop=["line"])
    )
    compared = catalogue.compared(one_table=False, task="regression")
    assert set(changes["run.models"]) == set(compared) >= set(RUN)
    changes |= {"run.models": RUN}
    changes |= {"user_table.text": ["note"], "profiles.user.data.user_table": {"image_size": 24}}
    workspace.make(place / "run", profile="user", rounds=6, changes=changes)
    found = Workspace(place / "run", place / "home", warm_flows)
    found.run("dvc", "repro")
    return found


def mlflow(made: Workspace, code: str) -> dict[str, list]:
    store = f"sqlite:///{made.environment['USBOOST_HOME']}/mlflow.db"
    return json.loads(made.run(sys.executable, "-c", code, MLFLOW_TRACKING_URI=store).stdout)


def test_every_stage_scores_a_number(made: Workspace) -> None:
    results = pd.read_csv(made.folder / "reports/results.csv")
    assert set(results["model"]) == set(RUN)
    assert set(results["metric"]) == {"rmse", "mae", "r2"}
    test = results.query("split == 'test' and metric == 'rmse'").set_index("model")["value"]
    assert test["linear_trees"] < 0.9 * test["prior"]
    labels = pd.read_csv(made.folder.parent / "parts/table.csv").query("split == 'test'")["price"]
    for model in ("linear_trees", "ridge"):
        rows = pd.read_parquet(made.folder / f"data/results/user_table/{model}/seed-0/rows.parquet")
        np.testing.assert_array_equal(rows["label"], labels)
        assert test[model] == pytest.approx(np.sqrt(((rows["prediction"] - labels.values) ** 2).mean()), 1e-5)
    shown = json.loads(made.run("dvc", "metrics", "show", "--json").stdout)
    (shown,) = (kept["data"] for kept in shown.values())
    rmse = shown["data/metrics/user_table.json"]["data"]["linear_trees"]
    assert rmse == pytest.approx(test["linear_trees"], rel=1e-5)
    plots = json.loads(made.run("dvc", "plots", "show", "--json").stdout)["data"]
    (drawn,) = plots["reports/curves/score/user_table-linear_trees.csv"]
    assert all(float(point["score"]) > 0 for point in drawn["content"]["data"]["values"])
    runs = pd.DataFrame(mlflow(made, RUNS)).set_index("tags.model")
    assert runs.loc["linear_trees", "metrics.test/rmse"] == pytest.approx(test["linear_trees"], rel=1e-5)
    assert runs.loc["linear_trees", "metrics.score/rmse_val"] > 0


def test_the_page_is_of_a_number(made: Workspace) -> None:
    page = re.sub(r"base64,[\w+/=]+", "", (made.folder / "reports/index.html").read_text())
    for said in ("predicting price", "Predicted against true", "Prediction intervals", "Largest errors"):
        assert said in page, said
    for other in ("Confusion matrix", "Calibration", "F1", "Traceback"):
        assert other not in page, other
    assert page.count("A training image of a label from 1,0") >= 9
    assert not (made.folder / "reports/paper.html").exists()


def test_the_champion_has_the_lowest_rmse_and_answers_rows_with_gaps(made: Workspace) -> None:
    refused = made.flow("promote", "user_table", "--metric=f1", check=False)
    assert refused.returncode == 1 and "unknown score 'f1'; choose among rmse, mae, r2" in refused.stderr
    promoted = made.flow("promote", "user_table")
    results = pd.read_csv(made.folder / "reports/results.csv")
    val = results.query("split == 'val' and metric == 'rmse' and model != 'gbm'").set_index("model")["value"]
    best = str(val.idxmin())
    assert f"user_table {best} seed 0: rmse {val[best]:.4f}"[:-2] in promoted.stdout
    table = pd.read_csv(made.folder.parent / "parts/table.csv")
    row = table.query("split == 'test'").iloc[[0]]
    image = (made.folder.parent / "parts" / row[IMAGE].item()).read_bytes().hex()
    row = row.assign(image=image).drop(columns=["price", SPLIT, "line"])
    (made.folder / "request.json").write_text(json.dumps(json.loads(row.to_json(orient="records"))))
    said = mlflow(made, ASK)
    assert said["names"] == ["prediction", "low", "high"] and said["tags"]["model"] == best
    (asked,), (gaps,) = said["found"]
    kept = pd.read_parquet(made.folder / f"data/results/user_table/{best}/seed-0/rows.parquet")["prediction"][
        0
    ]
    assert asked["prediction"] == pytest.approx(kept, rel=1e-5)
    for answer in (asked, gaps):
        assert answer["low"] < answer["prediction"] < answer["high"]
    assert gaps["prediction"] != asked["prediction"] and said["example"] == 2
    assert "none of" in made.flow("monitor", "user_table", "../parts/table.csv").stdout


def test_its_bundle_is_the_command_lines(made: Workspace, tmp_path: Path) -> None:
    home = Path(made.environment["USBOOST_HOME"])
    folder = next(path.parent for path in home.rglob("bundle/card.json"))
    card = load(folder).card
    assert (card.task, card.classes, card.label, card.label_kind) == ("regression", [], "price", "float")
    assert card.margin is not None and all(low < high for _, low, high in card.margin)
    table = pd.read_csv(made.folder.parent / "parts/table.csv")
    assert card.prior == [pytest.approx(table.query("split != 'test'")["price"].mean())]
    write_report(load(folder), made.folder.parent / "parts/table.csv", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "Prediction intervals" in page and "The mean is that of the training rows" in page


OF_TASK = """
import json
from tasks import settings
from tasks.fits import models
loaded = settings.load()
print(json.dumps(models.of_task("user_table", loaded.models_of("user_table"), loaded)))
"""


def test_models_for_classes_are_left_out(made: Workspace) -> None:
    made.params(lambda p: p["run"]["models"].append("logistic"))
    said, names = made.run(sys.executable, "-c", OF_TASK).stdout.splitlines()
    assert said == "user_table is a regression, which these models are not for: logistic; left out"
    assert json.loads(names) == RUN
    refused = made.flow("fit", "user_table", "--model=logistic", check=False)
    assert refused.returncode == 1
    assert "logistic, logistic regression on everything" in refused.stderr.splitlines()[-1]
    assert "is not for regression; it is for classification" in refused.stderr.splitlines()[-1]
    made.params(lambda p: p["run"]["models"].remove("logistic"))

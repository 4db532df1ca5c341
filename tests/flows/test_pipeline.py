"""The whole pipeline on tiny data: dvc, flows, MLflow, report."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from usboost.boosting.rounds import read_stages
from usboost.datasets import store

pytestmark = pytest.mark.slow

COLUMNS = ["dataset", "model", "seed", "split", "metric", "value"]
COLUMNS += ["relative_improvement_pct", "best_round", "rounds", "fit_seconds"]


def runs(workspace) -> pd.DataFrame:
    """Every MLflow run, asked in another process as a user would."""
    code = (
        "import mlflow, sys; r = mlflow.search_runs(search_all_experiments=True); "
        "r['experiment'] = [mlflow.get_experiment(e).name for e in r.experiment_id]; r.to_json(sys.stdout)"
    )
    database = f"sqlite:///{workspace.environment['USBOOST_HOME']}/mlflow.db"
    done = workspace.run(sys.executable, "-c", code, MLFLOW_TRACKING_URI=database)
    return pd.DataFrame(json.loads(done.stdout))


def test_results_hold_every_model(reproduced):
    results = pd.read_csv(reproduced.folder / "reports/results.csv")
    assert list(results.columns) == COLUMNS
    us = results[results.dataset.isin(["ci_b", "user_table"])]
    assert set(us.model) == {"baseline", "bfv_dnn", "gbm", "2wl", "lgbm"}
    assert set(us.dataset) == {"ci_b", "user_table"}
    assert set(us.split) == {"val", "test"}
    assert set(us.metric) == {"f1", "f1_tuned", "accuracy", "log_loss", "auc"}
    rest = set(zip(results.dataset, results.model, strict=True)) - set(zip(us.dataset, us.model, strict=True))
    assert rest == {("iris", "bnn"), ("digits_rows", "earlyboost")}
    early = results[results.model == "earlyboost"]
    assert {"accuracy", "earliness", "harmonic_mean"} <= set(early.metric)
    own = (reproduced.folder / "reports/index.html").read_text()
    paper = (reproduced.folder / "reports/paper.html").read_text()
    assert "demo data" in own.lower() and "demo data" in paper.lower()
    assert own.count("A training image of class") >= 3
    assert "models:/usboost-demo-user_table@champion" in own
    assert "Accuracy over time" in paper


def test_nothing_is_stale_afterwards_and_one_models_parameter_fits_that_model_again(workspace):
    assert json.loads(workspace.run("dvc", "status", "--json").stdout) == {}
    before = made_by(workspace)
    workspace.params(lambda p: p["models"]["2wl"].update(shrinkage=0.5))
    done = workspace.run("dvc", "repro", "fit@ci_b")
    assert "ci_b: 1 of 4 fits to make" in done.stdout
    after = made_by(workspace)
    assert {cell for cell in after if after[cell] != before[cell]} == {("ci_b", "2wl")}
    workspace.flow("fit", "ci_b")
    assert made_by(workspace) == after
    assert json.loads(workspace.run("dvc", "status", "--json", "fit@ci_b").stdout) == {}
    workspace.params(lambda p: p["models"]["2wl"].pop("shrinkage"))
    assert ": 0 of " in workspace.flow("fit", "ci_b").stdout
    assert made_by(workspace)["ci_b", "2wl"] == before["ci_b", "2wl"]  # brought back from MLflow


def made_by(workspace) -> dict[tuple[str, str], str]:
    """The MLflow run behind each result."""
    found = {}
    for file in (workspace.folder / "data/results").glob("*/*/seed-0/record.json"):
        cell = json.loads(file.read_text())
        found[cell["dataset"], cell["model"]] = cell["made"]["mlflow_run"]
    return found


def test_dvc_shows_every_fits_scores_and_the_steps_of_boosting(reproduced):
    shown = json.loads(reproduced.run("dvc", "metrics", "show", "--json").stdout)
    (shown,) = (kept["data"] for kept in shown.values())  # of the one revision, which has no name without Git
    scores = pd.read_csv(reproduced.folder / "reports/results.csv").query("model != 'gbm'")
    named = {(cell.dataset, cell.model) for cell in scores.itertuples()}
    assert {(Path(file).stem, model) for file, kept in shown.items() for model in kept["data"]} == named
    found = shown["data/metrics/ci_b.json"]["data"]["2wl"]
    cell = scores.query("dataset == 'ci_b' and model == '2wl' and split == 'test' and metric == 'log_loss'")
    assert found == pytest.approx(cell["value"].item(), abs=1e-6)
    plots = json.loads(reproduced.run("dvc", "plots", "show", "--json").stdout)["data"]
    for name in ("epsilon", "delta"):
        (drawn,) = plots[f"reports/curves/{name}/ci_b-2wl.csv"]
        steps = [float(point[name]) for point in drawn["content"]["data"]["values"]]
        assert np.isfinite(steps).all() and any(steps)  # against a learner, too, on few real rows
    assert "reports/curves/score/user_table-bfv_dnn.csv" in plots


PAGE = """
import json, urllib.request
from flows.local import runtime
runtime.configure()
with runtime.prefect_api():
    from prefect.settings import PREFECT_API_URL
    api = PREFECT_API_URL.value()
    with urllib.request.urlopen(api.removesuffix("/api") + "/ui-settings") as answer:
        print(json.dumps([api, json.load(answer)["api_url"]]))
"""


def test_prefects_page_asks_the_server_that_it_comes_from(reproduced):
    done = reproduced.run(sys.executable, "-c", PAGE)
    api, told = json.loads(done.stdout.splitlines()[-1])
    assert told == api


def test_equal_seeds_give_equal_results(workspace, tmp_path):
    def results():
        found = {}
        for model in ("baseline", "bfv_dnn", "2wl"):
            trace = workspace.trace("ci_b", model).to_dict("list")
            found[model] = (workspace.record("ci_b", model)["scores"], trace)
        return found

    before, made = results(), made_by(workspace)
    workspace.environment["MLFLOW_TRACKING_URI"] = f"sqlite:///{tmp_path / 'other.db'}"  # has none of them
    for name in ("results", "features"):
        shutil.rmtree(workspace.folder / "data" / name / "ci_b")
    workspace.flow("fit", "ci_b")
    np.testing.assert_equal(results(), before)
    assert not {made_by(workspace)["ci_b", model] for model in before} & set(made.values())


def test_every_run_is_complete_in_mlflow(reproduced):
    table = runs(reproduced)
    row = table[(table["tags.model"] == "2wl") & (table["tags.dataset"] == "ci_b")].iloc[-1]
    assert row["status"] == "FINISHED"
    assert set(table["experiment"]) == {"usboost-demo"}
    for name in (
        "step/epsilon",
        "step/delta",
        "risk/train",
        "risk/val",
        "score/f1_val",
        "weak_learner/fit_error_U",
    ):
        assert np.isfinite(row[f"metrics.{name}"])
    for name in ("seconds/fit_U", "seconds/fit_S", "seconds/step", "test/f1", "val/auc", "best_round"):
        assert np.isfinite(row[f"metrics.{name}"])
    assert row["params.target"] == "gradient"
    assert row["params.learner_S.max_depth"] == "3"
    assert row["tags.stage"] == "fit@ci_b"
    assert row["tags.input.prepared"].startswith("sha256:")
    assert len(row["tags.prefect.flow_run_id"]) == 36
    told = row["tags.mlflow.note.content"]
    assert "`python -m flows.fit ci_b --model 2wl --seeds 1`" in told
    assert f"`data/prepared/ci_b` ({row['tags.input.prepared']})" in told
    assert f"/runs/flow-run/{row['tags.prefect.flow_run_id']})" in told
    assert row["tags.mlflow.source.name"] in told and "`reports/index.html`" in told
    page = (reproduced.folder / "reports/paper.html").read_text()
    made = page[page.index('id="made-ci_b-2wl"') :].split("</tr>")[0]
    for piece in (
        "fit@ci_b",
        row["tags.input.prepared"],
        f"/#/experiments/{row['experiment_id']}/runs/{row['run_id']}?",
        f"/runs/flow-run/{row['tags.prefect.flow_run_id']}",
    ):
        assert piece in made


def test_the_logged_model_predicts_the_same_in_another_process(reproduced):
    table = runs(reproduced)
    row = table[(table["tags.model"] == "2wl") & (table["tags.dataset"] == "ci_b")].iloc[-1]
    frame = store.read_frame(reproduced.folder / "data/prepared/ci_b", "test")
    frame.drop(columns="label").astype(object).to_parquet(reproduced.folder / "rows.parquet")
    code = f"""
import mlflow, pandas as pd
client = mlflow.MlflowClient()
run = client.get_run("{row["run_id"]}")
(output,) = run.outputs.model_outputs
model = mlflow.pyfunc.load_model(f"models:/{{output.model_id}}")
assert model.metadata.signature is not None
rows = pd.read_parquet("rows.parquet")
model.predict(rows).to_parquet("predicted.parquet")
mlflow.artifacts.download_artifacts(run_id=run.info.run_id, artifact_path="learners", dst_path="kept")
"""
    database = f"sqlite:///{reproduced.environment['USBOOST_HOME']}/mlflow.db"
    folder = reproduced.folder
    reproduced.run(sys.executable, "-c", code, MLFLOW_TRACKING_URI=database)
    predicted = pd.read_parquet(folder / "predicted.parquet")
    classes = store.read_card(folder / "data/prepared/ci_b")["classes"]
    assert list(predicted.columns) == ["label", *[f"p_{name}" for name in classes]]
    accuracy = np.mean(predicted["label"].map(classes.index) == frame["label"])
    results = pd.read_csv(folder / "reports/results.csv")
    cell = results.query("dataset == 'ci_b' and model == '2wl' and split == 'test' and metric == 'accuracy'")
    assert accuracy == pytest.approx(cell["value"].item(), abs=1e-6)
    kept = folder / "kept/learners"
    stages = list(read_stages(json.loads((kept / "stages.json").read_text()), kept))
    assert len(stages) == 3
    assert set(stages[0].steps) == {"U", "S"}

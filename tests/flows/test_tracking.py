"""What MLflow is given, and what its pages show of it without a user's doing."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import mlflow
import pytest
from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from tasks import flow_page, mlflow_log, mlflow_runs
from tests.conftest import make_views
from tests.flows.conftest import Workspace
from tests.workspaces import mlflow_store
from usboost.boosting.rounds import Round
from usboost.data.views import Views
from usboost.learners.networks.learner import NetworkLearner
from usboost.learners.tree_learner import TreeLearner
from usboost.models.catalogue import model_colour
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory):
    with mlflow_store(tmp_path_factory.mktemp("store")):
        yield


def test_views_may_be_called_anything(store):
    views, y = make_views(n=200)
    views = Views({"naïve (left)": views["U"], "S": views["S"], "U": views["U"]})
    learners = {
        "naïve (left)": NetworkLearner((4,), device="cpu"),
        "U+S": NetworkLearner((4,), device="cpu", reads=("U", "S")),
        "S+U": TreeLearner(reads=("S", "U")),
    }
    with mlflow_runs.tracked_run("names", "fit", {}) as run_id:
        fitted = TwoWeakLearnerClassifier(learners, n_rounds=3, patience=None)
        mlflow_log.log_estimator(run_id, fitted, dataset="none", model="3wl", seed=0)
        fitted.set_params(callbacks=[mlflow_log.MLflowCallback(run_id)])
        fitted.fit(views, y)
    run = MlflowClient().get_run(run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params["learner_S-U.max_depth"] == "3"
    assert {"step/U-S", "step/S-U", "step/naïve -left-"} <= set(run.data.metrics)
    assert run.data.metrics["step/S-U"] == fitted.history_[-1]["step_S+U"]


def test_a_run_from_before_there_were_groups_goes_on(store, tmp_path: Path) -> None:
    kept = tmp_path / "mlflow.json"
    tracked = mlflow_runs.tracked_run("old", "fit", {"by": "one"}, kept)
    with pytest.raises(KeyboardInterrupt), tracked as run_id:
        for step in (1, 2):
            MlflowClient().log_metric(run_id, "risk_train", 1.0 / step, step=step)
        raise KeyboardInterrupt
    with mlflow_runs.tracked_run("old", "fit", {"by": "another"}, kept) as again:
        rounds = [Round(step, None, {"risk_train": 1.0 / step}, {"total": 0.1}) for step in (1, 2, 3)]
        logger = mlflow_log.MLflowCallback(again)
        logger.on_resume(rounds[:2])
        shared = {"wait": 0.02, "sum": 0.01, "fit": 0.07, "target": 0.03}
        logger.on_round(replace(rounds[2], seconds={**shared, "total": 0.1}, rows=(600, 200, 400)))
        logger.on_fit_begin(None)  # of another member
        logger.on_resume(rounds[:1])
        logger.on_fit_end()
    assert again == run_id
    client = MlflowClient()
    assert [each.step for each in client.get_metric_history(run_id, "risk/train")] == [1, 2, 3, 4]
    found = client.get_run(run_id).data
    assert found.tags["by"] == "another"
    seconds = {"wait": 0.02, "sum": 0.01, "fit": 0.07, "total": 0.1}
    ranks = {"number": 3, "rows_least": 200, "rows_most": 600}
    named = {
        f"{group}/{name}": v
        for group, of in (("seconds", seconds), ("ranks", ranks))
        for name, v in of.items()
    }
    assert {name: v for name, v in found.metrics.items() if name[:5] in ("secon", "ranks")} == named


@pytest.mark.parametrize(
    ("number", "name"),
    [
        ("step_U", "step/epsilon"),
        ("step_S", "step/delta"),
        ("risk_train", "risk/train"),
        ("f1_val", "score/f1_val"),
        ("fit_error_U", "weak_learner/fit_error_U"),
        ("stepwise", "stepwise"),
        ("and//or/..", "and/-or/-"),
    ],
)
def test_names_of_a_rounds_numbers(number: str, name: str) -> None:
    assert mlflow_log.of_round(number) == name
    assert len(mlflow_log.key_of(number * 100)) < 250


@pytest.fixture(scope="module")
def logged(reproduced: Workspace) -> tuple[MlflowClient, list[Run]]:
    """Every run of the pipeline."""
    client = MlflowClient(f"sqlite:///{reproduced.environment['USBOOST_HOME']}/mlflow.db")
    return client, client.search_runs([each.experiment_id for each in client.search_experiments()])


def of(runs: list[Run], dataset: str, model: str) -> Run:
    """The first, of `dvc repro`: other tests train again."""
    wanted = {"dataset": dataset, "model": model}
    found = [run for run in runs if run.data.params.items() >= wanted.items()]
    return min(found, key=lambda run: run.info.start_time)


def test_the_list_has_the_columns_that_it_shows(logged: tuple[MlflowClient, list[Run]]) -> None:
    client, runs = logged
    run = of(runs, "ci_b", "2wl")
    experiment = client.get_experiment(run.info.experiment_id)
    saved = json.loads(experiment.tags["mlflow.sharedViewState.usboost"])
    shown = json.loads(saved["state"])
    own = [each for each in runs if each.info.experiment_id == run.info.experiment_id]
    has = {f"metrics.`{name}`" for each in own for name in each.data.metrics}
    has |= {f"params.`{name}`" for name in run.data.params}
    assert shown["selectedColumns"][-2:] == ["tags.`changed`", "tags.`dvc_experiment`"]
    missing = set(shown["selectedColumns"][:-2]) - has
    assert missing <= {"metrics.`test/rmse`", "metrics.`val/rmse`"}
    for part in (
        "params.`model`",
        "params.`dataset`",
        "params.`seed`",
        "metrics.`test/f1`",
        "metrics.`val/f1`",
    ):
        assert part in shown["selectedColumns"]
    assert shown["selectedColumns"][3:5] == ["metrics.`test/f1`", "metrics.`test/log_loss`"]
    assert mlflow_runs.runs_page(experiment.experiment_id) in experiment.tags["mlflow.note.content"]


def test_a_runs_page_lists_its_scores_before_the_whole_fits(logged: tuple[MlflowClient, list[Run]]) -> None:
    run = of(logged[1], "ci_b", "2wl")
    listed = list(run.data.metrics)
    assert listed.index("test/f1") < listed.index("val/f1") < listed.index("best_round")
    assert {name for name in run.data.metrics if name.startswith("seconds/")} == {
        *("seconds/fit_U", "seconds/fit_S", "seconds/step", "seconds/total")
    }


def test_a_run_has_the_colour_of_its_model(logged: tuple[MlflowClient, list[Run]]) -> None:
    for model in ("2wl", "lgbm"):
        assert of(logged[1], "ci_b", model).data.tags["mlflow.runColor"] == model_colour(model)


def test_a_run_is_linked_where_its_store_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a store that is a file: at the port of `make ui`."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///of/mlflow.db")
    monkeypatch.setenv("USBOOST_MLFLOW_PORT", "5001")
    page = "http://127.0.0.1:5001/#/experiments/1/runs/ab?workflowType=machine_learning"
    assert flow_page.run_page("1", "ab") == page
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://mlflow.example.org/team/")
    assert flow_page.mlflow() == "https://mlflow.example.org/team"


def test_a_view_that_a_person_changed_stays(store) -> None:
    made = mlflow_runs.experiment_id("kept")
    for tag in ("mlflow.sharedViewState.usboost", "mlflow.note.content"):
        MlflowClient().set_experiment_tag(made, tag, "mine")
    assert mlflow_runs.experiment_id("kept") == made
    tags = mlflow.get_experiment(made).tags
    assert tags["mlflow.sharedViewState.usboost"] == tags["mlflow.note.content"] == "mine"


def test_an_experiment_of_before_gets_what_it_has_not(store) -> None:
    made = mlflow.create_experiment("before")
    mlflow_runs.experiment_id("before")
    tags = mlflow.get_experiment(made).tags
    assert mlflow_runs.runs_page(made) in tags["mlflow.note.content"]
    assert {"mlflow.sharedViewState.usboost", "mlflow.experimentKind"} <= set(tags)
    mlflow_runs.experiment_id("usboost-before")
    assert mlflow_runs.first_page(mlflow.get_tracking_uri(), "before").startswith("#/experiments/")


def test_a_run_lists_data_and_model(reproduced: Workspace, logged: tuple[MlflowClient, list[Run]]) -> None:
    client, runs = logged
    run = of(runs, "user_table", "2wl")
    card = json.loads((reproduced.folder / "data/prepared/user_table/card.json").read_text())
    found = {each.tags[0].value: each.dataset for each in run.inputs.dataset_inputs}
    assert set(found) == {"train", "validation", "test"}
    assert {each.name for each in found.values()} == {"user_table"}
    assert len({each.digest for each in found.values()}) == 3
    assert json.loads(found["train"].profile)["num_rows"] == card["splits"]["train"]["rows"]
    assert json.loads(found["test"].source) == {"uri": "data/prepared/user_table/test.parquet"}
    model = client.get_logged_model(run.outputs.model_outputs[0].model_id)
    assert model.name == "user_table-2wl-seed-0"
    assert "`image`" in model.tags["mlflow.note.content"]
    scores = {each.key: each.value for each in model.metrics}
    assert scores["test/f1"] == run.data.metrics["test/f1"]


def test_folds_are_no_runs_but_numbers_of_one(logged: tuple[MlflowClient, list[Run]]) -> None:
    client, runs = logged
    run = of(runs, "iris", "bnn")
    flow = "prefect.flow_run_id"
    assert [each for each in runs if each.data.tags[flow] == run.data.tags[flow]] == [run]
    scores = client.get_metric_history(run.info.run_id, "fold/accuracy")
    folds = int(run.data.metrics["folds"])
    assert sorted(each.step for each in scores) == list(range(1, folds + 1))
    assert sum(each.value for each in scores) / folds == pytest.approx(run.data.metrics["test/accuracy"])
    curve = client.get_metric_history(run.info.run_id, "risk/train")
    assert [each.step for each in curve] == list(range(1, int(run.data.metrics["rounds"]) + 1))
    (dataset,) = run.inputs.dataset_inputs
    assert dataset.tags[0].value == "cross-validation"


def test_a_run_says_what_was_changed_since_the_last_commit(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert mlflow_runs.changed_parameters() == ""
    Path("params.yaml").write_text("boosting: {shrinkage: 1.0, patience: 3}\nmodels: {2wl: {}}\n")
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init"], ["add", "."], [*who, "commit", "--message", "a"]):
        subprocess.run(["git", *words], check=True, capture_output=True)
    assert mlflow_runs.changed_parameters() == ""
    Path("params.yaml").write_text("boosting: {shrinkage: 0.3, patience: 3}\nmodels: {_2wl: {patience: 9}}\n")
    assert mlflow_runs.changed_parameters() == "boosting.shrinkage=0.3, models._2wl.patience=9"

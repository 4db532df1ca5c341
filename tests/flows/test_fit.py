"""A dataset's fits on every task runner: equal numbers, nothing fitted twice, failures named."""

import json
import re
import shutil
import sys

import pandas as pd
import pytest
import yaml

from tasks import settings
from tasks.fits import models
from tasks.fits.models import grid
from tasks.machine import devices
from tests.conftest import refuses
from tests.flows.conftest import ROOT
from tests.flows.test_pipeline import runs
from tests.workspaces import mlflow_store, with_cards
from usboost.boosting.checkpoint import described
from usboost.process import thread_share

DATASETS, MODELS, SEEDS = ["ci_a", "ci_b"], ["2wl", "lgbm", "bfv_dnn"], [0, 1]
CELLS = [f"{d}/{m}/seed-{s}" for d in DATASETS for m in MODELS for s in SEEDS]
RUNNERS = ["threads", "processes"]

ASK = """
import json, sys
from flows.local import runtime
runtime.configure()
with runtime.prefect_api():
    from prefect.client.orchestration import get_client
    with get_client(sync_client=True) as client:
        def ask(kind, **filters):
            return client.request("POST", f"/{kind}/filter", json=filters).json()
        found = {}
        for run in ask("flow_runs", flow_runs={"name": {"like_": "fit-ci"}}, sort="START_TIME_ASC"):
            only = {"id": {"any_": [run["id"]]}}
            found[run["name"].removeprefix("fit-")] = {
                "id": run["id"], "state": run["state_name"],
                "tasks": {t["name"]: [t["state_name"], t["id"]] for t in ask("task_runs", flow_runs=only)},
                "artifacts": [[a["key"], a["type"], a["data"]] for a in ask("artifacts", flow_runs=only)],
            }
        json.dump(found, sys.stdout)
"""


def fit(workspace, dataset, *words, check=True):
    chosen = [*(f"--model={m}" for m in MODELS), "--seeds=2"]
    return workspace.flow("fit", dataset, *chosen, *words, check=check)


def record(workspace, cell):
    dataset, model, seed = cell.split("/")
    return workspace.record(dataset, model, int(seed.removeprefix("seed-")))


@pytest.fixture(scope="module")
def by_runner(reproduced, tmp_path_factory):
    """The same fits on every task runner, each in a folder and home of its own."""
    place, found = tmp_path_factory.mktemp("runners"), {}
    for runner in RUNNERS:
        found[runner] = workspace = reproduced.copy(place / runner)
        workspace.environment["USBOOST_HOME"] = str(place / f"home-{runner}")
        workspace.prepare("ci_a")
        shutil.rmtree(workspace.folder / "data/results")
        workspace.params(lambda p, runner=runner: p["fits"].update(runner=runner, workers=2))
        workspace.warm = None  # the runners start processes themselves
        for dataset in DATASETS:
            done = fit(workspace, dataset)
            assert done.stderr == "", done.stderr
    return found


@pytest.fixture(scope="module")
def pages(by_runner):
    """What the Prefect API holds of the flow runs."""
    return {
        runner: json.loads(workspace.run(sys.executable, "-c", ASK).stdout)
        for runner, workspace in by_runner.items()
    }


@pytest.mark.long
@pytest.mark.parametrize("runner", RUNNERS[1:])
def test_every_task_runner_gives_the_same_numbers(by_runner, runner):
    for cell in CELLS:
        expected, found = record(by_runner["threads"], cell), record(by_runner[runner], cell)
        assert found["scores"] == expected["scores"]
        assert found["fingerprint"] == expected["fingerprint"]
        assert found["processor"].count(", ") == 1
    for dataset in DATASETS:
        for model in MODELS:
            pd.testing.assert_frame_equal(
                by_runner[runner].trace(dataset, model), by_runner["threads"].trace(dataset, model)
            )


@pytest.mark.long
def test_mlflow_and_prefect_know_each_other(by_runner, pages):
    for runner, workspace in by_runner.items():
        mine = runs(workspace).set_index("tags.cell")
        assert sorted(mine.index) == sorted(CELLS)
        assert set(mine["status"]) == {"FINISHED"}
        for dataset in DATASETS:
            page = pages[runner][dataset]
            assert page["state"] == "Completed"
            of_it = [cell for cell in CELLS if cell.startswith(dataset)]
            gbms = [f"{dataset}/features/seed-{seed}" for seed in SEEDS]
            assert {name: state for name, (state, _) in page["tasks"].items()} == dict.fromkeys(
                [*of_it, *gbms], "Completed"
            )
            assert set(mine.loc[of_it, "tags.prefect.flow_run_id"]) == {page["id"]}
            keys = {key: (kind, data) for key, kind, data in page["artifacts"]}
            assert keys[f"scores-{dataset.replace('_', '-')}"][0] == "table"
            for cell in of_it:
                assert mine.loc[cell, "tags.prefect.task_run_id"] == page["tasks"][cell][1]
                assert mine.loc[cell, "tags.input.prepared"].startswith("sha256:")
                link = keys["mlflow-" + re.sub("[/_]", "-", cell)][1]
                assert mine.loc[cell, "run_id"] in link


@pytest.mark.long
def test_only_what_changed_is_fitted_again_and_failures_stay_alone(by_runner):
    workspace = by_runner["threads"]
    cells = [cell for cell in CELLS if cell.startswith("ci_a")]
    before = {cell: record(workspace, cell) for cell in cells}
    workspace.params(lambda p: p["external_baselines"].update(n_trees=7))
    assert "ci_a: 2 of 6 fits to make" in fit(workspace, "ci_a").stdout
    after = {cell: record(workspace, cell) for cell in cells}
    changed = {cell for cell in cells if before[cell]["made"] != after[cell]["made"]}
    assert changed == {cell for cell in cells if "lgbm" in cell}

    def spoil(p):
        p["external_baselines"]["n_trees"] = 9
        p["boosting"]["fixed_step"] = 1e9
        p["models"]["2wl"]["step"] = "fixed"
        p["fits"]["runner"] = "processes"

    workspace.params(spoil)
    done = fit(workspace, "ci_a", check=False)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: 2 of 6 fits of ci_a failed, ci_a/2wl/seed-0 because:")
    assert "no longer finite" in last and "the same command fits what is missing" in last
    assert record(workspace, "ci_a/lgbm/seed-0")["made"] != after["ci_a/lgbm/seed-0"]["made"]
    assert record(workspace, "ci_a/2wl/seed-0") == before["ci_a/2wl/seed-0"]  # of the settings before
    found = runs(workspace).set_index("tags.cell").loc[cells]
    states = found.groupby(level=0)["status"].agg(lambda each: sorted(each))
    for cell in cells:
        fits = {"lgbm": 3, "2wl": 1, "bfv_dnn": 1}[cell.split("/")[1]]
        assert states[cell] == ["FAILED"] * ("2wl" in cell) + ["FINISHED"] * fits


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A folder with params.yaml and the cards of prepared datasets, and nothing else."""
    monkeypatch.chdir(tmp_path)
    return with_cards(tmp_path, "ci_a", "mi")


def loaded(change=lambda p: None):
    document = yaml.safe_load((ROOT / "params.yaml").read_text())
    change(document)
    return settings.parse(document)


@pytest.mark.parametrize(
    ("change", "touched"),
    [
        (lambda p: None, set()),
        (lambda p: p["fits"].update(workers=7, runner="processes"), set()),
        (lambda p: p["table2"]["ci_a"].update(tree_depth=4), {("ci_a", "2wl"), ("ci_a", "1wl_s")}),
        (lambda p: p["table1"]["mi"].update(fusion="product"), {("mi", "baseline")}),
        (lambda p: p["models"]["2wl"].update(shrinkage=0.5), {("ci_a", "2wl"), ("mi", "2wl")}),
        (lambda p: p["images"].update(augment="flip"), {("mi", "baseline"), ("mi", "2wl"), ("mi", "lgbm")}),
        (lambda p: p["external_baselines"].update(patience=3), {("ci_a", "lgbm"), ("mi", "lgbm")}),
        (lambda p: p["bnn"].update(rounds=3), set()),
        (lambda p: p["features"].update(max_depth=2), set()),
    ],
)
def test_a_setting_touches_the_cells_that_depend_on_it(bare, change, touched):
    words = (["baseline", "2wl", "1wl_s", "lgbm"], 2)
    before, after = (
        [cell for dataset in ("ci_a", "mi") for cell in grid(dataset, *words, chosen)]
        for chosen in (loaded(), loaded(change))
    )
    assert len({cell.fingerprint for cell in before}) == 16
    assert {(b.dataset, b.model) for a, b in zip(before, after, strict=True) if a != b} == touched


def test_other_data_is_another_cell(bare):
    words = ("ci_a", ["2wl"], 1)
    (before,) = grid(*words, loaded())
    card = bare / "data/prepared/ci_a/card.json"
    card.write_text(json.dumps({**json.loads(card.read_text()), "seed": 1}))
    (after,) = grid(*words, loaded())
    assert before != after
    assert before.name == "ci_a/2wl/seed-0"


def test_a_chosen_model_leaves_the_results_of_the_others_alone(bare, monkeypatch):
    shutil.copy(ROOT / "params.yaml", bare)
    settings_here = settings.load()
    cells = grid("ci_a", ["2wl", "lgbm"], 1, settings_here)
    for cell in cells:
        record = {"seed": 0, "model": cell.model, "fingerprint": cell.fingerprint, "fit_seconds": 1.0}
        scores = {split: {"log_loss": 0.5} for split in ("val", "test")}
        (made := bare / "made" / cell.model).mkdir(parents=True)
        changed = {**record, "scores": scores, "best_round": 1, "rounds": 1}
        (made / "record.json").write_text(json.dumps(changed))
        cell.write(made)
    monkeypatch.setenv("USBOOST_HOME", str(bare / "home"))
    from flows.fit import fit as flow  # which sets what Prefect reads

    with mlflow_store(bare):
        flow.fn("ci_a", ["2wl"], 1)
    assert all(cell.is_finished() for cell in cells)
    assert json.loads((bare / "data/metrics/ci_a.json").read_text()) == {"2wl": 0.5, "lgbm": 0.5}


def test_other_weights_are_another_cell(bare):
    card = bare / "data/prepared/mi/card.json"
    images = {"view": "U", "size": [8, 8], "channels": 3, "splits": {}}
    card.write_text(json.dumps({**json.loads(card.read_text()), "images": images}))
    chosen, found = loaded(lambda p: p["images"].update(pretrained="weights.safetensors")), set()
    for content in ("one", "other", "one"):
        (bare / "weights.safetensors").write_text(content)
        found.add(grid("mi", ["2wl"], 1, chosen)[0].fingerprint)
    assert len(found) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [(("ci_z", ["2wl"], 1), "python -m flows.data ci_z"), (("ci_a", ["9wl"], 1), "no models.9wl")],
)
def test_what_is_not_there_is_said_before_anything_runs(bare, words, said):
    refuses(said, grid, *words, loaded())


def test_the_devices_of_a_model():
    def named(model):
        return devices(described(models.build(model, "ci_a", loaded(lambda p: p.update(device="cuda")), 0)))

    assert named("2wl") == named("baseline") == {"cuda"}
    assert named("1wl_s") == set()


def test_cores_are_shared_among_the_workers(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    assert [thread_share(workers) for workers in (1, 2, 3, 16)] == [8, 4, 2, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert thread_share(4) == 5


SLOTS = """
import sys, threading, time
from flows.local import runtime
runtime.configure()
from tasks import machine
machine.on_gpu = lambda devices: True  # no GPU is needed to see whether its slots are
slots, spans = int(sys.argv[1]), []
def train():
    with machine.gpu_slot({"cuda"}, slots):
        started = time.monotonic()
        time.sleep(0.5)
        spans.append((started, time.monotonic()))
with runtime.prefect_api():
    from contextvars import copy_context
    threads = [threading.Thread(target=copy_context().run, args=(train,)) for _ in range(3)]
    [t.start() for t in threads]; [t.join() for t in threads]
print(max(sum(a <= start < b for a, b in spans) for start, _ in spans), len(spans))
"""


@pytest.mark.long
def test_a_gpu_is_given_to_as_many_trainings_as_it_has_slots(reproduced):
    for slots in ("1", "2"):
        together = reproduced.run(sys.executable, "-c", SLOTS, slots).stdout.split()
        assert together[1] == "3"
        assert together[0] == slots if slots == "1" else together[0] in ("1", "2")

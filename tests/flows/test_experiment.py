"""A grid of cells on every task runner: equal numbers, nothing run twice, failures named and alone."""

from __future__ import annotations

import json
import re
import sys

import pandas as pd
import pytest
import yaml

from tasks import models, settings
from tasks.experiment import devices, grid
from tasks.machine import thread_share
from tests.flows.conftest import ROOT
from tests.flows.test_pipeline import runs
from usboost.boosting.checkpoint import described
from usboost.datasets.prepared import store
from usboost.errors import UsboostError

DATASETS, MODELS, SEEDS = ["ci_a", "ci_b"], ["2wl", "lgbm"], [0, 1]
CELLS = [f"{d}/{m}/seed-{s}" for d in DATASETS for m in MODELS for s in SEEDS]
RUNNERS = ["threads", "processes", "dask"]

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
        for run in ask("flow_runs", flow_runs={"name": {"like_": "experiment-"}}, sort="START_TIME_ASC"):
            only = {"id": {"any_": [run["id"]]}}
            found[run["name"].removeprefix("experiment-")] = {
                "id": run["id"], "state": run["state_name"],
                "tasks": {t["name"]: [t["state_name"], t["id"]] for t in ask("task_runs", flow_runs=only)},
                "artifacts": [[a["key"], a["type"], a["data"]] for a in ask("artifacts", flow_runs=only)],
            }
        json.dump(found, sys.stdout)
"""


def experiment(workspace, *words, name, check=True):
    words = [*(f"--dataset={d}" for d in DATASETS), *(f"--model={m}" for m in MODELS), *words]
    return workspace.flow("experiment", *words, "--seeds=2", "--workers=2", f"--name={name}", check=check)


def record(workspace, name, cell):
    return json.loads((workspace.folder / "data/experiments" / name / cell / "record.json").read_text())


@pytest.fixture(scope="module")
def grids(reproduced, tmp_path_factory):
    """The same grid on every task runner, each an experiment of its own."""
    workspace = reproduced.copy(tmp_path_factory.mktemp("grids") / "copy")
    workspace.prepare("ci_a")
    workspace.warm = None  # the runners start processes themselves
    for runner in RUNNERS:
        done = experiment(workspace, f"--runner={runner}", name=runner)
        assert done.stderr == "", done.stderr
    return workspace


@pytest.fixture(scope="module")
def pages(grids):
    """What the Prefect API holds of the grids' flow runs."""
    return json.loads(grids.run(sys.executable, "-c", ASK).stdout)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("runner", RUNNERS[1:])
def test_every_task_runner_gives_the_same_numbers(grids, runner):
    for cell in CELLS:
        expected, found = record(grids, "threads", cell), record(grids, runner, cell)
        assert found["scores"] == expected["scores"]
        assert found["fingerprint"] == expected["fingerprint"]
        traces = [
            pd.read_parquet(grids.folder / "data/experiments" / name / cell / "trace.parquet")
            for name in ("threads", runner)
        ]
        numbers = [t.drop(columns=[c for c in t if "seconds" in c], errors="ignore") for t in traces]
        pd.testing.assert_frame_equal(*numbers)


@pytest.mark.long
@pytest.mark.slow
def test_the_comparison_is_the_seeds_mean_and_spread(grids):
    folder = grids.folder / "data/experiments/dask"
    table = pd.read_csv(folder / "comparison.csv").set_index(["dataset", "model"])
    assert list(table.index) == [(d, m) for d in DATASETS for m in MODELS]
    for dataset, model in table.index:
        values = pd.Series(
            [record(grids, "dask", f"{dataset}/{model}/seed-{s}")["scores"]["test"]["f1"] for s in SEEDS]
        )
        row = table.loc[(dataset, model)]
        assert row["f1_mean"] == pytest.approx(values.mean(), rel=1e-5)
        assert row["f1_std"] == pytest.approx(values.std(), rel=1e-5, abs=1e-9)
        assert row["seeds"] == 2
    text = (folder / "comparison.md").read_text()
    assert "Missing" not in text
    assert all(cell in text for cell in CELLS)


@pytest.mark.long
@pytest.mark.slow
def test_mlflow_and_prefect_know_each_other(grids, pages):
    """One finished run per cell; Prefect's records are complete; links lead both ways."""
    table = runs(grids)
    for runner in RUNNERS:
        mine = table[table["tags.experiment"] == runner].set_index("tags.cell")
        assert sorted(mine.index) == sorted(CELLS)
        assert set(mine["status"]) == {"FINISHED"}
        page = pages[runner]
        assert page["state"] == "Completed"
        assert {name: state for name, (state, _) in page["tasks"].items()} == dict.fromkeys(
            CELLS, "Completed"
        )
        assert set(mine["tags.prefect.flow_run_id"]) == {page["id"]}
        keys = {key: (kind, data) for key, kind, data in page["artifacts"]}
        assert keys[f"comparison-{runner}"][0] == "table"
        assert {row["model"] for row in json.loads(keys[f"comparison-{runner}"][1])} == set(MODELS)
        assert keys[f"summary-{runner}"][0] == "markdown"
        for cell in CELLS:
            assert mine.loc[cell, "tags.prefect.task_run_id"] == page["tasks"][cell][1]
            assert mine.loc[cell, "tags.input.prepared"].startswith("md5:")
            link = keys["mlflow-" + re.sub("[/_]", "-", cell)][1]
            assert mine.loc[cell, "run_id"] in link


@pytest.mark.long
@pytest.mark.slow
def test_only_what_changed_runs_again_and_failures_stay_alone(grids):
    def change(p):
        p["external_baselines"]["n_trees"] = 7

    grids.params(change)
    before = {cell: record(grids, "threads", cell) for cell in CELLS}
    done = experiment(grids, "--runner=threads", name="threads")
    assert "4 of 8 cells are as they were" in done.stdout
    after = {cell: record(grids, "threads", cell) for cell in CELLS}
    changed = {cell for cell in CELLS if before[cell]["mlflow_run_id"] != after[cell]["mlflow_run_id"]}
    assert changed == {cell for cell in CELLS if "lgbm" in cell}

    def spoil(p):
        p["external_baselines"]["n_trees"] = 9
        p["boosting"]["fixed_step"] = 1e9
        p["models"]["2wl"]["step"] = "fixed"

    grids.params(spoil)
    done = experiment(grids, "--runner=processes", name="threads", check=False)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: 4 of 8 cells are missing, ci_a/2wl/seed-0 because:")
    assert "no longer finite" in last
    folder = grids.folder / "data/experiments/threads"
    table = pd.read_csv(folder / "comparison.csv").set_index(["dataset", "model"])
    assert table.loc[("ci_a", "lgbm"), "seeds"] == 2
    assert table.loc[("ci_a", "2wl"), "seeds"] == 0
    text = (folder / "comparison.md").read_text()
    for cell in CELLS:
        assert bool(re.search(f"- {cell}: .*no longer finite", text)) == ("2wl" in cell)
    found = runs(grids).query("`tags.experiment` == 'threads'")
    counting = found[found["tags.superseded"] != "true"]
    for cell in CELLS:
        states = list(counting.loc[counting["tags.cell"] == cell, "status"])
        assert states.count("FINISHED") == 1
        # every attempt of those that fail is there: the first and one retry
        assert states.count("FAILED") == (2 if "2wl" in cell else 0)
    superseded = found[found["tags.superseded"] == "true"]
    assert set(superseded["status"]) == {"KILLED"}
    assert len(superseded) == 8  # the LightGBM cells, refitted twice


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A folder with params.yaml and the cards of prepared datasets, and nothing else."""
    monkeypatch.chdir(tmp_path)
    for dataset in ("ci_a", "mi"):
        (tmp_path / "data/prepared" / dataset).mkdir(parents=True)
        card = {"format": store.FORMAT, "dataset": dataset, "splits": {}, "views": {}, "encoders": {}}
        (tmp_path / "data/prepared" / dataset / "card.json").write_text(json.dumps(card))
    return tmp_path


def loaded(change=lambda p: None):
    document = yaml.safe_load((ROOT / "params.yaml").read_text())
    change(document)
    return settings.parse(document)


@pytest.mark.parametrize(
    ("change", "touched"),
    [
        (lambda p: None, set()),
        (lambda p: p["experiment"].update(workers=7, runner="dask"), set()),
        (lambda p: p["table2"]["ci_a"].update(tree_depth=4), {("ci_a", "2wl"), ("ci_a", "1wl_s")}),
        (lambda p: p["table1"]["mi"].update(fusion="product"), {("mi", "baseline")}),
        (lambda p: p["models"]["2wl"].update(shrinkage=0.5), {("ci_a", "2wl"), ("mi", "2wl")}),
        (lambda p: p["pictures"].update(augment="flip"), {("mi", "baseline"), ("mi", "2wl"), ("mi", "lgbm")}),
        (lambda p: p["external_baselines"].update(patience=3), {("ci_a", "lgbm"), ("mi", "lgbm")}),
        (lambda p: p["bnn"].update(rounds=3), set()),
    ],
)
def test_a_setting_touches_the_cells_that_depend_on_it(bare, change, touched):
    words = (["ci_a", "mi"], ["baseline", "2wl", "1wl_s", "lgbm"], 2)
    before, after = grid(*words, loaded()), grid(*words, loaded(change))
    assert len({cell.fingerprint for cell in before}) == 16
    assert {(b.dataset, b.model) for a, b in zip(before, after, strict=True) if a != b} == touched


def test_other_data_is_another_cell(bare):
    words = (["ci_a"], ["2wl"], 1)
    (before,) = grid(*words, loaded())
    card = bare / "data/prepared/ci_a/card.json"
    card.write_text(json.dumps({**json.loads(card.read_text()), "seed": 1}))
    (after,) = grid(*words, loaded())
    assert before != after
    assert before.name == "ci_a/2wl/seed-0"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((["ci_z"], ["2wl"], 1), "python -m flows.prepare ci_z"),
        ((["ci_a"], ["9wl"], 1), "no models.9wl"),
        ((["ci_a"], ["bfv_dnn"], 2), "python -m flows.features ci_a --seeds"),
    ],
)
def test_what_is_not_there_is_said_before_anything_runs(bare, words, said):
    with pytest.raises(UsboostError, match=said):
        grid(*words, loaded())


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
@pytest.mark.slow
def test_a_gpu_is_given_to_as_many_trainings_as_it_has_slots(reproduced):
    for slots in ("1", "2"):
        together = reproduced.run(sys.executable, "-c", SLOTS, slots).stdout.split()
        assert together[1] == "3"
        assert together[0] == slots if slots == "1" else together[0] in ("1", "2")

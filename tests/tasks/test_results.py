"""A dataset's results: the records of its cells, and what DVC compares of them."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from tasks import folders, settings
from tasks.fits.models import Cell
from tests.conftest import contents
from tests.workspaces import with_cards
from usboost.report.results import read_trace

ROOT = Path(__file__).parents[2]
SCORES = {
    0: {"val": {"f1": 0.7, "log_loss": 1.0}, "test": {"f1": 0.4, "log_loss": 1.7}},
    1: {"val": {"f1": 0.5, "log_loss": 2.0}, "test": {"f1": 0.6, "log_loss": 1.9}},
}


@pytest.fixture(autouse=True)
def prepared(tmp_path, monkeypatch):
    monkeypatch.chdir(with_cards(tmp_path, "ci_a"))


def add(seed: int, fingerprint: str = "a", model: str = "2wl", rounds: int = 2) -> None:
    """Put a made-up fit among the results."""
    fit = Path(f"fit-{model}-{seed}-{fingerprint}")
    (fit / "inspection").mkdir(parents=True)
    (fit / "inspection/kept.json").write_text(f'"{seed} {fingerprint}"')
    about = {"dataset": "ci_a", "model": model, "profile": "demo", "seed": seed, "fingerprint": fingerprint}
    (fit / "record.json").write_text(json.dumps({**about, "scores": SCORES[seed]}))
    trace = {"seed": seed, "round": range(1, rounds + 1), "f1_val": 0.2, "epsilon": 1.0 + seed}
    pd.DataFrame(trace).to_parquet(fit / "trace.parquet")
    pd.DataFrame({"seed": [seed], "label": [1]}).to_parquet(fit / "rows.parquet")
    cell(model, seed).write(fit)


def cell(model: str, seed: int, fingerprint: str = "a") -> Cell:
    return Cell("ci_a", model, seed, fingerprint, *[None] * 5)


def test_records_are_in_order_and_a_new_fit_takes_the_place_of_an_old_one():
    add(1)
    add(0)
    assert [record["seed"] for record in folders.records("ci_a", "2wl")] == [0, 1]
    add(1, "b", rounds=3)
    trace = read_trace(Path("data/results"), "ci_a", "2wl")
    assert trace["seed"].tolist() == [0, 0, 1, 1, 1]
    kept = json.loads(Path("data/results/ci_a/2wl/seed-1/inspection/kept.json").read_text())
    assert kept == "1 b"
    finished = [cell("2wl", 1, "b"), cell("2wl", 0)]
    others = [cell("2wl", 1), cell("2wl", 2), cell("lgbm", 0)]
    assert [each.is_finished() for each in (*finished, *others)] == [True] * 2 + [False] * 3


def test_only_what_a_run_names_is_kept():
    for model in ("2wl", "lgbm"):
        add(0, model=model)
        add(1, model=model)
    Path("data/results/ci_a/notes.txt").write_text("no cell")
    folders.keep_only("ci_a", [cell("2wl", 0).results])
    assert [path.as_posix() for path in Path("data/results").glob("*/*")] == ["data/results/ci_a/2wl"]
    assert [path.name for path in Path("data/results/ci_a/2wl").iterdir()] == ["seed-0"]
    written = contents(Path("data/results"))
    folders.keep_only("ci_a", [cell("2wl", 0).results])
    assert contents(Path("data/results")) == written


def test_damaged_records_are_none():
    add(0)
    Path("data/results/ci_a/2wl/seed-0/record.json").write_text("{")
    assert folders.records("ci_a", "2wl") == [] and not cell("2wl", 0).is_finished()


def test_metrics_are_means_over_the_seeds():
    add(0)
    add(1)
    folders.write_metrics("ci_a", ["2wl", "lgbm"])
    assert json.loads(Path("data/metrics/ci_a.json").read_text()) == {"2wl": pytest.approx(1.8)}
    numbers = [{"scores": {"val": {"rmse": 1.0}, "test": {"rmse": rmse, "r2": 0.5}}} for rmse in (2.0, 4.0)]
    assert folders.test_loss(numbers) == 3.0
    assert folders.test_loss([{"scores": {"test": {"accuracy": 0.5}}}]) is None


def test_the_best_of_each_dataset_stands_beside_the_prior_and_lightgbm():
    add(0)
    add(1, model="prior")
    settings_ = settings.load(ROOT / "params.yaml")
    head, line = folders.best_fits(settings_)
    assert head.split()[-3:] == ["RMSE", "prior", "LightGBM"] and head.index("prior") == line.index("1.9")
    assert line.split()[0] == "CI-A" and line.split()[-3:] == ["1.7000", "1.9000", "–"]


def test_curves_are_those_of_the_models_kind():
    loaded = settings.load(ROOT / "params.yaml")
    for model in ("2wl", "baseline", "lgbm"):
        add(0, model=model)
        add(1, model=model)
    folders.write_curves(
        Path("curves"), [("ci_a", each) for each in ("2wl", "baseline", "lgbm", "1wl_s")], loaded
    )
    written = {path.relative_to("curves").as_posix() for path in Path("curves").rglob("*.csv")}
    # there is no δ in these traces, and an empty curve would be drawn as 0
    assert written == {"epsilon/ci_a-2wl.csv", "score/ci_a-2wl.csv", "score/ci_a-baseline.csv"}
    assert pd.read_csv("curves/epsilon/ci_a-2wl.csv")["epsilon"].tolist() == [1.5, 1.5]
    assert list(pd.read_csv("curves/score/ci_a-2wl.csv")) == ["round", "score"]
    plots = yaml.safe_load((ROOT / "dvc.yaml").read_text())["plots"]
    curves = {f"reports/curves/{name}" for name in folders.CURVES}
    assert {place for plot in plots for place in plot} == curves
    for plot in plots:
        for place, drawn in plot.items():
            assert drawn["y"] == [Path(place).name]


def test_a_curve_is_of_the_score_that_the_fit_has():
    trace = pd.DataFrame({"round": [1, 2, 1, 2], "f1_val": np.nan, "rmse_val": [4.0, 3.0, 2.0, 2.0]})
    assert folders.curve(trace, "score") == "round,score\n1,3\n2,2.5\n"
    assert folders.curve(trace, "epsilon") is None

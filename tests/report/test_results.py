"""Scores as the training flow writes them, collected by hand-checked rules."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import refuses
from tests.report import DATASETS, MODELS, SEEDS, fit, write_cell, write_results, write_trace
from usboost.report import paper
from usboost.report.results import (
    COLUMNS,
    behind_prior,
    collect,
    missing,
    profiles,
    read_trace,
    table3,
    write_csv,
)


def _seed(seed: int, test: dict[str, float | None], **more: object) -> dict[str, object]:
    return {"seed": seed, "rounds": 5, "fit_seconds": 1.5, "scores": {"test": test}} | more


def _gain(frame: pd.DataFrame, model: str, seed: int, metric: str) -> float:
    cut = frame[(frame["model"] == model) & (frame["seed"] == seed) & (frame["metric"] == metric)]
    assert len(cut) == 1
    return float(cut["relative_improvement_pct"].iloc[0])


def test_relative_improvement_by_hand(tmp_path: Path) -> None:
    baseline = [_seed(0, {"f1": 0.8, "log_loss": 0.5, "auc": 0.0}), _seed(1, {"f1": 0.5, "log_loss": 0.4})]
    model = [
        _seed(0, {"f1": 0.82, "log_loss": 0.45, "auc": 0.9}),
        _seed(1, {"f1": 0.4, "log_loss": 0.5}),
        _seed(2, {"f1": 0.7}),
    ]
    write_cell(tmp_path, "ct", "baseline", baseline, "demo")
    write_cell(tmp_path, "ct", "2wl", model, "demo")
    frame = collect(tmp_path, ["ct"], ["baseline", "2wl"])
    assert _gain(frame, "2wl", 0, "f1") == pytest.approx(2.5)
    assert _gain(frame, "2wl", 1, "f1") == pytest.approx(-20.0)
    assert _gain(frame, "2wl", 0, "log_loss") == pytest.approx(10.0)
    assert _gain(frame, "2wl", 1, "log_loss") == pytest.approx(-25.0)
    assert _gain(frame, "baseline", 0, "f1") == 0.0
    assert np.isnan(_gain(frame, "2wl", 0, "auc"))  # the baseline's value is 0
    assert np.isnan(_gain(frame, "2wl", 2, "f1"))  # the baseline has no seed 2


def test_baseline_is_compared_with_even_when_it_is_not_asked_for(tmp_path: Path) -> None:
    write_cell(tmp_path, "ct", "baseline", [_seed(0, {"f1": 0.5})], "demo")
    write_cell(tmp_path, "ct", "2wl", [_seed(0, {"f1": 0.6})], "paper")
    frame = collect(tmp_path, ["ct"], ["2wl"])
    assert frame["model"].tolist() == ["2wl"]
    assert frame["relative_improvement_pct"].tolist() == pytest.approx([20.0])
    assert profiles(tmp_path, ["ct"], ["2wl"]) == {"demo", "paper"}


def test_columns_order_and_gbm(tmp_path: Path) -> None:
    write_results(tmp_path)
    frame = collect(tmp_path, DATASETS, tuple(reversed(MODELS)))
    assert tuple(frame.columns) == COLUMNS
    assert ",".join(COLUMNS) == (
        "dataset,model,seed,split,metric,value,relative_improvement_pct,best_round,rounds,fit_seconds"
    )
    order = frame.drop_duplicates(["dataset", "model"])[["dataset", "model"]].to_numpy().tolist()
    assert order == [[d, m] for d in DATASETS for m in ("baseline", "bfv_dnn", "gbm", *MODELS[2:])]
    assert frame["metric"].head(8).tolist() == ["f1", "accuracy", "auc", "log_loss"] * 2
    assert frame["split"].head(8).tolist() == ["val"] * 4 + ["test"] * 4
    assert len(frame) == len(DATASETS) * (len(MODELS) + 1) * len(SEEDS) * 2 * 4
    gbm = frame[frame["model"] == "gbm"]
    assert gbm["rounds"].isna().all() and gbm["fit_seconds"].isna().all()
    record = json.loads((tmp_path / "mi" / "bfv_dnn" / "seed-1/record.json").read_text())
    assert gbm.iloc[-4]["value"] == record["gbm"]["test"]["f1"]


@settings(max_examples=30)  # of 72
@given(
    st.permutations(range(3)), st.permutations(["f1", "auc", "log_loss"]), st.permutations(["val", "test"])
)
def test_csv_does_not_depend_on_the_order_in_the_files(
    tmp_path_factory: pytest.TempPathFactory, seeds: list[int], metrics: list[str], splits: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("results")
    names = [(tuple(range(3)), ("f1", "auc", "log_loss"), ("val", "test")), (seeds, metrics, splits)]
    for number, (s, m, p) in enumerate(names):
        fits = [
            {"seed": seed, "scores": {split: {name: 0.1 * seed + len(name) for name in m} for split in p}}
            for seed in s
        ]
        write_cell(folder, "ct", "baseline", fits, "demo")
        write_csv(collect(folder, ["ct"], ["baseline"]), folder / f"{number}.csv")
    assert (folder / "0.csv").read_bytes() == (folder / "1.csv").read_bytes()


def test_csv_has_six_digits_and_empty_cells(tmp_path: Path) -> None:
    write_cell(tmp_path, "ct", "2wl", [_seed(0, {"f1": 1 / 3, "auc": None})], "demo")
    path = tmp_path / "out" / "results.csv"
    write_csv(collect(tmp_path, ["ct"], ["2wl"]), path)
    lines = path.read_text().splitlines()[1:]
    assert lines == ["ct,2wl,0,test,f1,0.333333,,,5,1.5", "ct,2wl,0,test,auc,,,,5,1.5"]
    write_csv(collect(tmp_path, ["ct"], ["2wl"]).head(1), path)
    assert len(path.read_text().splitlines()) == 2
    assert [p.name for p in path.parent.iterdir()] == ["results.csv"]


def test_table3_against_numpy(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    base, model = rng.uniform(0.5, 0.9, (2, 4))
    write_cell(tmp_path, "mi", "baseline", [fit(s, base[s]) for s in range(4)], "paper")
    write_cell(tmp_path, "mi", "2wl", [fit(s, model[s]) for s in range(4)], "paper")
    row = table3(collect(tmp_path, ["mi"], ["baseline", "2wl"]), "test", "f1").set_index("model").loc["2wl"]
    gains = 100 * (model / base - 1)
    assert row["value_mean"] == pytest.approx(model.mean())
    assert row["value_std"] == pytest.approx(model.std(ddof=1))
    assert row["improvement_mean"] == pytest.approx(gains.mean())
    assert row["improvement_std"] == pytest.approx(gains.std(ddof=1))
    assert row["value_seeds"] == row["improvement_seeds"] == 4


def test_table3_of_one_seed_has_no_spread(tmp_path: Path) -> None:
    write_cell(tmp_path, "mi", "2wl", [fit(3, 0.7)], "paper")
    row = table3(collect(tmp_path, ["mi"], ["2wl"]), "val", "f1").iloc[0]
    assert row["value_mean"] == pytest.approx(0.71)
    assert np.isnan(row["value_std"]) and row["value_seeds"] == 1
    assert np.isnan(row["improvement_mean"]) and row["improvement_seeds"] == 0


def test_missing_cells_are_listed_in_table_order(tmp_path: Path) -> None:
    write_cell(tmp_path, "ct", "2wl", [fit(0, 0.7)], "demo")
    write_cell(tmp_path, "mi", "bfv_dnn", [fit(0, 0.7, gbm={"test": {"f1": 0.6}})], "demo")
    assert missing(tmp_path, ["mi", "ct"], ["lgbm", "gbm", "2wl", "bfv_dnn"]) == [
        ("mi", "2wl"),
        ("mi", "lgbm"),
        ("ct", "bfv_dnn"),
        ("ct", "gbm"),
        ("ct", "lgbm"),
    ]
    assert set(collect(tmp_path, ["mi", "ct"], ["2wl"])["dataset"]) == {"ct"}


def test_empty_results_are_a_clear_error(tmp_path: Path) -> None:
    refuses(r"no record.json found under .* ct .* 2wl; run the training", collect, tmp_path, ["ct"], ["2wl"])


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("{", "Invalid JSON"),
        ('{"dataset": "ct", "model": "2wl", "profile": "demo", "seed": 0}', "scores"),
        ('{"dataset": "ct", "model": "2wl", "profile": "mine", "seed": 0, "scores": {}}', "profile"),
        ('{"dataset": "mi", "model": "2wl", "profile": "demo", "seed": 0, "scores": {}}', "on mi"),
        ('{"dataset": "ct", "model": "2wl", "profile": "demo", "seed": 1, "scores": {}}', "with seed 1"),
    ],
)
def test_a_broken_record_is_named(tmp_path: Path, text: str, names: str) -> None:
    (tmp_path / "ct/2wl/seed-0").mkdir(parents=True)
    (tmp_path / "ct/2wl/seed-0/record.json").write_text(text)
    refuses(rf"record\.json.*{names}", collect, tmp_path, ["ct"], ["2wl"])


def test_trace_marks_the_best_round_and_fills_columns(tmp_path: Path) -> None:
    write_cell(tmp_path, "ct", "2wl", [fit(0, 0.7, best_round=2), fit(1, 0.7, best_round=None)], "demo")
    trace = pd.DataFrame(
        {"seed": [1, 1, 1, 0, 0, 0], "round": [3, 2, 1] * 2, "f1_val": [0.1, 0.3, 0.2, 0.9, 0.5, 0.6]}
    )
    write_trace(tmp_path, "ct", "2wl", trace)
    read = read_trace(tmp_path, "ct", "2wl")
    assert read[["seed", "round"]].to_numpy().tolist() == [[s, r] for s in (0, 1) for r in (1, 2, 3)]
    assert read.loc[read["best"], ["seed", "round"]].to_numpy().tolist() == [[0, 2]]
    assert read["epsilon"].isna().all()
    assert read_trace(tmp_path, "ct", "1wl_u") is None


def test_a_broken_trace_is_named(tmp_path: Path) -> None:
    write_cell(tmp_path, "ct", "2wl", [fit(0, 0.7)], "demo")
    path = tmp_path / "ct/2wl/seed-0/trace.parquet"
    path.write_bytes(b"not parquet")
    refuses(r"trace\.parquet is not a Parquet file", read_trace, tmp_path, "ct", "2wl")
    pd.DataFrame({"seed": [0]}).to_parquet(path)
    refuses("no column 'round'", read_trace, tmp_path, "ct", "2wl")


def test_the_papers_tables() -> None:
    printed = {model: list(row.values()) for model, row in paper.IMPROVEMENT.items()}
    assert printed == {
        "bfv_dnn": [1.87, 4.70, 0.08, 0.34, 0.11],
        "2wl": [3.50, 0.14, -0.37, -0.09, -0.60],
        "2wl_fix": [0.68, -2.10, -0.36, -3.45, -2.37],
        "2wl2o": [3.97, 0.25, 0.10, 0.13, 0.41],
        "2wl2o_fix": [-7.87, -19.85, -0.23, -0.14, -5.37],
        "1wl_s": [-7.04, -8.17, -9.21],
        "1wl_u": [-0.48, -0.16, -1.93],
    }
    assert paper.improvement("ct", "1wl_s") == -7.04
    assert paper.improvement("ci_a", "1wl_s") is None and paper.improvement("ct", "baseline") is None
    assert [paper.metric_of(d) for d in paper.DATASETS] == ["f1"] * 4 + ["accuracy"]


def test_a_model_that_is_behind_the_prior_is_told_why():
    """The prior of two equal classes has a log-loss of .6931 on both splits."""
    counts = {"classes": {"a": 10, "b": 10}}
    card = {"splits": dict.fromkeys(("train", "val", "test"), counts)}
    cells = {  # test and validation loss, best round, rounds
        "2wl_fix": (0.9, 0.9, 100, 100),
        "2wl": (0.9, 0.5, 3, 18),
        "1wl_u": (0.9, 0.8, 1, 16),
        "lgbm": (0.6, 0.6, 9, 9),
        "prior": (0.7, 0.7, 1, 1),
    }
    rows = [
        ("ct", model, 0, split, "log_loss", loss, best, rounds)
        for model, (test, val, best, rounds) in cells.items()
        for split, loss in (("test", test), ("val", val))
    ]
    names = ("dataset", "model", "seed", "split", "metric", "value", "best_round", "rounds")
    why = behind_prior(pd.DataFrame(rows, columns=list(names)), card)
    assert list(why) == ["2wl_fix", "2wl", "1wl_u"]
    assert "settled" in why["2wl_fix"] and "below" in why["2wl"] and "at no round" in why["1wl_u"]
    assert behind_prior(pd.DataFrame(rows, columns=list(names)), {}) == {}

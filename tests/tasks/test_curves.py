"""What DVC compares: means over the seeds, and the same files for every fit of a stage."""

from __future__ import annotations

import json

import pandas as pd
import yaml

from tasks import curves
from tasks.stages import ROOT

RECORDS = [
    {"scores": {"val": {"f1": 0.5, "log_loss": 1.0}, "test": {"f1": 0.4, "auc": 0.9}}},
    {"scores": {"val": {"f1": 0.7, "log_loss": 2.0}, "test": {"f1": 0.6, "auc": 0.8}}},
]
TRACE = pd.DataFrame(
    {"seed": [0, 0, 1], "round": [1, 2, 1], "f1_val": [0.2, 0.4, 0.4], "epsilon": [1.0, 2.0, 3.0]}
)


def test_means_over_the_seeds(tmp_path):
    curves.write(tmp_path, "iris/2wl", "boosting", RECORDS, TRACE)
    assert json.loads((tmp_path / "metrics/iris/2wl.json").read_text()) == {
        "val": {"f1": 0.6, "log_loss": 1.5},
        "test": {"f1": 0.5},
    }
    rounds = pd.read_csv(tmp_path / "rounds/iris/2wl.csv")
    assert rounds["f1_val"].tolist() == [0.3, 0.4] and rounds["round"].tolist() == [1, 2]
    steps = pd.read_csv(tmp_path / "steps/iris/2wl.csv")
    assert steps["epsilon"].tolist() == [2.0, 2.0] and steps["delta"].isna().all()


def test_of_a_number_its_rmse(tmp_path):
    records = [{"scores": {"val": {"rmse": 2.0, "mae": 1.0, "r2": 0.5}}}]
    curves.write(tmp_path, "custom/2wl", "boosting", records, TRACE.rename(columns={"f1_val": "rmse_val"}))
    assert json.loads((tmp_path / "metrics/custom/2wl.json").read_text()) == {"val": {"rmse": 2.0, "r2": 0.5}}
    rounds = pd.read_csv(tmp_path / "rounds/custom/2wl.csv")
    assert rounds["rmse_val"].tolist() == [0.3, 0.4] and rounds["f1_val"].isna().all()
    plots = yaml.safe_load((ROOT / "dvc.yaml").read_text())["plots"]
    assert {column for plot in plots for each in plot.values() for column in each["y"]} <= {
        column for columns in curves.COLUMNS.values() for column in columns
    }


def test_dvc_yaml_declares_the_curves_of_each_kind(tmp_path):
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    for kind, stage in (("two_branch", "baseline"), ("bfv_network", "bfv_dnn"), ("boosting", "boosting")):
        curves.write(tmp_path / kind, "a/b", kind, RECORDS, TRACE.head(0))
        written = {path.relative_to(tmp_path / kind).parts[0] for path in (tmp_path / kind).glob("*/*/*")}
        declared = [next(iter(out)) for out in [*stages[stage]["outs"], *stages[stage]["metrics"]]]
        assert written == {out.split("/")[2] for out in declared if out.startswith("data/curves")}

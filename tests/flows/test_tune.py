"""The search for settings as a flow: its files, its MLflow runs, and that it goes on."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest
import yaml

from tests.flows.conftest import Workspace

pytestmark = pytest.mark.slow

ARGUMENTS = ("ci_b", "--model", "2wl", "--model", "lgbm", "--jobs", "1")


def runs(workspace: Workspace) -> pd.DataFrame:
    """Name, status and tags of the runs of searches."""
    place = Path(workspace.environment["USBOOST_HOME"]) / "mlflow.db"
    with closing(sqlite3.connect(place)) as store:
        found = pd.read_sql(
            "select r.run_uuid, r.name, r.status from runs r join experiments e using (experiment_id) "
            "where e.name = 'usboost-demo-tuning'",
            store,
        ).set_index("run_uuid")
        parts = {
            table: pd.read_sql(f"select run_uuid, key, value from {table}", store)
            for table in ("tags", "latest_metrics")
        }
    for part in parts.values():
        own = part[part["run_uuid"].isin(found.index)]
        found = found.join(own.pivot(index="run_uuid", columns="key", values="value"), how="left")
    return found


def test_it_searches_goes_on_and_can_be_applied(workspace: Workspace) -> None:
    refused = workspace.flow("tune", "ci_b", "--model", "bfv_dnn", check=False)
    assert "reads features that are fitted before it" in refused.stderr
    done = workspace.flow("tune", *ARGUMENTS, "--trials", "2")
    assert "dvc exp run -S '++models={2wl: {set: {" in done.stdout
    folder = workspace.folder / "data/tuning/ci_b"
    first = runs(workspace)
    assert sorted(first["name"]) == ["2wl 0", "2wl 1", "ci_b tuning", "lgbm 0", "lgbm 1"]
    assert set(first["status"]) == {"FINISHED"}
    (parent,) = first.index[first["name"] == "ci_b tuning"]
    children = first.drop(index=parent)
    assert set(children["mlflow.parentRunId"]) == {parent}
    trials = pd.read_csv(folder / "trials.csv")
    logged = children.set_index("name")["val/log_loss"]
    for each in trials.itertuples():
        assert logged[f"{each.model} {each.trial}"] == pytest.approx(each.log_loss)
    again = workspace.flow("tune", *ARGUMENTS, "--trials", "3", "--apply")
    assert "params.yaml" in again.stdout
    second = runs(workspace)
    assert len(second) == 7 and set(first.index) <= set(second.index)
    kept = yaml.safe_load((folder / "settings.yaml").read_text())["models"]
    params = yaml.safe_load((workspace.folder / "params.yaml").read_text())["models"]
    assert {name: params[name] for name in kept} == kept
    best = pd.read_csv(folder / "trials.csv").groupby("model")["log_loss"].min()
    assert second.loc[parent, "tuned/lgbm"] == pytest.approx(best["lgbm"])

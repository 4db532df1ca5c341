"""Which model has the alias, and the rows that its requests are compared with; without Prefect."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tasks import mlflow_log, mlflow_runs, registered_models
from tasks.folders import prepared_folder
from tests.conftest import refuses
from tests.workspaces import mlflow_store
from usboost.datasets import store
from usboost.fit.build import fit
from usboost.table import prepared
from usboost.table.spec import TableSpec

SPLIT = np.repeat(["train", "val", "test"], [100, 60, 40])
A = np.random.default_rng(0).normal(size=200) + np.where(SPLIT == "train", 0.0, 9.0)


@pytest.fixture(autouse=True, scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A prepared table whose validation rows have other numbers than its training rows."""
    folder = tmp_path_factory.mktemp("champion")
    with mlflow_store(folder), pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        pd.DataFrame({"a": A, "split": SPLIT, "y": np.where(np.arange(200) % 2, "p", "n")}).to_csv("t.csv")
        made = prepared.prepare(folder / "t.csv", TableSpec("y", split="split"), seed=0, profile="user")
        store.write(made, prepared_folder("user_table"))
        yield


def logged(model: str, f1: float, refit: bool = False) -> None:
    """Log a fit's run, as the pipeline would."""
    found = fit(prepared.read_prepared(prepared_folder("user_table")), model, refit=refit).bundle
    found.save(Path(model, "bundle"))
    tags = {"dataset": "user_table", "model": model, "seed": "0"}
    tags |= mlflow_runs.lineage({"prepared": prepared_folder("user_table")})
    with mlflow_runs.tracked_run("usboost-user", model, tags) as run_id:
        registered_models.log_bundle(run_id, Path(model, "bundle"), found.card, model, tags)
        mlflow_log.log_metrics(run_id, (), **{f"{split}/f1": f1 for split in ("val", "test")})
        mlflow_log.log_metrics(run_id, (), **{"val/log_loss": 0.7})


@pytest.mark.slow
def test_a_candidate_that_is_level_does_not_take_the_alias() -> None:
    logged("logistic", 0.5)
    assert registered_models.promote("user_table", "", "f1")[0]
    logged("prior", 0.5)
    moved, why = registered_models.promote("user_table", "prior", "f1")
    assert not moved and "not better than version 1" in why
    logged("logistic", 0.6)
    assert registered_models.promote("user_table", "", "f1")[0]


@pytest.mark.parametrize("refit", [False, True])
def test_requests_are_compared_with_the_rows_that_the_champion_was_fitted_to(refit: bool) -> None:
    logged("logistic", 0.7 + 0.1 * refit, refit)
    registered_models.promote("user_table", "", "f1")
    for name, rows in (("all", SPLIT != "test"), ("train", SPLIT == "train")):
        pd.DataFrame({"a": A[rows]}).to_csv(f"{name}.csv", index=False)
        columns = registered_models.compare_requests("user_table", Path(f"{name}.csv"), 0.2, 0.1)[2]
        assert (columns["drift"] != "").any() == ((name == "all") != refit)
    card = prepared_folder("user_table") / "card.json"
    text = card.read_text()
    card.write_text(text.replace('"seed": 0', '"seed": 1'))
    refuses("other data", registered_models.compare_requests, "user_table", Path("train.csv"), 0.2, 0.1)
    card.write_text(text)

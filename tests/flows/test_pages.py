"""What the page of each flow run shows: read from the database of Prefect's server."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

from tests.flows.test_pipeline import runs

pytestmark = pytest.mark.slow

FLOWS = ("data-ci_b", "data-user_table", "fit-ci_b", "fit-iris", "report")


@pytest.fixture(scope="module")
def pages(reproduced) -> dict[str, pd.DataFrame]:
    """The tables ``flow_run``, ``artifact`` and ``log`` of Prefect's server."""
    database = Path(reproduced.environment["USBOOST_HOME"]) / "prefect/prefect.db"
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return {
            table: pd.read_sql_query(f"SELECT * FROM {table}", connection)
            for table in ("flow_run", "artifact", "log")
        }


def of(pages, table: str, name: str) -> pd.DataFrame:
    """What a table has of the first flow run of a name."""
    found = pages["flow_run"].query("name == @name").sort_values("created")
    return pages[table][pages[table]["flow_run_id"] == found["id"].iloc[0]]


@pytest.mark.parametrize("name", FLOWS)
def test_every_page_has_a_table_and_log_lines(pages, name):
    artifacts = of(pages, "artifact", name)
    tables = artifacts[artifacts["type"] == "table"]["data"]
    assert len(tables) and all(json.loads(json.loads(table)) for table in tables)
    assert set(artifacts["description"].notna()) == {True}
    assert len(of(pages, "log", name)) >= 1


def test_a_training_shows_its_scores_its_progress_and_its_mlflow_run(pages, reproduced):
    artifacts = of(pages, "artifact", "fit-ci_b").set_index("key")
    rows = json.loads(json.loads(artifacts.loc["scores-ci-b", "data"]))
    record = reproduced.record("ci_b", "2wl")
    assert {(row["split"], row["F1"]) for row in rows if row["model"] == "2wl"} == {
        (split, round(scores["f1"], 4)) for split, scores in record["scores"].items()
    }
    run = record["made"]["mlflow_run"]
    assert run in set(runs(reproduced)["run_id"])
    link = artifacts.loc["mlflow-ci-b-2wl-seed-0"]
    assert f"`{run}`" in link["data"] and "make ui" in link["data"]
    said = " ".join(of(pages, "log", "fit-ci_b")["message"])
    assert "2WL on ci_b, seed 0; rows: " in said
    assert "ci_b 2wl seed 0: round 1 of at most 3, risk " in said
    assert f"best round {record['best_round']} of 3" in said
    assert f"F1 {record['scores']['test']['f1']:.4f}" in said

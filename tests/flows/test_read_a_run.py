"""The example that reads runs back, on those of the tests' pipeline."""

import sys
from pathlib import Path

import pytest

from tests.flows.conftest import ROOT, Workspace

pytestmark = pytest.mark.slow


def test_it_shows_scores_rounds_and_answers(reproduced: Workspace, tmp_path: Path) -> None:
    store = f"sqlite:///{reproduced.environment['USBOOST_HOME']}/mlflow.db"
    example = [sys.executable, str(ROOT / "examples/read_a_run.py")]
    lines = reproduced.run(*example, store, "user_table", PYTHONPATH=str(ROOT)).stdout.splitlines()
    first = next(k for k, line in enumerate(lines) if line.startswith("round"))
    fits, lines = [line.split() for line in lines[1:first]], lines[first:]
    assert {model for _, _, dataset, model, *_ in fits if dataset == "user_table"} >= {
        *("baseline", "bfv_dnn", "2wl", "lgbm")
    }
    assert [float(val) for val, *_ in fits] == sorted(float(val) for val, *_ in fits)
    assert [line.split(":")[0] for line in lines[:3]] == ["round 1", "round 2", "round 3"]
    assert lines[3].split() == ["label", "p_mixed", "p_plates", "p_wedges"]
    assert lines[-1] == f"{fits[0][3]} reads weight hardness colour … and answers mixed plates wedges"
    none = reproduced.run(*example, store, "parts", PYTHONPATH=str(ROOT), check=False)
    assert none.returncode == 1 and "no finished fit of parts" in none.stderr

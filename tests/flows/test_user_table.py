"""The tutorial's table through the pipeline to a served model, by the documents' own commands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from flows.local import servers
from tests.flows.user_table import asked, block, served
from usboost.models import catalogue
from usboost.table.demo import write_demo

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]


def test_from_the_tutorials_table_to_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    for name in ("MLFLOW_TRACKING_URI", "PREFECT_HOME", "PREFECT_API_URL", "USBOOST_HOME", "DVC_STAGE"):
        environment.pop(name, None)

    def run(commands: str, folder: Path) -> str:
        done = subprocess.run(
            ["bash", "-ec", commands], cwd=folder, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    monkeypatch.chdir(tmp_path)
    write_demo(tmp_path / "parts", rows_train=200, rows_test=50, seed=0, split=False)
    run(block("tutorial.md", "sh", "flows.local.workspace"), tmp_path)
    workspace = tmp_path / "parts-run"
    page = (workspace / "reports/index.html").read_text()
    assert "Your data: predicting batch" in page and "Demo data" not in page
    assert not (workspace / "reports/paper.html").exists()
    results = pd.read_csv(workspace / "reports/results.csv")
    assert set(results["dataset"]) == {"user_table"}
    assert set(results["model"]) == set(catalogue.compared(one_table=False))
    (best,) = re.findall(r"<li>Selected \(validation [^<]*<b>([^<]+)</b>", page)
    promoted = run(block("team.md", "sh", "flows.promote user_table\n"), workspace)
    (model,) = re.findall(r"user_table (\w+) seed 0: f1", promoted)
    assert catalogue.title(model) == best
    port = servers.free_port()
    with served(workspace, environment, port):
        answer = asked(next((tmp_path / "parts/images").glob("*.png")), port)
    assert f"p_{answer['label']}" in answer

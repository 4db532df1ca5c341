"""A tiny workspace, run for real: dvc, a Prefect server and an MLflow store in temporary folders."""

import fcntl
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from flows.local.workspace import CODE
from tests.flows.local.detached import end_below
from tests.warm import FLOWS, Warm

ROOT = Path(__file__).resolve().parents[2]

DATA = {
    "ci_a": {"rows_train": 700, "rows_test": 400},
    "ci_b": {"rows_train": 700, "rows_test": 400, "elimination_rows": 300, "elimination_tolerance": 0.3},
    "ct": {"rows_train": 250, "rows_test": 50, "image_size": 24},
    "mi": {"rows_train": 200, "rows_test": 50, "image_size": 24},
    "user_table": {"rows_train": 120, "rows_test": 40, "image_size": 24},
    "iris": {},
    "digits_rows": {},
}
DATASETS = ["ci_b", "user_table", "iris", "digits_rows"]
MODELS = ["baseline", "bfv_dnn", "2wl", "lgbm"]
COMMANDS = (
    *(*FLOWS, "mlflow.server.fastapi_app", "uvicorn"),
    *("dvc.cli.parser", "dvc.dependency", "dvc.output", "dvc.repo"),
    *("dvc.repo.index", "dvc.repo.plots", "dvc.repo.stage", "dvc.scm", "dvc.stage", "dvc.utils.strictyaml"),
)
"""What the flows import, DVC, and MLflow's server."""


NOT_NEEDED = (
    *("SCHEDULER", "LATE_RUNS", "FOREMAN", "PAUSE_EXPIRATIONS", "CANCELLATION_CLEANUP", "REPOSSESSOR"),
    "TRIGGERS",
)


class Workspace:
    """A folder with params.yaml and dvc.yaml, and commands run in it; Python's warm where `warm` is given."""

    def __init__(self, folder: Path, home: Path, warm: Warm | None = None) -> None:
        self.folder, self.warm = folder, warm
        self.environment = {
            **os.environ,
            "USBOOST_HOME": str(home),
            "USBOOST_PREFECT_PORT": "0",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
            # what Prefect's server does for schedules; an idle one takes a tenth of a core for it
            **{f"PREFECT_SERVER_SERVICES_{name}_ENABLED": "false" for name in NOT_NEEDED},
        }
        for name in ("MLFLOW_TRACKING_URI", "PREFECT_HOME", "USBOOST_DATA", "DVC_STAGE"):
            self.environment.pop(name, None)

    def run(self, *words: str, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
        env = {**self.environment, **environment}
        if self.warm and words[0] == "dvc":
            stages = env if "PATH" in environment else self.warm.shim(env)
            done = self.warm.run(["-m", *words], self.folder, stages)
        elif self.warm and words[0] == sys.executable:
            done = self.warm.run(words[1:], self.folder, env)
        else:
            done = subprocess.run(
                words, cwd=self.folder, env=env, capture_output=True, text=True, timeout=1800
            )
        if check and done.returncode:
            raise AssertionError(f"{words} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
        return done

    def flow(self, name: str, *words: str, **options) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-m", f"flows.{name}", *words, **options)

    def copy(self, folder: Path) -> "Workspace":
        """The same workspace, as it is, in another folder."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True, symlinks=True)
        return Workspace(folder, Path(self.environment["USBOOST_HOME"]), self.warm)

    def prepare(self, dataset: str) -> None:
        """One dataset more."""
        self.params(lambda p: p["run"]["datasets"].append(dataset))
        self.run("dvc", "repro", f"data@{dataset}")

    def record(self, dataset: str, model: str, seed: int = 0) -> dict[str, Any]:
        """What a fit has left."""
        folder = self.folder / "data/results" / dataset / model / f"seed-{seed}"
        return json.loads((folder / "record.json").read_text())

    def trace(self, dataset: str, model: str) -> pd.DataFrame:
        """Its rounds without their seconds, of all seeds."""
        files = sorted((self.folder / "data/results" / dataset / model).glob("seed-*/trace.parquet"))
        trace = pd.concat(map(pd.read_parquet, files), ignore_index=True)
        return trace[[name for name in trace if "seconds" not in name]]

    def params(self, change) -> None:
        """Edit params.yaml with a function of the parsed document."""
        path = self.folder / "params.yaml"
        document = yaml.safe_load(path.read_text())
        change(document)
        path.write_text(yaml.safe_dump(document, sort_keys=False))


@pytest.fixture(scope="session")
def warm_flows() -> Iterator[Warm]:
    """What runs stages, each a command; cold, each would import for seconds."""
    made = Warm(COMMANDS, limit=600)
    yield made
    made.end()


@pytest.fixture(scope="session")
def reproduced(warm_flows, tmp_path_factory) -> "Workspace":
    """A workspace after `dvc repro` on tiny demo data: a table and one with images, four models.

    Made once; each test process has a copy and a home of its own.
    """
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    made, finished = shared / "made", shared / "made/finished"
    with (shared / "made.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # ends with the process that holds it
        if not finished.exists():
            shutil.rmtree(made, ignore_errors=True)
            try:
                make(made / "workspace", made / "home", warm_flows)
            finally:
                end_below(made)
            finished.touch()
    own = tmp_path_factory.mktemp("own")
    shutil.copytree(made / "workspace", own / "workspace", symlinks=True)
    copy_home(made / "home", own / "home")
    return Workspace(own / "workspace", own / "home", warm_flows)


def copy_home(made: Path, own: Path) -> None:
    """The databases and artifacts of a home, which a server may be using."""
    shutil.copytree(made, own, ignore=shutil.ignore_patterns("prefect*", "*.db*"))
    (own / "prefect").mkdir()
    for name in ("mlflow.db", "prefect/prefect.db"):
        with closing(sqlite3.connect(made / name)) as known, closing(sqlite3.connect(own / name)) as copy:
            known.backup(copy)


def make(folder: Path, home: Path, warm: Warm) -> None:
    """The workspace that `reproduced` copies."""
    document = yaml.safe_load((ROOT / "params.yaml").read_text())
    sizes = document["profiles"]["demo"]
    sizes["seeds"], sizes["data"], sizes["features"]["trees"] = 1, DATA, 8
    sizes["networks"]["epochs"], sizes["boosting"]["rounds"], sizes["boosting"]["batch_size"] = 2, 3, 64
    sizes["rounds"] = 3  # of the drawn table, which has the command line's settings
    document["run"] = {
        "datasets": DATASETS,
        "models": MODELS,
        "models_of": {"iris": ["bnn"], "digits_rows": ["earlyboost"]},
    }
    document["bnn"] = {"loss": "squared", "hidden": 4, "epochs": 2, "rounds": 2}
    folder.mkdir(parents=True)
    (folder / "params.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    shutil.copy(ROOT / "dvc.yaml", folder)
    shutil.copy(ROOT / ".dvcignore", folder)
    for name in CODE:
        (folder / name).symlink_to(ROOT / name)
    workspace = Workspace(folder, home, warm)
    workspace.run("dvc", "init", "--quiet", "--no-scm")
    workspace.run("dvc", "config", "core.analytics", "false")
    workspace.run("dvc", "config", "core.check_update", "false")
    workspace.run("dvc", "repro")


@pytest.fixture
def workspace(reproduced, tmp_path) -> "Workspace":
    """A copy that a test may spoil."""
    return reproduced.copy(tmp_path / "copy")

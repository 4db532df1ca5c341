"""The wheel, built from the tracked files and installed alone, with nothing of the checkout in sight."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import usboost
from tests.fit.conftest import numbers

pytestmark = pytest.mark.long

ROOT = Path(__file__).parent.parent
UV = Path(sys.executable).parent / "uv"  # the Makefile installs it


def run(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    inherited = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment = {**inherited, "OMP_NUM_THREADS": "1"}
    return subprocess.run([*map(str, words)], cwd=cwd, env=environment, capture_output=True, text=True)


def succeeds(*words: object, cwd: Path) -> str:
    done = run(*words, cwd=cwd)
    assert done.returncode == 0, f"{words}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("build")
    for name in succeeds("git", "ls-files", "-z", cwd=ROOT).split("\0")[:-1]:
        if (ROOT / name).is_file():
            (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / "source" / name)
    pins = ("--build-constraints", ROOT / "constraints.txt")
    succeeds(UV, "build", "--quiet", *pins, "--out-dir", folder / "dist", folder / "source", cwd=folder)
    (built,) = (folder / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def binaries(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of an environment with the wheel and what it asks for."""
    folder = tmp_path_factory.mktemp("environment")
    found = folder / "env/bin"
    succeeds(UV, "venv", "--quiet", "--python", sys.executable, "env", cwd=folder)
    options = ("--quiet", "--python", found / "python", "-c", ROOT / "constraints.txt")
    succeeds(UV, "pip", "install", *options, wheel, cwd=folder)
    return found


def test_what_is_in_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    tracked = succeeds("git", "ls-files", "usboost", "tasks", "flows", cwd=ROOT).split()
    assert {name for name in tracked if (ROOT / name).is_file()} <= held
    assert {"usboost/py.typed", "usboost/report/templates/page.html.j2"} <= held
    assert {name.split("/")[0].split("-")[0] for name in held} == {"usboost", "tasks", "flows"}
    assert wheel.name.startswith(f"usboost-{usboost.__version__}-")


def test_it_works_without_the_pipeline(binaries: Path, tmp_path: Path) -> None:
    for name in ("prefect", "mlflow", "dvc"):
        done = run(binaries / "python", "-c", f"import {name}", cwd=tmp_path)
        assert f"No module named '{name}'" in done.stderr
    shutil.copy(ROOT / "tests/alone.py", tmp_path)
    version, where = succeeds(binaries / "python", "alone.py", tmp_path, cwd=tmp_path).split()
    assert version == usboost.__version__
    assert Path(where).is_relative_to(binaries.parent)


def test_its_command_works(binaries: Path, tmp_path: Path) -> None:
    command = binaries / "usboost"
    assert "compare" in succeeds(command, "--help", cwd=tmp_path)
    numbers(200).to_csv(tmp_path / "t.csv", index=False)
    succeeds(command, "fit", "t.csv", "--label", "kind", "--rounds", 3, cwd=tmp_path)
    succeeds(command, "predict", "model", "t.csv", "--out", "p.csv", cwd=tmp_path)
    succeeds(command, "report", "model", "t.csv", "--out", "r.html", cwd=tmp_path)
    assert (tmp_path / "p.csv").read_text().count("\n") == 201
    assert "</html>" in (tmp_path / "r.html").read_text()

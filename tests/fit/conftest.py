"""A small table with images, and models fitted to it through the command line."""

import os
import subprocess
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from tests.conftest import ROOT
from usboost.cli.app import app
from usboost.errors import UsboostWarning
from usboost.table.demo import write_demo
from usboost.table.source import FrameRows
from usboost.table.spec import TableSpec
from usboost.table.user_table import UserTable, read_table

ROLES = ("--label", "batch", "--image", "image", "--size", "32", "--drop", "split")


def run(*arguments: object) -> Result:
    """The command with these arguments; what it raised but did not tell fails the test."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def accepted(*arguments: object) -> Result:
    """What a command said that ends with 0."""
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def refused(*arguments: object) -> str:
    """The one sentence on stderr of a command that exits with 1 and says nothing else."""
    result = run(*arguments)
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
    return result.stderr.removeprefix("error: ").rstrip("\n")


def environment(**more: str) -> dict[str, str]:
    """Of a command of its own, which runs this checkout."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, **more}


def until(process: subprocess.Popen[str], happens: Callable[[], object], seconds: float = 120) -> None:
    """Wait for something that a process does before it ends."""
    last = time.monotonic() + seconds
    while not happens():
        assert process.poll() is None and time.monotonic() < last, process.communicate()
        time.sleep(0.001)


def told(work: Callable[[], Any]) -> tuple[Any, list[str]]:
    """An answer, and the notes that came with it."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        answer = work()
    return answer, [str(each.message) for each in found if issubclass(each.category, UsboostWarning)]


@pytest.fixture(scope="session")
def demo(tmp_path_factory) -> Path:
    """``table.csv`` of 120 rows of three classes, with images."""
    folder = tmp_path_factory.mktemp("demo")
    write_demo(folder, rows_train=80, rows_test=20, seed=0)
    return folder / "table.csv"


@pytest.fixture(scope="session")
def model(demo, tmp_path_factory) -> Path:
    """A model of the table with images."""
    out = tmp_path_factory.mktemp("model") / "model"
    accepted("fit", demo, *ROLES, "--preset", "fast", "--rounds", 4, "--out", out)
    return out


def numbers(n: int, seed: int = 0, classes: int = 2) -> pd.DataFrame:
    """Rows without images: numbers, some missing, a category, and a label that depends on them."""
    rng = np.random.default_rng(seed)
    height, colour = rng.normal(size=n), rng.choice(["red", "green", "blue"], n)
    score = height + (colour == "red") + 0.3 * rng.normal(size=n)
    label = np.digitize(score, np.quantile(score, np.linspace(0, 1, classes + 1)[1:-1]))
    return pd.DataFrame(
        {
            "height": np.where(rng.random(n) < 0.1, np.nan, height),
            "width": rng.integers(0, 9, n),
            "colour": colour,
            "kind": np.array(["no", "yes", "maybe"])[label],
        }
    )


def labelled(n: int, classes: int = 2) -> tuple[pd.DataFrame, pd.Series]:
    """Such rows without their label, and it."""
    frame = numbers(n, classes=classes)
    return frame.drop(columns="kind"), frame["kind"]


def table_of(n: int, classes: int = 2, **columns: Any) -> UserTable:
    """Such rows as a table, with more columns."""
    return read_table(FrameRows(numbers(n, classes=classes).assign(**columns)), TableSpec("kind"))

"""What is imported is declared, by whom it is needed; what is declared is needed."""

import re
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.test_architecture import imported

ROOT = Path(__file__).parent.parent
USER_TABLE = {"usboost", "tasks", "flows", "benchmarks", "tests"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def normal(name: str) -> str:
    """A distribution's name as indexes spell it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(*extras: str) -> set[str]:
    """Distributions that the library and these extras ask for, the extras named by extras included."""
    found: set[str] = set()
    for requirement in [*PROJECT["dependencies"], *(each for name in extras for each in EXTRAS[name])]:
        name, *more = re.findall(r"[\w.-]+", requirement)
        found |= declared(*more) if name == "usboost" else {normal(name)}
    return found


@cache
def used(folder: str) -> dict[str, Path]:
    """Top-level packages that are imported anywhere in a folder, and a file that does."""
    every = {name.split(".")[0]: path for path in (ROOT / folder).rglob("*.py") for name in imported(path)}
    return {name: path for name, path in every.items() if name not in sys.stdlib_module_names | USER_TABLE}


@cache
def installed() -> Mapping[str, list[str]]:
    return packages_distributions()


def distributions(package: str) -> set[str]:
    """What has to be installed for a package to be imported: Pillow for PIL."""
    return {normal(name) for name in installed().get(package, [])}


@pytest.mark.parametrize(
    ("folder", "extras"),
    [
        ("usboost", ("excel", "onnx")),
        ("tasks", ("pipeline",)),
        ("flows", ("pipeline",)),
        ("benchmarks", ("dev",)),
        ("docs", ("docs",)),
        ("tests", ("dev",)),
    ],
)
def test_what_is_imported_is_declared(folder: str, extras: tuple[str, ...]) -> None:
    known = declared(*extras)
    missing = {name: path for name, path in used(folder).items() if not distributions(name) & known}
    assert missing == {}


def test_the_library_declares_no_more_than_it_imports_and_no_pipeline() -> None:
    assert declared() - set().union(*map(distributions, used("usboost"))) == set()
    assert not declared() & {"prefect", "mlflow", "dvc"}
    assert {"prefect", "mlflow", "dvc"} <= declared("pipeline") <= declared("dev")


def test_the_constraints_are_plain_versions() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[\w.]+", line)] == []
    pinned = {line.split("==")[0] for line in lines}
    assert declared("dev", "engines", "postgres", "s3") - pinned == set()

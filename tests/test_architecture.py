"""Imports run downwards only, without a circle, and the library does not know who watches it."""

import ast
import re
from collections import Counter
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PICKLES = {"pickle", "joblib", "cloudpickle", "dill"}
FORBIDDEN = {"usboost": {"prefect", "mlflow", "dvc", *PICKLES}, "tasks": PICKLES, "flows": PICKLES}
LAYERS = (
    {"benchmarks"},
    {"flows"},
    {"usboost.__main__"},
    {"tasks", "usboost.cli"},
    {"usboost"},
    {"usboost.report", "usboost.export"},
    {"usboost.fit", "usboost.testing"},
    {"usboost.check"},
    {"usboost.models"},
    {"usboost.boosting"},
    {"usboost.table"},
    {"usboost.learners", "usboost.datasets"},
    {"usboost.data"},
    {"usboost.losses", "usboost.evaluation"},
    {"usboost.files", "usboost.shards"},
    {"usboost.errors", "usboost.process"},
)
"""From the top down. A module imports from its own room and from lower layers; tasks know nothing of the
command line, datasets and learners nothing of each other, tables nothing of learners."""

RANK = {room: k for k, layer in enumerate(LAYERS) for room in layer}
MOST_ROOMS, MOST_LOOSE_FILES, MOST_FILES = 22, 6, 19


@cache
def modules() -> dict[str, Path]:
    """Every module of the project by its dotted name."""
    found = {}
    for top in ("usboost", "tasks", "flows", "benchmarks"):
        for path in (ROOT / top).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def room(module: str) -> str:
    """Where a module stands at the top of the graph."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "usboost" else parts[0]


def imported(path: Path) -> set[str]:
    """What a file imports anywhere: at its top, in a function, behind TYPE_CHECKING."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            submodules = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in modules() else str(node.module) for name in submodules}
    return found


@cache
def graph() -> dict[str, set[str]]:
    """The modules that each module imports."""
    return {name: (imported(path) & set(modules())) - {name} for name, path in modules().items()}


@pytest.mark.parametrize("package", FORBIDDEN)
def test_no_forbidden_import(package: str) -> None:
    found = [
        (path.name, name)
        for path in (ROOT / package).rglob("*.py")
        for name in imported(path)
        if name.split(".")[0] in FORBIDDEN[package]
    ]
    assert found == []


def test_no_import_runs_upwards() -> None:
    """No room imports one above it or beside it, so that rooms are in no circle; a table knows no learner."""
    pairs = [(module, other) for module, others in graph().items() for other in others]
    rooms = {(module, other): (room(module), room(other)) for module, other in pairs}
    upwards = [pair for pair, (one, two) in rooms.items() if one != two and RANK[one] >= RANK.get(two, 0)]
    assert upwards == []
    assert [pair for pair, each in rooms.items() if each == ("usboost.table", "usboost.learners")] == []


def test_no_imports_run_in_a_circle() -> None:
    try:
        order = list(TopologicalSorter(graph()).static_order())
    except CycleError as error:
        raise AssertionError(" imports ".join(reversed(error.args[1]))) from None
    assert set(order) == set(modules())


def test_the_graph_has_few_rooms_and_the_package_few_loose_files() -> None:
    rooms = {room(module) for module in modules()} - {"usboost"}
    assert rooms <= set(RANK)
    assert len(rooms) <= MOST_ROOMS
    loose = [path.name for path in (ROOT / "usboost").iterdir() if path.is_file()]
    assert len(loose) <= MOST_LOOSE_FILES, loose


@pytest.mark.parametrize("top", ["usboost", "tasks", "flows"])
def test_no_folder_has_many_files(top: str) -> None:
    counts = Counter(path.parent.relative_to(ROOT) for path in (ROOT / top).rglob("*.py"))
    assert {str(folder): n for folder, n in counts.items() if n > MOST_FILES} == {}


def test_references_in_docstrings_lead_somewhere() -> None:
    texts = {f".{name}": f"{name} {path.read_text()}" for name, path in modules().items()}
    for module, text in texts.items():
        for reference in re.findall(r"(?<!`)`([a-z]\w*\.[\w.]*\w)`(?!`)", text):
            name = re.sub(r"(\.[A-Z]\w*)\.\w+$", r"\1", reference)  # a method's class
            place, _, word = name.rpartition(".")
            of = [own for known, own in texts.items() if known.endswith((f".{place}", f".{name}"))]
            ours = name.startswith(("usboost.", "tasks.", "flows.")) or not find_spec(name.split(".")[0])
            assert not ours or any(re.search(rf"\b{word}\b", own) for own in of), (module, reference)

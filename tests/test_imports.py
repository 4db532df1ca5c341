"""Imports run one way, and the library does not know who watches it."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FORBIDDEN = {
    "usboost": {"prefect", "mlflow", "dvc", "tasks", "flows", "pickle", "joblib", "cloudpickle", "dill"},
    "tasks": {"flows", "pickle", "joblib", "cloudpickle", "dill"},
    "flows": {"pickle", "joblib", "cloudpickle", "dill"},
}


@pytest.mark.parametrize("package", FORBIDDEN)
def test_no_forbidden_import(package):
    found = []
    for path in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            found += [(path.name, name) for name in names if name.split(".")[0] in FORBIDDEN[package]]
    assert found == []

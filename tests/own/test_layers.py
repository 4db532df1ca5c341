"""The command line is the outermost layer, and it opens quickly."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from tests.own.conftest import run

ROOT = Path(__file__).parent.parent.parent / "usboost"
OUTER = ("usboost.own", "usboost.cli", "usboost.__main__")


def imported(path: Path) -> set[str]:
    """Modules that a file imports anywhere."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def test_nothing_else_imports_it():
    inner = [
        path
        for path in ROOT.rglob("*.py")
        if path.parent.name != "own" and path.name not in ("cli.py", "__main__.py")
    ]
    assert len(inner) > 50
    assert [path.name for path in inner if any(name.startswith(OUTER) for name in imported(path))] == []
    for path in (ROOT / "own").glob("*.py"):
        assert not any(name.startswith("usboost.cli") for name in imported(path)), path


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from usboost.cli import app; app(['--help'], standalone_mode=False); "
        "print([name for name in ('torch', 'lightgbm', 'pandas', 'sklearn', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_as_a_module_and_without_arguments():
    command = [sys.executable, "-m", "usboost", "fit", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "--label" in done.stdout and "usboost fit" in done.stdout
    assert "compare" in run().output


def test_every_option_is_explained():
    import typer.main

    from usboost.cli import app

    commands = typer.main.get_command(app).commands
    assert set(commands) == {"fit", "compare", "predict", "report"}
    for command in commands.values():
        assert command.help
        for parameter in command.params:
            assert parameter.help, (command.name, parameter.name)

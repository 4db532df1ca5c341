"""The command line is the outermost layer, and it opens quickly."""

from __future__ import annotations

import subprocess
import sys

from tests.multimodal.conftest import run


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from usboost.cli.app import app; app(['--help'], standalone_mode=False); "
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

    from usboost.cli.app import app

    commands = typer.main.get_command(app).commands
    assert set(commands) == {"fit", "compare", "predict", "report"}
    for command in commands.values():
        assert command.help
        for parameter in command.params:
            assert parameter.help, (command.name, parameter.name)

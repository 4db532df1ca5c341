"""Help lists the options in groups, whole names within 80 columns, and rare ones when they are asked for."""

from __future__ import annotations

import pytest
import typer.main
from typer.testing import CliRunner

from usboost.cli.app import app
from usboost.cli.options import GROUPS, RARE

COMMANDS = ("fit", "compare", "tune", "predict", "report")


def shown(*given: str) -> list[str]:
    result = CliRunner().invoke(app, [*given], env={"COLUMNS": "80", "NO_COLOR": "1"}, terminal_width=80)
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


def options(command: str) -> dict[str, str]:
    """The options of a command by the name of their parameter."""
    found = typer.main.get_command(app).commands[command].params  # type: ignore[attr-defined]
    return {each.name: each.opts[0] for each in found if each.param_type_name == "option" and not each.hidden}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_listed_once_with_its_whole_name(command):
    brief, whole = shown(command, "--help"), shown(command, "--help-all")
    assert max(map(len, [*brief, *whole])) <= 80
    for name, option in options(command).items():
        lines = [line for line in whole if line.startswith(f"  {option}") and line.split()[0] == option]
        assert len(lines) == 1, option
        assert (lines[0].split()[0] in {line.split()[0] for line in brief if line.strip()}) != (name in RARE)
    assert not any("…" in line or "│" in line for line in whole)


def test_fit_fits_on_two_screens_and_says_that_there_is_more():
    lines = shown("fit", "--help")
    assert len(lines) < 90
    heads = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert heads == ["Arguments:", "Data:", "Columns:", "Images:", "Model:", "Time:", "Output:", "Other:"]
    assert lines[-1] == "12 more options, which are rarely needed: --help-all"
    assert "more options" not in shown("fit", "--help-all")[-1]


def test_every_option_has_a_group():
    known = {name for names in GROUPS.values() for name in names}
    for command in COMMANDS:
        assert options(command).keys() - known <= {"help_all"}
    assert known >= RARE


def test_the_list_of_commands_cuts_no_text():
    lines = shown("--help")
    assert not any(line.endswith("...") for line in lines[lines.index("Commands:") :])

"""The command line is the outermost layer, and it opens quickly."""

import json
import subprocess
import sys

from tests.fit.conftest import numbers

COMMANDS = """
import json, sys
from usboost.cli.app import app
for arguments in json.loads(sys.argv[1]):
    try:
        app(arguments)
    except SystemExit as left:
        print("exit", left.code)
heavy = {"lightgbm", "matplotlib", "numpy", "optuna", "pandas", "scipy", "sklearn", "torch"}
print(*sorted(heavy & set(sys.modules)))
"""


def run_together(*commands: tuple[object, ...]) -> tuple[list[str], list[str], set[str]]:
    """What commands in one process print, say on stderr, and have loaded at the end."""
    described = json.dumps([[str(argument) for argument in command] for command in commands])
    words = [sys.executable, "-c", COMMANDS, described]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    *printed, loaded = done.stdout.split("\n")[:-1]
    return printed, done.stderr.splitlines(), set(loaded.split())


def test_help_loads_nothing_heavy():
    printed, said, loaded = run_together(
        ("--help",), ("fit", "--help"), ("compare", "--help"), ("tune", "--help")
    )
    assert printed.count("exit 0") == 4
    assert said == []
    assert loaded == set()


def test_a_refusal_loads_nothing_that_trains(tmp_path):
    table, one_class, missing = (tmp_path / name for name in ("t.csv", "one.csv", "missing.csv"))
    numbers(40).to_csv(table, index=False)
    numbers(40).assign(kind="a").to_csv(one_class, index=False)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    kind = ("--label", "kind")
    refusals = {
        ("fit", missing, *kind): "table not found",
        ("fit", table, "--label", "sort"): "has no column 'sort'",
        ("fit", table, *kind, "--drop", "kind"): "cannot have two roles",
        ("fit", table, *kind, "--image", "kind"): "cannot have two roles",
        ("fit", one_class, *kind): "holds one class only",
        ("fit", table, *kind, "--out", folder): "not only a model of usboost fit",
        ("fit", table, *kind, "--model", "9wl"): "unknown model '9wl'",
        ("fit", table, *kind, "--model", "bnn"): "does not read a table like this",
        ("compare", missing, *kind): "table not found",
        ("compare", table, *kind, "--by", "purity"): "unknown score 'purity'",
        ("predict", folder, missing, "--out", tmp_path / "p.csv"): "table not found",
        ("predict", folder, table, "--out", tmp_path / "p.csv"): "is no model that usboost fit saved",
        ("report", folder, missing, "--out", tmp_path / "r.html"): "table not found",
        ("report", folder, table, "--out", tmp_path / "r.html"): "is no model that usboost fit saved",
    }
    printed, said, loaded = run_together(*refusals)
    assert printed == ["exit 1"] * len(refusals)
    assert len(said) == len(refusals)
    for (arguments, expected), sentence in zip(refusals.items(), said, strict=True):
        assert sentence.startswith("error: ") and expected in sentence, arguments
    assert loaded <= {"numpy", "pandas"}


def test_every_option_is_explained():
    import typer.main

    from usboost.cli.app import app

    commands = typer.main.get_command(app).commands
    assert set(commands) == {"fit", "compare", "tune", "predict", "report", "export", "demo", "check"}
    for command in commands.values():
        assert command.help
        assert "\n" not in command.help.replace("\n\n", "")  # the terminal breaks the lines
        for parameter in command.params:
            assert parameter.help, (command.name, parameter.name)
            assert "[" not in parameter.help  # a terminal takes it for markup, and leaves it out

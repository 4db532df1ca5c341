"""What the command line shows: help in groups, what was meant by an unknown name, progress bars."""

import pytest
import typer.main
from typer.testing import CliRunner

from tests.conftest import refuses
from usboost.cli.app import app
from usboost.cli.console import echo, echo_command, note, progress
from usboost.cli.options import GROUPS, RARE
from usboost.errors import MOST, UsboostError, choices, listed
from usboost.evaluation.ranking import check_metric
from usboost.fit.build import build
from usboost.learners.base import LEARNERS
from usboost.models import catalogue
from usboost.models.entry import parsed_settings

COMMANDS = ("fit", "compare", "tune", "predict", "report", "export")


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
    assert lines[-1] == "11 more options, which are rarely needed: --help-all"
    assert "more options" not in shown("fit", "--help-all")[-1]


def test_every_option_has_a_group():
    known = {name for names in GROUPS.values() for name in names}
    for command in COMMANDS:
        assert options(command).keys() - known <= {"help_all"}
    assert known >= RARE


def test_the_list_of_commands_cuts_no_text():
    lines = shown("--help")
    assert not any(line.endswith("...") for line in lines[lines.index("Commands:") :])


MANY = [f"column_{k:03}" for k in range(100)] + ["weight", "Height"]


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("wieght", ["weight", "line"], "it has weight, line; did you mean 'weight'?"),
        ("Y", ["x", " y"], "it has x, ' y'; did you mean ' y'?"),
        ("BATCH", ["batch", "image"], "it has batch, image; did you mean 'batch'?"),
        ("zzz", ["weight", "line"], "it has weight, line"),
        ("zzz", [], "it has none"),
        ("wieght", MANY, "did you mean 'weight'? ALL"),
        ("height ", MANY, "did you mean 'Height'? ALL"),
        ("max_dept", ["learners__S__max_depth", *MANY], "did you mean 'learners__S__max_depth'? ALL"),
    ],
)
def test_what_was_meant(name, known, said):
    assert choices(name, known, "it has", "ALL") == said


def test_long_lists_are_cut_and_names_whose_blanks_would_hide_are_quoted():
    assert choices("zzz", MANY, "it has").endswith(f"column_{MOST - 1:03} and {len(MANY) - MOST} more")
    assert "a, b, c, d, e, f, g, h, i, j, k, l;" in choices("a", list("abcdefghijkl"))
    assert listed(["a", " b", "c d", "e ", "", "f\n"]) == "a, ' b', c d, 'e ', '', 'f\\n'"


def refusal(function, *given, **named):
    with pytest.raises(UsboostError) as raised:
        function(*given, **named)
    return str(raised.value)


def test_models_scores_parts_and_settings():
    assert refusal(catalogue.find, "lgmb") == "unknown model 'lgmb'; did you mean 'lgbm'?"
    assert "did you mean 'crossed'?" in refusal(catalogue.for_table, "Crosed")
    assert refusal(catalogue.for_table, "zzz").startswith("unknown model 'zzz'; choose among baseline, ")
    refuses("'acuracy'.* accuracy, f1, auc, log_loss.*'accuracy'", check_metric, "acuracy")
    assert "did you mean 'tree'?" in refusal(lambda: LEARNERS["tre"])


def test_a_setting_is_not_drowned_in_all_of_them():
    def of(*given):
        return refusal(build, "linear_trees", images=None, settings=parsed_settings(given))

    assert "linear_trees has no setting 'shrinkag'; did you mean 'shrinkage'?" in of("shrinkag=0.1")
    assert "did you mean 'learners__S__max_depth'?" in of("max_depth=3")
    assert of("list").startswith("linear_trees has the settings loss, monitor, ")


def test_a_bar_within_another(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    with progress("fitting") as fitting, progress("embedding") as embedding:
        fitting(1, 4)
        embedding(10, 40)
        embedding(40, 40)
        fitting(4, 4)
    shown = capsys.readouterr()
    assert shown.out == "" and "fitting" in shown.err and "4/4" in shown.err
    with progress("reading") as reading:  # the first are closed
        reading(0, 0)
    assert "reading" in capsys.readouterr().err


def test_a_bar_says_what_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with progress("comparing") as show:
        show(3, 10)
        show.running(["lgbm on fold 2 of 5", "forest on fold 2 of 5"])
        show(4, 10)
    assert "comparing: lgbm on fold 2 of 5, forest on fold 2 of 5" in capsys.readouterr().err


def test_no_bar_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("fitting") as fitting, progress("embedding") as embedding:
        fitting(1, 2)
        embedding(1, 2)
    assert capsys.readouterr().err == ""


def test_no_word_is_broken(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = "accuracy 0.9578, " * 8 + "a-word-with-hyphens and/a/path/that/is/longer/than/the/line/may/be"
    monkeypatch.setenv("COLUMNS", "40")
    echo(f"\n{text}")
    note(text)
    echo_command("Next:", "usboost fit " + "--drop x " * 20)
    shown = capsys.readouterr()
    out, command = shown.out.rstrip("\n").rsplit("\nNext:\n", 1)
    assert out.startswith("\naccuracy")
    assert out.split() == text.split() == shown.err.split()[1:]
    assert all(len(line) <= 40 for line in out.splitlines()[:-1]) and "\n" not in command  # whole, to copy
    monkeypatch.delenv("COLUMNS")
    echo(text)
    assert capsys.readouterr().out == f"{text}\n"  # a file has no width

"""Progress bars, one within another."""

from __future__ import annotations

import pytest

from usboost.cli.console import echo, echo_command, note, progress


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


def test_no_word_is_broken_at_the_end_of_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "accuracy 0.9578, " * 8 + "a-word-with-hyphens and/a/path/that/is/longer/than/the/line/may/be"
    monkeypatch.setenv("COLUMNS", "40")
    echo(f"\n{text}")
    note(text)
    echo_command("Next:", "usboost fit " + "--drop x " * 20)
    shown = capsys.readouterr()
    out, command = shown.out.rstrip("\n").rsplit("\nNext:\n", 1)
    assert (
        out.startswith("\naccuracy") and out.split() == text.split() and shown.err.split()[1:] == text.split()
    )
    assert all(len(line) <= 40 for line in out.splitlines()[:-1]) and "\n" not in command  # whole, to copy
    monkeypatch.delenv("COLUMNS")
    echo(text)
    assert capsys.readouterr().out == f"{text}\n"  # a file has no width

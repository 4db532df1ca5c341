"""Stages side by side: the order they run in, what is said of them, and what a failure leaves."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from flows.local import repro
from tests.flows.conftest import Workspace
from usboost.errors import UsboostError

DVC = """
vars:
  - datasets: [a, b]
stages:
  code:
    cmd: python -c "open('code', 'w').write('1')"
    outs: [code]
  made:
    matrix:
      dataset: ${datasets}
    cmd: python -c "open('made-${item.dataset}', 'w').write('1')"
    deps: [code]
    outs: ['made-${item.dataset}']
  fitted:
    matrix:
      dataset: ${datasets}
    cmd: python fit.py ${item.dataset}
    deps: [fit.py, 'made-${item.dataset}']
    outs: ['fitted-${item.dataset}']
  report:
    cmd: python -c "open('report', 'w').write('1')"
    deps: [fitted-a, fitted-b]
    outs: [report]
"""
FIT = "import sys; open(f'fitted-{sys.argv[1]}', 'w').write('1')"
FAILS = "import sys\nif sys.argv[1] == 'a': raise SystemExit('no fit of a')\n" + FIT


@pytest.fixture
def folder(tmp_path, monkeypatch):
    workspace = Workspace(tmp_path, tmp_path / "home")
    (tmp_path / "dvc.yaml").write_text(DVC)
    (tmp_path / "fit.py").write_text(FIT)
    workspace.run("dvc", "init", "--quiet", "--no-scm")
    workspace.run("dvc", "config", "core.analytics", "false")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("USBOOST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", workspace.environment["PATH"])
    monkeypatch.setattr(repro, "FLOWS", ())
    return workspace


def test_stages_of_no_dataset_come_first_or_last(folder):
    planned = repro.plan([])
    assert (planned.first, planned.last, planned.stale) == (["code"], ["report"], True)
    assert sorted(planned.parts) == [["made@a", "fitted@a"], ["made@b", "fitted@b"]]
    assert repro.plan(["made@b"]) == repro.Plan(["code"], [["made@b"]], [], stale=True)
    with pytest.raises(UsboostError, match="nothing"):
        repro.plan(["nothing"])


@pytest.mark.slow
def test_all_stages_run_once_and_dvc_finds_them_up_to_date(folder, capsys):
    repro.make([], 2)
    said = capsys.readouterr().out.splitlines()
    assert [line.split("]")[0] for line in said] == [f"[{k}/6" for k in range(1, 7)]
    assert said[0].split()[1] == "code" and said[-1].split()[1] == "report"
    assert json.loads(folder.run("dvc", "status", "--json").stdout) == {}
    repro.make([], 2)
    assert capsys.readouterr().out == "all 6 stages are up to date\n"


@pytest.mark.slow
def test_a_failed_dataset_does_not_stop_the_others_and_is_gone_on_with(folder, capsys):
    (folder.folder / "fit.py").write_text(FAILS)
    with pytest.raises(
        UsboostError, match=r"a stage failed; the whole log is .*made@a\.log\n(.*\n)*no fit of a"
    ):
        repro.make([], 2)
    assert (folder.folder / "fitted-b").exists() and not (folder.folder / "report").exists()
    (folder.folder / "fit.py").write_text(FIT)
    capsys.readouterr()
    repro.make([], 2)
    ran = [line.split()[1] for line in capsys.readouterr().out.splitlines()]
    assert sorted(ran) == ["fitted@a", "fitted@b", "report"]


def test_progress_says_what_is_left():
    shown = io.StringIO()
    with repro.Progress(3, Console(file=shown, highlight=False, markup=False, width=100)) as progress:
        progress.skip("a")
        progress.begin("b")
        progress.end("b")
        progress.begin("c")
        progress.end("c")
    lines = shown.getvalue().splitlines()
    assert lines[0].startswith("[2/3] b") and lines[0].endswith("left")
    assert lines[1].startswith("[3/3] c") and lines[1].endswith(" s")

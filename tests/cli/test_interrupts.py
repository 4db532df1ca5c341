"""Ctrl-C and SIGTERM, as a terminal and a scheduler send them to a command."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from tests.fit.conftest import environment, numbers, run, until

pytestmark = pytest.mark.slow
HERE = Path(__file__).parents[2]


def _hears_ctrl_c() -> None:
    """A shell lets what it starts in the background ignore Ctrl-C, and these tests may be there."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def started(folder: Path, *arguments: object) -> subprocess.Popen[str]:
    """The command in a session of its own, as one that a shell runs in the foreground."""
    return subprocess.Popen(
        [sys.executable, "-m", "usboost", *map(str, arguments)],
        cwd=folder,
        env=environment(OMP_NUM_THREADS="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=_hears_ctrl_c,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120)
    with pytest.raises(ProcessLookupError):  # nobody of the session is left
        while True:
            os.killpg(process.pid, 0)
            time.sleep(0.05)
    return process.returncode, out, err


def test_several_presses_are_one_and_forks_are_not_commands() -> None:
    code = """
import os, signal, sys, time
from usboost.cli.interrupts import interrupts
interrupts.install()
child = os.fork()
if not child:
    time.sleep(60)
time.sleep(0.5)  # a fork forgets what arrives as it begins
os.kill(child, signal.SIGTERM)
assert os.waitpid(child, 0)[1] == signal.SIGTERM
try:
    os.kill(os.getpid(), signal.SIGTERM)
    sys.exit("not interrupted")
except KeyboardInterrupt:
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(1.1)
    try:
        os.kill(os.getpid(), signal.SIGINT)
        sys.exit("cannot be interrupted again")
    except KeyboardInterrupt:
        interrupts.reported()
        os.kill(os.getpid(), signal.SIGINT)
        sys.exit("goes on")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=HERE, capture_output=True, text=True, preexec_fn=_hears_ctrl_c
    )
    assert (done.returncode, done.stderr) == (130, "")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("interrupted")
    numbers(600).to_csv(folder / "t.csv", index=False)
    return folder / "t.csv"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_predict_leaves_nothing(table: Path, tmp_path: Path, number: int) -> None:
    run("fit", table, "--label", "kind", "--model", "prior", "--out", tmp_path / "m")
    process = started(tmp_path, "predict", "m", table, "--out", "p.parquet", "--batch", 1)
    until(process, lambda: list(tmp_path.glob(".p.parquet.*")))
    os.killpg(process.pid, number)
    code, _, err = ended(process)
    assert code == 130
    assert err.startswith("interrupted; ") and err.count("\n") == 1
    assert [each.name for each in tmp_path.iterdir()] == ["m"]


@pytest.mark.parametrize(("delay", "presses"), [(0.02, 1), (0.05, 2), (0.1, 1), (0.2, 2), (0.4, 1), (0.8, 2)])
def test_presses_while_the_command_loads(table: Path, tmp_path: Path, delay: float, presses: int) -> None:
    process = started(tmp_path, "fit", table, "--label", "kind", "--model", "2wl", "--rounds", 3000)
    own, caught = Path(f"/proc/{process.pid}/status"), 1 << (signal.SIGTERM - 1)
    until(process, lambda: int(re.findall(r"SigCgt:\s+(\w+)", own.read_text())[0], 16) & caught)
    time.sleep(delay)
    for _ in range(presses):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.05)
    code, out, err = ended(process)
    if "Exception ignored in" in err:
        pytest.skip("Python swallowed the press, which came within a callback of its own")
    assert code == 130 and out == "" and "Traceback" not in err
    assert err.splitlines()[-1].startswith("interrupted; ")
    assert not (tmp_path / "model").exists()


def test_fit_says_what_it_keeps(table: Path, tmp_path: Path) -> None:
    arguments = ("fit", table, "--label", "kind", "--model", "2wl", "--rounds", 3000, "--out", "m")
    process = started(tmp_path, *arguments)
    until(process, lambda: list(tmp_path.glob("m.part/*/round-*")))
    process.terminate()
    code, _, err = ended(process)
    assert code == 130
    assert "finished rounds are kept in m.part; the same command goes on from there" in err
    kept = set(tmp_path.glob("m.part/*/round-*"))
    process = started(tmp_path, *arguments)
    until(process, lambda: set(tmp_path.glob("m.part/*/round-*")) - kept)
    for _ in range(4):  # as one, which lets the round end
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.02)
    code, _, err = ended(process)
    assert code == 0 and "an earlier run of this fit did not end" in err, err
    assert "the fit ends after this round" in err
    assert (tmp_path / "m" / "card.json").exists() and not (tmp_path / "m.part").exists()


def test_compare_waits_for_no_fit(tmp_path: Path) -> None:
    numbers(20_000, classes=3).to_csv(tmp_path / "t.csv", index=False)
    given = ("--label", "kind", "--models", "prior,crossed", "--folds", 2, "--jobs", 2, "--out", "kept")
    process = started(tmp_path, "compare", "t.csv", *given)
    kept = tmp_path / "kept" / "fits"
    until(process, lambda: len(list(kept.glob("*.json"))) >= 2)  # fits of the prior
    time.sleep(2)  # and the main thread has heard of them
    process.terminate()
    began = time.monotonic()
    code, out, _ = ended(process)
    assert code == 130 and re.search("[12] of 4 fits are finished", out) and "prior" in out
    assert time.monotonic() - began < 60  # a fit takes minutes


@pytest.mark.parametrize("delay", [0.0, 1.4])
def test_tune_that_has_just_begun(table: Path, tmp_path: Path, delay: float) -> None:
    given = ("--label", "kind", "--models", "lgbm", "--jobs", 2, "--trials", 40, "--out", "s")
    process = started(tmp_path, "tune", table, *given)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    until(process, lambda: len(children.read_text().split()) > 2)
    time.sleep(delay)
    for _ in range(2):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.05)
    code, out, err = ended(process)
    assert code == 130
    assert "Traceback" not in err and "Error" not in err, err
    assert "the same command goes on from there" in err
    trials = pd.read_csv(tmp_path / "s" / "trials.csv")
    there = {each.name for each in (tmp_path / "s").iterdir() if each.is_file()}
    done = bool((trials["state"] == "finished").any())
    assert there == {"trials.csv", "settings.yaml"} if done else {"trials.csv"}
    assert re.search(r"^written s/settings.yaml and s/trials" if done else "^written s/trials", out, re.M)

"""A comparison that is killed goes on: finished fits are on disk."""

from __future__ import annotations

import signal
import subprocess
import sys

import pandas as pd
import pytest

from tests.fit.conftest import accepted, environment, numbers, run, until
from usboost.evaluation.ranking import RANKING
from usboost.fit.build import build
from usboost.fit.compare import compare
from usboost.fit.evaluate import folds_of
from usboost.fit.record import FITS, Record, Records
from usboost.table.spec import TableSpec
from usboost.table.user_table import read_table

SLOW = """
import os, time
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

class Slow(ClassifierMixin, BaseEstimator):
    def fit(self, x, y):
        with open("made.txt", "a") as file:
            file.write("a fit\\n")
        time.sleep(float(os.environ.get("SLOW", "0")))
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, x):
        return np.tile([0.6, 0.4], (len(x), 1))

    def predict(self, x):
        return np.zeros(len(x), dtype=int)
"""
ARGUMENTS = (
    "compare",
    "t.csv",
    "--label",
    "kind",
    "--models",
    "prior",
    "--with",
    "slowly:Slow",
    "--folds",
    "4",
)


@pytest.mark.slow
def test_killed_and_interrupted_comparisons_go_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slowly.py").write_text(SLOW)
    numbers(60).to_csv("t.csv", index=False)
    fits, made = tmp_path / "out" / FITS, tmp_path / "made.txt"

    def stopped(number: int, kept: int) -> tuple[int, str]:
        """The exit code and output of the command, stopped when so many fits are on disk."""
        command = [sys.executable, "-m", "usboost", *ARGUMENTS, "--out", "out"]
        process = subprocess.Popen(command, env=environment(SLOW="1.5"), stdout=subprocess.PIPE, text=True)
        until(process, lambda: len(list(fits.glob("*.json"))) >= kept)
        process.send_signal(number)
        return process.wait(60), process.communicate()[0]

    code, _ = stopped(signal.SIGKILL, 2)
    assert code == -signal.SIGKILL
    (fits / f".{'0' * 64}.json.1.tmp").write_text(
        '{"row": "cut sh'
    )  # as a kill within a write would leave it
    code, output = stopped(signal.SIGTERM, 4)
    assert code == 130
    assert "of 8 fits are finished; the same command goes on from there" in output
    assert "slowly:Slow reads 3 columns" in output
    assert not (tmp_path / "out" / "comparison.csv").exists()
    rows = [file.read_text() for file in fits.glob("*.json")]
    done, slow = len(rows), sum('"slowly:Slow"' in row for row in rows)
    assert 3 <= done < 8
    monkeypatch.setenv("SLOW", "0")
    before = made.read_text().count("\n")
    result = accepted(*ARGUMENTS, "--out", "out")
    assert f"{done} of 8 fits were finished before" in result.stderr
    assert len(list(fits.glob("*.json"))) == 8
    assert made.read_text().count("\n") - before == 4 - slow
    found = pd.read_csv("out/comparison.csv").drop(columns="seconds")
    run(*ARGUMENTS, "--out", "whole")
    pd.testing.assert_frame_equal(found, pd.read_csv("whole/comparison.csv").drop(columns="seconds"))


def test_a_kept_fit_is_of_the_same_table_model_and_rows(tmp_path):
    numbers(60).to_csv(tmp_path / "t.csv", index=False)
    table = read_table(tmp_path / "t.csv", TableSpec(label="kind"))

    def made(own, name="prior", folder="out", **settings):
        found = compare(
            own,
            {name: lambda seed: build(name, images=False, seed=seed)},
            keep=tmp_path / folder,
            **settings,
        )
        return found.kept, len(found.scores)

    assert made(table, folds=3) == (0, 3)
    assert made(table, folds=3) == (3, 3)
    assert made(table, folds=3, repeats=2) == (3, 6)
    assert made(table, folds=2) == (0, 2)
    assert made(table, folds=3, seed=1) == (0, 3)
    assert made(table, "forest", folds=3) == (0, 3)
    frame = pd.read_csv(tmp_path / "t.csv")
    frame.loc[0, "width"] += 1
    frame.to_csv(tmp_path / "changed.csv", index=False)
    assert made(read_table(tmp_path / "changed.csv", TableSpec(label="kind")), folds=3) == (0, 3)


def test_damaged_files_are_fits_to_make_again(tmp_path):
    numbers(60).to_csv(tmp_path / "t.csv", index=False)
    table = read_table(tmp_path / "t.csv", TableSpec(label="kind"))
    model, fold = build("prior", images=False), folds_of(table, 3, 1, 0)[0]
    kept = Records(tmp_path, table)
    row = dict.fromkeys((*RANKING["classification"], "rows_train", "rows_test", "seconds"), 0.5)
    key = kept.key(model, fold)
    kept.add(key, "prior", Record(row))
    (file,) = (tmp_path / FITS).iterdir()
    good = file.read_bytes()
    short = good.replace(b'"auc": 0.5, ', b"")
    assert short != good and kept.get(key) == Record(row)
    for bad in (
        short,
        b"",
        good[:-9],
        b"\xff\xfe",
        b"[1]",
        b"{}",
        b'{"row": [2]}',
        b'{"row": {"auc": []}}',
        b"[" * 10**5,
    ):
        file.write_bytes(bad)
        with pytest.warns(UserWarning, match=r"json is damaged, so it is made again: "):
            assert Records(tmp_path, table).get(key) is None
    file.write_bytes(good)
    assert Records(tmp_path, table).get(key) == Record(row)
    assert Records(None, table).key(model, fold) == ""

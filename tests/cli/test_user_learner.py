"""A user's own learner, in a file of the folder, on the command line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest

from tests.fit.conftest import accepted, numbers, refused, run
from usboost.learners.base import LEARNERS

USER_TABLE = Path(__file__).parents[1] / "examples/least_squares.py"


def test_it_is_chosen_saved_and_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(USER_TABLE, tmp_path / "own_least_squares.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    others = {k: v for k, v in LEARNERS._parts.items() if k != "least_squares"}
    monkeypatch.setattr(LEARNERS, "_parts", others)
    numbers(120).to_csv("table.csv", index=False)
    fit = ("fit", "table.csv", "--label", "kind", "--model", "1wl_s", "--rounds", 5)
    fit = (*fit, "--learner", "S=least_squares")
    unknown = run(*fit).stderr.splitlines()[-1]
    assert "unknown learner kind 'least_squares'; known are network, tree" in unknown
    assert "there is no module 'nowhere'" in refused(*fit, "--import", "nowhere")
    assert "write --learner S=regressor" in refused(*fit, "--learner", "S")
    accepted(*fit, "--import", "own_least_squares")
    predict = ("predict", "model", "table.csv", "--out", "out.csv")
    accepted(*predict, "--import", "own_least_squares")
    assert (pd.read_csv("out.csv")["label"] == numbers(120)["kind"]).mean() > 0.6
    del LEARNERS._parts["least_squares"]
    assert "LeastSquaresLearner" in refused(*predict)

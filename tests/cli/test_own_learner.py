"""A person's own learner, in a file of the folder, on the command line."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest

from tests.multimodal.conftest import numbers, refused, run
from usboost.learners.base import LEARNERS

RIDGE = Path(__file__).parents[1] / "examples/ridge_learner.py"


def test_it_is_chosen_saved_and_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(RIDGE, tmp_path / "own_ridge.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(LEARNERS, "_parts", {k: v for k, v in LEARNERS._parts.items() if k != "ridge"})
    numbers(120).to_csv("table.csv", index=False)
    fit = ("fit", "table.csv", "--label", "kind", "--model", "1wl_s", "--rounds", 5, "--learner", "S=ridge")
    assert "unknown learner kind 'ridge'; known are network, tree" in refused(*fit)
    assert "there is no module 'nowhere'" in refused(*fit, "--import", "nowhere")
    assert "write --learner S=regressor" in refused(*fit, "--learner", "S")
    assert run(*fit, "--import", "own_ridge").exit_code == 0
    predict = ("predict", "model", "table.csv", "--out", "out.csv")
    assert run(*predict, "--import", "own_ridge").exit_code == 0
    assert (pd.read_csv("out.csv")["label"] == numbers(120)["kind"]).mean() > 0.6
    del LEARNERS._parts["ridge"]
    assert "RidgeLearner" in refused(*predict)

"""A fit that is killed goes on, and gives what it would have given."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.conftest import contents, encoded
from tests.fit.conftest import accepted, environment, numbers, run, until
from usboost.boosting.callbacks import Callback
from usboost.data.table import Table
from usboost.fit.build import fit
from usboost.fit.record import unfinished
from usboost.learners.networks.embeddings import forget
from usboost.models import build as builders
from usboost.models.baselines.linear import RidgeBaseline
from usboost.models.baselines.trees import ForestBaselineRegressor, LightGBMBaseline
from usboost.models.methods.ensemble import EnsembleClassifier, EnsembleRegressor
from usboost.table.spec import TableSpec
from usboost.table.user_table import read_table

TUNED = ("--finetune", "last")
FIT = ("fit", "t.csv", "--label", "kind", "--model", "2wl", "--rounds", "60")


class Killed(BaseException):
    """As little expected by any code as a kill."""


class KillAfter(Callback):
    """Kills after some new rounds of all fits inside a fit; counts these rounds, and the fits that began."""

    def __init__(self, rounds: float = float("inf")) -> None:
        self.left, self.fits, self.rounds = rounds, 0, 0

    def on_fit_begin(self, fit) -> None:
        self.fits += 1

    def on_resume(self, rounds) -> bool:
        return False

    def on_round(self, round_) -> bool:
        if self.rounds == self.left:
            raise Killed
        self.rounds += 1
        return False


@pytest.mark.slow
def test_a_killed_command_goes_on_to_the_same_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    numbers(1500).to_csv("t.csv", index=False)
    command = [sys.executable, "-m", "usboost", *FIT, "--out", "model"]
    process = subprocess.Popen(command, env=environment())
    until(process, lambda: any(Path("model.part").glob("*/round-000003.safetensors")))
    process.kill()
    assert process.wait(60) == -signal.SIGKILL and not Path("model").exists()
    result = accepted(*FIT, "--out", "model")
    assert "an earlier run of this fit did not end; it goes on from what is in model.part" in result.stderr
    assert not Path("model.part").exists()
    assert "did not end" not in run(*FIT, "--out", "whole").stderr
    assert contents(Path("model")) == contents(Path("whole"))


@pytest.mark.long
@pytest.mark.slow
def test_a_command_that_is_killed_while_it_tunes_images_goes_on_to_the_same_model(tmp_path, monkeypatch):
    """At the epoch after the last one that ended: only the first epoch says how long a tuning takes."""
    monkeypatch.chdir(tmp_path)
    striped(240).to_parquet("t.parquet")
    words = ("fit", "t.parquet", "--label", "kind", "--image", "photo", "--size", "64", *TUNED, "--out")
    command = [sys.executable, "-m", "usboost", *words, "model"]
    process = subprocess.Popen(command, env=environment(USBOOST_CACHE=str(tmp_path / "a")))
    until(process, lambda: any(Path("a").glob("tuned/*-epoch.safetensors")), 300)
    process.kill()
    assert process.wait(60) == -signal.SIGKILL and not Path("model").exists()
    assert [file.name.endswith("-epoch.safetensors") for file in Path("a/tuned").iterdir()] == [True]
    for cache, out, begins in (("a", "model", False), ("b", "whole", True)):
        monkeypatch.setenv("USBOOST_CACHE", str(tmp_path / cache))
        forget()
        result = accepted(*words, out)
        assert ("the image network is tuned on 204 images" in result.stderr) is begins
        assert "as it was tuned on the label" in result.stdout
        assert not any(Path(cache).glob("tuned/*-epoch.safetensors"))
    assert contents(Path("model")) == contents(Path("whole"))
    weights = [name for name in contents(Path("model")) if "backbone" in name]
    assert weights == ["model/backbone-0.safetensors"]


def striped(n: int) -> pd.DataFrame:
    """Photos of noise with faint stripes, upright or lying, which is the label."""
    rng = np.random.default_rng(0)
    kinds, photos = rng.integers(0, 2, n), []
    for kind in kinds:
        pixels = rng.integers(60, 180, (64, 64))
        (pixels if kind else pixels.T)[::8] += 24
        photos.append(encoded(Image.fromarray(pixels.astype(np.uint8)).convert("RGB")))
    return pd.DataFrame({"x": rng.normal(size=n), "photo": photos, "kind": np.array(["b", "a"])[kinds]})


def test_another_fit_begins_anew_and_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    numbers(60).to_csv("t.csv", index=False)
    table, part, told = read_table(Path("t.csv"), TableSpec(label="kind")), Path("m.part"), []
    part.mkdir()
    (part / "mine.txt").write_text("a user's")
    with pytest.raises(Killed), unfinished(part, told.append) as keep:
        fit(table, "linear_trees", rounds=5, keep=keep, callbacks=[KillAfter(2)])
    assert told == [] and len(list(part.iterdir())) == 2
    with pytest.raises(KeyboardInterrupt), unfinished(part, told.append) as keep:
        raise KeyboardInterrupt
    assert told.pop() == "finished rounds are kept in m.part; the same command goes on from there"
    result = accepted(*FIT[:4], "--rounds", 4, "--out", "m")
    assert (
        "m.part holds a fit that did not end, of other parameters, data or code; this one st" in result.stderr
    )
    assert [each.name for each in part.iterdir()] == ["mine.txt"]
    Path("n.part").write_text("a user's")
    assert "n.part is no folder, where a fit keeps its rounds; remove it" in run(*FIT, "--out", "n").stderr


def test_only_finished_rounds_stay(tmp_path):
    numbers(60).to_csv(tmp_path / "t.csv", index=False)
    table, part = read_table(tmp_path / "t.csv", TableSpec(label="kind")), tmp_path / "m.part"
    with pytest.raises(Killed), unfinished(part, print) as keep:
        fit(table, "linear_trees", rounds=5, keep=keep, callbacks=[KillAfter(0)])
    assert any(part.glob("*/round-000001.safetensors"))
    with pytest.raises(Killed), unfinished(tmp_path / "n.part", print) as keep:
        fit(table, "prior", keep=keep, callbacks=[KillAfter(0)])
    assert not (tmp_path / "n.part").exists()


@pytest.mark.parametrize("rounds", [3, 5])
def test_a_fit_to_all_rows_goes_on_too(tmp_path, rounds):
    numbers(80).to_csv(tmp_path / "t.csv", index=False)
    table, part, told = read_table(tmp_path / "t.csv", TableSpec(label="kind")), tmp_path / "m.part", []
    with pytest.raises(Killed), unfinished(part, told.append) as keep:
        fit(table, "2wl_ridge", rounds=5, refit=True, keep=keep, callbacks=[KillAfter(rounds)])
    with unfinished(part, told.append) as keep:
        found = fit(table, "2wl_ridge", rounds=5, refit=True, keep=keep)
    assert len(told) == 1 and "goes on" in told[0] and not part.exists()
    whole = fit(table, "2wl_ridge", rounds=5, refit=True)
    assert found.bundle.card == whole.bundle.card
    predicted = [each.bundle.predict(numbers(30, seed=1)) for each in (found, whole)]
    assert predicted[0].equals(predicted[1])


def matrix(n: int = 90) -> tuple[dict[str, Table], np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, 3)).astype(np.float32)
    return {"S": Table.from_numeric(x)}, x[:, 0] + x[:, 1] ** 2 + 0.3 * rng.normal(size=n)


def members(task: str) -> dict:
    """One that keeps its rounds, and two that do not."""

    class Parts(builders.Parts):
        one_table = True

        def boosting(self, entry):
            return {"n_rounds": 4}

    ridge = builders.build("2wl_ridge", Parts(), 0, task)
    ridge.set_params(learners={"S": ridge.learners["S"]})
    if task == "classification":
        return {"lgbm": LightGBMBaseline(("S",), n_trees=4), "ridge": ridge}
    return {
        "forest": ForestBaselineRegressor(("S",), n_trees=5),
        "ridge": ridge,
        "linear": RidgeBaseline(("S",)),
    }


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_an_ensemble_goes_on_by_member_and_fold(tmp_path, task):
    x, y = matrix()
    kind, y = (
        (EnsembleClassifier, (y > 0).astype(int)) if task == "classification" else (EnsembleRegressor, y)
    )
    counted = KillAfter()
    whole = kind(members(task), folds=2, callbacks=[counted]).fit(x, y)
    predict = "predict_proba" if task == "classification" else "predict"
    for rounds in (0, 5, counted.rounds // 2, counted.rounds - 6, counted.rounds - 1):
        folder, counter = tmp_path / str(rounds), KillAfter(rounds)
        with pytest.raises(Killed):
            kind(members(task), folds=2, checkpoint=folder, callbacks=[counter]).fit(x, y)
        saved, again = len(list(folder.glob("*/model.json"))), KillAfter()
        found = kind(members(task), folds=2, checkpoint=folder, callbacks=[again]).fit(x, y)
        assert found.weights_ == whole.weights_ and found.losses_ == whole.losses_
        np.testing.assert_array_equal(getattr(found, predict)(x), getattr(whole, predict)(x))
        finished = len(list(folder.glob("*/model.json")))
        assert set(found.full_refits_) == set(whole.full_refits_) and found.full_refits_
        kept = {name for name, each in members(task).items() if not hasattr(each, "checkpoint")}
        of_folds = sum(whole.members_[name].fits for name in kept)
        assert finished == of_folds + len(kept & set(found.full_refits_))
        assert again.fits == counted.fits - saved


class StopAt(Callback):
    """Asks each fit to stop after so many rounds."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def on_round(self, round_) -> bool:
        return round_.index >= self.rounds


def test_a_member_that_is_finished_when_it_is_asked_to_stop_is_kept(tmp_path):
    x, y = matrix()
    y = (y > 0).astype(int)
    whole = EnsembleClassifier(members("classification"), folds=2).fit(x, y)
    last = [StopAt(4)]  # n_trees
    EnsembleClassifier(members("classification"), folds=2, checkpoint=tmp_path, callbacks=last).fit(x, y)
    of_folds = {f"m0-{fold}" for fold in range(whole.members_["lgbm"].fits)}
    assert of_folds and {path.parent.name for path in tmp_path.rglob("model.json")} >= of_folds
    found = EnsembleClassifier(members("classification"), folds=2, checkpoint=tmp_path).fit(x, y)
    np.testing.assert_array_equal(found.predict_proba(x), whole.predict_proba(x))


def test_a_member_that_was_asked_to_stop_is_not_kept(tmp_path):
    x, y = matrix()
    y = (y > 0).astype(int)
    EnsembleClassifier(members("classification"), folds=2, checkpoint=tmp_path, callbacks=[StopAt(1)]).fit(
        x, y
    )
    assert not list(tmp_path.rglob("model.json"))
    found = EnsembleClassifier(members("classification"), folds=2, checkpoint=tmp_path).fit(x, y)
    whole = EnsembleClassifier(members("classification"), folds=2).fit(x, y)
    np.testing.assert_array_equal(found.predict_proba(x), whole.predict_proba(x))


def test_a_member_whose_file_is_damaged_is_fitted_again(tmp_path):
    x, y = matrix()
    y = (y > 0).astype(int)
    whole = EnsembleClassifier(members("classification"), folds=2, checkpoint=tmp_path).fit(x, y)
    file = tmp_path / "m0-0" / "model.json"
    good = file.read_bytes()
    file.write_bytes(good[:-20])
    with pytest.warns(UserWarning, match="m0-0 is damaged, so it is made again: "):
        found = EnsembleClassifier(members("classification"), folds=2, checkpoint=tmp_path).fit(x, y)
    np.testing.assert_array_equal(found.predict_proba(x), whole.predict_proba(x))
    assert file.read_bytes() == good

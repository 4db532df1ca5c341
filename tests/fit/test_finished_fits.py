"""A comparison or a fit that is killed goes on, and gives what it would have given."""

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.conftest import contents, encoded, forget
from tests.fit.conftest import accepted, environment, numbers, run, table_of, until
from usboost.boosting.callbacks import Callback
from usboost.data.table import Table
from usboost.evaluation.ranking import RANKING
from usboost.files import write_atomically
from usboost.fit.build import build, fit
from usboost.fit.compare import compare
from usboost.fit.evaluate import folds_of
from usboost.fit.record import FITS, Record, Records, unfinished
from usboost.models import build as builders
from usboost.models.baselines.linear import RidgeBaseline
from usboost.models.baselines.trees import ForestBaselineRegressor, LightGBMBaseline
from usboost.models.methods.ensemble import EnsembleClassifier, EnsembleRegressor
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
ARGUMENTS = ("compare", "t.csv", "--label", "kind", "--models", "prior", "--with", "slowly:Slow", "--folds=4")


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
    # as a kill within a write would leave it
    (fits / f".{'0' * 64}.json.1.tmp").write_text('{"row": "cut sh')
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
    assert f"{done} of 8 fits were finished before" in accepted(*ARGUMENTS, "--out", "out").stderr
    assert len(list(fits.glob("*.json"))) == 8
    assert made.read_text().count("\n") - before == 4 - slow
    found = pd.read_csv("out/comparison.csv").drop(columns="seconds")
    run(*ARGUMENTS, "--out", "whole")
    pd.testing.assert_frame_equal(found, pd.read_csv("whole/comparison.csv").drop(columns="seconds"))


@pytest.mark.slow
def test_a_kept_fit_is_of_the_same_table_model_and_rows(tmp_path):
    table = table_of(60)

    def made(own, name="prior", **settings):
        models = {name: lambda seed: build(name, images=False, seed=seed)}
        found = compare(own, models, keep=tmp_path / "out", **settings)
        return found.cached, len(found.scores)

    assert made(table, folds=3) == (0, 3)
    assert made(table, folds=3) == (3, 3)
    assert made(table, folds=3, repeats=2) == (3, 6)
    assert made(table, folds=2) == (0, 2)
    assert made(table, folds=3, seed=1) == (0, 3)
    assert made(table, "forest", folds=3) == (0, 3)
    assert made(table_of(60, width=numbers(60)["width"] + (np.arange(60) == 0)), folds=3) == (0, 3)


def test_damaged_files_are_fits_to_make_again(tmp_path):
    table, model = table_of(60), build("prior", images=False)
    fold = folds_of(table, 3, 1, 0)[0]
    kept = Records(tmp_path, table)
    row = dict.fromkeys((*RANKING["classification"], "rows_train", "rows_test", "seconds"), 0.5)
    key = kept.key(model, fold)
    kept.add(key, "prior", Record(row))
    (file,) = (tmp_path / FITS).iterdir()
    good = file.read_bytes()
    short = good.replace(b'"auc": 0.5, ', b"")
    assert short != good and kept.get(key) == Record(row)
    wrong = b"", b"\xff\xfe", b"[1]", b"{}", b'{"row": [2]}', b'{"row": {"auc": []}}', b"[" * 10**5
    for bad in (short, good[:-9], *wrong):
        file.write_bytes(bad)
        with pytest.warns(UserWarning, match=r"json is damaged, so it is made again: "):
            assert Records(tmp_path, table).get(key) is None
    file.write_bytes(good)
    assert Records(tmp_path, table).get(key) == Record(row)
    assert Records(None, table).key(model, fold) == ""


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
    # the members' are links to one file
    assert len({path.stat().st_ino for path in Path("model").rglob("backbone*")}) == 1


def striped(n: int) -> pd.DataFrame:
    """Photos of noise with faint stripes, upright or lying, which is the label."""
    rng = np.random.default_rng(0)
    kinds, photos = rng.integers(0, 2, n), []
    for kind in kinds:
        pixels = rng.integers(60, 180, (64, 64))
        (pixels if kind else pixels.T)[::8] += 24
        photos.append(encoded(Image.fromarray(pixels.astype(np.uint8)).convert("RGB")))
    return pd.DataFrame({"x": rng.normal(size=n), "photo": photos, "kind": np.array(["b", "a"])[kinds]})


@pytest.mark.slow
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
    assert "m.part holds a fit that did not end, of other parameters" in result.stderr
    assert [each.name for each in part.iterdir()] == ["mine.txt"]
    Path("n.part").write_text("a user's")
    assert "n.part is no folder, where a fit keeps its rounds; remove it" in run(*FIT, "--out", "n").stderr


def test_only_finished_rounds_stay(tmp_path):
    table, part = table_of(60), tmp_path / "m.part"
    with pytest.raises(Killed), unfinished(part, print) as keep:
        fit(table, "linear_trees", rounds=5, keep=keep, callbacks=[KillAfter(0)])
    assert any(part.glob("*/round-000001.safetensors"))
    with pytest.raises(Killed), unfinished(tmp_path / "n.part", print) as keep:
        fit(table, "prior", keep=keep, callbacks=[KillAfter(0)])
    assert not (tmp_path / "n.part").exists()


@pytest.mark.parametrize("rounds", [3, 5])
def test_a_fit_to_all_rows_goes_on_too(tmp_path, rounds):
    table, part, told = table_of(80), tmp_path / "m.part", []
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
    forest, linear = ForestBaselineRegressor(("S",), n_trees=5), RidgeBaseline(("S",))
    return {"forest": forest, "ridge": ridge, "linear": linear}


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_an_ensemble_goes_on_by_member_and_fold(tmp_path, task):
    x, y = matrix()
    kind = EnsembleRegressor
    if task == "classification":
        kind, y = EnsembleClassifier, (y > 0).astype(int)
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


@pytest.mark.parametrize(("rounds", "finished"), [(4, True), (1, False)])  # it has four trees
def test_a_member_that_is_asked_to_stop_is_kept_if_it_is_finished(tmp_path, rounds, finished):
    x, y = matrix()
    y = (y > 0).astype(int)
    whole = EnsembleClassifier(members("classification"), folds=2).fit(x, y)
    kept = EnsembleClassifier(members("classification"), folds=2, checkpoint=tmp_path)
    kept.set_params(callbacks=[StopAt(rounds)]).fit(x, y)
    of_folds = {f"m0-{fold}" for fold in range(whole.members_["lgbm"].fits)}
    saved = {path.parent.name for path in tmp_path.rglob("model.json")}
    assert of_folds and (saved >= of_folds if finished else not saved)
    found = EnsembleClassifier(members("classification"), folds=2, checkpoint=tmp_path).fit(x, y)
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


def test_two_fits_of_one_process_write_the_same_file(tmp_path):
    with ThreadPoolExecutor(8) as threads:
        for path in [tmp_path / f"{k}.safetensors" for k in range(20)]:
            list(threads.map(write_atomically, [path] * 8, [b"rows" * 250_000] * 8))
            assert path.read_bytes() == b"rows" * 250_000 and list(tmp_path.glob(".*")) == []

"""A fit that goes on from a checkpoint is, bit for bit, the fit that was never interrupted."""

import errno
import itertools
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save
from sklearn.base import clone

from tests.conftest import contents, make_views, refuses, reloaded
from tests.small_models import network, two_branches
from usboost import Backbone, Callback, Checkpoint, EarlyBoostClassifier, Images, TreeLearner, UsboostError
from usboost.boosting.steps import Bayes
from usboost.models.methods.bfv_network import BoostedFeatureNetworkClassifier
from usboost.models.methods.boosted_network import BoostedNetworkClassifier
from usboost.models.methods.two_branch import TwoBranchNetworkClassifier
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier
from usboost.models.settings import with_settings

ROOT = Path(__file__).resolve().parents[2]


class Dies(Callback):
    """Stands for a process that dies in round `index`, after its checkpoint and before its logging."""

    def __init__(self, index):
        self.index = index

    def on_round(self, round_):
        if round_.index == self.index:
            raise KeyboardInterrupt
        return False


class Sees(Callback):
    """Every round that is new to it, as a logger sees them."""

    def __init__(self):
        self.new, self.old = [], []

    def on_resume(self, rounds):
        self.old += [round_.index for round_ in rounds]
        return False

    def on_round(self, round_):
        self.new.append(round_.index)
        return False


def images(n, n_classes):
    rng = np.random.default_rng(0)
    views, y = make_views(n_classes, n=n)
    return views.with_view("U", Images(rng.integers(0, 255, (n, 1, 12, 12), dtype=np.uint8))), y


def learners(**changes):
    return {"U": network(hidden=(6,), **changes), "S": TreeLearner(min_samples_leaf=5)}


TABLES, IMAGES = make_views(3, n=240), images(90, 2)
PATIENT = {"n_rounds": 7, "patience": 3, "random_state": 1}
MODELS = {
    "2wl": (TwoWeakLearnerClassifier(learners(), **PATIENT), TABLES),
    "2wl2o, bayes": (
        TwoWeakLearnerClassifier(learners(), "second_order", step=Bayes(3, 2), n_rounds=5, patience=None),
        TABLES,
    ),
    "2wl-newton": (TwoWeakLearnerClassifier(learners(), "newton", shrinkage=0.5, **PATIENT), TABLES),
    "one after another, steps on others": (
        TwoWeakLearnerClassifier(learners(), sequential=True, step_fraction=0.2, **PATIENT),
        TABLES,
    ),
    "warm": (TwoWeakLearnerClassifier(learners(start="warm"), **PATIENT), TABLES),
    "warm images, augmented": (
        TwoWeakLearnerClassifier(
            learners(start="warm", backbone=Backbone("small_cnn", False, "all", augment="flip_shift")),
            n_rounds=5,
        ),
        IMAGES,
    ),
    "bnn": (BoostedNetworkClassifier(learner=network(hidden=(6,)), n_rounds=5), TABLES),
    "earlyboost": (EarlyBoostClassifier(), TABLES),
    "columns and batches drawn anew": (
        TwoWeakLearnerClassifier(
            {
                "U": network(hidden=(8,), batch_size=32, batches_per_round=(7, 7)),
                "S": TreeLearner(min_samples_leaf=3, feature_fraction=0.5),
            },
            n_rounds=6,
        ),
        TABLES,
    ),
    "bfv_dnn": (BoostedFeatureNetworkClassifier(network=two_branches(n_epochs=5)), TABLES),
    "two branches": (
        TwoBranchNetworkClassifier(dnn1=(4,), dnn2=(6,), dnn3=(5,), n_epochs=6, patience=None, device="cpu"),
        TABLES,
    ),
    "two branches, adam, images": (
        TwoBranchNetworkClassifier(
            dnn1=(4,),
            dnn2=(6,),
            dnn3=(5,),
            optimizer="adam",
            n_epochs=5,
            device="cpu",
            backbone=Backbone("small_cnn", False, "all", augment="flip"),
        ),
        IMAGES,
    ),
}


def data_of(name):
    views, y = MODELS[name][1]
    if name == "bnn":
        return views["S"], y
    if name == "earlyboost":
        return np.random.default_rng(0).normal(size=(240, 6, 2)) + y[:, None, None], y
    return views, y


def outcome(model, X):
    """Everything a fit leaves, seconds apart."""
    history = [{k: v for k, v in row.items() if not k.startswith("seconds")} for row in model.history_]
    stages = [
        (sorted(stage.steps.items()), {v: learner.to_arrays()[0] for v, learner in stage.learners.items()})
        for stage in getattr(model, "stages_", [])
    ]
    network_ = getattr(model, "network_", None)
    network_ = getattr(network_, "network_", network_)  # on boosted features
    weights = {} if network_ is None else network_.weights
    return history, model.best_round_, stages, weights, model.predict_proba(X)


def assert_same(a, b):
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert sorted(a) == sorted(b)
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            assert_same(x, y)
    elif isinstance(a, np.ndarray):
        np.testing.assert_array_equal(a, b)
    else:
        assert a == b or (a != a and b != b)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_interrupted_twice_is_never_interrupted(tmp_path, name):
    model, _ = MODELS[name]
    X, y = data_of(name)
    whole = clone(model).fit(X, y)
    for index in (2, 4):
        dying = clone(model).set_params(checkpoint=tmp_path / "kept", callbacks=[Dies(index)])
        with pytest.raises(KeyboardInterrupt):
            dying.fit(X, y)
    sees = Sees()
    resumed = clone(model).set_params(checkpoint=tmp_path / "kept", callbacks=[sees]).fit(X, y)
    assert sees.old == [1, 2, 3, 4]
    assert sees.new == list(range(5, len(whole.history_) + 1))
    assert_same(outcome(resumed, X), outcome(whole, X))
    again = clone(model).set_params(checkpoint=tmp_path / "kept", callbacks=[sees]).fit(X, y)
    assert sees.new == list(range(5, len(whole.history_) + 1)), "a finished fit has no new rounds"
    assert_same(outcome(again, X), outcome(whole, X))


def test_a_patience_that_grows_is_kept(tmp_path):
    """By the checkpoint that a resumed fit is compared with, by files, and by settings with a list."""
    views, y = TABLES
    model = TwoWeakLearnerClassifier(
        {"S": TreeLearner()}, n_rounds=30, patience=(2, 0.5), validation_fraction=0.3
    )
    whole = clone(model).fit(views, y)
    with pytest.raises(KeyboardInterrupt):
        clone(model).set_params(checkpoint=tmp_path / "kept", callbacks=[Dies(2)]).fit(views, y)
    resumed = clone(model).set_params(checkpoint=tmp_path / "kept").fit(views, y)
    assert len(resumed.history_) == len(whole.history_) < 30
    assert_same(outcome(resumed, views), outcome(whole, views))
    read = reloaded(whole, tmp_path / "saved")
    assert tuple(read.patience) == (2, 0.5)
    assert len(clone(read).fit(views, y).history_) == len(whole.history_)
    assert with_settings(clone(model), {"patience": [3, 0.2]}, "it").patience == (3, 0.2)


def test_scores_are_the_sum_of_the_rounds_wherever_the_state_was_written(tmp_path, monkeypatch):
    model, (views, y) = MODELS["2wl"]
    whole = outcome(clone(model).fit(views, y), views)
    asked = itertools.count()
    rules = {"always": lambda _: True, "never": lambda _: False, "some": lambda _: next(asked) % 3 == 1}
    for name, rule in rules.items():
        monkeypatch.setattr(Checkpoint, "state_is_due", rule)
        folder = tmp_path / name
        with pytest.raises(KeyboardInterrupt):
            clone(model).set_params(checkpoint=folder, callbacks=[Dies(4)]).fit(views, y)
        assert_same(outcome(clone(model).set_params(checkpoint=folder).fit(views, y), views), whole)


@pytest.mark.parametrize("change", ["parameters", "data", "labels", "code"])
def test_another_fits_checkpoint_is_refused_and_left_alone(tmp_path, monkeypatch, change):
    model, (views, y) = MODELS["2wl"]
    clone(model).set_params(checkpoint=tmp_path, n_rounds=2).fit(views, y)
    before = contents(tmp_path)
    other = clone(model).set_params(checkpoint=tmp_path, n_rounds=2)
    if change == "parameters":
        other.set_params(shrinkage=0.5)
    if change == "data":
        numeric = views["S"].numeric.copy()
        numeric[3, 0] += 1e-6
        views = views.with_view("S", type(views["S"])(numeric, views["S"].codes, views["S"].cardinalities))
    if change == "labels":
        y = np.roll(y, 1)
    if change == "code":
        monkeypatch.setattr("usboost.boosting.checkpoint.code_digest", lambda *_: "other")
    refuses("checkpoint of another fit", other.fit, views, y)
    assert contents(tmp_path) == before


class DiesBeforeRound(Checkpoint):
    """Stands for a process that dies in round `index`, after its state and before its own file."""

    index = None

    def keep(self, round_):
        if round_.index == self.index:
            raise KeyboardInterrupt
        super().keep(round_)


def test_dying_twice_between_a_state_and_its_round_leaves_no_gap(tmp_path):
    model, (views, y) = MODELS["two branches"]
    whole = outcome(clone(model).fit(views, y), views)
    for index in (2, 5):
        checkpoint = DiesBeforeRound(tmp_path)
        checkpoint.index = index
        with pytest.raises(KeyboardInterrupt):
            TwoBranchNetworkClassifier(**{**model.get_params(), "checkpoint": checkpoint}).fit(views, y)
    assert_same(outcome(clone(model).set_params(checkpoint=tmp_path).fit(views, y), views), whole)


def test_a_full_disk_is_told_and_the_last_checkpoint_stays(tmp_path, monkeypatch):
    model, (views, y) = MODELS["2wl"]
    whole = outcome(clone(model).fit(views, y), views)
    real, left = Path.write_bytes, [4]

    def full(path, content):
        left[0] -= 1
        if left[0] < 0:
            real(path, content[: len(content) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UsboostError, match=r"round-\d+.safetensors .*No space left"):
        clone(model).set_params(checkpoint=tmp_path).fit(views, y)
    monkeypatch.undo()
    assert not list(tmp_path.glob(".*.tmp"))
    assert_same(outcome(clone(model).set_params(checkpoint=tmp_path).fit(views, y), views), whole)


@pytest.mark.slow
def test_killed_three_times_at_random_moments(tmp_path, warm):
    words = ["-m", "benchmarks.robustness.kill", "--kills", "3", "--ranks", "0", "--folder", str(tmp_path)]
    assert "survived 3 of 3 kills" in warm.printed(words, ROOT)


@pytest.mark.parametrize("file", ["identity.json", "round-000002.safetensors", "state.safetensors"])
def test_no_code_comes_from_a_checkpoint(tmp_path, file):
    marker = tmp_path / "ran"

    class Bomb:
        def __reduce__(self):
            return (Path.touch, (marker,))

    model, (views, y) = MODELS["2wl"]
    folder = tmp_path / "kept"
    clone(model).set_params(checkpoint=folder, n_rounds=3).fit(views, y)
    (folder / file).write_bytes(pickle.dumps(Bomb()))
    refuses(file, clone(model).set_params(checkpoint=folder, n_rounds=3).fit, views, y)
    assert not marker.exists()


def test_rounds_of_no_known_fit_are_refused(tmp_path):
    model, (views, y) = MODELS["2wl"]
    fit = clone(model).set_params(checkpoint=tmp_path, n_rounds=2).fit
    fit(views, y)
    (tmp_path / "identity.json").unlink()
    refuses(r"identity.json cannot be read", fit, views, y)


@pytest.mark.parametrize("document", ["{}", '{"index": "x", "metrics": 3, "seconds": []}', "[]", "no", ""])
def test_a_round_that_is_none(tmp_path, document):
    model, (views, y) = MODELS["2wl"]
    clone(model).set_params(checkpoint=tmp_path, n_rounds=2).fit(views, y)
    data = save({"a": np.zeros(2)}, metadata={"document": document})
    file = tmp_path / "round-000001.safetensors"
    file.write_bytes(data if document else file.read_bytes()[:-5])
    with pytest.raises(UsboostError, match=r"round-000001.safetensors is damaged"):
        clone(model).set_params(checkpoint=tmp_path, n_rounds=2).fit(views, y)

"""A backbone's last block trained on what the frozen rest gave once; rows without an image."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.conftest import forget, reloaded
from usboost import Backbone, Images, NetworkLearner, Table, TreeLearner, Views, load, save
from usboost.learners.base import Target
from usboost.models.methods.two_branch import TwoBranchNetworkClassifier
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier


def squares(n: int = 64, seed: int = 0) -> tuple[Views, np.ndarray]:
    """Images with a bright square on the left or on the right, beside a table of noise."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    pixels = rng.integers(0, 80, (n, 3, 32, 32)).astype(np.uint8)
    for row, label in enumerate(y):
        left = 4 + 14 * label
        pixels[row, :, 8:20, left : left + 10] += 150
    table = Table.from_numeric(rng.normal(size=(n, 2)).astype(np.float32))
    return Views(U=Images(pixels), S=table), y


def last(cache: Path | str | bool = False) -> Backbone:
    return Backbone(finetune="last", cache=str(cache) if isinstance(cache, Path) else cache)


def test_a_round_goes_on_with_the_last_block_and_its_norms_stay() -> None:
    views, y = squares()
    learner = NetworkLearner((8,), batch_size=16, start="warm", backbone=last(), device="cpu")
    prepared = learner.prepare(views["U"])
    trainer = learner.trainer(prepared, 1)
    target = Target(2.0 * y[:, None] - 1)
    first = trainer.fit(target, seed=0, start=None)
    second = trainer.fit(target, seed=1, start=first)
    errors = [np.square(each.predict(prepared) - target.values).mean() for each in (first, second)]
    assert errors[1] < errors[0]
    network = second.module(torch.device("cpu"))
    last().load_weights(network)
    before = {name: tensor.numpy().copy() for name, tensor in network.state_dict().items()}
    changed = {name for name in before if not np.array_equal(before[name], second.weights[name])}
    assert any(name.startswith("backbone") and name.endswith("weight") for name in changed)
    kept = {key for key in before if key.startswith("backbone") and ("running" in key or "tracked" in key)}
    assert kept and not kept & changed
    assert second.weights["norm.running_mean"].any()  # of the features, for the layers after the block
    assert sum(array.size for array in second.weights.values()) < 1.2e6  # of 3.4 million in the backbone


@pytest.mark.parametrize("kind", ["boosted", "two branches"])
def test_models_need_no_cache_or_weights(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    views, y = squares()
    backbone = last(tmp_path / "cache")
    network = NetworkLearner((8,), batch_size=16, start="warm", backbone=backbone, device="cpu")
    model = {
        "boosted": lambda: TwoWeakLearnerClassifier(
            {"U": network, "S": TreeLearner()}, n_rounds=3, validation_fraction=0
        ),
        "two branches": lambda: TwoBranchNetworkClassifier(
            dnn1=(8,), dnn2=(4,), dnn3=(4,), n_epochs=3, batch_size=16, backbone=backbone, device="cpu"
        ),
    }[kind]().fit(views, y)
    save(model, tmp_path / "model")
    frozen = list((tmp_path / "model").glob("backbone-*"))
    assert len(frozen) == 1 and frozen[0].stat().st_size < 15e6
    expected = model.predict_proba(views)
    shutil.rmtree(tmp_path / "cache")
    forget()
    monkeypatch.setattr("usboost.learners.networks.architectures._packaged", None)
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(views), expected)
    save(again, tmp_path / "copy")
    assert len(list((tmp_path / "copy").glob("backbone-*"))) == 1


def test_sums_of_networks_on_images_are_those_of_each() -> None:
    views, y = squares(32)
    learner = NetworkLearner((4,), batch_size=16, backbone=last(), device="cpu")
    prepared = learner.prepare(views["U"])
    fitted = [learner.trainer(prepared, 2).fit(Target(np.eye(2)[y]), seed=k, start=None) for k in (0, 1)]
    expected = 0.3 * fitted[0].predict(prepared).astype(float) + 0.5 * fitted[1].predict(prepared)
    got = type(fitted[0]).weighted_sum(fitted, [0.3, 0.5], prepared)
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("finetune", ["none", pytest.param("last", marks=pytest.mark.slow), "all"])
def test_a_vector_is_learned_for_missing_images(finetune: str, tmp_path: Path) -> None:
    """Where the image is missing the label is in the table, so only a mask can tell which to read."""
    views, y = squares(96)
    absent = np.arange(96) % 3 == 0
    pixels = np.where(absent[:, None, None, None], 0, views["U"].pixels).astype(np.uint8)
    images = Images(pixels, absent=absent)
    table = Table.from_numeric(np.where(absent, 2.0 * y - 1, 0).astype(np.float32)[:, None])
    views = Views(U=images, S=table)
    backbone = Backbone(finetune=finetune, size=64, cache=str(tmp_path))
    if finetune == "all":
        backbone = Backbone("small_cnn", False, "all")
    model = TwoBranchNetworkClassifier(
        dnn1=(8,), dnn2=(8,), dnn3=(8,), n_epochs=15, batch_size=16, patience=None, learning_rate=0.002,
        backbone=backbone, device="cpu",
    ).fit(views, y, (views, y))  # fmt: skip
    assert np.mean(model.predict(views) == y) > 0.9
    assert model.network_.weights["no_first"].any()
    other = Views(U=Images(np.where(pixels == 0, 99, pixels).astype(np.uint8), absent=absent), S=table)
    same = model.predict_proba(other)[absent]
    np.testing.assert_allclose(same, model.predict_proba(views)[absent], rtol=1e-5)
    again = reloaded(model, tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(views), model.predict_proba(views))


def test_a_model_that_saw_no_gap_takes_rows_with_one() -> None:
    views, y = squares(48)
    model = TwoBranchNetworkClassifier(
        dnn1=(4,), dnn2=(4,), n_epochs=1, device="cpu", backbone=Backbone("small_cnn", False, "all")
    ).fit(views, y)
    gaps = Views(U=Images(views["U"].pixels, absent=np.ones(48, dtype=bool)), S=views["S"])
    assert np.isfinite(model.predict_proba(gaps)).all()

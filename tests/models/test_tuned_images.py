"""Images tuned on the target once, before a model is fitted."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.conftest import forget
from usboost import Backbone, Images, Table, Views, load, save
from usboost.boosting.callbacks import TimeLimit
from usboost.learners.networks import finetuning
from usboost.models import tuned_images
from usboost.models.baselines.linear import LinearBaseline, RidgeBaseline
from usboost.models.tuned_images import fit_weighted, tune_images

pytestmark = pytest.mark.slow
CPU = torch.device("cpu")


def stripes(n: int = 96, seed: int = 0, side: int = 32, every: int = 4) -> tuple[Views, np.ndarray]:
    """Noise with faint stripes, upright or lying, beside a table that says nothing."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    pixels = rng.integers(60, 180, (n, 3, side, side))
    for row, label in enumerate(y):
        upright = pixels[row].swapaxes(1, 2) if label else pixels[row]
        upright[:, ::every] += 16
    table = Table.from_numeric(rng.normal(size=(n, 2)).astype(np.float32))
    return Views(U=Images(pixels.astype(np.uint8)), S=table), y


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finetuning, "EPOCHS", 2)
    monkeypatch.setattr(finetuning, "STEPS", 1)


def backbone(cache: Path, **given: Any) -> Backbone:
    return Backbone(finetune=given.pop("finetune", "last"), cache=str(cache / "embeddings"), **given)


def target(views: Views, y: np.ndarray) -> finetuning.TuningTarget:
    return finetuning.TuningTarget((views["U"],), y)


def test_tuned_embeddings_say_more_of_the_target_and_any_model_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finetuning, "STEPS", 20)
    (views, y), (held, y_held), (test, y_test) = stripes(160), stripes(60, 1), stripes(100, 2)
    losses = {}
    for finetune in ("none", "last"):
        model = LinearBaseline(("U", "S"), backbone=backbone(tmp_path, finetune=finetune), device="cpu")
        fit_weighted(model, (views, y, None), (held, y_held, None))
        p = model.predict_proba(test)[np.arange(len(y_test)), y_test]
        losses[finetune] = -np.log(p + 1e-12).mean()
        assert model.backbone.is_frozen
    assert losses["last"] < losses["none"] - 0.05
    save(model, tmp_path / "model")
    expected = model.predict_proba(test)
    forget()
    for file in (tmp_path / "tuned").iterdir():
        file.unlink()
    np.testing.assert_array_equal(load(tmp_path / "model").predict_proba(test), expected)
    assert len(list((tmp_path / "model").glob("backbone-*"))) == 1


def test_killed_after_an_epoch_it_ends_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (views, y), (held, y_held) = stripes(64), stripes(32, 1)
    whole = finetuning.tuned(backbone(tmp_path / "a"), target(views, y), target(held, y_held), CPU)
    epoch = finetuning._Tuning._epoch

    def killed(self: Any, k: int, optimizer: Any) -> None:
        if k == 1:
            raise KeyboardInterrupt
        epoch(self, k, optimizer)

    monkeypatch.setattr(finetuning._Tuning, "_epoch", killed)
    with pytest.raises(KeyboardInterrupt):
        finetuning.tuned(backbone(tmp_path / "b"), target(views, y), target(held, y_held), CPU)
    made: list[int] = []
    monkeypatch.setattr(
        finetuning._Tuning, "_epoch", lambda self, k, optimizer: (made.append(k), epoch(self, k, optimizer))
    )
    again = finetuning.tuned(backbone(tmp_path / "b"), target(views, y), target(held, y_held), CPU)
    assert made == [1]
    assert Path(again.pretrained).read_bytes() == Path(whole.pretrained).read_bytes()
    finetuning.tuned(backbone(tmp_path / "b"), target(views, y), target(held, y_held), CPU)
    assert made == [1]  # it is there


def test_held_out_rows_choose_the_epoch_and_are_not_trained_on(tmp_path: Path) -> None:
    (views, y), (held, y_held) = stripes(64), stripes(32, 1)
    seen = []
    for labels in (y_held, 1 - y_held):
        tuning = finetuning._Tuning(backbone(tmp_path), target(views, y), target(held, labels), CPU)
        optimizer = finetuning.Adam(tuning._network, finetuning.RATE)
        tuning._epoch(0, optimizer)
        seen.append(optimizer.values.clone())
    assert torch.equal(*seen)
    tuning = finetuning._Tuning(backbone(tmp_path), target(views, y), target(held, 1 - y_held), CPU)
    before = tuning._whole.backbone.state_dict()
    expected = {name: tensor.clone() for name, tensor in before.items()}
    found = tuning.run(tmp_path / "epoch.safetensors")  # what it learns is wrong there: the start is best
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_images_that_say_nothing_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finetuning, "STEPS", 10)
    (views, _), (held, _) = stripes(64), stripes(32, 1)
    rng = np.random.default_rng(0)
    model = LinearBaseline(("U", "S"), backbone=backbone(tmp_path), device="cpu")
    fit_weighted(model, (views, rng.integers(0, 2, 64), None), (held, rng.integers(0, 2, 32), None))
    assert model.backbone.pretrained is True and model.backbone.finetune == "none"


def test_numbers_weights_and_rows_without_an_image(tmp_path: Path) -> None:
    views, y = stripes(64)
    absent = np.zeros(64, dtype=bool)
    absent[:8] = True
    some = Views(U=Images(views["U"].pixels, absent=absent), S=views["S"])
    numbers = y * 3.0 + 10
    counted = finetuning.TuningTarget((some["U"],), numbers, np.arange(1.0, 65.0))
    assert counted.n_images == 56
    weighted, plain = (
        finetuning.tuned(backbone(tmp_path), each, counted, CPU) for each in (counted, target(some, numbers))
    )
    assert weighted.pretrained != plain.pretrained
    model = RidgeBaseline(("U", "S"), backbone=backbone(tmp_path), device="cpu")
    fit_weighted(model, (some, numbers, None), (some, numbers, None))
    assert np.isfinite(model.predict(some)).all()


def test_auto_tunes_where_it_takes_some_minutes() -> None:
    auto, gpu = Backbone(finetune="auto"), torch.device("cuda")
    counts = (finetuning.FEWEST - 1, finetuning.FEWEST, finetuning.MOST, finetuning.MOST + 1)
    assert [finetuning.wanted(auto, n, CPU) for n in counts] == [False, True, True, False]
    assert [finetuning.wanted(auto, n, gpu) for n in counts] == [False, True, True, True]
    assert finetuning.wanted(Backbone(finetune="last"), 10, CPU)
    assert not finetuning.wanted(Backbone(finetune="none"), 1000, CPU)


def test_few_images_are_passed_over_more_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two batches of 64 images a pass: five passes make ten steps, and each is said when it ends."""
    monkeypatch.setattr(finetuning, "STEPS", 9)
    views, y = stripes(64)
    ended: list[int] = []
    with finetuning.progress(lambda images, epochs, left: ended.append(epochs)):
        finetuning.tuned(backbone(tmp_path), target(views, y), target(views, y), CPU)
    assert ended[-1] == 5


def test_auto_is_none_where_time_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finetuning, "FEWEST", 1)
    monkeypatch.setattr(finetuning, "tuned", None)
    (views, y), (held, y_held) = stripes(48), stripes(24, 1)
    model = LinearBaseline(("U", "S"), backbone=Backbone(finetune="auto", cache=False), device="cpu")
    model.set_params(callbacks=[TimeLimit(60)])
    fit_weighted(model, (views, y, None), (held, y_held, None))
    assert np.isfinite(model.predict_proba(held)).all()


def test_validation_rows_choose_the_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of stripes of one pixel nothing is seen at half the size."""
    monkeypatch.setattr(tuned_images, "SIZE", 32)
    backbone(tmp_path).embed(stripes(2)[0]["U"], CPU)  # 32 pixels, by a network that does not resize them
    (views, y), (held, y_held) = stripes(80, side=64, every=2), stripes(40, 1, side=64, every=2)
    losses: dict[Any, float] = {}
    for size in ("auto", None, 32):
        model = LinearBaseline(("U", "S"), backbone=backbone(tmp_path, finetune="none", size=size))
        fit_weighted(model, (views, y, None), (held, y_held, None))
        losses[size] = -np.log(model.predict_proba(held)[np.arange(40), y_held]).mean()
    assert losses["auto"] == losses[None] < losses[32] - 0.1


def test_mirrored_images_are_known_as_others() -> None:
    views, _ = stripes(4)
    mirrored = finetuning._Mirrored(views["U"])
    np.testing.assert_array_equal(mirrored.decode([1]), views["U"].decode([1])[..., ::-1])
    assert not (mirrored.digests() == views["U"].digests()).all(axis=1).any()


def test_all_of_a_network_is_tuned_where_that_is_asked_for(tmp_path: Path) -> None:
    (views, y), (held, y_held) = stripes(64), stripes(32, 1)
    changed = {}
    for finetune in ("last", "all"):
        given = backbone(tmp_path, finetune=finetune)
        made = finetuning.tuned(given, target(views, y), target(held, y_held), CPU)
        before = given._whole(given.spec(views["U"])).backbone.state_dict()
        after = made._whole(made.spec(views["U"])).backbone.state_dict()
        changed[finetune] = {name for name in before if not torch.equal(before[name], after[name])}
    assert "conv_stem.weight" in changed["all"] and changed["all"] > changed["last"]
    assert all(name.startswith(("blocks.5", "blocks.6", "conv_head", "bn2")) for name in changed["last"])
    assert not any("running" in name for name in changed["all"])


def test_whether_it_helps_is_asked_once_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (views, y), (held, y_held) = stripes(64), stripes(33, 1)
    y_held[-1] = 7  # a class that no training row has
    asked: list[Any] = []
    losses = tuned_images._judged
    monkeypatch.setattr(tuned_images, "_judged", lambda *given: asked.append(given) or losses(*given))
    found = []
    for _ in range(2):
        model = LinearBaseline(("S", "U"), backbone=backbone(tmp_path), device="cpu")
        tune_images(model, (views, y, np.ones(64)), (held, y_held, np.ones(33)))
        found.append(model.backbone.pretrained)
    of_images = [each for each in asked if set(each[0].views) == {"U:0"}]
    assert len(of_images) == 2 and found[0] == found[1]  # the pretrained network, and the tuned one
    assert len(of_images[0][2][1]) == 32


def memorised(n: int, share: float, seed: int) -> tuple[Views, np.ndarray]:
    """Images of which a share has stripes of its label, others of any, beside a table that tells more."""
    views, y = stripes(n, seed)
    rng = np.random.default_rng(seed + 50)
    shown = np.where(rng.random(n) < share, y, rng.integers(0, 2, n))
    table = Table.from_numeric(np.stack([shown + rng.normal(size=n), rng.normal(size=n)], axis=1))
    return Views(U=views["U"], S=table), shown


@pytest.mark.parametrize("seed", [0, 1])
def test_it_goes_as_far_as_all_views_predict_held_out_rows_best(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finetuning, "STEPS", 20)
    (views, y), (held, y_held) = memorised(80, 0.7, seed), memorised(60, 0.7, seed + 10)
    model = LinearBaseline(("U", "S"), backbone=backbone(tmp_path, finetune="last"), device="cpu")
    tuned = finetuning.tuned(model.backbone, target(views, y), target(held, y_held), CPU)
    frozen = backbone(tmp_path, finetune="none")
    risks = {}
    for each in (tuned, finetuning.half_way(tuned, frozen), frozen):
        one = LinearBaseline(("U", "S"), backbone=each).fit(views, y, (held, y_held))
        p = one.predict_proba(held)[np.arange(len(y_held)), y_held]
        risks[each.pretrained] = -np.log(p).mean()
    tune_images(model, (views, y, None), (held, y_held, None))
    allowed = {min(risks, key=lambda path: risks[path]), True}  # or the images alone say nothing
    assert model.backbone.pretrained in allowed


def test_half_way_is_the_mean_of_the_weights(tmp_path: Path) -> None:
    (views, y), (held, y_held) = stripes(64), stripes(32, 1)
    frozen = backbone(tmp_path, finetune="none")
    tuned = finetuning.tuned(backbone(tmp_path), target(views, y), target(held, y_held), CPU)
    half = finetuning.half_way(tuned, frozen)
    one, other, mean = (
        each._whole(each.spec(views["U"])).backbone.state_dict() for each in (frozen, tuned, half)
    )
    assert any(not torch.equal(one[name], other[name]) for name in one)
    for name, tensor in mean.items():
        torch.testing.assert_close(tensor, ((one[name].double() + other[name].double()) / 2).to(tensor.dtype))

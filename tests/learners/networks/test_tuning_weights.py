"""Tuned images: what rows weigh, what decides which file is kept, and embeddings as they are kept."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from usboost import Backbone, Images, Views
from usboost.learners.networks import embeddings, finetuning
from usboost.learners.networks.finetuning import TuningTarget
from usboost.models import tuned_images
from usboost.models.baselines.linear import LinearBaseline

CPU = torch.device("cpu")
RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 255, (24, 3, 16, 16)).astype(np.uint8)
Y = np.arange(24) % 2


def backbone(cache: Path, **given: Any) -> Backbone:
    return Backbone("small_cnn", pretrained=False, finetune="all", cache=str(cache / "embeddings"), **given)


def target(rows: Any, weights: np.ndarray | None = None) -> TuningTarget:
    return TuningTarget((Images(PIXELS[rows]),), Y[rows], weights)


def test_a_row_of_weight_3_is_three_rows(tmp_path: Path) -> None:
    rows, tripled = np.arange(8), np.r_[np.arange(8), 0, 0]
    weights = np.where(rows == 0, 3.0, 1.0)

    def tuning(*targets: TuningTarget) -> Any:
        made = finetuning._Tuning(backbone(tmp_path), *targets, CPU)
        generator = torch.Generator().manual_seed(0)
        for part in made._network.parameters():  # whose head says nothing at first
            part.data += 0.3 * torch.randn(part.shape, generator=generator)
        return made

    once, thrice = tuning(target(rows), target(rows, weights)), tuning(target(rows), target(tripled))
    assert once._risk() == pytest.approx(thrice._risk(), rel=1e-6)
    assert once._risk() != pytest.approx(tuning(target(rows), target(rows))._risk(), rel=1e-6)

    def loss(chosen: np.ndarray, counts: torch.Tensor) -> float:
        with torch.no_grad():
            return float(once._loss(torch.from_numpy(PIXELS[chosen]), torch.from_numpy(Y[chosen]), counts))

    weighted = loss(rows, torch.from_numpy(weights).float())
    assert weighted == pytest.approx(loss(tripled, torch.ones(10)), rel=1e-6)
    assert weighted != pytest.approx(loss(rows, torch.ones(8)), rel=1e-6)


def test_each_epoch_has_an_order_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tuning = finetuning._Tuning(backbone(tmp_path), target(slice(16)), target(slice(16, None)), CPU)
    orders: list[list[float]] = []
    batch = tuning._batch

    def noted(rows: torch.Tensor, sides: torch.Tensor, starts: np.ndarray) -> Any:
        orders[-1] += [*rows.tolist(), *sides.tolist()]
        return batch(rows, sides, starts)

    monkeypatch.setattr(tuning, "_batch", noted)
    optimizer = finetuning.Adam(tuning._network, 1e-3)
    for epoch in (0, 1, 0):
        orders.append([])
        tuning._epoch(epoch, optimizer)
    assert orders[0] == orders[2] and orders[0] != orders[1]


def test_sizes_and_held_out_rows_have_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finetuning, "EPOCHS", 1)
    monkeypatch.setattr(finetuning, "STEPS", 1)

    def file(held: slice, **given: Any) -> str:
        made = finetuning.tuned(backbone(tmp_path, **given), target(slice(12)), target(held), CPU)
        return str(made.pretrained)

    first, again = file(slice(12, 18)), file(slice(12, 18))
    assert first == again
    assert len({first, file(slice(18, 24)), file(slice(12, 18), size=12), file(slice(12, 17))}) == 4


class _Outputs(nn.Module):
    """A network with one output, far outside what float16 holds."""

    def __call__(self, view: Any, rows: np.ndarray) -> np.ndarray:
        return np.asarray(view.decode(rows))[:, 0, :1, 0] * 0.0 - 1e5 - rows[:, None]

    def shape(self, view: Any) -> tuple[int, ...]:
        return (1,)


def test_large_negative_values_stay_finite(tmp_path: Path) -> None:
    found = embeddings.values_of(Images(PIXELS), _Outputs, tmp_path / "far")
    np.testing.assert_allclose(found[:, 0], -1e5 - np.arange(24), rtol=1e-6)


def test_tables_of_the_same_images_with_other_gaps_have_their_own_rows(tmp_path: Path) -> None:
    found = []
    for absent in ([0, 1], [22, 23]):
        there = np.setdiff1d(np.arange(24), absent)
        pixels = np.zeros_like(PIXELS)
        pixels[there] = PIXELS[:22]  # the same images, in the same order, in other rows
        view = Images(pixels, absent=~np.isin(np.arange(24), there))
        found.append(embeddings.values_of(view, _ByRow, tmp_path / "by row"))
        np.testing.assert_allclose(found[-1][there, 0], PIXELS[:22, 0, 0, 0])
        assert (found[-1][absent] == 0).all()


class _ByRow(_Outputs):
    """A network whose output is the first pixel."""

    def __call__(self, view: Any, rows: np.ndarray) -> np.ndarray:
        return np.asarray(view.decode(rows))[:, 0, :1, 0].astype(np.float32)


@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("heavy", [False, True])
def test_weights_choose_best(heavy: bool, few: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By few images it has to be better by more than the standard error: .05 ± .32 with these weights."""
    losses = {"made": [1.2, 2.2], "half": [9.0, 9.0], "frozen": [1.5, 0.0]}
    two = [backbone(tmp_path).set_params(pretrained=str(tmp_path / f"{name}.safetensors")) for name in losses]
    monkeypatch.setattr(finetuning, "half_way", lambda made, frozen: two[1])
    of = {str(part.pretrained): np.array(loss) for part, loss in zip(two, losses.values(), strict=True)}
    monkeypatch.setattr(tuned_images, "_judged", lambda judge, train, held: of[judge.backbone.pretrained])
    views = Views(U=Images(PIXELS[:4]))
    train = (views, Y[:4], None)
    judge = tuned_images._judge(LinearBaseline(("U",)), ["backbone"], train, few)
    for k, others in enumerate((slice(0, 2), slice(2, 4))):
        held = (views[np.arange(4)[others]], Y[others], np.array([9.0, 1.0]) if heavy else None)
        best = tuned_images._as_far_as_helps(judge, two[0], two[2], train, held, few)
        assert best is two[0 if heavy and not few else 2]
        assert len(list(tmp_path.rglob("made-*"))) == k + 1  # a decision for each of the held-out rows


def test_a_gain_within_its_error_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = {"frozen": [1.0, 1.0, 1.0, 1.0], "chance": [0.0, 2.0, 0.5, 0.4], "gain": [0.9, 0.9, 0.9, 0.8]}
    parts = {
        name: backbone(tmp_path).set_params(pretrained=str(tmp_path / f"{name}.safetensors"))
        for name in losses
    }
    of = {str(part.pretrained): np.array(losses[name]) for name, part in parts.items()}
    monkeypatch.setattr(tuned_images, "_judged", lambda judge, train, held: of[judge.backbone.pretrained])
    for name, helps in (("chance", False), ("gain", True)):
        found = tuned_images._helps(parts[name], parts["frozen"], target(slice(4)), target(slice(4, 8)))
        assert found is helps

"""Embeddings: of real images, computed once, found again after a kill, by whatever process."""

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image
from skimage import data

from tests.conftest import ROOT, encoded, forget, refuses
from tests.warm import Warm
from usboost.data.images import EncodedImages, Images
from usboost.errors import UsboostError
from usboost.learners.networks import backbones, embeddings
from usboost.learners.networks.architectures import read_weights, split
from usboost.learners.networks.backbones import Backbone, embedded
from usboost.learners.networks.image_network import FrozenNetwork, ImageNetwork, LastBlock
from usboost.learners.networks.inputs import initialise

CPU = torch.device("cpu")
CAT, ESPRESSO, TRIPOD = 285, 967, 872  # of ImageNet's classes


def noise(n: int = 40, side: int = 12, seed: int = 0) -> Images:
    return Images(np.random.default_rng(seed).integers(0, 255, (n, 1, side, side), dtype=np.uint8))


def small(cache: Path | str | bool | None, **changes: object) -> Backbone:
    where = str(cache) if isinstance(cache, Path) else cache
    return Backbone("small_cnn", False, cache=where, random=True, **changes)


@pytest.fixture(autouse=True)
def _forgotten() -> None:
    forget()
    backbones._networks._cached.clear()


@dataclass
class Count:
    """How many images are embedded within it."""

    done: int = 0

    def __call__(self, done: int, total: int) -> None:
        assert 0 < done <= total
        self.done = done if done == total else self.done


def counted(backbone: Backbone, view: Images) -> tuple[np.ndarray, int]:
    """What it makes of images, and of how many it had to be computed; nothing is held in memory."""
    forget()
    count = Count()
    with embeddings.progress(count):
        return backbone.embed(view, CPU), count.done


def photographs(side: int = 224) -> Images:
    """scikit-image's cat, espresso and tripod: the middle square."""
    images = []
    for pixels in (data.chelsea(), data.coffee(), data.camera()):
        image = Image.fromarray(pixels).convert("RGB")
        k = min(image.size)
        left, top = (image.width - k) // 2, (image.height - k) // 2
        square = image.crop((left, top, left + k, top + k)).resize((side, side), Image.Resampling.BICUBIC)
        images.append(np.asarray(square).transpose(2, 0, 1))
    return Images(np.stack(images))


def test_the_packaged_weights_know_a_cat_an_espresso_and_a_tripod(tmp_path: Path) -> None:
    values = Backbone(cache=str(tmp_path)).embed(photographs(), CPU)
    weights = read_weights("tf_efficientnet_lite0", True)
    scores = values @ weights["classifier.weight"].numpy().T + weights["classifier.bias"].numpy()
    assert scores.argmax(axis=1).tolist() == [CAT, ESPRESSO, TRIPOD]
    grey = Images(photographs().pixels[2:, :1])
    scores = (
        embedded(grey, None, CPU).numeric @ weights["classifier.weight"].numpy().T
        + weights["classifier.bias"].numpy()
    )
    assert scores.argmax() == TRIPOD


def test_frozen_networks_give_what_the_plain_network_gives_however_images_are_cut() -> None:
    view = Images(np.concatenate([photographs(64).pixels, photographs(64).pixels[:, :, ::-1]] * 6))
    backbone = Backbone(cache=False)
    network = ImageNetwork(backbone.spec(view), []).eval()
    backbone.load_weights(network)
    with torch.no_grad():
        expected = network((torch.from_numpy(view.pixels),)).numpy()
    frozen = FrozenNetwork(network, CPU)
    together = frozen(view, np.arange(len(view)))
    apart = np.concatenate([frozen(view, np.array([k])) for k in range(len(view))])
    scale = np.abs(expected).max()
    assert np.abs(together - expected).max() < 1e-4 * scale
    assert np.abs(together - apart).max() < 1e-4 * scale


class NormFirst(torch.nn.Module):
    """Parts that run in another order than they stand in."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = torch.nn.ModuleList([torch.nn.Conv2d(1, 1, 3), torch.nn.BatchNorm2d(1)])
        self.backbone[1].running_mean += 100

    def forward(self, inputs: tuple[torch.Tensor]) -> torch.Tensor:
        convolution, norm = self.backbone
        return convolution(norm(inputs[0].float())).mean((2, 3))


def test_a_network_that_folding_would_change_is_not_folded() -> None:
    view, network = noise(), NormFirst().eval()
    with torch.no_grad():
        expected = network((torch.from_numpy(view.pixels),)).numpy()
    np.testing.assert_allclose(FrozenNetwork(network, CPU)(view, np.arange(len(view))), expected, rtol=1e-4)


def test_each_image_is_embedded_once(tmp_path: Path) -> None:
    view, backbone = noise(), small(tmp_path)
    fresh = small(False).embed(view, CPU)
    first, done = counted(backbone, view)
    assert done == 40
    np.testing.assert_array_equal(first, fresh)
    again, done = counted(backbone, view[::-1])
    assert done == 0
    np.testing.assert_array_equal(again, fresh[::-1])
    more, done = counted(backbone, Images(np.concatenate([noise(seed=1).pixels, view.pixels, view.pixels])))
    assert done == 40
    np.testing.assert_array_equal(more[40:], np.concatenate([fresh, fresh]))
    _, done = counted(Backbone("small_cnn", False, size=8, cache=str(tmp_path), random=True), view)
    assert done == 40


def test_a_network_is_built_once_for_rows_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    built, whole = [], Backbone._whole
    monkeypatch.setattr(Backbone, "_whole", lambda self, spec: built.append(spec) or whole(self, spec))
    pixels = photographs(64).pixels
    without = Images(np.zeros_like(pixels[:1]), absent=np.array([True]))
    for backbone in (Backbone(cache=False), Backbone(cache=False)):  # as two models that are alike
        rows = [backbone.embed(view, CPU) for view in (without, Images(pixels[:1]), Images(pixels[1:2]))]
        assert len(built) == 1
    assert rows[0].shape == rows[1].shape and not rows[0].any()
    backbones._networks._cached.clear()
    np.testing.assert_array_equal(backbone.embed(Images(pixels[1:2]), CPU), rows[2])
    assert len(built) == 2


def test_damaged_shards_are_made_again(tmp_path: Path) -> None:
    view, backbone = noise(), small(tmp_path)
    fresh, _ = counted(backbone, view)
    (file,) = tmp_path.glob("*/*.safetensors")
    whole = file.read_bytes()
    flipped = bytearray(whole)
    flipped[-5] ^= 1
    for damaged in (b"", whole[:50], whole[:-1], bytes(flipped)):
        file.write_bytes(damaged)
        found, done = counted(backbone, view)
        assert done == 40
        np.testing.assert_array_equal(found, fresh)
        assert file.read_bytes() == whole
    file.unlink()
    np.testing.assert_array_equal(counted(backbone, view)[0], fresh)


def test_rows_without_a_image_are_zeros(tmp_path: Path) -> None:
    pixels, absent = noise().pixels, np.arange(40) % 3 == 0
    values, done = counted(small(tmp_path), Images(pixels, absent=absent))
    assert done == 26
    assert not values[absent].any()
    np.testing.assert_array_equal(values[~absent], counted(small(False), Images(pixels))[0][~absent])
    assert not small(tmp_path).embed(Images(pixels, absent=np.ones(40, dtype=bool)), CPU).any()


@pytest.mark.parametrize("chosen", [False, "off"])
def test_no_cache_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: bool | str) -> None:
    monkeypatch.setenv("USBOOST_CACHE", str(tmp_path / "own"))
    assert counted(small(chosen), noise())[1] == 40
    assert counted(small(chosen), noise())[1] == 40
    assert list(tmp_path.iterdir()) == []
    assert counted(small(None), noise())[1] == 40
    assert counted(small(None), noise())[1] == 0
    assert list((tmp_path / "own" / "embeddings").iterdir())
    monkeypatch.delenv("USBOOST_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    assert embeddings.cache_folder(None) == tmp_path / "user" / "usboost" / "embeddings"


def test_several_models_embed_images_once_without_a_cache() -> None:
    view, seen = noise(), []
    expected, other = (small(False, size=side).embed(view, CPU) for side in (12, 8))
    with embeddings.progress(lambda done, total: seen.append(total)):
        with embeddings.shared_in_memory():
            for _ in range(3):
                np.testing.assert_array_equal(small(False, size=12).embed(view, CPU), expected)
            assert seen == [40]
            np.testing.assert_array_equal(small(False, size=8).embed(view, CPU), other)
        small(False, size=12).embed(view, CPU)
    assert seen == [40] * 3


def test_a_folder_that_cannot_be_written_costs_time_and_not_the_model(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.warns(UserWarning, match="USBOOST_CACHE"):
        values = small(tmp_path / "file").embed(noise(), CPU)
    np.testing.assert_array_equal(values, small(False).embed(noise(), CPU))


def test_many_values_lie_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = small(False).embed(noise(), CPU)
    monkeypatch.setattr(embeddings, "IN_MEMORY", 1000)
    np.testing.assert_array_equal(small(tmp_path).embed(noise(), CPU), expected)


KILLED = """
import os, signal, sys
import numpy as np, torch
from usboost.data.images import Images
from usboost.learners.networks import embeddings
from usboost.learners.networks.backbones import Backbone
embeddings.SHARD = 64
def told(done, total):
    if done >= 160:
        os.kill(os.getpid(), signal.SIGKILL)
pixels = np.random.default_rng(0).integers(0, 255, (300, 1, 12, 12), dtype=np.uint8)
with embeddings.progress(told):
    Backbone("small_cnn", False, cache=sys.argv[1], random=True).embed(Images(pixels), torch.device("cpu"))
"""


@pytest.mark.slow
def test_a_killed_process_is_gone_on_with(tmp_path: Path, warm: Warm) -> None:
    ended = warm.run(["-c", KILLED, str(tmp_path)], ROOT, os.environ)
    assert ended.returncode == -signal.SIGKILL
    values, done = counted(small(tmp_path), noise(300))
    assert done == 300 - 128
    np.testing.assert_array_equal(values, small(False).embed(noise(300), CPU))
    assert counted(small(tmp_path), noise(300))[1] == 0


def test_frozen_random_weights_are_asked_for() -> None:
    view = noise()
    for backbone in (Backbone("small_cnn", False), Backbone("small_cnn", False, "all")):
        refuses("random: true", embedded, view, backbone, CPU)
    refuses("no published weights", embedded, view, Backbone("small_cnn"), CPU)


def test_small_images_are_enlarged_for_backbones_of_timm() -> None:
    assert Backbone().spec(noise())["size"] == 32
    assert Backbone("vit_tiny_patch16_224").spec(noise())["size"] == 224
    assert Backbone().spec(photographs(64))["size"] is None
    refuses("32 pixels or more, not 16", Backbone(size=16).spec, noise())
    refuses("224 pixels a side, not 64", Backbone("vit_tiny_patch16_224", size=64).spec, noise())


@pytest.mark.parametrize("name", ["hf-hub:timm/resnet18", "a/b", "resnet_of_nobody", "", "../x"])
def test_a_backbone_is_one_of_those_that_are_known(name: str) -> None:
    refuses("unknown backbone", Backbone(name).spec, noise())


@pytest.mark.parametrize(
    "name", ["tf_efficientnet_lite0", "resnet18", "convnext_atto", "vit_tiny_patch16_224"]
)
def test_the_last_block_on_the_rest_is_the_whole(name: str) -> None:
    backbone = Backbone(name, False, "last", size=None if "vit" in name else 64, cache=False, random=True)
    view = photographs(64)
    last = LastBlock(backbone.spec(view), []).eval()
    initialise(last, 1)
    backbone.load_weights(last)
    last.norm = torch.nn.Identity()
    with torch.no_grad():
        got = last((torch.from_numpy(backbone.activations(view, CPU)),)).numpy()
    expected = backbone.embed(view, CPU)
    assert np.abs(got - expected).max() < 2e-3 * np.abs(expected).max()
    whole = ImageNetwork(backbone.spec(view), []).backbone
    every = {id(parameter) for parameter in whole.parameters()}
    first, second = ({id(each) for each in part.parameters()} for part in split(whole, name))
    assert first | second == every and not first & second


@pytest.mark.parametrize("name", ["small_cnn", "swin_tiny_patch4_window7_224"])
def test_other_families_have_no_last_block(name: str) -> None:
    with pytest.raises(UsboostError, match="last block is not known"):
        Backbone(name, False, "last", random=True, cache=False).activations(photographs(64), CPU)


def test_encoded_images_are_embedded_as_decoded_ones(tmp_path: Path) -> None:
    view = noise()
    files = [encoded(image) for image in view.pixels[:, 0]]
    streamed = EncodedImages(pa.array(files, pa.binary()), channels=1, height=12, width=12)
    values, done = counted(small(tmp_path), streamed)
    assert done == 40
    np.testing.assert_array_equal(values, small(False).embed(view, CPU))
    assert counted(small(tmp_path), streamed[5:])[1] == 0


TOGETHER = """
import sys
import numpy as np, torch
from usboost.data.images import Images
from usboost.learners.networks import embeddings
from usboost.learners.networks.backbones import Backbone
embeddings.SHARD = 16
pixels = np.random.default_rng(0).integers(0, 255, (300, 1, 12, 12), dtype=np.uint8)
backbone = Backbone("small_cnn", False, cache=sys.argv[1], random=True)
np.save(sys.argv[2], backbone.embed(Images(pixels), torch.device("cpu")))
"""


@pytest.mark.slow
def test_two_processes_at_once_do_no_harm(tmp_path: Path, warm: Warm) -> None:
    call, own = ["python", "-c", TOGETHER, str(tmp_path / "cache")], warm.shim(os.environ)
    both = [subprocess.Popen([*call, str(tmp_path / f"{k}.npy")], env=own, cwd=ROOT) for k in range(2)]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    expected = small(False).embed(noise(300), CPU)
    for k in range(2):
        np.testing.assert_array_equal(np.load(tmp_path / f"{k}.npy"), expected)
    values, done = counted(small(tmp_path / "cache"), noise(300))
    assert done == 0
    np.testing.assert_array_equal(values, expected)

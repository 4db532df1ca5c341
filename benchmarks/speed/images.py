"""Seconds of a frozen backbone to read images, against the loop that one would write."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from skimage import data

from usboost.data.images import Images
from usboost.learners.networks import embeddings
from usboost.learners.networks.backbones import Backbone
from usboost.learners.networks.image_network import FrozenNetwork, ImageNetwork

Compared = list[tuple[str, float, str, float]]
"""A row of the comparison: its name, our seconds, the name of what is compared with, and its seconds."""


def crops(n: int, side: int) -> Images:
    """Cut n random squares of scikit-image's photographs."""
    rng = np.random.default_rng(0)
    photographs = [data.chelsea(), data.coffee(), data.astronaut()]
    pixels = np.empty((n, 3, side, side), dtype=np.uint8)
    for k in range(n):
        image = photographs[k % len(photographs)]
        top, left = (rng.integers(0, length - side + 1) for length in image.shape[:2])
        pixels[k] = image[top : top + side, left : left + side].transpose(2, 0, 1)
    return Images(pixels)


def embedding(folder: Path, rows: int | None, n_images: int = 384, side: int = 128) -> Compared:
    """Compare EfficientNet-Lite0 by a plain loop over batches of 32, as usboost runs it, and from the disk.

    Seconds on all cores, the best of three turns.
    """
    view, cpu = crops(n_images, side), torch.device("cpu")
    backbone = Backbone(cache=False)
    networks = [ImageNetwork(backbone.spec(view), []).eval() for _ in range(2)]
    for network in networks:
        backbone.load_weights(network)
    frozen = FrozenNetwork(networks[0], cpu)

    def plain() -> np.ndarray:
        with torch.no_grad():
            return torch.cat(
                [networks[1]((part,)) for part in torch.from_numpy(view.pixels).split(32)]
            ).numpy()

    def timed(run: Callable[[], np.ndarray]) -> tuple[float, np.ndarray]:
        start = time.perf_counter()
        outputs = run()
        return time.perf_counter() - start, outputs

    turns = [(timed(plain), timed(lambda: frozen(view, np.arange(n_images)))) for _ in range(3)]
    np.testing.assert_allclose(turns[0][0][1], turns[0][1][1], atol=1e-3 * np.abs(turns[0][0][1]).max())
    theirs, ours = (min(turn[k][0] for turn in turns) for k in range(2))
    with tempfile.TemporaryDirectory() as cache:
        cached = Backbone(cache=cache)
        cached.embed(view, cpu)
        embeddings.forget()
        again, _ = timed(lambda: cached.embed(view, cpu))
    what = f"embedding {n_images} images of {side} pixels"
    return [
        (what, ours, "plain loop, batches of 32", theirs),
        (f"{what} again", again, "the first time", ours),
    ]

"""How fast a frozen backbone reads images, against the loop that one would write."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from skimage import data

from usboost.data.images import Images
from usboost.learners.networks.images import embeddings
from usboost.learners.networks.images.backbones import Backbone
from usboost.learners.networks.images.image_network import FrozenNetwork, ImageNetwork


def crops(n: int, side: int) -> Images:
    """n random squares of scikit-image's photographs."""
    rng = np.random.default_rng(0)
    photographs = [data.chelsea(), data.coffee(), data.astronaut()]
    pixels = np.empty((n, 3, side, side), dtype=np.uint8)
    for k in range(n):
        image = photographs[k % len(photographs)]
        top, left = (rng.integers(0, length - side + 1) for length in image.shape[:2])
        pixels[k] = image[top : top + side, left : left + side].transpose(2, 0, 1)
    return Images(pixels)


def embedding(folder: Path, rows: int | None, n_images: int = 384, side: int = 128) -> dict[str, Any]:
    """EfficientNet-Lite0 by a plain loop over batches of 32, as usboost runs it, and found on disk.

    Images a second on all cores and in a second of CPU time, the best of three turns; and by how much
    the outputs differ, relative to the largest.
    """
    view, cpu = crops(n_images, side), torch.device("cpu")
    backbone = Backbone(cache=False)
    network = ImageNetwork(backbone.spec(view), []).eval()
    backbone.load_weights(network)
    frozen = FrozenNetwork(network, cpu)
    plain_network = ImageNetwork(backbone.spec(view), []).eval()
    backbone.load_weights(plain_network)

    def plain() -> np.ndarray:
        with torch.no_grad():
            parts = torch.from_numpy(view.pixels).split(32)
            return torch.cat([plain_network((part,)) for part in parts]).numpy()

    def ours() -> np.ndarray:
        return frozen(view, np.arange(n_images))

    out: dict[str, Any] = {"images": n_images, "side": side, "threads": torch.get_num_threads()}
    found: dict[str, np.ndarray] = {}
    for _ in range(3):  # in turns, so that a busy moment meets all
        for name, run in (("plain", plain), ("ours", ours)):
            start, cpu_start = time.perf_counter(), time.process_time()
            found[name] = run()
            rate = n_images / (time.perf_counter() - start)
            per_cpu = n_images / (time.process_time() - cpu_start)
            before = out.get(name, {"rate": 0.0, "cpu": 0.0})
            out[name] = {"rate": max(before["rate"], rate), "cpu": max(before["cpu"], per_cpu)}
    difference = np.abs(found["ours"] - found["plain"]).max()
    out["difference"] = float(difference / np.abs(found["plain"]).max())
    with tempfile.TemporaryDirectory() as cache:
        kept = Backbone(cache=cache)
        kept.embed(view, cpu)
        embeddings.forget()
        start = time.perf_counter()
        kept.embed(view, cpu)
        out["again"] = {"rate": n_images / (time.perf_counter() - start)}
    return out

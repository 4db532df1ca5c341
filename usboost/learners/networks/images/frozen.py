"""Frozen networks run over many images, as fast as the cores allow."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from usboost.learners.networks.training.train import one_thread_each

ON_CPU, ON_GPU = 4, 256
"""Images at a time: on a CPU the layers of four stay in a core's cache, and each core has its own."""

_TOLERANCE = 1e-4  # of a network with its normalisations folded, relative to its largest output
_ROWS_A_TASK = 8  # of a thread, so that all end at about the same time


class FrozenNetwork:
    """A network on images for what it gives: no gradients, batch normalisation within convolutions.

    Parameters
    ----------
    network : reads ``(uint8 (k, C, H, W),)`` and has a part `backbone`; it is moved to the device.
    """

    def __init__(self, network: Any, device: torch.device) -> None:
        self._device = device
        self._network = network.to(device).eval().requires_grad_(False)
        self._folded = None if device.type == "cuda" else folded(network.backbone)

    def __call__(self, view: Any, rows: np.ndarray) -> np.ndarray:
        """The outputs of some rows of a view of images: float32 (k, …), each as if it were alone."""
        if len(rows) == 0:
            raise ValueError("no rows to run over")
        if self._device.type == "cuda":
            return np.concatenate([self._batch(view, part) for part in _cut(rows, ON_GPU)])
        if self._folded is not None:
            self._check(view, rows[:ON_CPU])
        tasks = list(_cut(rows, _ROWS_A_TASK))
        # as many as torch may use here; a pool of OpenMP's inside each would ask for more than there are
        with ThreadPoolExecutor(max(1, min(torch.get_num_threads(), len(tasks)))) as pool:
            return np.concatenate(list(pool.map(lambda part: self._task(view, part), tasks)))

    def shape(self, view: Any) -> tuple[int, ...]:
        """Of an image's outputs."""
        blank = np.zeros((1, view.channels, view.height, view.width), dtype=np.uint8)
        return self._run(blank).shape[1:]

    def _task(self, view: Any, rows: np.ndarray) -> np.ndarray:
        torch.get_num_threads()  # sets a new thread's number, which is then changed
        with one_thread_each():
            return np.concatenate([self._batch(view, part) for part in _cut(rows, ON_CPU)])

    def _batch(self, view: Any, rows: np.ndarray) -> np.ndarray:
        return self._run(np.ascontiguousarray(view.decode(rows)))

    def _run(self, images: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            pixels = torch.tensor(images, device=self._device)
            out: np.ndarray = self._network((pixels,)).cpu().numpy()
        return out

    def _check(self, view: Any, rows: np.ndarray) -> None:
        """Take the folded backbone if it gives the same on some images: layers side by side in a
        network's list of parts need not follow each other when it runs."""
        plain = self._batch(view, rows)
        own, self._network.backbone, self._folded = self._network.backbone, self._folded, None
        error = np.abs(self._batch(view, rows) - plain).max()
        if not error <= _TOLERANCE * np.abs(plain).max():
            self._network.backbone = own


def folded(backbone: nn.Module) -> nn.Module:
    """A copy whose convolutions include the batch normalisation after them, channels last."""
    out = copy.deepcopy(backbone).eval().requires_grad_(False)
    for part in out.modules():
        children = list(part.named_children())
        for (name, convolution), (next_name, norm) in pairwise(children):
            if type(convolution) is nn.Conv2d and isinstance(norm, nn.BatchNorm2d):
                setattr(part, name, fuse_conv_bn_eval(convolution, _plain(norm)))
                setattr(part, next_name, getattr(norm, "act", None) or nn.Identity())
    return out.to(memory_format=torch.channels_last)


def _plain(norm: nn.BatchNorm2d) -> nn.BatchNorm2d:
    """A normalisation without the activation that timm's have in them."""
    plain = nn.BatchNorm2d(norm.num_features, eps=norm.eps, affine=norm.affine)
    plain.load_state_dict(norm.state_dict(), strict=False)
    return plain.eval()


def _cut(rows: np.ndarray, size: int) -> Iterator[np.ndarray]:
    return (rows[start : start + size] for start in range(0, len(rows), size))

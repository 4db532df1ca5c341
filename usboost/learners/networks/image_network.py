"""Networks on images: a convolutional backbone, or its last block, then layers; and frozen ones."""

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

from usboost.files.arrays import parts
from usboost.learners.networks import architectures
from usboost.learners.networks.architectures import TORCHVISION
from usboost.learners.networks.inputs import dense_network
from usboost.learners.networks.train import one_thread_each

AUGMENTATIONS = ("none", "flip", "flip_shift")

BLOCK_RATE, HEAD_RATE = 1 / 30, 1 / 3
"""Shares of the learning rate by which a pretrained block and the new layers after it move."""

SHIFT = 8  # a shifted image moves by at most 1/SHIFT of its side


class ImageNetwork(nn.Module):
    """A backbone on uint8 images (n, C, H, W), then fully connected layers of the given widths."""

    def __init__(self, spec: dict[str, Any], widths: list[int]) -> None:
        super().__init__()
        self.spec = spec
        self.generator = torch.Generator()
        self.backbone: nn.Module
        # `initialise` draws the weights that count
        self.backbone, self.n_features = architectures.build(spec["backbone"], spec["channels"])
        self.head = _head(spec, self.n_features, widths)
        self.mean: torch.Tensor
        self.deviation: torch.Tensor
        for name in ("mean", "deviation"):
            values = torch.tensor(spec[name], dtype=torch.float32).view(1, -1, 1, 1)
            self.register_buffer(name, values, persistent=False)

    def forward(self, tensors: tuple[torch.Tensor, ...]) -> torch.Tensor:
        images = tensors[0].float().div_(255)
        if self.training and self.spec["augment"] != "none":
            images = self._augmented(images)
        size = self.spec["size"]
        if size and tuple(images.shape[-2:]) != (size, size):
            images = functional.interpolate(images, (size, size), mode="bilinear", antialias=True)
        if self.spec["backbone"] != "small_cnn" and images.shape[1] == 1:
            images = images.expand(-1, 3, -1, -1)
        images = (images - self.mean) / self.deviation
        # channels last in memory, which layers after them keep: max-pooling is then faster
        images = images.contiguous(memory_format=torch.channels_last)
        if images.shape[1] == 1:  # both orders are the same, and torch takes its strides for channels first
            height, width = images.shape[2:]
            images = images.as_strided(images.shape, (height * width, 1, width, 1))
        with _quick_on_gpu(images):
            out = self.head(self.backbone(images))
        return out.float()

    def _augmented(self, images: torch.Tensor) -> torch.Tensor:
        flip = torch.rand(len(images), generator=self.generator) < 0.5
        images = torch.where(flip.view(-1, 1, 1, 1).to(images.device), images.flip(-1), images)
        if self.spec["augment"] == "flip_shift":
            most = max(images.shape[-1] // SHIFT, 1)
            across, down = torch.randint(-most, most + 1, (2,), generator=self.generator).tolist()
            # one shift a batch: a roll of what was padded by repeating the border
            padded = functional.pad(images, (most, most, most, most), mode="replicate")
            height, width = images.shape[-2:]
            top, left = most + down, most + across
            images = padded[:, :, top : top + height, left : left + width]
        return images


class LastBlock(nn.Module):
    """The last block of a backbone on what its frozen part made of images, then connected layers.

    Batch normalisation in the block keeps its statistics, in training too. The block's features are
    standardised for the layers after it. All move slowly, the block most: its weights have seen images.
    """

    def __init__(self, spec: dict[str, Any], widths: list[int]) -> None:
        super().__init__()
        self.spec = spec
        whole, n_features = architectures.build(spec["backbone"], spec["channels"])
        self.backbone: nn.Module = architectures.split(whole, spec["backbone"])[1]
        self.norm = _Standardised(n_features)
        self.head = _head(spec, n_features, widths)
        for part, rate in ((self.backbone, BLOCK_RATE), (self.head, HEAD_RATE)):
            for parameter in part.parameters():
                parameter.rate = rate  # type: ignore[attr-defined]

    def train(self, mode: bool = True) -> "LastBlock":
        super().train(mode)
        keep_statistics(self.backbone)
        return self

    def forward(self, tensors: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return on_activations(lambda values: self.head(self.norm(self.backbone(values))), tensors[0])


def on_activations(layers: Callable[[torch.Tensor], torch.Tensor], values: torch.Tensor) -> torch.Tensor:
    """Run layers on what a frozen part gave, (n, …) of any float type."""
    values = values.float()
    if values.ndim == 4:
        values = values.contiguous(memory_format=torch.channels_last)
    with _quick_on_gpu(values):
        out = layers(values)
    return out.float()


def _quick_on_gpu(values: torch.Tensor) -> torch.autocast:
    """Train in bfloat16 on a GPU; predictions are made in float32, as a CPU makes them."""
    return torch.autocast("cuda", dtype=torch.bfloat16, enabled=values.is_cuda and torch.is_grad_enabled())


def keep_statistics(module: nn.Module) -> None:
    """Let batch normalisation in a module keep its statistics: those of a small batch are worse."""
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.eval()


class _Standardised(nn.BatchNorm1d):
    """Features with mean 0 and variance 1: of the batch in training, then of all batches so far."""

    def __init__(self, n_features: int) -> None:
        # such features vary by about a half; one that hardly varies must not be blown up
        super().__init__(n_features, eps=0.01, affine=False, momentum=None)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if len(values) > 1:
            return super().forward(values)
        # one row has no variance
        return functional.batch_norm(values, self.running_mean, self.running_var, eps=self.eps)


def _head(spec: dict[str, Any], n_features: int, widths: list[int]) -> nn.Module:
    if not widths:
        return nn.Identity()
    layers = dense_network([n_features, *widths])
    # the others' features may be negative, and mean something there
    return nn.Sequential(nn.ReLU(), layers) if spec["backbone"] in ("small_cnn", *TORCHVISION) else layers


ON_CPU, ON_GPU = 4, 256
"""Images at a time: on a CPU the layers of four stay in a core's cache, and each core has its own."""

_TOLERANCE = 1e-4  # of a network with its normalisations folded, relative to its largest output
_ROWS_A_TASK = 8  # of a thread, so that all end at about the same time


class FrozenNetwork:
    """A network on images for what it gives: no gradients, batch normalisation within convolutions.

    It reads ``(uint8 (k, C, H, W),)``, has a part `backbone`, and is moved to the device.
    """

    def __init__(self, network: Any, device: torch.device) -> None:
        self._device = device
        self._network = network.to(device).eval().requires_grad_(False)
        self._folded = None if device.type == "cuda" else folded(network.backbone)
        self._checking, self._shapes = Lock(), dict[tuple[int, ...], tuple[int, ...]]()
        self.nbytes = sum(each.nbytes for each in self._network.state_dict().values())

    def __call__(self, view: Any, rows: np.ndarray) -> np.ndarray:
        """Run over some rows of a view of images, one at least: float32 (k, …), each as if it were alone."""
        if self._device.type == "cuda":
            return np.concatenate([self._batch(view, rows[part]) for part in parts(len(rows), ON_GPU)])
        with self._checking:  # threads may share it
            if self._folded is not None:
                self._check(view, rows[:ON_CPU])

        def task(some: np.ndarray) -> np.ndarray:
            torch.get_num_threads()  # sets a new thread's number, which is then changed
            with one_thread_each():
                return np.concatenate([self._batch(view, some[each]) for each in parts(len(some), ON_CPU)])

        tasks = [rows[part] for part in parts(len(rows), _ROWS_A_TASK)]
        # as many as torch may use here; a pool of OpenMP's inside each would ask for more than there are
        with ThreadPoolExecutor(max(1, min(torch.get_num_threads(), len(tasks)))) as pool:
            return np.concatenate(list(pool.map(task, tasks)))

    def shape(self, view: Any) -> tuple[int, ...]:
        """Return the shape of an image's outputs."""
        form = (view.channels, view.height, view.width)
        if form not in self._shapes:
            self._shapes[form] = self._run(np.zeros((1, *form), dtype=np.uint8)).shape[1:]
        return self._shapes[form]

    def _batch(self, view: Any, rows: np.ndarray) -> np.ndarray:
        return self._run(np.ascontiguousarray(view.decode(rows)))

    def _run(self, images: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return np.asarray(self._network((torch.tensor(images, device=self._device),)).cpu().numpy())

    def _check(self, view: Any, rows: np.ndarray) -> None:
        """Take the folded backbone if it gives the same on some images: layers side by side in a
        network's list of parts need not follow each other when it runs."""
        plain = self._batch(view, rows)
        own, self._network.backbone, self._folded = self._network.backbone, self._folded, None
        error = np.abs(self._batch(view, rows) - plain).max()
        if not error <= _TOLERANCE * np.abs(plain).max():
            self._network.backbone = own


def folded(backbone: nn.Module) -> nn.Module:
    """Return a copy whose convolutions include the batch normalisation after them, channels last."""
    out = copy.deepcopy(backbone).eval().requires_grad_(False)
    for part in out.modules():
        for (name, convolution), (next_name, norm) in pairwise(list(part.named_children())):
            if type(convolution) is nn.Conv2d and isinstance(norm, nn.BatchNorm2d):
                # timm's have an activation in them
                plain = nn.BatchNorm2d(norm.num_features, eps=norm.eps, affine=norm.affine)
                plain.load_state_dict(norm.state_dict(), strict=False)
                setattr(part, name, fuse_conv_bn_eval(convolution, plain.eval()))
                setattr(part, next_name, getattr(norm, "act", None) or nn.Identity())
    return out.to(memory_format=torch.channels_last)

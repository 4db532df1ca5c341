"""Fine-tuning: weights of a backbone tuned on a target once, for every model that then reads its embeddings.

What the frozen part makes of each image and of its mirror image is computed once, so that an epoch costs the
last blocks alone. Every epoch is on disk when it ends: a fit that is killed goes on with the next one.
"""

import hashlib
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save
from sklearn.base import clone
from torch import nn
from torch.nn import functional

from usboost.errors import UsboostError
from usboost.files import write_atomically
from usboost.files.arrays import key_of
from usboost.learners.networks import architectures
from usboost.learners.networks.architectures import read_weights, seeded
from usboost.learners.networks.backbones import Backbone
from usboost.learners.networks.embeddings import cache_folder
from usboost.learners.networks.image_network import ImageNetwork, keep_statistics, on_activations
from usboost.learners.networks.inputs import SeededLinear
from usboost.learners.networks.train import Adam

BLOCKS = 2
"""Last blocks of a backbone that `Backbone.finetune` "last" trains."""

FEWEST, MOST = 300, 10_000
"""Training images from which, and up to which, "auto" tunes: fewer say too little of the target, more take a
processor longer than some minutes. A GPU takes any number."""

EPOCHS, STEPS, BATCH = 4, 85, 32
"""Passes over the images, and steps, at least: of few images more passes, as the head has to learn first."""
RATE, SHARE = 2e-3, 0.1
"""The head's learning rate, and the share of it by which the blocks move: they have seen images."""
WARM_UP = 0.1
"""Share of all steps in which the learning rate grows; it then falls to 0 as a cosine does."""
SMOOTHING, DROPOUT = 0.05, 0.2

_VERSION = 1  # of what tuning gives: count it up when the same images and labels would give others


@dataclass(frozen=True)
class TuningTarget:
    """The images and labels of a tuning, of n rows; each row's label belongs to all of its images.

    `y` are int64 codes of classes, (n,), or float64 numbers; `weights` float64 (n,), or None for 1.
    """

    images: tuple[Any, ...]
    y: np.ndarray
    weights: np.ndarray | None = None

    @property
    def is_number(self) -> bool:
        return self.y.dtype.kind == "f"

    @property
    def n_images(self) -> int:
        return sum(len(view) for view, _ in self.rows())

    def rows(self) -> Iterator[tuple[Any, np.ndarray]]:
        """Return each view without its rows that have no image, and which rows these are."""
        for view in self.images:
            there = np.arange(len(view)) if view.absent is None else np.flatnonzero(~view.absent)
            if len(there):
                yield view[there], there

    def digest(self) -> str:
        """Digest all that a tuning takes from it."""
        parts = [part for view, rows in self.rows() for part in (view.digests(), rows)]
        digest = hashlib.sha256()
        for part in (self.y, *([] if self.weights is None else [self.weights]), *parts):
            digest.update(f"{part.dtype} {part.shape} ".encode())
            digest.update(part.tobytes())
        return digest.hexdigest()


Progress = Callable[[int, int, float], None]


@contextmanager
def progress(callback: Progress) -> Iterator[None]:
    """Call `callback(images, epochs ended, seconds left)` within it after each epoch of each tuning.

    The first call is before the first epoch ends, by what its first batches took.
    """
    _listening.append(callback)
    try:
        yield
    finally:
        _listening.remove(callback)


_listening: list[Progress] = []
_one_at_a_time = Lock()  # threads that fit several models to the same rows

_MEASURED = 5  # batches by which the time left is estimated


def wanted(backbone: Backbone, n_images: int, device: torch.device) -> bool:
    """Return whether a backbone is to be tuned on so many training images."""
    if not backbone.pretrained or backbone.finetune not in ("auto", "last", "all"):
        return False
    if backbone.finetune != "auto":
        return True
    return n_images >= FEWEST and (n_images <= MOST or device.type == "cuda")


def _epochs(train: TuningTarget) -> int:
    """Return how often a tuning passes over its images."""
    return max(EPOCHS, math.ceil(STEPS * BATCH / max(1, train.n_images)))


def _blocks(backbone: Backbone) -> int:
    """Return how many of its last blocks are trained; 0 stands for all."""
    return 0 if backbone.finetune == "all" else BLOCKS


def tuned(backbone: Backbone, train: TuningTarget, val: TuningTarget, device: torch.device) -> Backbone:
    """Return a frozen backbone, its last blocks tuned on the training rows; the same rows are tuned on once.

    Adam on cross-entropy with smoothed labels, or on the squared error of the standardised number; batch
    normalisation keeps its statistics. Validation rows, all of classes that training rows have, choose the
    epoch.

    Raises `UsboostError` if it is not known where the last blocks begin, or no training row has an image. The
    backbone's `finetune` says what is trained, `BLOCKS` or all; its weights are where the tuning starts.
    """
    cache = cache_folder(backbone.cache)
    # next to the embeddings; where these are not cached, until the process ends
    folder = Path(_until_the_end().name) if cache is None else cache.parent / "tuned"
    folder.mkdir(parents=True, exist_ok=True)
    settings = (_VERSION, _epochs(train), BATCH, RATE, SHARE, SMOOTHING, DROPOUT, _blocks(backbone))
    start = (backbone.name, backbone.size, backbone._source() or str(backbone.pretrained), device.type)
    key = key_of([*settings, *start, train.digest(), val.digest()])[:32]
    path = folder / f"{key}.safetensors"
    with _one_at_a_time:
        if not path.is_file():
            best = _Tuning(backbone, train, val, device).run(folder / f"{key}-epoch.safetensors")
            write_atomically(path, save(best))
            (folder / f"{key}-epoch.safetensors").unlink(missing_ok=True)
    return clone(backbone).set_params(pretrained=str(path), finetune="none")


def half_way(tuned: Backbone, start: Backbone) -> Backbone:
    """Return a frozen backbone with the mean of the weights of `tuned`, and of the one that it started from.

    Such weights gain most of what tuning gains, and know less of the rows that they were tuned on (Wortsman
    et al., Robust fine-tuning of zero-shot models, 2022).
    """
    path = Path(str(tuned.pretrained))
    half = path.with_name(f"{path.stem}-half{path.suffix}")
    with _one_at_a_time:
        if not half.is_file():
            mean, other = (dict(read_weights(each.name, each.pretrained)) for each in (tuned, start))
            for name, tensor in mean.items():
                if tensor.is_floating_point():
                    mean[name] = torch.lerp(tensor, other[name], 0.5).contiguous()
            write_atomically(half, save(mean))
    return clone(tuned).set_params(pretrained=str(half))


_until_the_end = cache(lambda: tempfile.TemporaryDirectory(prefix="usboost-tuned-"))


class _Mirrored:
    """Images, each turned left to right."""

    def __init__(self, view: Any) -> None:
        self._view = view
        self.channels, self.height, self.width = view.channels, view.height, view.width
        self.absent = view.absent

    def __len__(self) -> int:
        return len(self._view)

    def decode(self, rows: Any = None) -> np.ndarray:
        return np.ascontiguousarray(self._view.decode(rows)[..., ::-1])

    def digests(self) -> np.ndarray:
        return self._view.digests() ^ np.uint8(0xA5)  # others than those of any image


class _Network(nn.Module):
    """The blocks that are trained, and a linear head."""

    def __init__(self, blocks: nn.Module, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.blocks, self.dropout = blocks, nn.Dropout(DROPOUT)
        self.head = SeededLinear(n_features, n_outputs)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        for parameter in blocks.parameters():
            parameter.rate = SHARE  # type: ignore[attr-defined]

    def train(self, mode: bool = True) -> "_Network":
        super().train(mode)
        keep_statistics(self.blocks)
        return self

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return on_activations(lambda each: self.head(self.dropout(self.blocks(each))), values)


class _OnPixels(nn.Module):
    """A whole backbone on pixels, float (n, C, H, W) from 0 to 255."""

    def __init__(self, whole: ImageNetwork) -> None:
        super().__init__()
        self.whole = whole

    def forward(self, values: torch.Tensor) -> Any:
        return self.whole((values,))


class _Tuning:
    """One tuning: its activations, network and epochs."""

    def __init__(
        self, backbone: Backbone, train: TuningTarget, val: TuningTarget, device: torch.device
    ) -> None:
        if not (views := [view for view, _ in train.rows()]):
            raise UsboostError("no training row has an image, so images cannot be tuned; use finetune none")
        self._backbone, self._device, self._epochs = backbone, device, _epochs(train)
        self._whole = backbone._whole(backbone.spec(views[0]))
        self._number, self._centre, self._scale = train.is_number, 0.0, 1.0
        if self._number:
            self._centre, self._scale = float(train.y.mean()), float(train.y.std()) or 1.0
        n_outputs = 1 if self._number else int(train.y.max()) + 1
        trained: nn.Module = _OnPixels(self._whole)
        if count := _blocks(backbone):
            trained = architectures.split(self._whole.backbone, backbone.name, count)[1]
        self._network = _Network(trained, self._whole.n_features, n_outputs).to(device)
        self._train, self._val = self._sides(train, mirrored=True), self._sides(val, mirrored=False)

    def _sides(self, target: TuningTarget, *, mirrored: bool) -> list[tuple[Any, ...]]:
        """Read each view: activations, of the mirror images if asked, targets and weights."""
        sides, count = [], _blocks(self._backbone)

        def read(view: Any) -> torch.Tensor:
            # what the trained part reads: activations of the frozen one, or pixels where there is none
            values = self._backbone.activations(view, self._device, count) if count else view.decode()
            return torch.from_numpy(values).to(self._device)

        for view, rows in target.rows():
            values = [read(each) for each in ([view, _Mirrored(view)] if mirrored else [view])]
            y = (target.y[rows] - self._centre) / self._scale if self._number else target.y[rows]
            weights = np.ones(len(rows)) if target.weights is None else target.weights[rows]
            kind = torch.float32 if self._number else torch.int64
            parts = (torch.from_numpy(y).to(kind), torch.from_numpy(weights).float())
            sides.append((values, *(part.to(self._device) for part in parts)))
        return sides

    def run(self, file: Path) -> dict[str, torch.Tensor]:
        """Train; return the whole backbone's weights at the best epoch. `file` holds the last one."""
        network, optimizer, first = self._network, Adam(self._network, RATE), 0

        def weights() -> dict[str, torch.Tensor]:
            return {name: tensor.clone() for name, tensor in network.blocks.state_dict().items()}

        if file.is_file():
            state = load_file(file)
            first, least = int(state.pop("epoch")), float(state.pop("least"))
            best = {name[5:]: state.pop(name) for name in list(state) if name.startswith("best.")}
            for name, tensor in {"values": optimizer.values, **optimizer.state()}.items():
                tensor.copy_(state[name])
        else:
            least, best = self._risk(), weights()  # as before the tuning: its head says nothing
        began = time.perf_counter()
        for epoch in range(first, self._epochs):
            self._epoch(epoch, optimizer)
            if (risk := self._risk()) < least:
                least, best = risk, weights()
            state = {"values": optimizer.values, **optimizer.state()}
            state |= {f"best.{name}": tensor for name, tensor in best.items()}
            state |= {"epoch": torch.tensor(epoch + 1), "least": torch.tensor(least, dtype=torch.float64)}
            self._notify(
                epoch + 1, (time.perf_counter() - began) / (epoch + 1 - first) * (self._epochs - epoch - 1)
            )
            write_atomically(file, save({name: tensor.cpu().contiguous() for name, tensor in state.items()}))
        network.blocks.load_state_dict(best)
        return {name: tensor.cpu().contiguous() for name, tensor in self._whole.backbone.state_dict().items()}

    def _notify(self, epochs: int, seconds: float) -> None:
        for callback in _listening:
            callback(sum(len(y) for _, y, _ in self._train), epochs, seconds)

    def _epoch(self, epoch: int, optimizer: Adam) -> None:
        """Pass once over all images, each as it is or mirrored, in an order that the epoch decides."""
        self._network.train()
        generator = torch.Generator().manual_seed(epoch)
        sizes = [len(y) for _, y, _ in self._train]
        rows = torch.randperm(sum(sizes), generator=generator)
        sides = torch.rand(len(rows), generator=generator) < 0.5
        starts = np.cumsum([0, *sizes])
        steps = math.ceil(len(rows) / BATCH)
        with seeded(epoch):  # for the dropout
            began = time.perf_counter()
            for step, chosen in enumerate(torch.arange(len(rows)).split(BATCH)):
                if epoch == 0 and step == _MEASURED:
                    self._notify(0, (time.perf_counter() - began) / step * steps * self._epochs)
                done = (epoch * steps + step) / (self._epochs * steps)
                falls = 0.5 * (1 + math.cos(math.pi * (done - WARM_UP) / (1 - WARM_UP)))
                optimizer.learning_rate = RATE * (done / WARM_UP if done < WARM_UP else falls)
                batch = self._batch(rows[chosen], sides[chosen], starts)
                loss = self._loss(*batch, smoothing=SMOOTHING)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

    def _batch(
        self, rows: torch.Tensor, sides: torch.Tensor, starts: np.ndarray
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        values, targets, weights = [], [], []
        for k, (shown, y, counts) in enumerate(self._train):
            mine = (rows >= starts[k]) & (rows < starts[k + 1])
            at = (rows[mine] - int(starts[k])).to(self._device)
            turned = sides[mine].to(self._device).view(-1, *[1] * (shown[0].ndim - 1))
            values.append(torch.where(turned, shown[1][at], shown[0][at]))
            targets.append(y[at])
            weights.append(counts[at])
        return torch.cat(values), torch.cat(targets), torch.cat(weights)

    def _loss(
        self, values: torch.Tensor, y: torch.Tensor, weights: torch.Tensor, *, smoothing: float = 0.0
    ) -> torch.Tensor:
        out = self._network(values)
        if self._number:
            losses = (out[:, 0] - y).square()
        else:
            losses = functional.cross_entropy(out, y, reduction="none", label_smoothing=smoothing)
        return (losses * weights).sum() / weights.sum()

    @torch.no_grad()
    def _risk(self) -> float:
        """Return the loss of the validation rows."""
        self._network.eval()
        total = counted = 0.0
        for (values,), y, weights in self._val:
            for rows in torch.arange(len(y), device=self._device).split(256):
                share = float(weights[rows].sum())
                total += float(self._loss(values[rows], y[rows], weights[rows])) * share
                counted += share
        return total / counted if counted else math.inf

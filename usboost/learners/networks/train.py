"""Training loops of networks and their optimizers; batches are rows by index, without loader processes."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from threadpoolctl import get_cached_controller
from torch import nn

from usboost.data.images import EncodedImages
from usboost.errors import UsboostError
from usboost.shards.collective import world


class Optimizer:
    """Makes a module's trainable parameters, and their gradients, views of one vector each.

    A parameter with an attribute `rate` moves by that share of the learning rate.

    A small network's optimizer step costs launches, not arithmetic: with all parameters in one tensor it is a
    handful of calls whatever the number of layers (and the import of torch's compiler, several seconds that
    `torch.optim` costs a process, is not needed). The updates are those of `torch.optim` with its defaults.
    """

    def __init__(self, module: nn.Module, learning_rate: float) -> None:
        parameters = [p for p in module.parameters() if p.requires_grad]
        self.learning_rate = learning_rate
        self._state: dict[str, torch.Tensor] = {}
        self.values = torch.cat([p.detach().reshape(-1) for p in parameters])
        self.gradient = torch.zeros_like(self.values)
        start = 0
        for parameter in parameters:
            rows = slice(start, start + parameter.numel())
            parameter.data = self.values[rows].view_as(parameter)
            parameter.grad = self.gradient[rows].view_as(parameter)
            start = rows.stop
        rates = [(p.numel(), float(getattr(p, "rate", 1.0))) for p in parameters]
        self.rates = None
        if any(rate != 1 for _, rate in rates):
            self.rates = torch.cat([torch.full((n,), rate) for n, rate in rates]).to(self.values.device)

    def share(self, rows: int) -> None:
        """Average the gradient, a mean over so many rows, over the rows of all shards of the fit."""
        if world().count > 1:
            mean = world().mean(self.gradient.cpu().numpy(), rows)
            self.gradient.copy_(torch.from_numpy(mean))

    def slower(self, denominator: torch.Tensor) -> torch.Tensor:
        """Divide the denominators of a step, in place, by the parameters' shares of the learning rate."""
        return denominator if self.rates is None else denominator.div_(self.rates)

    def zero_grad(self) -> None:
        self.gradient.zero_()

    def step(self) -> None:
        """Move the parameters against their gradient."""
        raise NotImplementedError

    def state(self) -> dict[str, torch.Tensor]:
        """Return what the next steps depend on besides the parameters: tensors that change in place."""
        return self._state


class SGD(Optimizer):
    """θ ← θ − η g."""

    def step(self) -> None:
        if self.rates is None:
            self.values.add_(self.gradient, alpha=-self.learning_rate)
        else:
            self.values.addcmul_(self.gradient, self.rates, value=-self.learning_rate)


class RMSprop(Optimizer):
    """v ← α v + (1 − α) g²; θ ← θ − η g / (√v + 1e-8), with α = 0.99."""

    def __init__(self, module: nn.Module, learning_rate: float) -> None:
        super().__init__(module, learning_rate)
        self._square = torch.zeros_like(self.values)
        self._state = {"square": self._square}

    def step(self) -> None:
        self._square.mul_(0.99).addcmul_(self.gradient, self.gradient, value=0.01)
        denominator = self.slower(self._square.sqrt().add_(1e-8))
        self.values.addcdiv_(self.gradient, denominator, value=-self.learning_rate)


class Adam(Optimizer):
    """Adam with β = (0.9, 0.999) and ε = 1e-8."""

    def __init__(self, module: nn.Module, learning_rate: float) -> None:
        super().__init__(module, learning_rate)
        self._mean, self._square = torch.zeros_like(self.values), torch.zeros_like(self.values)
        self._count = torch.zeros((), dtype=torch.int64)
        self._state = {"mean": self._mean, "square": self._square, "count": self._count}

    def step(self) -> None:
        self._count += 1
        steps = int(self._count)
        self._mean.lerp_(self.gradient, 0.1)
        self._square.mul_(0.999).addcmul_(self.gradient, self.gradient, value=0.001)
        correction = (1 - 0.999**steps) ** 0.5
        denominator = self.slower((self._square.sqrt() / correction).add_(1e-8))
        self.values.addcdiv_(self._mean, denominator, value=-self.learning_rate / (1 - 0.9**steps))


def make_optimizer(name: str, module: nn.Module, learning_rate: float) -> Optimizer:
    """Make the optimizer "sgd", "rmsprop" (the paper's) or "adam" of a module that is on its device.

    Raises `UsboostError` if there is no such optimizer.
    """
    kinds: dict[str, Callable[[nn.Module, float], Optimizer]] = {"sgd": SGD, "rmsprop": RMSprop, "adam": Adam}
    if name not in kinds:
        raise UsboostError(f"unknown optimizer {name!r}; choose one of {', '.join(kinds)}")
    return kinds[name](module, learning_rate)


Tensors = tuple[torch.Tensor, ...]


class Batches:
    """Rows of a view as tensors on the device; `rows_at_once` are predicted in one go."""

    rows_at_once: ClassVar[int] = 512

    def __len__(self) -> int:
        raise NotImplementedError

    def batch(self, rows: torch.Tensor | slice) -> Tensors:
        raise NotImplementedError

    def expect(self, rows: torch.Tensor | slice) -> None:
        """Take a hint that these rows are read next."""


@dataclass(frozen=True)
class Resident(Batches):
    """Row-aligned tensors that live on the device: a batch is one gather per tensor."""

    tensors: Tensors

    def __len__(self) -> int:
        return len(self.tensors[0])

    def batch(self, rows: torch.Tensor | slice) -> Tensors:
        return tuple(tensor[rows] for tensor in self.tensors)


@dataclass(frozen=True)
class WithAbsent(Batches):
    """Rows with a mask of those that the view lacks, as the last tensor: bool (n,) on the device."""

    rows: Batches
    absent: torch.Tensor

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, rows: torch.Tensor | slice) -> Tensors:
        return (*self.rows.batch(rows), self.absent[rows])

    def expect(self, rows: torch.Tensor | slice) -> None:
        self.rows.expect(rows)


@dataclass
class Streamed(Batches):
    """Encoded images, decoded batch by batch while the device is busy with the one before."""

    images: EncodedImages
    device: torch.device
    _next: tuple[Any, Any] | None = None
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, rows: torch.Tensor | slice) -> Tensors:
        expected, self._next = self._next, None
        pixels = expected[1].result() if expected is not None and expected[0] is rows else self._decode(rows)
        return (torch.from_numpy(pixels).to(self.device, non_blocking=True),)

    def expect(self, rows: torch.Tensor | slice) -> None:
        self._next = (rows, self._pool.submit(self._decode, rows))

    def _decode(self, rows: torch.Tensor | slice) -> np.ndarray:
        return self.images.decode(rows.cpu().numpy() if isinstance(rows, torch.Tensor) else rows)


def pick_device(name: str) -> torch.device:
    """Return the torch device called `name`; "auto" is CUDA where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise UsboostError(f"unknown device {name!r}; use 'auto', 'cpu' or 'cuda'") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsboostError("device 'cuda' was asked for but no CUDA device is there; use 'auto' or 'cpu'")
    return device


def run_epoch(
    network: Callable[..., torch.Tensor],
    inputs: Sequence[Batches],
    loss: Callable[[torch.Tensor, Tensors], torch.Tensor],
    targets: Tensors,
    optimizer: Optimizer,
    batches: Sequence[torch.Tensor],
) -> float:
    """Pass once over the rows of some batches; return the mean training loss of the pass.

    The network is called with one tuple of tensors a view, the loss with outputs and a batch of targets,
    tensors on the device. Batches are row numbers, int64; of several shards so many parts, empty ones too.
    """
    batches = [rows.to(targets[0].device) for rows in batches]
    total = torch.zeros((), dtype=torch.float64, device=targets[0].device)
    for index, rows in enumerate(batches):
        tensors = [view.batch(rows) for view in inputs]
        if index + 1 < len(batches):
            for view in inputs:
                view.expect(batches[index + 1])
        optimizer.zero_grad()
        if len(rows):
            value = loss(network(*tensors), tuple(tensor[rows] for tensor in targets))
            value.backward()
            total += value.detach() * len(rows)
        optimizer.share(len(rows))
        optimizer.step()
    return float(total) / max(sum(map(len, batches)), 1)


@torch.no_grad()
def run(network: nn.Module, inputs: Sequence[Batches]) -> np.ndarray:
    """Return the network's outputs on all rows, in evaluation mode: float32 (n, D)."""
    was_training = network.training
    network.eval()
    n = len(inputs[0])
    rows_at_once = min(view.rows_at_once for view in inputs)
    parts = [
        network(*(view.batch(slice(start, min(start + rows_at_once, n))) for view in inputs))
        for start in range(0, n, rows_at_once)
    ]
    network.train(was_training)
    return torch.cat(parts).cpu().numpy() if parts else np.empty((0, 1), dtype=np.float32)


@contextmanager
def one_thread_each(blas: bool = False) -> Iterator[None]:
    """Give one OpenMP thread for what this thread does (torch's element-wise operations); BLAS on request.

    Two pools of threads that take turns every few microseconds wait for each other most of the time,
    and a pool inside each of several workers asks for more cores than there are. The limit of OpenMP
    holds for the calling thread, that of BLAS for the process.
    """
    with get_cached_controller().limit(limits={"openmp": 1, "blas": 1} if blas else {"openmp": 1}):
        yield

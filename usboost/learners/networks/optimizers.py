"""SGD, RMSprop and Adam on one flat parameter vector.

A small network's optimizer step costs launches, not arithmetic: with all parameters in one
contiguous tensor a step is a handful of calls whatever the number of layers (and the import of
torch's compiler, several seconds that `torch.optim` costs a process, is not needed). The updates are
those of `torch.optim` with its defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import nn

from usboost.errors import UsboostError


class Optimizer(Protocol):
    def zero_grad(self) -> None: ...

    def step(self) -> None: ...

    def state(self) -> dict[str, torch.Tensor]:
        """What the next steps depend on, the parameters apart: tensors that change in place."""
        ...


class _Flat:
    """Makes a module's trainable parameters, and their gradients, views of one vector each.

    A parameter with an attribute `rate` moves by that share of the learning rate.
    """

    def __init__(self, module: nn.Module, learning_rate: float) -> None:
        parameters = [p for p in module.parameters() if p.requires_grad]
        self.learning_rate = learning_rate
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

    def slower(self, denominator: torch.Tensor) -> torch.Tensor:
        """The denominators of a step, in place, by the parameters' shares of the learning rate."""
        return denominator if self.rates is None else denominator.div_(self.rates)

    def zero_grad(self) -> None:
        self.gradient.zero_()

    def state(self) -> dict[str, torch.Tensor]:
        return {}


class SGD(_Flat):
    """θ ← θ − η g."""

    def step(self) -> None:
        if self.rates is None:
            self.values.add_(self.gradient, alpha=-self.learning_rate)
        else:
            self.values.addcmul_(self.gradient, self.rates, value=-self.learning_rate)


class RMSprop(_Flat):
    """v ← α v + (1 − α) g²; θ ← θ − η g / (√v + 1e-8), with α = 0.99."""

    def __init__(self, module: nn.Module, learning_rate: float) -> None:
        super().__init__(module, learning_rate)
        self._square = torch.zeros_like(self.values)

    def state(self) -> dict[str, torch.Tensor]:
        return {"square": self._square}

    def step(self) -> None:
        self._square.mul_(0.99).addcmul_(self.gradient, self.gradient, value=0.01)
        denominator = self.slower(self._square.sqrt().add_(1e-8))
        self.values.addcdiv_(self.gradient, denominator, value=-self.learning_rate)


class Adam(_Flat):
    """Adam with β = (0.9, 0.999) and ε = 1e-8."""

    def __init__(self, module: nn.Module, learning_rate: float) -> None:
        super().__init__(module, learning_rate)
        self._mean, self._square = torch.zeros_like(self.values), torch.zeros_like(self.values)
        self._count = torch.zeros((), dtype=torch.int64)

    def state(self) -> dict[str, torch.Tensor]:
        return {"mean": self._mean, "square": self._square, "count": self._count}

    def step(self) -> None:
        self._count += 1
        steps = int(self._count)
        self._mean.lerp_(self.gradient, 0.1)
        self._square.mul_(0.999).addcmul_(self.gradient, self.gradient, value=0.001)
        correction = (1 - 0.999**steps) ** 0.5
        denominator = self.slower((self._square.sqrt() / correction).add_(1e-8))
        self.values.addcdiv_(self._mean, denominator, value=-self.learning_rate / (1 - 0.9**steps))


def make_optimizer(name: str, module: nn.Module, learning_rate: float) -> Optimizer:
    """The paper's two optimizers, "sgd" and "rmsprop", and "adam", on a module that is on its device.

    Raises `UsboostError` if there is no such optimizer.
    """
    kinds: dict[str, Callable[[nn.Module, float], Optimizer]] = {"sgd": SGD, "rmsprop": RMSprop, "adam": Adam}
    if name not in kinds:
        raise UsboostError(f"unknown optimizer {name!r}; choose one of {', '.join(kinds)}")
    return kinds[name](module, learning_rate)

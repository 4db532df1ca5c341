"""How networks are trained and run here: tensors resident on the device, batches by index."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from usboost.errors import UsboostError
from usboost.learners.modules import Tensors
from usboost.learners.optimizers import Optimizer

PREDICTION_ROWS = 16_384


def pick_device(name: str) -> torch.device:
    """The torch device called `name`; "auto" is CUDA where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsboostError(f"there is no device {name!r}; use 'auto', 'cpu' or 'cuda'") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsboostError("device 'cuda' was asked for but no CUDA device is there; use 'auto' or 'cpu'")
    return device


def run_epoch(
    network: Callable[..., torch.Tensor],
    inputs: list[Tensors],
    loss: Callable[[torch.Tensor, Tensors], torch.Tensor],
    targets: Tensors,
    optimizer: Optimizer,
    batch_size: int,
    generator: torch.Generator,
) -> float:
    """One pass over the rows in random order; the mean training loss of the pass.

    Parameters
    ----------
    network : called with one tuple of tensors per view
    inputs : one tuple of row-aligned tensors per view
    loss : (outputs, batch of targets) -> scalar
    """
    n = len(targets[0])
    # one gather per epoch instead of one per batch: batches are then plain slices
    order = torch.randperm(n, generator=generator).to(targets[0].device)
    shuffled = [tuple(tensor[order] for tensor in view) for view in inputs]
    shuffled_targets = tuple(tensor[order] for tensor in targets)
    total = torch.zeros((), dtype=torch.float64)
    for start in range(0, n, batch_size):
        rows = slice(start, start + batch_size)
        outputs = network(*(tuple(tensor[rows] for tensor in view) for view in shuffled))
        value = loss(outputs, tuple(tensor[rows] for tensor in shuffled_targets))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        total += value.detach() * len(outputs)
    return float(total) / n


@torch.no_grad()
def run(network: nn.Module, inputs: list[Tensors]) -> np.ndarray:
    """The network's outputs on all rows, in evaluation mode: float32 (n, D)."""
    network.eval()
    n = len(inputs[0][0])
    parts = [
        network(*(tuple(tensor[start : start + PREDICTION_ROWS] for tensor in view) for view in inputs))
        for start in range(0, n, PREDICTION_ROWS)
    ]
    network.train()
    return torch.cat(parts).cpu().numpy() if parts else np.empty((0, 1), dtype=np.float32)

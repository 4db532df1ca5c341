"""How networks are trained and run here: batches of rows by index, no loader processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import nn

from usboost.errors import UsboostError
from usboost.learners.networks.batches import Batches, Resident, Tensors
from usboost.learners.networks.optimizers import Optimizer

PREDICTION_ROWS = 16_384
IMAGE_ROWS = 512


def pick_device(name: str) -> torch.device:
    """The torch device called `name`; "auto" is CUDA where there is one."""
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
    batch_size: int,
    order: torch.Tensor,
) -> float:
    """One pass over the rows in the given order; the mean training loss of the pass.

    Parameters
    ----------
    network : called with one tuple of tensors per view
    inputs : the views' rows
    loss : (outputs, batch of targets) -> scalar
    targets : row-aligned tensors on the device
    order : row numbers, int64
    """
    batches = order.to(targets[0].device).split(batch_size)
    total = torch.zeros((), dtype=torch.float64, device=targets[0].device)
    for index, rows in enumerate(batches):
        tensors = [view.batch(rows) for view in inputs]
        if index + 1 < len(batches):
            for view in inputs:
                view.expect(batches[index + 1])
        outputs = network(*tensors)
        value = loss(outputs, tuple(tensor[rows] for tensor in targets))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        total += value.detach() * len(rows)
    return float(total) / len(order)


@torch.no_grad()
def run(network: nn.Module, inputs: Sequence[Batches]) -> np.ndarray:
    """The network's outputs on all rows, in evaluation mode: float32 (n, D)."""
    was_training = network.training
    network.eval()
    n = len(inputs[0])
    rows_at_once = (
        PREDICTION_ROWS if all(isinstance(v, Resident) and v.is_table for v in inputs) else IMAGE_ROWS
    )
    parts = [
        network(*(view.batch(slice(start, min(start + rows_at_once, n))) for view in inputs))
        for start in range(0, n, rows_at_once)
    ]
    network.train(was_training)
    return torch.cat(parts).cpu().numpy() if parts else np.empty((0, 1), dtype=np.float32)


@contextmanager
def one_thread_each(blas: bool = False) -> Iterator[None]:
    """One OpenMP thread for what this thread does (torch's element-wise operations); BLAS on request.

    Two pools of threads that take turns every few microseconds wait for each other most of the time,
    and a pool inside each of several workers asks for more cores than there are. The limit of OpenMP
    holds for the calling thread, that of BLAS for the process.
    """
    with ExitStack() as stack:
        stack.enter_context(_pools().limit(limits=1, user_api="openmp"))
        if blas:
            stack.enter_context(_pools().limit(limits=1, user_api="blas"))
        yield


@cache
def _pools() -> ThreadpoolController:
    return ThreadpoolController()

"""Fully connected networks on tables, on the CPU: forward and backward pass written out.

At the sizes of a weak learner (batches of 512, layers of 100 and 50) autograd costs as much as the
arithmetic, and the gradient of a look-up more than all matrix products. Here a batch is a dozen calls into
BLAS and the look-up's gradient one sparse product. A boosted ensemble holds hundreds of small networks:
`weighted_sum` sends a block of rows through a group of them while it is in the cache; cores share the blocks.
"""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from usboost.learners.networks.inputs import TableLinear, TableRows, one_hot
from usboost.learners.networks.train import Batches, Optimizer, one_thread_each

PREDICTION_ROWS = 4096


def written_out(network: nn.Module, rows: Batches) -> tuple[nn.Sequential, TableRows] | None:
    """Return the network and its rows if they are of the kind that this module writes out, else None."""
    if (
        isinstance(network, nn.Sequential)
        and isinstance(network[0], TableLinear)
        and isinstance(rows, TableRows)
        and rows.codes.device.type == "cpu"
    ):
        return network, rows
    return None


class TableNetwork:
    """FCk1+…+km with ReLU between the layers, on numbers and codes of n rows.

    The network's parameters are read, and their ``grad`` written, in place; their storage must stay.
    """

    def __init__(self, network: nn.Sequential) -> None:
        layers: list[Any] = [layer for layer in network if not isinstance(layer, nn.ReLU)]
        first, *others = layers
        assert isinstance(first, TableLinear)
        self._first, self._lookup = first, first.lookup.detach()
        self._layers = [_Layer(layer.weight, layer.bias) for layer in (first, *others)]
        self.n_outputs = len(self._layers[-1].bias)

    def forward(self, numeric: np.ndarray, codes: np.ndarray) -> list[np.ndarray]:
        """Return outputs of every layer, after its ReLU but for the last: float32 (rows, width)."""
        first, *others = self._layers
        out = _first_outputs(numeric, codes, self._lookup, first.weight.T, first.bias)
        outputs = [out]
        for layer in others:
            torch.relu_(torch.from_numpy(out))
            out = out @ layer.weight.T
            out += layer.bias
            outputs.append(out)
        return outputs

    def backward(
        self, numeric: np.ndarray, codes: np.ndarray, outputs: list[np.ndarray], gradient: np.ndarray
    ) -> None:
        """Write every parameter's ``grad``, from what `forward` gave and the gradient (rows, D) there."""
        ones = np.ones(len(gradient), dtype=np.float32)
        first, *others = self._layers
        for layer, inputs in zip(reversed(others), reversed(outputs[:-1])):
            np.dot(gradient.T, inputs, out=layer.weight_gradient)
            np.dot(ones, gradient, out=layer.bias_gradient)
            gradient = gradient @ layer.weight
            passed = torch.from_numpy(gradient)
            # relu(z) > 0 exactly where z > 0
            torch.ops.aten.threshold_backward.grad_input(
                passed, torch.from_numpy(inputs), 0, grad_input=passed
            )
        if numeric.shape[1]:
            np.dot(gradient.T, numeric, out=first.weight_gradient)
        np.dot(ones, gradient, out=first.bias_gradient)
        if codes.shape[1] and self._first.lookup.grad is not None:
            self._first.lookup.grad.numpy()[:] = one_hot(codes, self._first.n_codes) @ gradient


def _first_outputs(
    numeric: np.ndarray, codes: np.ndarray, lookup: torch.Tensor, weight: np.ndarray, bias: np.ndarray
) -> np.ndarray:
    """Return a first layer's outputs before its ReLU, float32 (rows, width), its weight being (p, width)."""
    if codes.shape[1]:
        out = functional.embedding_bag(torch.from_numpy(codes), lookup, mode="sum").numpy()
        out += bias
    else:
        out = np.repeat(bias[None], len(codes), axis=0)
    if numeric.shape[1]:
        out += numeric @ weight
    return out


class _Layer:
    """A layer's parameters and gradients as arrays that share the tensors' memory."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        self.weight, self.bias = weight.detach().numpy(), bias.detach().numpy()
        if weight.grad is not None and bias.grad is not None:
            self.weight_gradient, self.bias_gradient = weight.grad.numpy(), bias.grad.numpy()


def train_epoch(
    network: nn.Sequential,
    rows: TableRows,
    targets: Sequence[torch.Tensor],
    optimizer: Optimizer,
    batches: Sequence[torch.Tensor],
) -> None:
    """Pass once over the rows of some batches, by (weighted) mean squared error, in a metric if given.

    Network and rows are as `written_out` gives them; targets are values (n, D), and weights (n, D) or a
    metric (n, D, D) if samples have them.
    """
    by_hand = TableNetwork(network)
    numeric, codes, starts = rows.numeric.numpy(), rows.codes.numpy(), rows.starts.numpy()
    values, *weights = (tensor.numpy() for tensor in targets)
    with one_thread_each(), np.errstate(over="ignore", invalid="ignore"):  # its outputs are checked
        for batch in (rows.numpy() for rows in batches):
            inputs = numeric.take(batch, axis=0), codes.take(batch, axis=0) + starts
            outputs = by_hand.forward(*inputs)
            gradient = outputs[-1] - values.take(batch, axis=0)
            gradient *= 2 / max(gradient.size, 1)
            if weights and weights[0].ndim == 3:
                gradient = np.einsum("nij,nj->ni", weights[0].take(batch, axis=0), gradient)
            elif weights:
                gradient *= weights[0].take(batch, axis=0)
            by_hand.backward(*inputs, outputs, gradient)
            optimizer.share(len(batch))
            optimizer.step()


def predict(network: nn.Sequential, rows: TableRows) -> np.ndarray:
    """Return the network's outputs on all rows, float32 (n, D)."""
    by_hand = TableNetwork(network)
    numeric, codes, starts = rows.numeric.numpy(), rows.codes.numpy(), rows.starts.numpy()
    out = np.empty((len(rows), by_hand.n_outputs), dtype=np.float32)
    with one_thread_each(), np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, len(rows), PREDICTION_ROWS):
            block = slice(start, start + PREDICTION_ROWS)
            out[block] = by_hand.forward(numeric[block], codes[block] + starts)[-1]
    return out


BLOCK_ROWS = 1024
GROUP_WIDTH = 400  # hidden units side by side: a block of them stays in a core's cache

Weights = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class _Group:
    """K networks side by side: (codes, K·k1), (p, K·k1) and (K·k1,) of the first layers, and steps (K,).

    `others` are per further layer weights (K, k_in, k_out) and biases (K, 1, k_out).
    """

    lookup: torch.Tensor
    weight: np.ndarray
    bias: np.ndarray
    others: list[tuple[np.ndarray, np.ndarray]]
    steps: np.ndarray

    def __call__(self, numeric: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return Σ_k step_k · network_k of a block of m rows: float64 (m, D)."""
        first = _first_outputs(numeric, codes, self.lookup, self.weight, self.bias)
        out = first.reshape(len(codes), len(self.steps), -1).transpose(1, 0, 2)
        for weight, bias in self.others:
            torch.relu_(torch.from_numpy(out))
            out = np.matmul(out, weight)
            out += bias
        return np.tensordot(self.steps, out, axes=1)


def weighted_sum(networks: Sequence[Weights], steps: Sequence[float], rows: TableRows) -> np.ndarray:
    """Return Σ_k step_k · network_k(x): float64 (n, D).

    Networks are mappings of parameter name to array, as in the state of `table_network`, of equal shapes.
    """
    numeric, codes, starts = rows.numeric.numpy(), rows.codes.numpy(), rows.starts.numpy()
    groups, weights = list[_Group](), np.asarray(steps, dtype=np.float64)
    size = max(1, GROUP_WIDTH // networks[0]["0.bias"].size)
    _, *names = layers = sorted({key.split(".")[0] for key in networks[0]}, key=int)
    for first in range(0, len(networks), size):
        group = networks[first : first + size]
        lookup = torch.from_numpy(np.concatenate([each["0.lookup"] for each in group], axis=1))
        weight = np.concatenate([each["0.weight"] for each in group]).T.copy()
        bias = np.concatenate([each["0.bias"] for each in group])
        others = [
            (
                np.stack([each[f"{name}.weight"].T for each in group]),
                np.stack([each[f"{name}.bias"][None] for each in group]),
            )
            for name in names
        ]
        groups.append(_Group(lookup, weight, bias, others, weights[first : first + size]))
    out = np.zeros((len(codes), networks[0][f"{layers[-1]}.bias"].size))

    def block(start: int) -> None:
        part = slice(start, start + BLOCK_ROWS)
        places = codes[part] + starts
        with one_thread_each():
            for group in groups:
                out[part] += group(numeric[part], places)

    with one_thread_each(blas=True), ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(block, range(0, len(codes), BLOCK_ROWS)))
    return out

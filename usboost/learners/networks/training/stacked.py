"""Predictions of many equal-shaped table networks at once, on the CPU.

A boosted ensemble holds hundreds of small networks. Called one by one, each writes its hidden layers
of all rows to memory and reads them back. Here a block of rows goes through a group of networks
while it is in the cache: one look-up gives the first layer of the whole group, the other layers are
batched matrix products, and the cores share the blocks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from usboost.learners.networks.training.batches import Resident
from usboost.learners.networks.training.train import one_thread_each

BLOCK_ROWS = 1024
GROUP_WIDTH = 400  # hidden units side by side: a block of them stays in a core's cache

Weights = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class _Group:
    """K networks side by side.

    Attributes
    ----------
    lookup, weight, bias : (codes, K·k1), (p, K·k1) and (K·k1,) of the first layers
    others : per further layer weights (K, k_in, k_out) and biases (K, 1, k_out)
    steps : float64 (K,)
    """

    lookup: torch.Tensor
    weight: np.ndarray
    bias: np.ndarray
    others: list[tuple[np.ndarray, np.ndarray]]
    steps: np.ndarray

    def __call__(self, numeric: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Σ_k step_k · network_k of a block of m rows: float64 (m, D)."""
        if codes.shape[1]:
            first = functional.embedding_bag(torch.from_numpy(codes), self.lookup, mode="sum").numpy()
            first += self.bias
        else:
            first = np.repeat(self.bias[None], len(codes), axis=0)
        if numeric.shape[1]:
            first += numeric @ self.weight
        out = first.reshape(len(codes), len(self.steps), -1).transpose(1, 0, 2)
        for weight, bias in self.others:
            torch.relu_(torch.from_numpy(out))
            out = np.matmul(out, weight)
            out += bias
        return np.tensordot(self.steps, out, axes=1)


def weighted_sum(networks: Sequence[Weights], steps: Sequence[float], rows: Resident) -> np.ndarray:
    """Σ_k step_k · network_k(x): float64 (n, D).

    Parameters
    ----------
    networks : K mappings of parameter name to array, as in the state of `table_network`; equal shapes
    rows : numeric float32 (n, p) and codes int32 (n, q), on the CPU
    """
    numeric, codes = (tensor.numpy() for tensor in rows.tensors)
    groups = list(_groups(networks, np.asarray(steps, dtype=np.float64)))
    out = np.zeros((len(codes), _last_bias(networks[0]).size))

    def block(start: int) -> None:
        part = slice(start, start + BLOCK_ROWS)
        with one_thread_each():
            for group in groups:
                out[part] += group(numeric[part], codes[part])

    with one_thread_each(blas=True), ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(block, range(0, len(codes), BLOCK_ROWS)))
    return out


def _groups(networks: Sequence[Weights], steps: np.ndarray) -> Iterator[_Group]:
    size = max(1, GROUP_WIDTH // networks[0]["0.bias"].size)
    for start in range(0, len(networks), size):
        group = networks[start : start + size]
        yield _Group(
            lookup=torch.from_numpy(np.concatenate([each["0.lookup"] for each in group], axis=1)),
            weight=np.concatenate([each["0.weight"] for each in group]).T.copy(),
            bias=np.concatenate([each["0.bias"] for each in group]),
            others=[
                (
                    np.stack([each[f"{name}.weight"].T for each in group]),
                    np.stack([each[f"{name}.bias"][None] for each in group]),
                )
                for name in _layer_names(group[0])[1:]
            ],
            steps=steps[start : start + size],
        )


def _layer_names(network: Weights) -> list[str]:
    return sorted({key.split(".")[0] for key in network}, key=int)


def _last_bias(network: Weights) -> np.ndarray:
    return network[f"{_layer_names(network)[-1]}.bias"]

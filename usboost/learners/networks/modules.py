"""Torch modules that networks are built of, their JSON specification, and their initial weights."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from scipy.sparse import csc_array
from torch import nn
from torch.nn import functional

from usboost.errors import UsboostError


class _SumOfRows(torch.autograd.Function):
    """Σ_j lookup[codes_ij]: (n, width) from codes (n, q); its gradient is one sparse product.

    torch's own gradient of a bag of embeddings sorts the codes of every batch, which costs several
    times the arithmetic of a small network.
    """

    @staticmethod
    def forward(context: Any, codes: torch.Tensor, lookup: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(codes)
        context.n_codes = len(lookup)
        return functional.embedding_bag(codes, lookup, mode="sum")

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[None, torch.Tensor]:
        (codes,) = context.saved_tensors
        if codes.device.type == "cpu":
            summed = one_hot(codes.numpy(), context.n_codes) @ gradient.contiguous().numpy()
            return None, torch.from_numpy(summed)
        out = gradient.new_zeros(context.n_codes, gradient.shape[1])
        return None, out.index_add_(0, codes.reshape(-1), gradient.repeat_interleave(codes.shape[1], dim=0))


def one_hot(codes: np.ndarray, n_codes: int) -> csc_array:
    """float32 (n_codes, n): column i has a one for each of the q codes of row i of (n, q)."""
    rows, columns = codes.shape
    ones = np.ones(codes.size, dtype=np.float32)
    starts = np.arange(0, codes.size + 1, columns, dtype=np.int32)
    return csc_array((ones, codes.reshape(-1), starts), shape=(n_codes, rows))


class TableLinear(nn.Module):
    """A linear layer on standardised numbers and one-hot categories.

    The one-hot part is a sum of weight rows looked up by code, so no dense matrix of zeros and ones
    is ever made. Reads ``(numeric float32 (n, p), codes int32 (n, q))``; codes are positions in the
    concatenated categories.
    """

    def __init__(self, n_numeric: int, cardinalities: list[int], width: int) -> None:
        super().__init__()
        self.n_numeric, self.n_codes = n_numeric, sum(cardinalities)
        self.n_columns = n_numeric + len(cardinalities)
        self.weight = nn.Parameter(torch.empty(width, n_numeric))
        self.lookup = nn.Parameter(torch.empty(self.n_codes, width))
        self.bias = nn.Parameter(torch.empty(width))

    def draw_weights(self, generator: torch.Generator) -> None:
        # fan-in is the number of columns: each category column lights up one weight row
        bound = 1 / math.sqrt(max(self.n_columns, 1))
        for parameter in (self.weight, self.lookup, self.bias):
            nn.init.uniform_(parameter, -bound, bound, generator=generator)

    def forward(self, tensors: tuple[torch.Tensor, ...]) -> torch.Tensor:
        numeric, codes = tensors
        out = functional.linear(numeric, self.weight, self.bias)
        if codes.shape[1]:
            out = out + _SumOfRows.apply(codes, self.lookup)
        return out


class Linear(nn.Linear):
    """`nn.Linear` whose initial weights come from a given generator."""

    def reset_parameters(self) -> None:
        """Nothing yet: `reset` draws them, and torch's global generator is left alone."""

    def draw_weights(self, generator: torch.Generator) -> None:
        bound = 1 / math.sqrt(max(self.in_features, 1))
        nn.init.uniform_(self.weight, -bound, bound, generator=generator)
        nn.init.uniform_(self.bias, -bound, bound, generator=generator)


def table_network(spec: dict[str, Any], widths: list[int]) -> nn.Sequential:
    """Fully connected layers of the given widths on a table, ReLU between them (FCk1+k2 in the paper)."""
    if not widths:
        raise UsboostError("a network needs at least one layer width")
    layers: list[nn.Module] = [TableLinear(spec["n_numeric"], spec["cardinalities"], widths[0])]
    for previous, width in pairwise(widths):
        layers += [nn.ReLU(), Linear(previous, width)]
    return nn.Sequential(*layers)


def dense_network(widths: list[int]) -> nn.Sequential:
    """Fully connected layers from ``widths[0]`` inputs to ``widths[-1]`` outputs, ReLU between them."""
    layers: list[nn.Module] = []
    for previous, width in pairwise(widths):
        layers += [Linear(previous, width), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def generators(module: nn.Module) -> list[torch.Generator]:
    """What the parts of a network draw from while they train (augmentation), in order."""
    found = (getattr(part, "generator", None) for part in module.modules())
    return [each for each in found if isinstance(each, torch.Generator)]


def reseed(module: nn.Module, seed: int) -> None:
    """Let what a network draws while it trains follow from a seed."""
    for generator in generators(module):
        generator.manual_seed(seed)


def initialise(module: nn.Module, seed: int) -> None:
    """Draw all initial weights from one seed, and leave torch's global generator as it was.

    A part with a method ``draw_weights(generator)`` draws its own; torch's other layers draw as torch does.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        for part in module.modules():
            if callable(draw := getattr(part, "draw_weights", None)):
                draw(generator)
            elif isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, nonlinearity="relu", generator=generator)
                if part.bias is not None:
                    nn.init.zeros_(part.bias)
            elif callable(reset := getattr(part, "reset_parameters", None)):
                reset()
    reseed(module, seed)

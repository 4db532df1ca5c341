"""The network that reads a view, from its JSON specification, and its initial weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from usboost.errors import UsboostError
from usboost.learners.networks.image_network import ImageNetwork
from usboost.learners.networks.modules import Linear, TableLinear, table_network


def branch(spec: dict[str, Any], widths: list[int]) -> nn.Module:
    """The network that reads one view; its last width is its output."""
    if spec["view"] == "table":
        return table_network(spec, widths)
    if spec["view"] == "image":
        return ImageNetwork(spec, widths)
    raise UsboostError(f"no network reads a view called {spec['view']!r}")


def reseed(module: nn.Module, seed: int) -> None:
    """Let what a module draws while it trains (augmentation) follow from a seed."""
    for part in module.modules():
        if isinstance(part, ImageNetwork):
            part.generator.manual_seed(seed)


def initialise(module: nn.Module, seed: int) -> None:
    """Draw all initial weights from one seed, without touching torch's global generator."""
    generator = torch.Generator().manual_seed(seed)
    for part in module.modules():
        if isinstance(part, (TableLinear, Linear)):
            part.reset(generator)
        elif isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, nonlinearity="relu", generator=generator)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, (nn.GroupNorm, nn.BatchNorm2d)):
            part.reset_parameters()
    reseed(module, seed)

"""Initial weights of networks, drawn from a seed."""

from __future__ import annotations

import torch
from torch import nn


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

    A part with a method ``reset(generator)`` draws its own; torch's other layers draw as torch does.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        for part in module.modules():
            if callable(reset := getattr(part, "reset", None)):
                reset(generator)
            elif isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, nonlinearity="relu", generator=generator)
                if part.bias is not None:
                    nn.init.zeros_(part.bias)
            elif callable(draw := getattr(part, "reset_parameters", None)):
                draw()
    reseed(module, seed)

"""The losses that a classifier can name: one of your own is registered here."""

from __future__ import annotations

from usboost.files.registry import Registry

LOSSES = Registry(
    "loss",
    {
        "exponential": "usboost.losses.codeword:CodewordExponential",
        "cross_entropy": "usboost.losses.cross_entropy:SoftmaxCrossEntropy",
    },
)
"""Losses of classes, a `usboost.losses.base.ClassLoss` each, by what a model's parameter `loss` says."""

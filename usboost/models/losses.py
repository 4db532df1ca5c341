"""The losses that a classifier can name; apart, so that only models with a loss depend on them."""

from usboost.files.registry import Registry

LOSSES = Registry(
    "loss",
    {
        "exponential": "usboost.losses.exponential:CodewordExponential",
        "cross_entropy": "usboost.losses.cross_entropy:SoftmaxCrossEntropy",
    },
)
"""Losses of classes, each a `usboost.losses.base.ClassLoss`, by what a classifier's parameter `loss` says.

One of your own is registered here."""

"""Losses of classes by name."""

from __future__ import annotations

from typing import ClassVar, Protocol, Self

import numpy as np

from usboost.files.parts import Registry
from usboost.losses.base import CountingLoss

LOSSES = Registry(
    "loss",
    {
        "exponential": "usboost.losses.codeword:CodewordExponential",
        "cross_entropy": "usboost.losses.cross_entropy:SoftmaxCrossEntropy",
    },
)
"""Losses of classes, a `ClassLoss` each, by what a model's parameter `loss` says."""


class ClassLoss(CountingLoss, Protocol):
    """A loss of M classes, as a classifier is boosted on it; registered in `LOSSES` it can be named.

    Target rules ask for more: "gradient" for ``w(f, y)``, the negative gradient per sample, (n, D);
    "newton" for ``w`` and ``hessian(f, y)``, (n, D, D) or of one output (n, 1), and with more outputs for
    ``newton_direction(f, y)``, which solves H d = w.
    """

    kind: ClassVar[str]
    n_classes: int

    @classmethod
    def of_classes(cls, n_classes: int, per_class: bool = False) -> Self:
        """The loss of so many classes; `per_class` asks for D = M outputs, else D may be M − 1."""
        ...

    def labels(self, codes: np.ndarray) -> np.ndarray:
        """What `risk` takes as y, of classes 0 to M − 1, int (n,)."""
        ...

    def scores(self, f: np.ndarray) -> np.ndarray:
        """A score for each class, (n, M); the largest is the answer."""
        ...

    def probabilities(self, f: np.ndarray) -> np.ndarray: ...

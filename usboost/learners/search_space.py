"""What may be chosen of a learner's or model's parameters: its class attribute `space`, by parameter.

``space: ClassVar[Space] = {"learning_rate": Real(1e-4, 0.03, log=True)}`` is all that a class needs for
`usboost tune` to search it. Ranges decide no fit, so editing one voids no checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

Where = Literal["everywhere", "images", "images alone"]
"""Where a parameter does something: on any rows, where its owner reads images, or where it reads nothing
else and so reads them as images."""


@dataclass(frozen=True)
class Real:
    """A number from `low` to `high`; `log`, evenly on a logarithmic scale."""

    low: float
    high: float
    log: bool = False
    where: Where = "everywhere"

    def holds(self, value: Any) -> bool:
        """Whether the value lies in the range."""
        return _number(value) and self.low <= value <= self.high

    def widened(self, value: Any) -> Real | None:
        """The dimension that holds the value, too; None if it cannot."""
        if not _number(value) or (self.log and value <= 0):
            return None
        return replace(self, low=min(self.low, float(value)), high=max(self.high, float(value)))


@dataclass(frozen=True)
class Integer:
    """A whole number from `low` to `high`; `log`, evenly on a logarithmic scale."""

    low: int
    high: int
    log: bool = False
    where: Where = "everywhere"

    def holds(self, value: Any) -> bool:
        """Whether the value lies in the range."""
        return _number(value) and value == int(value) and self.low <= value <= self.high

    def widened(self, value: Any) -> Integer | None:
        """The dimension that holds the value, too; None if it cannot."""
        if not _number(value) or value != int(value) or (self.log and value <= 0):
            return None
        return replace(self, low=min(self.low, int(value)), high=max(self.high, int(value)))


@dataclass(frozen=True)
class Choice:
    """One of some values; `ordered`, those next to each other are alike."""

    options: tuple[Any, ...]
    ordered: bool = False
    where: Where = "everywhere"

    def holds(self, value: Any) -> bool:
        """Whether the value is one of them."""
        return _plain(value) in self.options

    def widened(self, value: Any) -> Choice | None:
        """The dimension that holds the value, too; None if it cannot."""
        if self.holds(value):
            return self
        plain = isinstance(value, (str, int, float, bool, tuple, list, type(None)))
        return replace(self, options=(*self.options, _plain(value)), ordered=False) if plain else None


Dimension = Real | Integer | Choice
Space = Mapping[str, Dimension]
"""Dimensions by parameter, or by path to one: ``backbone__finetune``."""

HIDDEN = Choice(((32,), (64,), (128,), (100, 50), (256, 64), (200, 100, 50)))
"""Widths of a network's hidden layers."""

BATCH = Choice((32, 64, 128, 256, 512), ordered=True)
"""Rows of a batch."""

FINETUNE = ("none", "auto", "last")
"""What of a backbone is trained, among what a user can wait for."""

COMPONENTS = Choice((16, 32, 64, 128, 256, None), ordered=True, where="images")
"""Principal components of images' embeddings that trees read; None: as all features."""


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value

"""Search spaces: what `usboost tune` may choose of a learner's or model's parameters, its attribute `space`.

``space: ClassVar[Space] = {"learning_rate": Real(1e-4, 0.03, log=True)}`` is all that a class needs for
`usboost tune` to search it. Ranges decide no fit, so editing one voids no checkpoint.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

Where = Literal["everywhere", "images", "images alone"]
"""The rows on which a parameter does something: any, those whose owner reads images, or those whose owner
reads nothing else and so reads them as images."""


@dataclass(frozen=True)
class _Range:
    low: Any
    high: Any
    log: bool = False
    where: Where = "everywhere"
    _type: ClassVar[type] = float

    def widened(self, value: Any) -> Self | None:
        """Return the dimension that holds the value, too; None if it cannot."""
        if not self._is_one(value) or (self.log and value <= 0):
            return None
        own = self._type(value)
        return replace(self, low=min(self.low, own), high=max(self.high, own))

    def _is_one(self, value: Any) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool)


@dataclass(frozen=True)
class Real(_Range):
    """A number from `low` to `high`; `log`, evenly on a logarithmic scale."""

    low: float
    high: float


@dataclass(frozen=True)
class Integer(_Range):
    """A whole number from `low` to `high`; `log`, evenly on a logarithmic scale."""

    low: int
    high: int
    _type: ClassVar[type] = int

    def _is_one(self, value: Any) -> bool:
        return super()._is_one(value) and value == int(value)


@dataclass(frozen=True)
class Choice:
    """One of some values; `ordered`, those next to each other are alike."""

    options: tuple[Any, ...]
    ordered: bool = False
    where: Where = "everywhere"

    def widened(self, value: Any) -> "Choice | None":
        """Return the dimension that holds the value, too; None if it cannot."""
        if _plain(value) in self.options:
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
"""Parts of a backbone to train, among those that a user can wait for."""

COMPONENTS = Choice((16, 32, 64, 128, 256, None), ordered=True, where="images")
"""Principal components of images' embeddings that trees read; None: as all features."""


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value

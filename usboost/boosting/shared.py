"""A loss on rows of which each shard of a fit holds a part: its risk, and its line along directions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from usboost.boosting.steps import Newton
from usboost.losses.base import ClosedFormLine, Expansion, Line
from usboost.shards.here import alone, here


def held(counts: np.ndarray | None, n: int) -> float:
    """What the n rows of this shard weigh in a mean over all rows."""
    return float(n) if counts is None else float(counts.sum())


def shared_risk(loss: Any, f: np.ndarray, y: np.ndarray, counts: np.ndarray | None = None) -> float:
    """The risk of all shards' rows, from this one's."""
    if here().count == 1:
        return float(loss.risk(f, y, **_given(counts)))
    own = loss.risk(f, y, **_given(counts)) if len(y) else 0.0
    return float(here().mean(own, held(counts, len(y))))


def shared_line(
    loss: Any, f: np.ndarray, y: np.ndarray, directions: list[np.ndarray], counts: np.ndarray | None = None
) -> Line:
    """The risk of all shards' rows along directions, from this one's."""
    if here().count == 1:
        line: Line = loss.line(f, y, directions, **_given(counts))
        return line
    own, weight = loss.line(f, y, directions, **_given(counts)) if len(y) else None, held(counts, len(y))
    if not getattr(loss, "polygonal", False):
        return _SharedLine(own, weight, len(directions))
    return _PolygonalLine(own, weight, len(directions), lambda: _sampled(loss, f, y, directions, counts))


def _sampled(
    loss: Any, f: np.ndarray, y: np.ndarray, directions: list[np.ndarray], counts: np.ndarray | None
) -> ClosedFormLine:
    """The line of all shards' rows, or of a sample of so many of them that it makes no difference."""
    chosen = here().sample(len(y))
    columns = [f, y, *directions, *([] if counts is None else [counts[:, None]])]
    rows = np.concatenate(here().gather(np.hstack(columns)[chosen]))
    found = np.hsplit(rows, np.cumsum([column.shape[1] for column in columns])[:-1])
    given = {} if counts is None else {"counts": found.pop()[:, 0]}
    line: ClosedFormLine = loss.line(found[0], found[1], found[2:], **given)
    return line


def _given(counts: np.ndarray | None) -> dict[str, np.ndarray]:
    return {} if counts is None else {"counts": counts}  # a loss need not know of them


class _SharedLine:
    """A mean over all rows: that of the shards' lines, by what their rows weigh."""

    def __init__(self, own: Line | None, weight: float, n_steps: int) -> None:
        self._own, self._weight, self._n_steps = own, weight, n_steps

    def risk(self, steps: np.ndarray) -> float:
        return float(here().mean(0.0 if self._own is None else self._own.risk(steps), self._weight))

    def expand(self, steps: np.ndarray) -> Expansion:
        v = self._n_steps
        own = np.zeros(1 + v + v * v)
        if self._own is not None:
            risk, gradient, hessian = self._own.expand(steps)
            own = np.concatenate([[risk], gradient, hessian.ravel()])
        found = here().mean(own, self._weight)
        return float(found[0]), found[1 : v + 1], found[v + 1 :].reshape(v, v)

    def minimiser(self) -> np.ndarray:
        """The lowest point of a convex risk; of a quadratic one in a single step."""
        return Newton().search(self, self._n_steps, 0)


class _PolygonalLine(_SharedLine):
    """One without curvature: its lowest point is that of a sample of rows, which every process searches."""

    def __init__(
        self, own: Line | None, weight: float, n_steps: int, sampled: Callable[[], ClosedFormLine]
    ) -> None:
        super().__init__(own, weight, n_steps)
        self._sampled = sampled

    def minimiser(self) -> np.ndarray:
        line, still = self._sampled(), np.zeros(self._n_steps)
        steps = here().once(lambda: alone(line.minimiser))
        return steps if self.risk(steps) <= self.risk(still) else still

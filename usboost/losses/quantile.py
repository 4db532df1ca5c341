"""Losses of two straight pieces: the absolute loss, of the median, and the quantile losses."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from usboost.errors import UsboostError
from usboost.losses.base import Expansion, mean, relative
from usboost.shards.collective import grouped_quantiles, world

TIES = 1e-9
"""Residuals are moved by up to this share of their mean size, so that no more of them are 0 at once than
there are steps; the risk found is then within twice this share of the lowest."""

_SWEEPS = 100


@dataclass(frozen=True)
class PiecewiseLinear:
    """L(y, f) = above · r for r = y − f ≥ 0, else −below · r; r of shape (n, 1).

    Its risk is lowest at the quantile of level above / (above + below). above = α, below = 1 − α is the
    quantile (pinball) loss of Koenker and Bassett (1978), above = below = 1 the absolute loss.

    Parameters
    ----------
    above, below : positive

    Attributes
    ----------
    polygonal : whether its risk along a line has no curvature, so that Newton's steps do not find the lowest
    """

    above: float
    below: float
    n_outputs: ClassVar[int] = 1
    refits_leaves: ClassVar[bool] = True
    polygonal: ClassVar[bool] = True

    @classmethod
    def absolute(cls) -> "PiecewiseLinear":
        return cls(1.0, 1.0)

    @classmethod
    def quantile(cls, alpha: float) -> "PiecewiseLinear":
        """Make the loss of the level `alpha`; refuse one that is not between 0 and 1."""
        if not 0 < alpha < 1:
            raise UsboostError(f"quantile is a level between 0 and 1, not {alpha}")
        return cls(alpha, 1 - alpha)

    def of(self, residual: np.ndarray) -> np.ndarray:
        """Return the loss of each residual, of its shape."""
        return np.maximum(self.above * residual, -self.below * residual)

    def risk(self, f: np.ndarray, y: np.ndarray, counts: np.ndarray | None = None) -> float:
        return mean(self.of(y - f).ravel(), counts)

    def pseudo_residual(self, residual: np.ndarray) -> np.ndarray:
        """Return −∂L/∂f: `above` where the residual is positive, else −`below`; 0 at 0."""
        return np.where(residual > 0, self.above, np.where(residual < 0, -self.below, 0.0))

    def constants(
        self, residual: np.ndarray, groups: np.ndarray, n_groups: int, counts: np.ndarray | None = None
    ) -> np.ndarray:
        """Return a quantile of each group, float64 (n_groups,): the smallest residual that is one."""
        level = self.above / (self.above + self.below)
        if world().count > 1:
            own = np.ones(len(residual)) if counts is None else counts
            sums = world().sum(np.append(np.bincount(groups, own, n_groups), [own.sum(), len(own)]))
            slack = 1e-9 * sums[-2] / max(sums[-1], 1.0)
            return grouped_quantiles(residual, own, level * sums[:-2] - slack, groups)
        order, rows = np.lexsort((residual, groups)), np.bincount(groups, minlength=n_groups)
        last = np.cumsum(rows) - 1
        first = last - rows + 1
        # the level times the counts may lie above a sum of them by a rounding error
        if counts is None:
            at = first + np.clip(np.ceil(rows * level - 1e-9).astype(int) - 1, 0, np.maximum(rows - 1, 0))
        else:
            counts = counts[order]
            totals = np.bincount(groups[order], counts, n_groups)
            wanted = np.cumsum(totals) - totals + level * totals - 1e-9 * counts.mean()
            at = np.clip(np.searchsorted(np.cumsum(counts), wanted), first, np.maximum(last, first))
        return np.where(rows > 0, residual[order][np.minimum(at, max(len(residual) - 1, 0))], 0.0)

    def line(
        self, f: np.ndarray, y: np.ndarray, directions: list[np.ndarray], counts: np.ndarray | None = None
    ) -> "_PolygonalLine":
        residual, along = (y - f).ravel(), np.stack([d.ravel() for d in directions], axis=1)
        if counts is None:
            return _PolygonalLine(self, residual, along)
        weights = relative(counts)  # w L(r) = L(w r)
        return _PolygonalLine(self, weights * residual, weights[:, None] * along)


class _PolygonalLine:
    """mean_i L(r_i − Σ_v step_v d_iv): convex and polygonal, the objective of quantile regression."""

    def __init__(self, loss: PiecewiseLinear, residual: np.ndarray, directions: np.ndarray) -> None:
        self._loss, self._residual, self._directions = loss, residual, directions

    def risk(self, steps: np.ndarray) -> float:
        return float(self._loss.of(self._residual - self._directions @ steps).mean())

    def expand(self, steps: np.ndarray) -> Expansion:
        """Refuse it with `UsboostError`: the second derivative is 0 wherever there is one."""
        raise UsboostError("this loss has no second derivative; use the step rule 'closed'")

    def minimiser(self) -> np.ndarray:
        """Return the steps of the lowest risk: of one a weighted quantile, of more by descent along edges.

        The lowest point is at a vertex, where as many residuals are 0 as there are steps. From a vertex
        each edge keeps all but one of them 0, and the lowest point along it is a weighted quantile, hence
        found exactly (Barrodale and Roberts 1973); where no edge leads down, the convex risk is lowest.
        Directions that depend on others get the step 0.
        """
        from scipy.linalg import qr  # as in `usboost.losses.base`

        steps = np.zeros(self._directions.shape[1])
        triangle, order = qr(self._directions, mode="r", pivoting=True)
        size = np.abs(np.diag(triangle))
        independent = np.sort(order[: np.count_nonzero(size > 1e-10 * size.max(initial=0.0))])
        if len(independent):
            steps[independent] = self._descend(self._directions[:, independent])
        # the descent saw residuals moved by up to `TIES`: near the minimum its end may be a rise
        return steps if self.risk(steps) <= self.risk(np.zeros_like(steps)) else np.zeros_like(steps)

    def _descend(self, directions: np.ndarray) -> np.ndarray:
        n, v = directions.shape
        residual = self._residual.copy()
        # always the same moves, so that a fit can be repeated
        moved = np.random.default_rng(0).uniform(-1.0, 1.0, n)
        residual += TIES * float(np.abs(residual).mean()) * moved
        steps, zeros = np.zeros(v), np.empty(0, dtype=np.int64)
        edges, flat = np.eye(v), 0  # column k leaves row zeros[k], and no other of them
        for turn in range(_SWEEPS * v):
            k = turn % v
            if len(zeros) < v:  # on the way to a vertex: along what keeps the rows that are 0
                # a unit vector that their rows are perpendicular to
                edge = np.linalg.svd(directions[zeros])[2][-1] if len(zeros) else np.eye(v)[0]
            else:
                edge = edges[:, k]
            slopes = directions @ edge
            # rounding alone would make for a crossing by chance; nor are rows that are 0 to cross again
            slopes[np.abs(slopes) <= 1e-12 * np.abs(slopes).max()] = 0.0
            slopes[np.delete(zeros, k) if len(zeros) == v else zeros] = 0.0
            length, row = self._along(residual, slopes)
            steps += length * edge
            residual -= length * slopes
            # exactly, for it is to stay 0
            residual[row] = 0.0
            if len(zeros) < v:
                zeros = np.append(zeros, row)
            else:
                flat = flat + 1 if row == zeros[k] else 0
                zeros[k] = row
                # no edge of this vertex leads to another: the lowest point
                if flat == v:
                    break
            if len(zeros) == v:
                edges = np.linalg.inv(directions[zeros])
        return steps

    def _along(self, residual: np.ndarray, slopes: np.ndarray) -> tuple[float, int]:
        """Return the t of the lowest Σ L(residual − t · slopes), and the row whose residual is then 0.

        Σ |slope| L_±(residual/slope − t), L turned round where the slope is negative: the weighted quantile.
        """
        rows = np.flatnonzero(slopes)
        crossings, weights = residual[rows] / slopes[rows], np.abs(slopes[rows])
        above = np.where(slopes[rows] > 0, self._loss.above, self._loss.below)
        order = np.argsort(crossings, kind="stable")
        passed = (self._loss.above + self._loss.below) * np.cumsum(weights[order])
        first = order[min(np.searchsorted(passed, (weights * above).sum()), len(order) - 1)]
        return float(crossings[first]), int(rows[first])

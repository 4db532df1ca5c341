"""The squared loss, the losses of regression by name, and the constant that each of them fits best."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from usboost.errors import UsboostError
from usboost.files.onnx_graph import Value
from usboost.losses.base import Expansion, RegressionLoss, mean, refuse_zero, relative
from usboost.losses.quantile import PiecewiseLinear
from usboost.shards.collective import world


@dataclass(frozen=True)
class Squared:
    """L(y, f) = ‖y − f‖² with targets y of shape (n, m) (BNN); the risk is its mean.

    With `zero_steps` a learner whose outputs are all zero is taken, with step 0; else it is refused.
    """

    n_outputs: int
    zero_steps: bool = False
    refits_leaves: ClassVar[bool] = False  # a tree's leaves hold means as it is

    def risk(self, f: np.ndarray, y: np.ndarray, counts: np.ndarray | None = None) -> float:
        return mean(np.square(y - f).sum(axis=1), counts)

    def newton_target(self, f: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return −(∇²L)⁻¹∇L = y − f."""
        return y - f

    def pseudo_residual(self, residual: np.ndarray) -> np.ndarray:
        """Return the residual itself."""
        return residual

    def constants(
        self, residual: np.ndarray, groups: np.ndarray, n_groups: int, counts: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the mean of each group, float64 (n_groups,), from residuals (n,) and groups 0, 1, … (n,)."""
        own = residual if counts is None else counts * residual
        totals = world().sum(np.bincount(groups, counts, n_groups).astype(np.float64))
        sums = world().sum(np.bincount(groups, own, n_groups))
        return np.asarray(sums / np.where(totals > 0, totals, 1))

    def curvature(self, target: np.ndarray, f: np.ndarray, y: np.ndarray) -> None:
        """Return None: it is the same everywhere."""

    def line(
        self, f: np.ndarray, y: np.ndarray, directions: list[np.ndarray], counts: np.ndarray | None = None
    ) -> "_QuadraticLine":
        if counts is None:
            return _QuadraticLine(y - f, directions, self.zero_steps)
        root = np.sqrt(relative(counts))[:, None]
        return _QuadraticLine(root * (y - f), [root * each for each in directions], self.zero_steps)

    def scores(self, f: np.ndarray) -> np.ndarray:
        """Return f itself: with one-hot targets the prediction is the arg max."""
        return f

    def probabilities(self, f: np.ndarray) -> np.ndarray:
        """Return the class probabilities nearest to f, which with one-hot targets estimates them, (n, m).

        The Euclidean projection on the simplex: every row loses the same amount from each entry and
        is cut at 0, so the order of the classes stays.
        """
        # what is taken from each entry is (Σ_{j≤k} falling_j − 1)/k for the largest k whose entry is above it
        falling = -np.sort(-f, axis=1)
        excess = (np.cumsum(falling, axis=1) - 1) / np.arange(1, f.shape[1] + 1)
        n_positive = (falling > excess).sum(axis=1, keepdims=True)
        return np.maximum(f - np.take_along_axis(excess, n_positive - 1, axis=1), 0.0)

    def to_onnx(self, f: Value) -> Value:
        """Return the probabilities in a graph."""
        falling = f.TopK([self.n_outputs], outputs=2, axis=1)
        excess = (falling.CumSum(1) - 1.0) / np.arange(1.0, self.n_outputs + 1)[None]
        place = (falling > excess).cast(np.int64).summed(1, keep=True) - 1
        return (f - excess.GatherElements(place, axis=1)).Max(0.0)


class _QuadraticLine:
    """mean_i ‖r_i − Σ_v step_v d_vi‖²: one Newton step from anywhere is the exact minimum."""

    def __init__(self, residual: np.ndarray, directions: list[np.ndarray], zero_steps: bool = False) -> None:
        self._residual, self._n, self._zero_steps = residual.ravel(), len(residual), zero_steps
        self._directions = np.stack([d.ravel() for d in directions])
        self._linear = self._directions @ self._residual / self._n
        self._quadratic = self._directions @ self._directions.T / self._n

    def risk(self, steps: np.ndarray) -> float:
        # the expanded square would cancel to noise, even below 0, where the fit is nearly exact
        return float(np.square(self._residual - steps @ self._directions).sum()) / self._n

    def expand(self, steps: np.ndarray) -> Expansion:
        gradient = 2 * (self._quadratic @ steps - self._linear)
        return self.risk(steps), gradient, 2 * self._quadratic

    def minimiser(self) -> np.ndarray:
        """Return γ = Σ_i ⟨r_i, h_i⟩ / Σ_i ‖h_i‖² (BNN equation 3); of more directions by normal equations."""
        if not self._zero_steps:
            refuse_zero(np.diag(self._quadratic))
            # the pseudo-inverse would raise on infinity; so the round can say that its risk is not finite
            if len(self._linear) == 1 or not np.isfinite(self._quadratic).all():
                return self._linear / np.diag(self._quadratic)
        return np.linalg.pinv(self._quadratic, hermitian=True) @ self._linear


_STEPS = 100


@dataclass(frozen=True)
class Huber:
    """L(y, f) = ½ r² for |r| ≤ δ, else δ(|r| − ½ δ), with r = y − f of shape (n, 1) (Huber 1964).

    δ is positive, in the units of y; float64 (n,) if each residual has its own.
    """

    delta: float | np.ndarray
    n_outputs: ClassVar[int] = 1
    refits_leaves: ClassVar[bool] = True

    def of(self, residual: np.ndarray) -> np.ndarray:
        """Return the loss of each residual, of its shape."""
        # half of what is cut off, times what is left twice: no difference of large numbers
        cut = self.pseudo_residual(residual)
        return cut * (residual - 0.5 * cut)

    def risk(self, f: np.ndarray, y: np.ndarray, counts: np.ndarray | None = None) -> float:
        return mean(self.of(y - f).ravel(), counts)

    def pseudo_residual(self, residual: np.ndarray) -> np.ndarray:
        """Return −∂L/∂f: the residual, cut to [−δ, δ]."""
        return np.clip(residual, -self.delta, self.delta)

    def constants(
        self, residual: np.ndarray, groups: np.ndarray, n_groups: int, counts: np.ndarray | None = None
    ) -> np.ndarray:
        """Return Huber's location of each group, (n_groups,): Newton steps within a shrinking bracket."""
        own = 1.0 if counts is None else counts
        totals = world().sum(np.bincount(groups, counts, n_groups))
        low, high = np.full(n_groups, np.inf), np.full(n_groups, -np.inf)
        np.minimum.at(low, groups, residual)
        np.maximum.at(high, groups, residual)
        low, high = -world().highest(-low), world().highest(high)
        low[totals == 0] = high[totals == 0] = 0.0
        at = world().sum(np.bincount(groups, own * residual, n_groups)) / np.where(totals > 0, totals, 1)
        for _ in range(_STEPS):
            deviation = residual - at[groups]
            # minus the derivative in c, which falls: its sign says on which side of c the location is
            slope = world().sum(np.bincount(groups, own * self.pseudo_residual(deviation), n_groups))
            near = world().sum(np.bincount(groups, own * (np.abs(deviation) <= self.delta), n_groups))
            low, high = np.where(slope >= 0, at, low), np.where(slope <= 0, at, high)
            # Newton's step; where it does not stay inside the bracket, or no residual is near,
            # the middle of that: between its ends it could go to and fro for ever
            moved = at + slope / np.where(near > 0, near, 1)
            inside = ((moved > low) & (moved < high)) | (moved == at)
            moved = np.where(inside & (near > 0), moved, (low + high) / 2)
            if np.array_equal(moved, at):
                break
            at = moved
        return at

    def line(
        self, f: np.ndarray, y: np.ndarray, directions: list[np.ndarray], counts: np.ndarray | None = None
    ) -> "_HuberLine":
        residual, along = (y - f).ravel(), np.stack([d.ravel() for d in directions])
        if counts is None:
            return _HuberLine(self, residual, along)
        # w L_δ(r) = L_{√w δ}(√w r)
        root = np.sqrt(relative(counts))
        return _HuberLine(Huber(self.delta * root), root * residual, root * along)


class _HuberLine:
    """mean_i L(r_i − Σ_v step_v d_vi): convex, and quadratic in pieces."""

    def __init__(self, loss: Huber, residual: np.ndarray, directions: np.ndarray) -> None:
        self._loss, self._residual, self._directions = loss, residual, directions

    def risk(self, steps: np.ndarray) -> float:
        return float(self._loss.of(self._residual - steps @ self._directions).mean())

    def expand(self, steps: np.ndarray) -> Expansion:
        left = self._residual - steps @ self._directions
        near = (np.abs(left) <= self._loss.delta).astype(np.float64)
        gradient = -self._directions @ self._loss.pseudo_residual(left) / len(left)
        hessian = (self._directions * near) @ self._directions.T / len(left)
        return float(self._loss.of(left).mean()), gradient, hessian

    def minimiser(self) -> np.ndarray:
        """Return the exact minimum: where the right piece is known, one Newton step ends there.

        Until then reweighted least squares, weights min(1, δ/|r|), lowers the risk in every step: its
        quadratic lies above the risk and touches it.
        """
        steps = np.zeros(len(self._directions))
        risk = self.risk(steps)
        for _ in range(_STEPS):
            left = self._residual - steps @ self._directions
            size = np.maximum(np.abs(left), np.finfo(float).tiny)
            slope = self._directions @ self._loss.pseudo_residual(left) / len(left)
            best = risk, steps
            for weights in (np.minimum(1.0, self._loss.delta / size), size <= self._loss.delta):
                gram = (self._directions * weights) @ self._directions.T / len(left)
                moved = steps + np.linalg.pinv(gram, rcond=1e-12, hermitian=True) @ slope
                best = min(best, (self.risk(moved), moved), key=lambda each: each[0])
            # a gain by rounding alone is none
            if not best[0] < risk * (1 - 1e-15):
                break
            risk, steps = best
        return steps


REGRESSION_LOSSES = ("squared", "absolute", "huber", "quantile")


def check_loss_name(name: str) -> None:
    """Refuse a name that is none of `REGRESSION_LOSSES`."""
    if name not in REGRESSION_LOSSES:
        raise UsboostError(f"unknown loss {name!r}; choose one of {', '.join(REGRESSION_LOSSES)}")


def regression_loss(name: str, *, quantile: float = 0.5, delta: float = 1.0) -> RegressionLoss:
    """Make the loss called `name`: of the level `quantile`, or "huber" that goes over to absolute at `delta`.

    Raises `UsboostError` if there is no such loss, or its parameter is out of range.
    """
    check_loss_name(name)
    if name == "absolute":
        return PiecewiseLinear.absolute()
    if name == "quantile":
        return PiecewiseLinear.quantile(quantile)
    if name == "huber":
        if not delta > 0:
            raise UsboostError(f"delta of the Huber loss is positive, not {delta}")
        return Huber(float(delta))
    return Squared(1, zero_steps=True)


def best_constant(loss: RegressionLoss, y: np.ndarray, counts: np.ndarray | None = None) -> float:
    """Return f⁰, the constant of lowest risk on targets (n,): mean, median, quantile or Huber's location."""
    return float(loss.constants(y, np.zeros(len(y), dtype=np.int64), 1, counts)[0])

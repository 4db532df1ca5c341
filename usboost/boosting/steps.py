"""Step rules, and the risk of all shards' rows along a round's directions."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
from threadpoolctl import get_cached_controller

from usboost.errors import UsboostError, silenced
from usboost.losses.base import ClosedFormLine, Expansion, Line
from usboost.shards.collective import unsharded, world


class StepRule(Protocol):
    def search(self, line: Line, n_steps: int, seed: int) -> np.ndarray: ...


@dataclass(frozen=True)
class Fixed:
    """The same step in every round and direction: 2WL_Fix's ε = δ = 0.1."""

    value: float = 0.1

    def search(self, line: Line, n_steps: int, seed: int) -> np.ndarray:
        return np.full(n_steps, self.value)


@dataclass(frozen=True)
class Bayes:
    """Bayesian optimisation of the steps (US §4.2): 10 random points, then 20 guided ones.

    The paper gives no bounds; `bounds` are ours and are logged with the run. The result is taken
    only if its risk is no higher than that of not moving at all.
    """

    n_random: int = 10
    n_guided: int = 20
    bounds: tuple[float, float] = (0.0, 10.0)

    def search(self, line: Line, n_steps: int, seed: int) -> np.ndarray:
        from skopt import gp_minimize  # barely maintained: only this function knows it

        # thirty points make tiny matrices, for which a second BLAS thread only costs
        # it warns that "the objective has been evaluated at this point before"
        with silenced(), get_cached_controller().limit(limits=1):
            result = gp_minimize(
                # same minimiser; the surrogate cannot fit a risk that spans hundreds of decades
                lambda steps: float(np.log(np.clip(line.risk(np.asarray(steps)), 1e-100, 1e100))),
                [tuple(map(float, self.bounds))] * n_steps,
                n_initial_points=self.n_random,
                n_calls=self.n_random + self.n_guided,
                random_state=seed,
            )
        best, still = np.asarray(result.x, dtype=float), np.zeros(n_steps)
        return best if line.risk(best) <= line.risk(still) else still


@dataclass(frozen=True)
class Newton:
    """The exact minimiser of the convex risk along the directions, by damped Newton iterations.

    The risk is a sum of exponentials of affine functions (or a quadratic), so it is convex in the
    steps and Newton with backtracking finds its global minimum. Directions that are parallel, or
    zero, leave the Hessian singular: the pseudo-inverse gives the shortest of the good steps.

    Parameters
    ----------
    tolerance : stop when the predicted further decrease, relative to the risk, is below this
    limit : no step is longer than this, and where one gets there the search ends, the others' best or not. A
        learner that separates the samples it errs on has no finite best step; the limit keeps scores finite.
    """

    tolerance: float = 1e-10
    limit: float = 100.0
    max_iterations: int = 50

    def search(self, line: Line, n_steps: int, seed: int) -> np.ndarray:
        steps = np.zeros(n_steps)
        risk, gradient, hessian = line.expand(steps)
        for _ in range(self.max_iterations):
            # pinv, not solve: of learners with equal outputs the Hessian is singular, and each gets half
            direction = -np.linalg.pinv(hessian, rcond=1e-12, hermitian=True) @ gradient
            decrease = -float(gradient @ direction)
            # not `<=`: a decrease of NaN ends the search, too
            if not decrease > self.tolerance * max(abs(risk), 1e-300):
                break
            for scale in 0.5 ** np.arange(40):
                moved = np.clip(steps + scale * direction, -self.limit, self.limit)
                # Armijo's rule: a share of what the gradient promises; a risk that overflowed fails it
                if line.risk(moved) <= risk - 1e-4 * scale * decrease:
                    break
            else:
                break
            steps = moved
            risk, gradient, hessian = line.expand(steps)
            # as a rule the risk falls for ever that way: there is no minimum to come nearer to
            if np.abs(steps).max() >= self.limit:
                break
        return steps


@dataclass(frozen=True)
class ClosedForm:
    """The loss's own formula for the lowest point: BNN's γ (equation 3), Earlyboost's α (12 and 25).

    Parameters
    ----------
    lowest, highest : the step is cut to this range; the risk is convex, so that is its best step in the
        range. Earlyboost assumes 0 < α < ∞: 0 is for a frame like chance, `highest` for one without an error.
    """

    lowest: float = -math.inf
    highest: float = math.inf

    def search(self, line: Line, n_steps: int, seed: int) -> np.ndarray:
        if not hasattr(line, "minimiser"):
            raise UsboostError("this loss has no closed-form step; use the step rule 'newton'")
        return np.clip(cast(ClosedFormLine, line).minimiser(), self.lowest, self.highest)


def step_rule(name: str | StepRule, **settings: object) -> StepRule:
    """Make the rule "fixed", "bayes", "newton" or "closed", with its settings; or return a rule itself.

    Raises `UsboostError` if there is no such rule or it has no such setting.
    """
    if not isinstance(name, str):
        return name
    rules: dict[str, type] = {"fixed": Fixed, "bayes": Bayes, "newton": Newton, "closed": ClosedForm}
    if name not in rules:
        raise UsboostError(f"unknown step rule {name!r}; choose one of {', '.join(rules)}")
    try:
        return rules[name](**settings)
    except TypeError as error:
        raise UsboostError(f"step rule {name!r}: {error}") from error


def shared_risk(loss: Any, f: np.ndarray, y: np.ndarray, counts: np.ndarray | None = None) -> float:
    """Return the risk of all shards' rows, from this one's."""
    given = {} if counts is None else {"counts": counts}  # a loss need not know of them
    own = loss.risk(f, y, **given) if len(y) or world().count == 1 else 0.0
    return float(world().mean(float(own), float(len(y) if counts is None else counts.sum())))


def shared_line(
    loss: Any, f: np.ndarray, y: np.ndarray, directions: list[np.ndarray], counts: np.ndarray | None = None
) -> Line:
    """Return the risk of all shards' rows along directions, from this one's."""
    given = {} if counts is None else {"counts": counts}
    if world().count == 1:
        return cast(Line, loss.line(f, y, directions, **given))
    own, n_steps = loss.line(f, y, directions, **given) if len(y) else None, len(directions)
    weight = float(len(y) if counts is None else counts.sum())
    if not getattr(loss, "polygonal", False):
        return _SharedLine(own, weight, n_steps)

    def sampled() -> ClosedFormLine:
        # of all shards' rows, or of so many of them that it makes no difference
        chosen = world().sample(len(y))
        columns = [f, y, *directions, *([] if counts is None else [counts[:, None]])]
        rows = np.concatenate(world().gather(np.hstack(columns)[chosen]))
        parts = np.hsplit(rows, np.cumsum([column.shape[1] for column in columns])[:-1])
        given = {} if counts is None else {"counts": parts.pop()[:, 0]}
        return cast(ClosedFormLine, loss.line(parts[0], parts[1], parts[2:], **given))

    return _SampledLine(own, weight, n_steps, sampled)


class _SharedLine:
    """A mean over all rows: that of the shards' lines, by what their rows weigh."""

    def __init__(self, own: Line | None, weight: float, n_steps: int) -> None:
        self._own, self._weight, self._n_steps = own, weight, n_steps

    def risk(self, steps: np.ndarray) -> float:
        return float(world().mean(0.0 if self._own is None else self._own.risk(steps), self._weight))

    def expand(self, steps: np.ndarray) -> Expansion:
        # in one sum: an exchange between processes costs its latency, not its numbers
        v = self._n_steps
        own = np.zeros(1 + v + v * v)
        if self._own is not None:
            risk, gradient, hessian = self._own.expand(steps)
            own = np.concatenate([[risk], gradient, hessian.ravel()])
        means = world().mean(own, self._weight)
        return float(means[0]), means[1 : v + 1], means[v + 1 :].reshape(v, v)

    def minimiser(self) -> np.ndarray:
        """Return the lowest point of a convex risk; of a quadratic one in a single step."""
        return Newton().search(self, self._n_steps, 0)


class _SampledLine(_SharedLine):
    """One without curvature: its lowest point is that of a sample of rows, which every process searches."""

    def __init__(
        self, own: Line | None, weight: float, n_steps: int, sampled: Callable[[], ClosedFormLine]
    ) -> None:
        super().__init__(own, weight, n_steps)
        self._sampled = sampled

    def minimiser(self) -> np.ndarray:
        line, still = self._sampled(), np.zeros(self._n_steps)
        steps = world().once(lambda: unsharded(line.minimiser))
        return steps if self.risk(steps) <= self.risk(still) else still

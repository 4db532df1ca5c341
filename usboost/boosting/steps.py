"""Step rules: how far to move along the directions that a round's weak learners give.

A rule is a small object with ``search(line, seed) -> steps``; ``line`` is the risk along the V
directions (`usboost.losses.base.Line`), ``steps`` a float64 array of shape (V,).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np

from usboost.errors import UsboostError, silenced
from usboost.losses.base import ClosedFormLine, Line


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
        from threadpoolctl import threadpool_limits

        def log_risk(steps: list[float]) -> float:
            # same minimiser; the surrogate cannot fit a risk that spans hundreds of decades
            return float(np.log(min(line.risk(np.asarray(steps)), 1e100)))

        # thirty points make tiny matrices, for which a second BLAS thread only costs
        # it warns that "the objective has been evaluated at this point before"
        with silenced(), threadpool_limits(1):
            result = gp_minimize(
                log_risk,
                [tuple(map(float, self.bounds))] * n_steps,
                n_initial_points=self.n_random,
                n_calls=self.n_random + self.n_guided,
                random_state=seed,
            )
        found, still = np.asarray(result.x, dtype=float), np.zeros(n_steps)
        return found if line.risk(found) <= line.risk(still) else still


@dataclass(frozen=True)
class Newton:
    """The exact minimiser of the convex risk along the directions, by damped Newton iterations.

    The risk is a sum of exponentials of affine functions (or a quadratic), so it is convex in the
    steps and Newton with backtracking finds its global minimum. Directions that are parallel, or
    zero, leave the Hessian singular: the pseudo-inverse then gives the shortest of the equally
    good steps.

    Parameters
    ----------
    tolerance : stop when the predicted further decrease, relative to the risk, is below this
    limit : no step is longer than this. A learner that separates the samples it errs on has no finite best
        step; the limit keeps the scores finite.
    """

    tolerance: float = 1e-10
    limit: float = 100.0
    max_iterations: int = 50

    def search(self, line: Line, n_steps: int, seed: int) -> np.ndarray:
        steps = np.zeros(n_steps)
        risk, gradient, hessian = line.expand(steps)
        for _ in range(self.max_iterations):
            direction = -np.linalg.pinv(hessian, rcond=1e-12, hermitian=True) @ gradient
            decrease = -float(gradient @ direction)
            # not `<=`: a decrease of NaN ends the search, too
            if not decrease > self.tolerance * max(abs(risk), 1e-300):
                break
            moved = self._backtrack(line, steps, direction, risk, decrease)
            if moved is None:
                break
            steps = moved
            risk, gradient, hessian = line.expand(steps)
            # as a rule the risk falls for ever that way: there is no minimum to come nearer to
            if np.abs(steps).max() >= self.limit:
                break
        return steps

    def _backtrack(
        self, line: Line, steps: np.ndarray, direction: np.ndarray, risk: float, decrease: float
    ) -> np.ndarray | None:
        scale = 1.0
        for _ in range(40):
            candidate = np.clip(steps + scale * direction, -self.limit, self.limit)
            # Armijo's rule: a share of what the gradient promises; a risk that overflowed fails it
            if line.risk(candidate) <= risk - 1e-4 * scale * decrease:
                return candidate
            scale *= 0.5
        return None


@dataclass(frozen=True)
class ClosedForm:
    """The loss's own formula for the lowest point: BNN's γ (equation 3), Earlyboost's α (12 and 25).

    Parameters
    ----------
    lowest, highest : the step is cut to this range; the risk is convex, so that is its best step in the
        range. Earlyboost assumes 0 < α < ∞: 0 is for a frame no better than chance, `highest` for one without
        an error.
    """

    lowest: float = -math.inf
    highest: float = math.inf

    def search(self, line: Line, n_steps: int, seed: int) -> np.ndarray:
        if not hasattr(line, "minimiser"):
            raise UsboostError("this loss has no closed-form step; use the step rule 'newton'")
        return np.clip(cast(ClosedFormLine, line).minimiser(), self.lowest, self.highest)


def step_rule(name: str | StepRule, **settings: object) -> StepRule:
    """The rule called `name`: "fixed", "bayes", "newton" or "closed", with its settings; or a rule itself.

    Raises
    ------
    UsboostError
        If there is no such rule or it has no such setting.
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

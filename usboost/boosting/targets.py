"""Target rules, which make what a round's learners are fitted to.

A rule is called once a round with the loss, the predictions and the labels, and answers with a
function of the current steps; the second-order methods refit inside a round as steps change.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from usboost.errors import UsboostError
from usboost.learners.base import LeafValues, Target
from usboost.losses.base import RegressionLoss
from usboost.losses.cross_entropy import SoftmaxCrossEntropy
from usboost.losses.exponential import CodewordExponential, Exponential
from usboost.losses.regression import Squared
from usboost.shards.collective import world

# steps of shape (V,) -> one target per view
TargetsAt = Callable[[np.ndarray], list[Target]]


Differentiable = CodewordExponential | SoftmaxCrossEntropy

MOST_OUTPUTS, LARGEST_METRIC = 20, 1 << 27
"""Outputs D, and values n · D², above which rows have no (D, D) metric: a split takes D³; 2²⁷ are 1 GB."""


class TargetRule(Protocol):
    # A rule may have attributes: `needs`, the methods that it asks of the loss besides `risk` and `line`, and
    # `n_inner`, the fits per round, where its targets depend on the steps.

    def targets(self, loss: Any, f: np.ndarray, y: np.ndarray, n_views: int) -> TargetsAt: ...


@dataclass(frozen=True)
class Gradient:
    """First order (2WL, US Algorithm 1): every learner is fitted to w, the negative gradient."""

    needs: ClassVar[tuple[str, ...]] = ("w",)

    def targets(self, loss: Differentiable, f: np.ndarray, y: np.ndarray, n_views: int) -> TargetsAt:
        # one object for all views, so that what is made of it later is made once, see `loop.RoundWork.target`
        target = Target(loss.w(f, y))
        return lambda steps: [target] * n_views


@dataclass(frozen=True)
class SecondOrder:
    """Second order as published (2WL2O, US Algorithm 2, equations 7 and 8).

    With steps s the learner of view v is fitted to s_v·w − (s_v²/4)·w̃ − ½ s_v (Σ_{u≠v} s_u)·w; for
    two views these are the paper's εw − (ε²/4)w̃ − (εδ/2)w and its twin. The published expansion
    replaces ⟨g, v⟩² by ‖g + v‖² and ⟨g, v⟩⟨h, v⟩ by ⟨g + h, v⟩; neither is an identity. This is what
    the paper's tables report all the same; `NewtonDirection` is the second order done exactly.
    Consequence: at ε = δ = 0.1 the target is 0.095w − 0.0025w̃, so fixed steps move about ten times
    less per round than first-order ones. The paper's inner loop "j = 0 to N₂" trains N₂ networks by
    its own count, so it runs N₂ times.
    """

    n_inner: int = 1
    needs: ClassVar[tuple[str, ...]] = ("w", "w_tilde")

    def targets(self, loss: CodewordExponential, f: np.ndarray, y: np.ndarray, n_views: int) -> TargetsAt:
        w, w_tilde = loss.w(f, y), loss.w_tilde(f, y)

        def at(steps: np.ndarray) -> list[Target]:
            others = steps.sum() - steps
            return [Target((s - 0.5 * s * t) * w - 0.25 * s**2 * w_tilde) for s, t in zip(steps, others)]

        return at


@dataclass(frozen=True)
class NewtonDirection:
    """2WL-Newton (ours): the exact Newton direction in the metric of the loss's Hessian.

    Every learner minimises Σ_i (g(x_i) − d_i)ᵀ H_i (g(x_i) − d_i), where d_i solves H_i d_i = w_i: the
    second-order expansion of the risk itself, less a constant. For the codeword loss d_i = 2(y_i − 1/M),
    whatever f is. With one output (two classes) that is weighted least squares with weight H_i: Gentle
    AdaBoost with the exponential loss, LogitBoost with cross-entropy.

    With more than `MOST_OUTPUTS` outputs, or `LARGEST_METRIC` values, the diagonal of H_i stands for it, as
    in LightGBM and XGBoost; of a loss without ``hessian_diagonal(f, y)`` it is `Gradient`.
    """

    needs: ClassVar[tuple[str, ...]] = ("w", "hessian")

    def targets(self, loss: Differentiable, f: np.ndarray, y: np.ndarray, n_views: int) -> TargetsAt:
        d, n = loss.n_outputs, world().highest(len(y))
        if 1 < d <= MOST_OUTPUTS and n * d**2 <= LARGEST_METRIC:
            target = Target(loss.newton_direction(f, y), metric=loss.hessian(f, y))
        elif d > 1 and not hasattr(loss, "hessian_diagonal"):
            return Gradient().targets(loss, f, y, n_views)
        else:
            hessian = loss.hessian(f, y) if d == 1 else loss.hessian_diagonal(f, y)
            # that of a sample that is all but certain underflows to 0, and is divided by
            hessian = np.maximum(hessian.reshape(-1, d), 1e-12 * world().highest(hessian.max(initial=0.0)))
            values = loss.w(f, y) / hessian
            target = Target(values, hessian) if d == 1 else Target(values, metric=hessian)
        return lambda steps: [target] * n_views


@dataclass(frozen=True)
class NewtonTarget:
    """BNN's general form: every learner is fitted to −(∇²L_i)⁻¹∇L_i.

    For the squared loss this is the residual y − f.

    Parameters
    ----------
    weighted : whether a sample counts by the curvature of its loss along its target, as in the expansion (7)
        that the target minimises (ours), or all count the same (the paper's, and the same thing for the
        squared loss). Without, badly predicted samples have targets without bound and decide the fit.
    """

    weighted: bool = True

    def targets(
        self, loss: Squared | SoftmaxCrossEntropy, f: np.ndarray, y: np.ndarray, n_views: int
    ) -> TargetsAt:
        values = loss.newton_target(f, y)
        weights = loss.curvature(values, f, y) if self.weighted else None
        if weights is not None:  # positive, so that their mean is
            highest = world().highest(float(weights.max(initial=0.0)))
            weights = np.maximum(weights, max(1e-12 * highest, np.finfo(float).tiny))
        target = Target(values, weights)
        return lambda steps: [target] * n_views


@dataclass(frozen=True)
class PseudoResidual:
    """Regression: every learner is fitted to the loss's pseudo-residuals of y − f (Friedman 2001).

    They are y − f itself for the squared loss, and for it that is the Newton direction, too. Where the loss
    wants other leaves than their means, trees are given what it wants: LAD_TreeBoost's medians.
    """

    def targets(self, loss: RegressionLoss, f: np.ndarray, y: np.ndarray, n_views: int) -> TargetsAt:
        residual = y - f
        leaves = LeafValues(residual[:, 0], loss.constants) if loss.refits_leaves else None
        target = Target(loss.pseudo_residual(residual), leaf_values=leaves)
        return lambda steps: [target] * n_views


@dataclass(frozen=True)
class WeightedSigns:
    """Earlyboost: the signs y themselves with the weights D (EB equations 9 and 19)."""

    def targets(self, loss: Exponential, f: np.ndarray, y: np.ndarray, n_views: int) -> TargetsAt:
        target = Target(y, loss.weights(f, y))
        return lambda steps: [target] * n_views


def check_target(rule: TargetRule, loss: Any) -> None:
    """Refuse a loss that has not what a target rule asks of it; the `UsboostError` names what it lacks."""
    for name in getattr(rule, "needs", ()):
        if not hasattr(loss, name):
            raise UsboostError(
                f"the target rule {type(rule).__name__} needs {name}(f, y) of the loss, which "
                f"{type(loss).__name__} does not have; choose another target"
            )


def target_rule(name: str, n_inner: int = 1) -> TargetRule:
    """Make the rule called `name`: "gradient" (2WL), "second_order" (2WL2O) or "newton" (2WL-Newton)."""
    rules: dict[str, TargetRule]
    rules = {"gradient": Gradient(), "second_order": SecondOrder(n_inner), "newton": NewtonDirection()}
    if name not in rules:
        raise UsboostError(f"there is no target rule {name!r}; choose one of {', '.join(rules)}")
    return rules[name]

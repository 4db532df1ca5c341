"""The losses of regression by name."""

from __future__ import annotations

import numpy as np

from usboost.errors import UsboostError
from usboost.losses.base import RegressionLoss
from usboost.losses.huber import Huber
from usboost.losses.piecewise_linear import PiecewiseLinear
from usboost.losses.squared import Squared

REGRESSION_LOSSES = ("squared", "absolute", "huber", "quantile")


def check_loss_name(name: str) -> None:
    """Refuse a name that is none of `REGRESSION_LOSSES`.

    Raises
    ------
    UsboostError
        Listing them.
    """
    if name not in REGRESSION_LOSSES:
        raise UsboostError(f"unknown loss {name!r}; choose one of {', '.join(REGRESSION_LOSSES)}")


def regression_loss(name: str, *, quantile: float = 0.5, delta: float = 1.0) -> RegressionLoss:
    """The loss called `name`.

    Parameters
    ----------
    quantile : the level of "quantile"
    delta : where "huber" goes over from squared to absolute, in the units of y

    Raises
    ------
    UsboostError
        If there is no such loss, or its parameter is out of range.
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
    """f⁰, the constant of the lowest risk on targets (n,): mean, median, quantile or Huber's location."""
    return float(loss.constants(y, np.zeros(len(y), dtype=np.int64), 1, counts)[0])

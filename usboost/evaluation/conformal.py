"""Intervals of a predicted number from rows that its model did not see (split conformal prediction)."""

from __future__ import annotations

import numpy as np

from usboost.evaluation.weighted import worth

COVERED = 0.9
"""Share of rows that an interval of a predicted number is to hold."""


def margin_of(residuals: np.ndarray, weights: np.ndarray | None = None) -> tuple[float, float]:
    """What to add to predictions for the ends of an interval that holds `COVERED` of new rows.

    Quantiles of the residuals of rows that were not fitted to, with the finite-sample correction of split
    conformal prediction; as the same rows stopped the fit, new rows may be held a little less often.

    Parameters
    ----------
    residuals : true minus predicted, float64 (n,).
    weights : float64 (n,), positive, of whatever scale; by default equal. The correction is that of as many
        rows as they are worth (`usboost.evaluation.weighted.worth`).
    """
    order, tail = np.argsort(residuals, kind="stable"), (1 - COVERED) / 2
    weights = np.ones(len(order)) if weights is None else weights
    held = np.cumsum(weights[order] * (worth(weights) / weights.sum()))
    k = np.floor(tail * (held[-1] + 1) + 1e-9)  # 0.05 · 20 is a little less than 1
    # the k-th smallest and the k-th largest; of fewer than 1/tail − 1 rows, k = 0, all that there is
    at = np.searchsorted(held, np.array([max(k, 1), held[-1] - k + 1]) - 1e-9)
    low, high = residuals[order[np.minimum(at, len(order) - 1)]]
    return float(low), float(high)

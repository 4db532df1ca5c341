"""What a page shows of a predicted number beside its scores: figures, and what its intervals hold."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import binomtest

from usboost.evaluation.names import number
from usboost.reporting.inspection import model_figures
from usboost.reporting.inspection.model_figures import as_uri


def of_numbers(
    true: np.ndarray, predicted: np.ndarray, margin: tuple[float, float] | None, label: str
) -> dict[str, Any]:
    """Figures of predicted against true and of residuals, the mean residual, and `coverage`.

    Parameters
    ----------
    true, predicted : float64 of shape (n,).
    margin : what is added to a prediction for the ends of its interval; None: there are none.
    label : what is predicted.
    """
    return {
        "predicted": as_uri(model_figures.predicted_against_true(true, predicted, label)),
        "residuals": as_uri(model_figures.residuals(true, predicted, margin, label)),
        "bias": number(float((true - predicted).mean())),
        "points": min(model_figures.POINTS, len(true)),
        "coverage": None if margin is None else coverage(true, predicted, margin),
    }


def coverage(true: np.ndarray, predicted: np.ndarray, margin: tuple[float, float]) -> dict[str, str]:
    """How many rows are inside their interval, and its width."""
    low, high = (predicted + end for end in margin)
    inside = int(((low <= true) & (true <= high)).sum())
    least, most = binomtest(inside, len(true)).proportion_ci(0.95, method="wilson")
    return {
        "share": f"{inside / len(true):.1%}",
        "least": f"{least:.1%}",
        "most": f"{most:.1%}",
        "width": number(float((high - low).mean())),
        "below": number(-margin[0]),
        "above": number(margin[1]),
        "spread": number(float(true.std())),
    }

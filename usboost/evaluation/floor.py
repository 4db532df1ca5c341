"""The end of numbers that are never below 0, as prices and counts are not."""

from __future__ import annotations

import numpy as np

NEAR = 0.05
"""Of the median: numbers that come nearer to 0 than that, and never below it, have it as their end."""


def floor_of(labels: np.ndarray) -> float | None:
    """0 for numbers such as prices and counts, none of which is below it though some are near; else None.

    Parameters
    ----------
    labels : of the training rows, float64 (n,).
    """
    return 0.0 if 0 <= labels.min() <= NEAR * np.median(labels) else None


def clip_lower(predicted: np.ndarray, floor: float | None) -> np.ndarray:
    """The predictions (n,), none below the floor."""
    return predicted if floor is None else np.maximum(predicted, floor)

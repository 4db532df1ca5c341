"""Which of several fits is the best: their validation rows choose, so that test rows can report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TypeVar

from usboost.evaluation.names import LOWER_IS_BETTER

T = TypeVar("T")

TIE_BREAKER = "log_loss"


def best(fits: Iterable[tuple[T, Mapping[str, float | None]]], metric: str) -> T | None:
    """The fit with the best validation score; None if none has one.

    Of fits that are level, as happens on few rows, the one with the lower log-loss is taken, then the first.

    Parameters
    ----------
    fits : (anything, its scores on the validation rows by metric)
    metric : one of `names.METRICS`
    """
    ranked = [(fit, rank(scores, metric)) for fit, scores in fits if _known(scores.get(metric))]
    return max(ranked, key=lambda each: each[1])[0] if ranked else None


def rank(scores: Mapping[str, float | None], metric: str) -> tuple[float, float]:
    """What validation scores are compared by; greater is better."""
    return _signed(scores, metric), _signed(scores, TIE_BREAKER)


def _signed(scores: Mapping[str, float | None], metric: str) -> float:
    value = scores.get(metric)
    if not _known(value):
        return -math.inf
    return -float(value) if metric in LOWER_IS_BETTER else float(value)  # type: ignore[arg-type]


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)

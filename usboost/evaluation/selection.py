"""Which of several fits is the best: their validation rows choose, so that test rows can report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from usboost.evaluation.names import LOWER_IS_BETTER, metric_name, number

T = TypeVar("T")

Scores = Mapping[str, float | None]

TIE_BREAKER = "log_loss"

_DIGITS = 12  # sums of the same numbers in another order differ beyond


def best(fits: Iterable[tuple[T, Scores]], metric: str) -> T | None:
    """The fit with the best validation score; None if none has one.

    Of fits that are level, as happens on few rows, the one with the lower log-loss is taken, then the first.

    Parameters
    ----------
    fits : (anything, its scores on the validation rows by metric)
    metric : one of `names.METRICS`
    """
    ranked = [(fit, rank(scores, metric)) for fit, scores in fits if _known(scores.get(metric))]
    return max(ranked, key=lambda each: each[1])[0] if ranked else None


def tied(fits: Iterable[tuple[T, Scores]], metric: str) -> list[T]:
    """The fits that are level with the best one before the log-loss decides, in their order."""
    ranked = [(fit, _signed(scores, metric)) for fit, scores in fits if _known(scores.get(metric))]
    top = max((score for _, score in ranked), default=0.0)
    return [fit for fit, score in ranked if score == top]


def tie_note(models: int, metric: str, value: float) -> str:
    """A sentence on how many models are level with the best one; empty where none is."""
    if models < 2:
        return ""
    decides = "" if metric == TIE_BREAKER else "; the lowest validation log-loss breaks the tie"
    return f"{models} models tie at validation {metric_name(metric)} {number(value)}{decides}."


def prior_log_loss(card: Mapping[str, Any], split: str) -> float | None:
    """The log-loss, in nats, of the training rows' class shares as the answer for every row of a split.

    Parameters
    ----------
    card : of a prepared dataset; None is returned where it has no counts of classes, or the training rows
        lack one.
    """
    try:
        train, rows = (card["splits"][name]["classes"] for name in ("train", split))
        total, n_rows = sum(train.values()), sum(rows.values())
        return -sum(n / n_rows * math.log(train[name] / total) for name, n in rows.items() if n)
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
        return None


def worse_than_prior(log_loss: float, prior: float) -> bool:
    """Whether a log-loss is above the prior's, by more than rounding."""
    return log_loss > prior + 1e-9


def probability_note(val: Scores, test: Scores, card: Mapping[str, Any]) -> str:
    """A sentence on a model whose probabilities are worse than the prior's; empty for any other.

    Parameters
    ----------
    val, test : the model's scores by metric; card : of the prepared dataset
    """
    worse = []
    for scores, split, name in ((val, "val", "validation"), (test, "test", "test")):
        mine, prior = scores.get(TIE_BREAKER), prior_log_loss(card, split)
        if mine is not None and prior is not None and worse_than_prior(mine, prior):
            worse.append(f"{number(mine)} against {number(prior)} on the {name} split")
    return f"Its probabilities are worse than the prior’s: log-loss {', '.join(worse)}." if worse else ""


def rank(scores: Scores, metric: str) -> tuple[float, float]:
    """What validation scores are compared by; greater is better."""
    return _signed(scores, metric), _signed(scores, TIE_BREAKER)


def _signed(scores: Scores, metric: str) -> float:
    value = scores.get(metric)
    if value is None or not math.isfinite(value):
        return -math.inf
    return round(-value if metric in LOWER_IS_BETTER else value, _DIGITS)


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)

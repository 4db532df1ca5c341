"""Printed names of scores; imports next to nothing, so that help is quick."""

from __future__ import annotations

from collections.abc import Sequence

from usboost.errors import UsboostError

NAMES = {
    "accuracy": "accuracy",
    "f1": "F1",
    "f1_tuned": "F1 tuned",
    "auc": "AUC",
    "log_loss": "log-loss",
    "early_accuracy": "accuracy when decided",
    "earliness": "earliness",
    "harmonic_mean": "harmonic mean",
}
"""Every score; the tuned F1 is that at the threshold that is best on the validation rows."""

METRICS = ("accuracy", "f1", "auc", "log_loss")
"""What `metrics.score` gives of any classifier, in the order of a table."""

LOWER_IS_BETTER = frozenset({"log_loss"})


def metric_name(metric: str) -> str:
    """The name a table prints; an unknown score is shown as it is."""
    return NAMES.get(metric, metric)


def check_metric(metric: str) -> None:
    """Refuse an unknown score.

    Raises
    ------
    UsboostError
        Listing the known ones.
    """
    if metric not in METRICS:
        raise UsboostError(f"unknown score {metric!r}; choose among {', '.join(METRICS)}")


def f1_of(classes: Sequence[str]) -> str:
    """Which F1 `metrics.f1` gives, in words."""
    return f"that of {classes[1]!r}" if len(classes) == 2 else "the mean over the classes"

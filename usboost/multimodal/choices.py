"""What can be chosen on the command line; imports next to nothing, so that help is quick."""

from __future__ import annotations

from collections.abc import Sequence

METRICS = {"accuracy": "accuracy", "f1": "F1", "auc": "AUC", "log_loss": "log-loss"}
"""Scores by key, with their names."""


def f1_of(classes: Sequence[str]) -> str:
    """Which F1 `usboost.evaluation.metrics` gives, in words."""
    return f"that of {classes[1]!r}" if len(classes) == 2 else "the mean over the classes"

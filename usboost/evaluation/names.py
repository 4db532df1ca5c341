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
    "rmse": "RMSE",
    "mae": "MAE",
    "r2": "R²",
    "pinball": "pinball loss",
    "pr_auc": "PR-AUC",
    "balanced_accuracy": "balanced accuracy",
    "answer_f1": "F1 at the threshold",
    "answer_accuracy": "accuracy at the threshold",
    "early_accuracy": "accuracy when decided",
    "earliness": "earliness",
    "harmonic_mean": "harmonic mean",
}
"""Every score; the tuned F1 is that at the threshold that is best on the validation rows."""

METRICS = ("accuracy", "f1", "auc", "log_loss")
"""What `metrics.score` gives of any classifier, in the order of a table."""

REGRESSION_METRICS = ("rmse", "mae", "r2")
"""What `metrics.score_regression` gives of any regressor, in the order of a table."""

ANSWER_METRICS = ("pr_auc", "balanced_accuracy", "answer_f1", "answer_accuracy")
"""What `metrics.score_answers` gives of two classes; the last three depend on the threshold."""

METRICS_OF = {"classification": METRICS, "regression": REGRESSION_METRICS}
"""The scores of each task; the pinball loss is asked for beside them, since it needs a quantile."""

LOWER_IS_BETTER = frozenset({"log_loss", "rmse", "mae", "pinball"})


def metric_name(metric: str) -> str:
    """The name a table prints; an unknown score is shown as it is."""
    return NAMES.get(metric, metric)


def task_of(metric: str) -> str | None:
    """The task that a score is of, a key of `METRICS_OF`; None of one that is of none."""
    return next((task for task, metrics in METRICS_OF.items() if metric in metrics), None)


def check_metric(metric: str, task: str = "classification") -> None:
    """Refuse a score that is none of a task's, a key of `METRICS_OF`.

    Raises
    ------
    UsboostError
        Listing the known ones.
    """
    known = METRICS_OF[task]
    if metric not in known:
        raise UsboostError(f"unknown score {metric!r}; choose among {', '.join(known)}")


def f1_of(classes: Sequence[str]) -> str:
    """Which F1 `metrics.f1` gives, in words."""
    return f"that of {classes[1]!r}" if len(classes) == 2 else "the mean over the classes"


def number(value: float) -> str:
    """A score: four digits after the point, or four in all where it has a unit and is large."""
    size = abs(value)
    shown = f"{value:.4f}" if size < 100 else f"{value:,.0f}" if size >= 10_000 else f"{value:,.1f}"
    return shown.replace("-", "−")

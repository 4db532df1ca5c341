"""Printed names of scores; imports next to nothing, so that help is quick."""

from __future__ import annotations

from collections.abc import Sequence

from usboost.errors import UsboostError, choices

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
    "precision": "precision",
    "recall": "recall",
    "precision_macro": "macro precision",
    "recall_macro": "macro recall",
    "f1_macro": "macro F1",
    "precision_weighted": "weighted precision",
    "recall_weighted": "weighted recall",
    "f1_weighted": "weighted F1",
    "mcc": "Matthews correlation",
    "brier": "Brier score",
    "mse": "MSE",
    "median_ae": "median absolute error",
    "mape": "MAPE",
    "max_error": "largest error",
    "explained_variance": "explained variance",
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

EXTRA_METRICS = (
    *("balanced_accuracy", "pr_auc", "precision", "recall", "precision_macro", "recall_macro", "f1_macro"),
    *("precision_weighted", "recall_weighted", "f1_weighted", "mcc", "brier"),
)
"""What `metrics.extra_metrics` gives of any classifier, beside `METRICS`."""

EXTRA_REGRESSION_METRICS = ("mse", "median_ae", "mape", "max_error", "explained_variance")
"""What `metrics.extra_regression_metrics` gives of any regressor, beside `REGRESSION_METRICS`."""

RANKING = {
    "classification": (*METRICS, *EXTRA_METRICS),
    "regression": (*REGRESSION_METRICS, *EXTRA_REGRESSION_METRICS),
}
"""The scores of each task that models can be ranked by."""

SCIKIT = {
    "average_precision": "pr_auc",
    "roc_auc": "auc",
    "roc_auc_ovr": "auc",
    "neg_log_loss": "log_loss",
    "neg_brier_score": "brier",
    "matthews_corrcoef": "mcc",
    **dict.fromkeys(("f1_micro", "precision_micro", "recall_micro"), "accuracy"),
    "neg_root_mean_squared_error": "rmse",
    "neg_mean_squared_error": "mse",
    "neg_mean_absolute_error": "mae",
    "neg_median_absolute_error": "median_ae",
    "neg_mean_absolute_percentage_error": "mape",
    "neg_max_error": "max_error",
}
"""Our names of scikit-learn's scorers, where they differ."""

LOWER_IS_BETTER = frozenset(
    {"log_loss", "rmse", "mae", "pinball", "brier", "mse", "median_ae", "mape", "max_error"}
)


def metric_name(metric: str) -> str:
    """The name a table prints; an unknown score is shown as it is."""
    return NAMES.get(metric, metric)


def check_metric(metric: str, known: Sequence[str] = METRICS) -> str:
    """Our name of a score that is given by it, or by scikit-learn's.

    Raises UsboostError if it is none of these; listing them. `known`: our names of those that may be given.
    """
    found = SCIKIT.get(metric, metric)
    if found not in known:
        raise UsboostError(f"unknown score {metric!r}; {choices(metric, known)}")
    return found


def f1_of(classes: Sequence[str]) -> str:
    """Which F1 `metrics.f1` gives, in words."""
    return f"that of {classes[1]!r}" if len(classes) == 2 else "the mean over the classes"


def number(value: float) -> str:
    """A score: four digits after the point, or four in all where it has a unit and is large."""
    size = abs(value)
    shown = f"{value:.4f}" if size < 100 else f"{value:,.0f}" if size >= 10_000 else f"{value:,.1f}"
    return shown.replace("-", "−")


def number_of_label(value: float) -> str:
    """A number that was given: a whole one without digits after the point, any other as a score."""
    return f"{value:,.0f}".replace("-", "−") if float(value).is_integer() else number(value)

"""Names of scores, and the best of several fits by their validation scores; imports next to nothing."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

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
"""Scores by `metrics.score` of any classifier, in the order of a table."""

REGRESSION_METRICS = ("rmse", "mae", "r2")
"""Scores by `metrics.score_regression` of any regressor, in the order of a table."""

ANSWER_METRICS = ("pr_auc", "balanced_accuracy", "answer_f1", "answer_accuracy")
"""Scores by `metrics.score_answers` of two classes; the last three depend on the threshold."""

METRICS_OF = {"classification": METRICS, "regression": REGRESSION_METRICS}
"""The scores of each task."""

EXTRA_METRICS = (
    *("balanced_accuracy", "pr_auc", "precision", "recall", "precision_macro", "recall_macro", "f1_macro"),
    *("precision_weighted", "recall_weighted", "f1_weighted", "mcc", "brier"),
)
"""Scores by `metrics.extra_metrics` of any classifier, besides `METRICS`."""

EXTRA_REGRESSION_METRICS = ("mse", "median_ae", "mape", "max_error", "explained_variance")
"""Scores by `metrics.extra_regression_metrics` of any regressor, besides `REGRESSION_METRICS`."""

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

LOWER_IS_BETTER = frozenset({"log_loss", "rmse", "mae", "brier", "mse", "median_ae", "mape", "max_error"})


def metric_name(metric: str) -> str:
    """Return the name a table prints; an unknown score is shown as it is."""
    return NAMES.get(metric, metric)


def check_metric(metric: str, known: Sequence[str] = METRICS) -> str:
    """Return our name of a score that is given by it, or by scikit-learn's.

    Raises `UsboostError` if it is none of `known`; listing them.
    """
    name = SCIKIT.get(metric, metric)
    if name not in known:
        raise UsboostError(f"unknown score {metric!r}; {choices(metric, known)}")
    return name


def f1_of(classes: Sequence[str]) -> str:
    """Say which F1 `metrics.f1` gives, in words."""
    return f"that of {classes[1]!r}" if len(classes) == 2 else "the mean over the classes"


def joined_names(names: Iterable[str]) -> str:
    """Join names in a sentence: "a, b and c"."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def number(value: float) -> str:
    """Write a score: four digits after the point, four in all where it is large, three where it is tiny."""
    size = abs(value)
    shown = f"{value:.4f}" if size < 100 else f"{value:,.0f}" if size >= 10_000 else f"{value:,.1f}"
    shown = f"{value:.3g}" if 1e-12 < size < 0.001 else shown  # below is rounding
    return shown.replace("-", "−", int(value < 0))


def number_of_label(value: float) -> str:
    """Write a number that was given: a whole one without digits after the point, any other as a score."""
    return f"{value:,.0f}".replace("-", "−") if float(value).is_integer() else number(value)


T = TypeVar("T")

Scores = Mapping[str, float | None]

TIE_BREAKER = "log_loss"

_DIGITS = 12  # sums of the same numbers in another order differ beyond


def best(fits: Iterable[tuple[T, Scores]], metric: str) -> T | None:
    """Return the fit with the best validation score; None if none has one.

    Of fits that are level, as happens on few rows, the one with the lower log-loss is taken, then the first.
    `fits` are of anything, and its scores on the validation rows by metric.
    """
    ranked = [(fit, rank(scores, metric)) for fit, scores in fits]
    top = max(ranked, key=lambda each: each[1], default=None)
    return top[0] if top and top[1][0] > -math.inf else None


def tied(fits: Iterable[tuple[T, Scores]], metric: str) -> list[T]:
    """Return the fits that are level with the best one before the log-loss decides, in their order."""
    ranked = [(fit, rank(scores, metric)[0]) for fit, scores in fits]
    top = max((score for _, score in ranked), default=0.0)
    return [fit for fit, score in ranked if score == top > -math.inf]


def tie_note(models: int, metric: str, value: float) -> str:
    """Return a sentence on how many models are level with the best one; empty where none is."""
    if models < 2:
        return ""
    decides = "" if metric == TIE_BREAKER else "; the lowest validation log-loss breaks the tie"
    return f"{models} models tie at validation {metric_name(metric)} {number(value)}{decides}."


def prior_log_loss(card: Mapping[str, Any], split: str) -> float | None:
    """Return the log-loss, in nats, of the training rows' class shares as the answer for each row.

    None where the card of the prepared dataset has no counts of classes, or the training rows lack one.
    """
    try:
        train, rows = (card["splits"][name]["classes"] for name in ("train", split))
        total, n_rows = sum(train.values()), sum(rows.values())
        return -sum(n / n_rows * math.log(train[name] / total) for name, n in rows.items() if n)
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
        return None


def worse_than_prior(log_loss: float, prior: float) -> bool:
    """Return whether a log-loss is above the prior's, by more than rounding."""
    return log_loss > prior + 1e-9


def probability_note(val: Scores, test: Scores, card: Mapping[str, Any]) -> str:
    """Return a sentence on a model whose probabilities are worse than the prior's; empty for any other."""
    worse = []
    for scores, split, name in ((val, "val", "validation"), (test, "test", "test")):
        mine, prior = scores.get(TIE_BREAKER), prior_log_loss(card, split)
        if mine is not None and prior is not None and worse_than_prior(mine, prior):
            worse.append(f"{number(mine)} against {number(prior)} on the {name} split")
    return f"Its probabilities are worse than the prior’s: log-loss {', '.join(worse)}." if worse else ""


def rank(scores: Scores, metric: str) -> tuple[float, float]:
    """Return what validation scores are compared by, `metric` and then the log-loss; greater is better."""

    def signed(name: str) -> float:
        value = scores.get(name)
        if value is None or not math.isfinite(value):
            return -math.inf
        return round(-value if name in LOWER_IS_BETTER else value, _DIGITS)

    return signed(metric), signed(TIE_BREAKER)

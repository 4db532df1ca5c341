"""Score Earlyboost with its trigger; apart, since other fits do not depend on it."""

from typing import Any

import numpy as np

from tasks.settings import Settings
from usboost.models.methods.early_trigger import EarlyTrigger
from usboost.models.methods.earlyboost import EarlyBoostClassifier


def add_early(
    estimator: EarlyBoostClassifier, settings: Settings, splits: dict[str, Any], scores: dict[str, Any]
) -> None:
    """Add the trigger's figures to the scores, and each split's accuracy at every t to the history.

    "earliness" is the mean share of a sequence read before deciding, "early_accuracy" the accuracy of
    those decisions, "harmonic_mean" that of the accuracy and 1 − earliness.
    """
    chosen = settings.earlyboost
    trigger = EarlyTrigger(threshold=chosen.threshold, by=chosen.trigger).use(estimator)
    for split in scores:
        views, y = splits[split]
        mean, accuracy, earliness = trigger.figures(views, estimator.classes_[y])
        scores[split] |= {"harmonic_mean": mean, "early_accuracy": accuracy, "earliness": earliness}
        for row, predicted in zip(estimator.history_, estimator.staged_predict(views), strict=True):
            row[f"accuracy_{split}"] = float(np.mean(predicted == estimator.classes_[y]))

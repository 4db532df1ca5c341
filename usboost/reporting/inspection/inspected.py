"""What an inspection of a fitted model holds, of classes or of a number, and its figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from usboost.evaluation.names import number
from usboost.models.inspection.inspect import expected_calibration_error
from usboost.reporting.inspection import figures

Figures = dict[str, Callable[[], Figure]]
"""What draws each figure that can be drawn, by name."""

TITLES = {
    "contributions": "Contribution of each view",
    "importance": "Permutation importance of each view",
    "calibration": "Calibration",
    "confusion": "Confusion matrix",
    "predicted": "Predicted against true",
    "residuals": "Residuals",
}

_OF_VIEWS = {
    "contributions": ("round", "view", "contribution"),
    "importance": ("view", "metric", "mean", "std"),
}


@dataclass(frozen=True)
class OfViews:
    """What a model makes of its views; both are empty where it has a single one.

    Attributes
    ----------
    contributions, importance : as `usboost.models.inspection.inspect` gives them
    """

    contributions: pd.DataFrame
    importance: pd.DataFrame

    @property
    def figures(self) -> Figures:
        found: Figures = {}
        if not self.contributions.empty:
            found["contributions"] = lambda: figures.contributions(
                self.contributions, TITLES["contributions"]
            )
        if not self.importance.empty:
            found["importance"] = lambda: figures.importance(self.importance, TITLES["importance"])
        return found


@dataclass(frozen=True)
class Inspection(OfViews):
    """One fitted classifier on one set of samples.

    Attributes
    ----------
    classes : names
    confusion : counts (M, M), a row a true class
    calibration, worst : as `usboost.models.inspection.inspect` gives them
    """

    classes: list[str]
    confusion: np.ndarray
    calibration: pd.DataFrame
    worst: pd.DataFrame

    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **_OF_VIEWS,
        "calibration": ("low", "high", "count", "predicted", "observed", "observed_low", "observed_high"),
        "worst": ("row", "true", "predicted", "p_true", "p_predicted"),
    }
    """Those that are kept as CSV, with their columns; the confusion matrix is another."""

    @property
    def document(self) -> dict[str, Any]:
        return {"classes": self.classes}

    @property
    def figures(self) -> Figures:
        error = expected_calibration_error(self.calibration)
        of_calibration = f"{TITLES['calibration']} (expected error {error:.3f})"
        found = {
            **super().figures,
            "calibration": lambda: figures.calibration(self.calibration, of_calibration),
            "confusion": lambda: figures.confusion(self.confusion, self.classes, TITLES["confusion"]),
        }
        if len(self.classes) > figures.MOST_CLASSES:
            del found["confusion"]
        return found

    def said(self, row: Any) -> dict[str, str]:
        """A row of `worst` in words."""
        return {
            "true": self.classes[int(row.true)],
            "predicted": self.classes[int(row.predicted)],
            "p_true": f"{row.p_true:.3f}",
            "p_predicted": f"{row.p_predicted:.3f}",
        }


@dataclass(frozen=True)
class NumberInspection(OfViews):
    """One fitted regressor on one set of samples.

    Attributes
    ----------
    label : what is predicted
    predicted : "row", "true" and "predicted" of the samples, or of as many as a figure shows
    worst : the like of those with the largest errors, the largest first
    """

    label: str
    predicted: pd.DataFrame
    worst: pd.DataFrame

    tables: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **_OF_VIEWS,
        "predicted": ("row", "true", "predicted"),
        "worst": ("row", "true", "predicted"),
    }

    @property
    def document(self) -> dict[str, Any]:
        return {"task": "regression", "label": self.label}

    @property
    def figures(self) -> Figures:
        true, predicted = (self.predicted[name].to_numpy() for name in ("true", "predicted"))
        return {
            **super().figures,
            "predicted": lambda: figures.predicted_against_true(true, predicted, self.label),
            "residuals": lambda: figures.residuals(true, predicted, None, self.label),
        }

    def said(self, row: Any) -> dict[str, str]:
        """A row of `worst` in words."""
        error = row.predicted - row.true
        return {
            "true": number(row.true),
            "predicted": number(row.predicted),
            "p_true": "",
            "p_predicted": ("+" if error >= 0 else "−") + number(abs(error)),
        }

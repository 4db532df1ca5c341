"""A linear model that boosting starts from, without the optional views that do it harm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from usboost.data.related import Related
from usboost.data.views import Views
from usboost.evaluation.weighted import error_of_mean, mean


@dataclass(frozen=True)
class LinearStart:
    """A fitted start.

    Attributes
    ----------
    model : the linear model
    scores : its scores of the training rows, each by a fit without the row, or without its fold: float64
        (n, M), centred, of classes, and (n, 1) of a regression
    left_out : views that it does not read, because they did harm on rows that were not fitted to
    """

    model: Any
    scores: np.ndarray
    left_out: tuple[str, ...] = ()


def fit_start(
    settings: Any,
    optional: Sequence[str],
    views: Views,
    y: np.ndarray,
    fit: Callable[[Any], None],
    weights: np.ndarray | None = None,
    related: Related | None = None,
) -> LinearStart:
    """Fit it with all its views, and without those that are optional.

    They are left out if, on scores without the row, the training rows' mean loss is higher with them by
    more than its standard error (of the difference, row by row). Views that say nothing do that much harm
    through their hundreds of columns; of few rows, views that help cannot show it so clearly.

    Parameters
    ----------
    settings : the model, unfitted, a `LinearBaseline` or `RidgeBaseline`
    optional : names of views, of those that it reads
    views, y : of the n training rows; y as the model takes it
    fit : fits such a model to these rows
    weights : float64 (n,), positive, of the rows; None for 1
    related : how the rows are related: then a row's score is of a fit without its group or stretch of time
    """

    def fitted(names: Sequence[str]) -> tuple[Any, np.ndarray]:
        model = clone(settings).set_params(views=tuple(names))
        fit(model)
        return model, model.out_of_fold(views, y, weights, related)

    names = tuple(settings.views)
    model, scores = fitted(names)
    fewer = tuple(name for name in names if name not in optional)
    if not fewer or fewer == names:
        return LinearStart(model, scores)
    without, other = fitted(fewer)
    gains = without.losses(other, y) - model.losses(scores, y)
    if mean(gains, weights) >= -error_of_mean(gains, weights):
        return LinearStart(model, scores)
    return LinearStart(without, other, tuple(name for name in names if name in optional))

"""A linear model that boosting starts from; views that may not help have to show that they do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from usboost.data.views import Views
from usboost.models.linear import LinearBaseline


@dataclass(frozen=True)
class LinearStart:
    """A fitted start.

    Attributes
    ----------
    model : the linear model
    scores : its centred scores of the training rows, each by a fit without the row's fold, float64 (n, M)
    left_out : views that it does not read, because they did not help on rows that were not fitted to
    """

    model: LinearBaseline
    scores: np.ndarray
    left_out: tuple[str, ...] = ()


def fit_start(
    settings: LinearBaseline,
    optional: Sequence[str],
    views: Views,
    codes: np.ndarray,
    n_classes: int,
    validation: Any,
) -> LinearStart:
    """Fit it with all its views, and without those that are optional.

    They are read if, out of fold, the training rows' mean log-loss is lower with them by more than its
    standard error (of the difference, row by row).

    Parameters
    ----------
    settings : the model, unfitted
    optional : names of views, of those that it reads
    views, codes : of the n training rows; classes 0..M−1
    validation : the same of others, on which the penalty is chosen, or None
    """

    def fitted(names: Sequence[str]) -> tuple[LinearBaseline, np.ndarray]:
        model = clone(settings).set_params(views=tuple(names))
        model.fit_codes(views, codes, n_classes, validation)
        return model, model.out_of_fold(views, codes)

    names = tuple(settings.views)
    model, scores = fitted(names)
    fewer = tuple(name for name in names if name not in optional)
    if not fewer or fewer == names:
        return LinearStart(model, scores)
    without, other = fitted(fewer)
    gains = without.log_losses(other, codes) - model.log_losses(scores, codes)
    if gains.mean() > gains.std(ddof=1) / np.sqrt(len(gains)):
        return LinearStart(model, scores)
    return LinearStart(without, other, tuple(name for name in names if name in optional))

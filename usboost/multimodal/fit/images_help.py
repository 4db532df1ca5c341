"""Whether a model's images help it."""

from __future__ import annotations

from typing import Any

import numpy as np

from usboost.data.views import Views
from usboost.evaluation.metrics import row_losses
from usboost.evaluation.task import Task
from usboost.evaluation.weighted import error_of_mean, mean


def images_help(
    model: Any,
    task: Task,
    views: Views,
    labels: np.ndarray,
    predicted: np.ndarray,
    weights: np.ndarray | None,
) -> bool:
    """Whether rows are predicted better with their own images than with those of others.

    By more than the standard error of the mean gain.

    Parameters
    ----------
    views, labels, weights : of rows that the model was not fitted to.
    predicted : by the model for these views.
    """
    # one cycle through all rows, so that none keeps its own
    cycle = np.random.default_rng(0).permutation(len(labels))
    order = np.empty_like(cycle)
    order[cycle] = np.roll(cycle, 1)
    for name in views.names:
        if name != "S":
            views = views.with_view(name, views[name][order])
    gains = row_losses(labels, task.predict(model, views)) - row_losses(labels, predicted)
    return mean(gains, weights) > error_of_mean(gains, weights)

"""Permutation importance: how much worse a score gets when columns are shuffled among the rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np
import pandas as pd

from usboost.boosting.loop import ensemble_scores
from usboost.data.table import Table
from usboost.data.views import View, Views
from usboost.evaluation.names import LOWER_IS_BETTER
from usboost.learners.base import view_names
from usboost.learners.missing_views import prepare
from usboost.models.methods.weak_learners import BoostedWeakLearners


@dataclass(frozen=True)
class Together:
    """What is shuffled together.

    Attributes
    ----------
    name : in the answer.
    views : whole views; columns : single columns by the view that has them.
    """

    name: str
    views: tuple[str, ...] = ()
    columns: Mapping[str, Collection[str]] = field(default_factory=dict)


Predict = Callable[[Together, np.ndarray | None], np.ndarray]
"""What a model predicts when something is shuffled into this order, int64 (n,); None: as it is."""


def permutation_importance(
    predict: Predict,
    score: Callable[[np.ndarray], Mapping[str, float]],
    groups: Sequence[Together],
    metrics: Sequence[str],
    n: int,
    *,
    n_repeats: int,
    seed: int,
) -> pd.DataFrame:
    """The loss of score when each group is shuffled among n rows.

    Parameters
    ----------
    predict : see `predictor`.
    score : of what was predicted.
    metrics : scores to look at.

    Returns
    -------
    DataFrame with columns name, metric, mean, std
        Score before minus score after, with the sign turned where lower is better, so that positive means
        that the group matters; ``std`` is over the shuffles (NaN for one).
    """
    rng, rows = np.random.default_rng(seed), []
    before = score(predict(Together(""), None))
    for group in groups:
        after = [score(predict(group, rng.permutation(n))) for _ in range(n_repeats)]
        for metric in metrics:
            sign = -1.0 if metric in LOWER_IS_BETTER else 1.0
            losses = [sign * (before[metric] - found[metric]) for found in after]
            spread = np.std(losses, ddof=1) if n_repeats > 1 else np.nan
            rows.append((group.name, metric, float(np.mean(losses)), float(spread)))
    return pd.DataFrame(rows, columns=["name", "metric", "mean", "std"])


def predictor(model: Any, views: Views, predict: Callable[[Views], np.ndarray]) -> Predict:
    """What a model predicts for views when parts of them are shuffled.

    Of a boosted model, a sum of what its start and its learners say, only those predict again that read
    something that is shuffled; one that reads shuffled views alone has its own answers shuffled.

    Parameters
    ----------
    predict : the model's answers to any views.
    """
    if isinstance(model, BoostedWeakLearners):
        return _sum(model, views)
    return lambda group, order: predict(shuffled(views, group, order))


def shuffled(views: Views, group: Together, order: np.ndarray | None) -> Views:
    """The views with a group in another order; what is one view under two names stays one."""
    if order is None:
        return views
    out, made = views, dict[tuple[int, frozenset[str]], View]()
    for name in views.names:
        columns = frozenset(group.columns.get(name, ()))
        if name in group.views:
            out = out.with_view(name, views[name][order])
        elif columns:
            key = id(views[name]), columns
            if key not in made:
                made[key] = _reordered(views[name], columns, order)
            out = out.with_view(name, made[key])
    return out


def _reordered(table: View, columns: Collection[str], order: np.ndarray) -> Table:
    assert isinstance(table, Table)  # images have no columns
    numeric, codes = table.numeric.copy(), table.codes.copy()
    for k in (k for k, name in enumerate(table.names) if name in columns):
        if k < table.n_numeric:
            numeric[:, k] = numeric[order, k]
        else:
            codes[:, k - table.n_numeric] = codes[order, k - table.n_numeric]
    return replace(table, numeric=numeric, codes=codes)


_START = ""  # beside the learners' names


def _sum(model: Any, views: Views) -> Predict:
    learners, n_outputs = model._learners(), model._n_outputs()
    reads = {name: view_names(name, learner) for name, learner in learners.items()}
    if model.start_ is not None:
        reads[_START] = tuple(model.start_.views)

    def says(name: str, seen: Views) -> np.ndarray:
        if name == _START:
            return np.asarray(model._start_f(seen))
        read = prepare(learners[name], model.reading_(seen, [name])[name])
        return ensemble_scores(model.stages_, {name: read}, (len(seen), n_outputs))

    parts = {name: says(name, views) for name in reads}

    def part(name: str, group: Together, order: np.ndarray | None) -> np.ndarray:
        touched = [view for view in reads[name] if view in group.views or group.columns.get(view)]
        if order is None or not touched:
            return parts[name]
        if set(reads[name]) <= set(group.views):
            return parts[name][order]
        return says(name, shuffled(views, group, order))

    return lambda group, order: model._of_f(reduce(np.add, (part(name, group, order) for name in reads)))

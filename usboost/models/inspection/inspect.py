"""Inspect a fitted model on many rows: contributions, permutation importance, calibration, worst mistakes."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.metrics import mutual_info_score

from usboost.data.table import Table
from usboost.data.views import View, Views
from usboost.errors import UsboostError
from usboost.evaluation.intervals import wilson
from usboost.evaluation.ranking import LOWER_IS_BETTER
from usboost.evaluation.task import TASKS
from usboost.learners.base import predict, prepare, view_names
from usboost.models.base import ViewsRegressor
from usboost.models.estimator import ViewsEstimator, as_views

if TYPE_CHECKING:  # a page of what is stored of models needs neither them nor torch
    from usboost.models.methods.weak_learners import BoostedWeakLearners

_RARE = 5  # a value with fewer samples counts as rare


def view_contributions(model: "BoostedWeakLearners", X: Views | Mapping[str, Any]) -> pd.DataFrame:
    """Return the contribution of each view's learner to the scores, round by round.

    Returns
    -------
    DataFrame, one row per kept round and view
        "round" (from 1; 0 is f⁰, of the view "start"), "view", "contribution": ε‖g‖ and δ‖h‖ in the papers'
        letters, |step| · √(mean_i ‖learner(x_i)‖²), in units of f.
    """
    prepared, n_outputs = model._prepare(as_views(X)), model._n_outputs()
    rows: list[tuple[int, str, float]] = []
    if model.start_ is not None:
        start = np.square(model._start_f(as_views(X))).sum(axis=1).mean()
        rows.append((0, "start", float(np.sqrt(start))))
    for index, stage in enumerate(model.stages_, start=1):
        for view, learner in stage.learners.items():
            outputs = predict(learner, prepared[view], n_outputs).astype(np.float64)
            size = np.sqrt(np.square(outputs).sum(axis=1).mean())
            rows.append((index, view, abs(stage.steps[view]) * float(size)))
    return pd.DataFrame(rows, columns=["round", "view", "contribution"])


def view_importance(
    model: ViewsEstimator, X: Views | Mapping[str, Any], y: np.ndarray, n_repeats: int = 5, seed: int = 0
) -> pd.DataFrame:
    """Return the permutation importance of views: the loss of score when a view's rows are shuffled.

    Raises `UsboostError` if a label is not one of a classifier's classes, the numbers of labels and rows
    differ, or `n_repeats` is below 1.

    Parameters
    ----------
    y : (n,) labels as `fit` took them
    n_repeats : shuffles per view

    Returns
    -------
    DataFrame with columns view, metric, mean, std
        For each of `Task.shuffled` score before minus score after, with the sign turned where lower is
        better, so that positive means that the view matters; ``std`` is over the shuffles (NaN for one).
    """
    views, task = as_views(X), TASKS["regression" if isinstance(model, ViewsRegressor) else "classification"]
    codes = model._encode(np.asarray(y))
    if len(codes) != len(views):
        raise UsboostError(f"{len(codes)} labels but {len(views)} rows of views")
    if n_repeats < 1:
        raise UsboostError(f"n_repeats must be at least 1, not {n_repeats}")
    losses = permutation_importance(
        predictor(model, views, lambda seen: task.predict(model, seen)),
        lambda predicted: task.score(codes, predicted),
        [ColumnGroup(name, (name,)) for name in views.names],
        task.shuffled,
        len(codes),
        n_repeats=n_repeats,
        seed=seed,
    )
    return losses.rename(columns={"name": "view"})


@dataclass(frozen=True)
class ColumnGroup:
    """Views and columns that are shuffled together.

    Attributes
    ----------
    name : in the answer.
    views : whole views; columns : single columns by the view that has them.
    """

    name: str
    views: tuple[str, ...] = ()
    columns: Mapping[str, Collection[str]] = field(default_factory=dict)


Predict = Callable[[ColumnGroup, np.ndarray | None], np.ndarray]
"""Predict with a group shuffled into this order, int64 (n,); with None as it is."""


def permutation_importance(
    predict: Predict,
    score: Callable[[np.ndarray], Mapping[str, float]],
    groups: Sequence[ColumnGroup],
    metrics: Sequence[str],
    n: int,
    *,
    n_repeats: int,
    seed: int,
) -> pd.DataFrame:
    """Return the loss of score when each group is shuffled among n rows.

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
    before = score(predict(ColumnGroup(""), None))
    for group in groups:
        after = [score(predict(group, rng.permutation(n))) for _ in range(n_repeats)]
        for metric in metrics:
            sign = -1.0 if metric in LOWER_IS_BETTER else 1.0
            losses = [sign * (before[metric] - scores[metric]) for scores in after]
            spread = np.std(losses, ddof=1) if n_repeats > 1 else np.nan
            rows.append((group.name, metric, float(np.mean(losses)), float(spread)))
    return pd.DataFrame(rows, columns=["name", "metric", "mean", "std"])


def predictor(model: Any, views: Views, predict: Callable[[Views], np.ndarray]) -> Predict:
    """Return the function that predicts for the views when parts of them are shuffled.

    Of a boosted model, which is a sum over its start and its learners, only those predict again that read
    something that is shuffled; one that reads shuffled views alone has its own outputs shuffled.

    Parameters
    ----------
    predict : the model's answers to any views.
    """
    from usboost.boosting.loop import ensemble_scores
    from usboost.models.methods.blend import Blend
    from usboost.models.methods.weak_learners import BoostedWeakLearners

    if isinstance(model, Blend):
        fits = [(predictor(fit, views, partial(model._of, fit)), w) for fit, w in model.weighted_fits()]
        return lambda group, order: model._of_f(
            reduce(np.add, (w * model._margins(one(group, order)) for one, w in fits))
        )
    if not isinstance(model, BoostedWeakLearners):
        return lambda group, order: predict(shuffled(views, group, order))
    learners, n_outputs, start = model._learners(), model._n_outputs(), ""  # no learner has that name
    reads = {name: view_names(name, learner) for name, learner in learners.items()}
    if model.start_ is not None:
        reads[start] = tuple(model.start_.views)

    def output(name: str, seen: Views) -> np.ndarray:
        if name == start:
            return np.asarray(model._start_f(seen))
        read = prepare(learners[name], model.reading_(seen, [name])[name])
        return ensemble_scores(model.stages_, {name: read}, (len(seen), n_outputs))

    outputs = {name: output(name, views) for name in reads}

    def part(name: str, group: ColumnGroup, order: np.ndarray | None) -> np.ndarray:
        touched = any(view in group.views or group.columns.get(view) for view in reads[name])
        if order is None or not touched:
            return outputs[name]
        if set(reads[name]) <= set(group.views):
            return outputs[name][order]
        return output(name, shuffled(views, group, order))

    return lambda group, order: model._of_f(reduce(np.add, (part(name, group, order) for name in reads)))


def shuffled(views: Views, group: ColumnGroup, order: np.ndarray | None) -> Views:
    """Return the views with a group in another order; one view under two names stays one."""
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
                table = views[name]
                assert isinstance(table, Table)  # images have no columns
                moved = np.array([column in columns for column in table.names])
                numeric, codes = moved[: table.n_numeric], moved[table.n_numeric :]
                made[key] = replace(
                    table,
                    numeric=np.where(numeric, table.numeric[order], table.numeric),
                    codes=np.where(codes, table.codes[order], table.codes),
                )
            out = out.with_view(name, made[key])
    return out


def calibration(y: np.ndarray, probabilities: np.ndarray, n_bins: int = 10) -> pd.DataFrame:
    """Bin predicted probabilities against observed frequencies: a reliability diagram.

    Parameters
    ----------
    y : int array of shape (n,), classes 0..M−1
    probabilities : float array of shape (n, M); of two classes those of class 1 are binned, of more
        those of the predicted class
    n_bins : bins of equal width on [0, 1]; empty ones are left out

    Returns
    -------
    DataFrame, one row per bin that is not empty
        "low", "high" (the bin), "count", "predicted" (mean probability), "observed" (frequency of
        the class) and its 95 % interval after Wilson, "observed_low" and "observed_high".
    """
    if len(y) != len(probabilities):
        raise UsboostError(f"{len(y)} labels but {len(probabilities)} rows of probabilities")
    if probabilities.shape[1] == 2:
        predicted, true = probabilities[:, 1], y == 1
    else:
        answers = probabilities.argmax(axis=1)
        predicted, true = probabilities[np.arange(len(y)), answers], answers == y
    edges = np.linspace(0, 1, n_bins + 1)
    bins = np.clip(np.searchsorted(edges, predicted, side="right") - 1, 0, n_bins - 1)
    rows = []
    for k in np.unique(bins):
        inside = bins == k
        n, observed = int(inside.sum()), float(true[inside].mean())
        rows.append((edges[k], edges[k + 1], n, predicted[inside].mean(), observed, *wilson(observed, n)))
    names = ["low", "high", "count", "predicted", "observed", "observed_low", "observed_high"]
    return pd.DataFrame(rows, columns=names)


def expected_calibration_error(bins: pd.DataFrame) -> float:
    """Return the mean |predicted − observed| over the samples, from the bins of `calibration`."""
    gaps = (bins["predicted"] - bins["observed"]).abs()
    return float((gaps * bins["count"]).sum() / bins["count"].sum())


def worst_samples(
    y: np.ndarray, probabilities: np.ndarray, n: int = 12, predicted: np.ndarray | None = None
) -> pd.DataFrame:
    """Return the wrongly classified samples whose true class has the lowest probability, worst first.

    A DataFrame with columns row, true, predicted (codes), p_true, p_predicted.

    Parameters
    ----------
    y : int array of shape (n,); probabilities : float array of shape (n, M)
    n : at most so many
    predicted : the answers, int array of shape (n,); by default the most probable classes
    """
    if predicted is None:
        predicted = probabilities.argmax(axis=1)
    rows = np.arange(len(y))
    frame = pd.DataFrame(
        {
            "row": rows,
            "true": y,
            "predicted": predicted,
            "p_true": probabilities[rows, y],
            "p_predicted": probabilities[rows, predicted],
        }
    )
    wrong = frame[frame["true"] != frame["predicted"]]
    return wrong.sort_values("p_true", kind="stable").head(n).reset_index(drop=True)


def informative_columns(frame: pd.DataFrame, y: np.ndarray, n: int = 8) -> list[str]:
    """Return the columns that are most informative about the label, most first: those to show of a sample.

    Ranked by mutual information with it, numbers cut at their tenths and rare values taken together, less
    what chance gives: (k − 1)(M − 1)/2n nats for k values and M classes or tenths (Miller and Madow).

    Parameters
    ----------
    frame : raw values of n samples; missing ones count as a value
    y : array of shape (n,), classes 0..M−1 or floats to predict
    """
    information: dict[str, float] = {}
    labels = np.unique(_tenths(pd.Series(y)) if y.dtype.kind == "f" else y, return_inverse=True)[1]
    for name in frame.columns:
        codes = _tenths(frame[name])
        codes = np.where(np.bincount(codes)[codes] < _RARE, 0, codes + 1)
        chance = (len(np.unique(codes)) - 1) * labels.max(initial=0) / (2 * max(1, len(y)))
        information[name] = float(mutual_info_score(labels, codes)) - chance
    return sorted(information, key=lambda name: -information[name])[:n]


def _tenths(column: pd.Series) -> np.ndarray:
    """Return codes of a column's values, int64 from 0; of many numbers, of the tenths they lie in."""
    if not pd.api.types.is_numeric_dtype(column) or column.nunique() <= 10:
        return pd.factorize(column, use_na_sentinel=False)[0]
    values = column.to_numpy(np.float64, na_value=np.nan)
    present = np.isfinite(values)
    edges = np.unique(np.quantile(values[present], np.linspace(0, 1, 11))) if present.any() else np.zeros(1)
    codes = np.maximum(np.searchsorted(edges, values, side="left") - 1, 0)
    return np.where(present, codes, len(edges))

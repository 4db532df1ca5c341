"""Inspection of a fitted model: importance of its views, calibration, worst mistakes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.evaluation.task import TASKS
from usboost.learners.missing_views import predict
from usboost.models.base import ViewsRegressor
from usboost.models.estimator import ViewsEstimator, as_views

if TYPE_CHECKING:  # a page of what is kept of models needs neither them nor torch
    from usboost.models.methods.weak_learners import BoostedWeakLearners

_RARE = 5  # a value with fewer samples counts as rare


def view_contributions(model: BoostedWeakLearners, X: Views | Mapping[str, Any]) -> pd.DataFrame:
    """Contribution of each view's learner to the scores, round by round.

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
    """Permutation importance: the loss of score when a view's rows are shuffled as a whole.

    Parameters
    ----------
    y : (n,) labels as `fit` took them
    n_repeats : shuffles per view

    Returns
    -------
    DataFrame with columns view, metric, mean, std
        For each of `Task.shuffled` score before minus score after, with the sign turned where lower is
        better, so that positive means that the view matters; ``std`` is over the shuffles (NaN for one).

    Raises
    ------
    UsboostError
        If a label is not one of a classifier's classes, the numbers of labels and rows differ, or
        `n_repeats` is below 1.
    """
    views, task = as_views(X), TASKS["regression" if isinstance(model, ViewsRegressor) else "classification"]
    codes = model._encode(np.asarray(y))
    if len(codes) != len(views):
        raise UsboostError(f"{len(codes)} labels but {len(views)} rows of views")
    if n_repeats < 1:
        raise UsboostError(f"n_repeats must be at least 1, not {n_repeats}")
    # a page of what is kept of models needs neither them nor torch
    from usboost.models.inspection.permutation import Together, permutation_importance, predictor

    found = permutation_importance(
        predictor(model, views, lambda seen: task.predict(model, seen)),
        lambda predicted: task.score(codes, predicted),
        [Together(name, (name,)) for name in views.names],
        task.shuffled,
        len(codes),
        n_repeats=n_repeats,
        seed=seed,
    )
    return found.rename(columns={"name": "view"})


def calibration(y: np.ndarray, probabilities: np.ndarray, n_bins: int = 10) -> pd.DataFrame:
    """Reliability diagram: predicted probabilities against observed frequencies, in bins.

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
    predicted, true = _binned(y, probabilities)
    edges = np.linspace(0, 1, n_bins + 1)
    bins = np.clip(np.searchsorted(edges, predicted, side="right") - 1, 0, n_bins - 1)
    rows = []
    for k in np.unique(bins):
        inside = bins == k
        n, observed = int(inside.sum()), int(true[inside].sum())
        low, high = binomtest(observed, n).proportion_ci(0.95, method="wilson")
        rows.append((edges[k], edges[k + 1], n, float(predicted[inside].mean()), observed / n, low, high))
    names = ["low", "high", "count", "predicted", "observed", "observed_low", "observed_high"]
    return pd.DataFrame(rows, columns=names)


def expected_calibration_error(bins: pd.DataFrame) -> float:
    """Mean |predicted − observed| over the samples, from what `calibration` returns."""
    gaps = (bins["predicted"] - bins["observed"]).abs()
    return float((gaps * bins["count"]).sum() / bins["count"].sum())


def _binned(y: np.ndarray, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The probabilities to bin, and whether the sample is of their class."""
    if len(y) != len(probabilities):
        raise UsboostError(f"{len(y)} labels but {len(probabilities)} rows of probabilities")
    if probabilities.shape[1] == 2:
        return probabilities[:, 1], y == 1
    predicted = probabilities.argmax(axis=1)
    return probabilities[np.arange(len(y)), predicted], predicted == y


def worst_samples(
    y: np.ndarray, probabilities: np.ndarray, n: int = 12, predicted: np.ndarray | None = None
) -> pd.DataFrame:
    """The wrongly classified samples whose true class has the lowest probability, worst first.

    Parameters
    ----------
    y : int array of shape (n,); probabilities : float array of shape (n, M)
    n : at most so many
    predicted : the answers, int array of shape (n,); by default the most probable classes

    Returns
    -------
    DataFrame with columns row, true, predicted (codes), p_true, p_predicted
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
    """The most informative columns about the label, most first: those to show of a sample.

    Ranked by mutual information with it, numbers cut at their tenths and rare values taken together, less
    what chance gives: (k − 1)(M − 1)/2n nats for k values and M classes or tenths (Miller and Madow).

    Parameters
    ----------
    frame : raw values of n samples; missing ones count as a value
    y : array of shape (n,), classes 0..M−1 or floats to predict
    """
    found: dict[str, float] = {}
    labels = np.unique(_tenths(pd.Series(y)) if y.dtype.kind == "f" else y, return_inverse=True)[1]
    for name in frame.columns:
        codes = _tenths(frame[name])
        codes = np.where(np.bincount(codes)[codes] < _RARE, 0, codes + 1)
        counts = np.zeros((codes.max(initial=0) + 1, labels.max(initial=0) + 1))
        np.add.at(counts, (codes, labels), 1)
        counts = counts[counts.any(axis=1)]
        chance = (len(counts) - 1) * (counts.shape[1] - 1) / (2 * max(1, len(y)))
        found[name] = _mutual_information(counts) - chance
    return sorted(found, key=lambda name: -found[name])[:n]


def _tenths(column: pd.Series) -> np.ndarray:
    """Codes of a column's values, int64 from 0; of numbers that have many, of the tenths they lie in."""
    if not pd.api.types.is_numeric_dtype(column) or column.nunique() <= 10:
        return pd.factorize(column, use_na_sentinel=False)[0]
    values = column.to_numpy(np.float64, na_value=np.nan)
    present = np.isfinite(values)
    edges = np.unique(np.quantile(values[present], np.linspace(0, 1, 11))) if present.any() else np.zeros(1)
    codes = np.maximum(np.searchsorted(edges, values, side="left") - 1, 0)
    return np.where(present, codes, len(edges))


def _mutual_information(counts: np.ndarray) -> float:
    """In nats, of two variables whose values occur together so often, (k, M), none of k never."""
    total = counts.sum()
    both = counts[counts > 0]
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0))[counts > 0]
    return float((both * np.log(both * total / expected)).sum() / total)

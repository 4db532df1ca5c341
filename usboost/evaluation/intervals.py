"""Confidence intervals of a fitted model's scores, and intervals that hold new rows' targets."""

from collections.abc import Callable, Sequence

import numpy as np

from usboost.evaluation.calibration import clip_lower
from usboost.evaluation.metrics import score, score_answers, score_regression
from usboost.evaluation.ranking import ANSWER_METRICS, METRICS, REGRESSION_METRICS
from usboost.evaluation.statistics import effective_sample_size

DRAWS = 500
"""Bootstrap samples of an interval of up to 10,000 rows; of more 200."""

COVERED = 0.9
"""Share of rows that an interval of a predicted number, or a set of classes, is to hold."""

PARTS, PART = 8, 60
"""Divide rows by their predictions into up to so many parts, of so many rows: each has its own width."""

HARDLY = 0.1
"""Give intervals one width up to this ratio of predictions' mean distance from their median to the error."""

Interval = tuple[float, float, float]
Margin = Sequence[Sequence[float]]
"""Predictions in increasing order, each with what to add to it for the ends of its interval."""

UNKNOWN: Margin = [[0.0, np.nan, np.nan]]
"""The margin of a model that was saved without one."""

Score = Callable[[np.ndarray, np.ndarray, np.ndarray | None], dict[str, float]]


def wilson(share: float, n: float) -> tuple[float, float]:
    """Return the ends of the 95 % interval of a share of n rows (Wilson 1927).

    Unlike a bootstrap interval it has a width where the share is 0 or 1.
    """
    z = 1.959963984540054  # the normal's 97.5 % quantile
    centre, half = share + z * z / (2 * n), z * np.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2)
    low, high = (centre - half) / (1 + z * z / n), (centre + half) / (1 + z * z / n)
    return float(max(low, 0.0)), float(min(high, 1.0))


def intervals(
    labels: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None = None, *, draws: int | None = None
) -> dict[str, Interval]:
    """Return each score with its interval of 95 %: (score, low, high).

    That of an accuracy is Wilson's, for which weighted rows count as `effective_sample_size`. The others are
    bootstrap percentiles: rows are drawn with replacement; a sample that lacks a class has no AUC and is left
    out of its interval. An interval covers the sampling of these rows, not the variation of the training.

    Labels are int64 (n,) and what is predicted probabilities, float64 (n, M); or both are numbers, float64
    (n,). Rows are drawn alike, each with its weight, by default `DRAWS` times.
    """
    scored, metrics = (score, METRICS) if predicted.ndim == 2 else (score_regression, REGRESSION_METRICS)
    return _bootstrap(scored, metrics, labels, predicted, weight, draws)


def answer_intervals(y: np.ndarray, answers: np.ndarray, scores: np.ndarray) -> dict[str, Interval]:
    """Return the same of `metrics.score_answers`, with its parameters."""
    pairs = np.column_stack([answers, scores])

    def scored(true: np.ndarray, given: np.ndarray, weight: np.ndarray | None) -> dict[str, float]:
        return score_answers(true, given[:, 0].astype(np.int64), given[:, 1])

    return _bootstrap(scored, ANSWER_METRICS, y, pairs, None, None)


def _bootstrap(
    scored: Score,
    metrics: Sequence[str],
    true: np.ndarray,
    predicted: np.ndarray,
    weight: np.ndarray | None,
    draws: int | None,
) -> dict[str, Interval]:
    n, rng = len(true), np.random.default_rng(0)
    draws = draws or (DRAWS if n <= 10_000 else 200)  # scores of many rows hardly vary
    drawn = [
        scored(true[rows], predicted[rows], None if weight is None else weight[rows])
        for rows in (rng.integers(0, n, n) for _ in range(draws))
    ]
    whole, by_metric = scored(true, predicted, weight), {}
    for key in metrics:
        if key in ("accuracy", "answer_accuracy"):
            rows_worth = n if weight is None else effective_sample_size(weight)
            by_metric[key] = (whole[key], *wilson(whole[key], rows_worth))
            continue
        values = np.array([each[key] for each in drawn])
        values = values[np.isfinite(values)]
        low, high = np.quantile(values, [0.025, 0.975]) if len(values) else (np.nan, np.nan)
        by_metric[key] = (whole[key], float(low), float(high))
    return by_metric


def conformal(scores: np.ndarray, level: float, weights: np.ndarray | None = None) -> float:
    """Return the ⌈(n + 1) · level⌉-th smallest score; infinite where n are too few for that.

    If these scores and a new one are exchangeable, the new one is at most that with a probability of at
    least `level` (Vovk et al. 2005).

    Parameters
    ----------
    scores : float64 (n,), of rows that were not fitted to.
    weights : float64 (n,), positive, of whatever scale; by default equal. n is then what they are worth
        (`effective_sample_size`), and the score the first one up to which their share is
        ⌈(n + 1) · level⌉/n.
    """
    weights = np.ones(len(scores)) if weights is None else weights
    n, order = effective_sample_size(weights), np.argsort(scores, kind="stable")
    place = np.ceil((n + 1) * level - 1e-9)  # .9 · 10 is a little more than 9
    if place > n + 1e-9:
        return float("inf")
    summed = np.cumsum(weights[order])
    summed *= n / summed[-1]
    return float(scores[order[np.searchsorted(summed, place - 1e-9 * n)]])


def margin_of(residuals: np.ndarray, weights: np.ndarray | None = None) -> tuple[float, float]:
    """Return what to add to predictions for the ends of an interval that holds `COVERED` of new rows.

    As many are to be below as above. With too few rows for that, under 19, the interval holds all of them,
    and is at least as wide as if they were normal: mean ± t · s · √(1 + 1/n). Where the rows stopped the fit,
    new rows may be held a little less often. Residuals are true minus predicted, float64 (n,), of rows that
    were not fitted to; weights are `conformal`'s. The interval holds the prediction itself.
    """
    level = (1 + COVERED) / 2
    low, high = -conformal(-residuals, level, weights), conformal(residuals, level, weights)
    if np.isinf(high):
        from scipy.special import stdtrit

        n = len(residuals) if weights is None else effective_sample_size(weights)
        mean = np.average(residuals, weights=weights)
        variance = np.average((residuals - mean) ** 2, weights=weights)
        half = stdtrit(n - 1, level) * np.sqrt(variance * (n + 1) / (n - 1)) if n > 1 else 0.0
        low, high = float(min(residuals.min(), mean - half)), float(max(residuals.max(), mean + half))
    return min(low, 0.0), max(high, 0.0)


def margins(true: np.ndarray, predicted: np.ndarray, weights: np.ndarray | None = None) -> Margin:
    """Return the margin of intervals that hold `COVERED` of new rows and are wide where errors are large.

    Rows are divided by their prediction f into `PARTS` of equal size, fewer below `PART` rows a part. With
    s(f) the line through the parts' mean distances of target and prediction, none below a tenth of all rows'
    mean, the ends are f + s(f) · `margin_of`((y − f)/s(f)): normalised conformal prediction (Papadopoulos
    et al. 2002). Where predictions hardly vary, there is one part. `true` and `predicted` are float64 (n,),
    of rows that were not fitted to; weights, all positive, are `conformal`'s.
    """
    rest, n = true - predicted, int(np.clip(len(true) // PART, 1, PARTS))
    counts = np.ones(len(true)) if weights is None else weights
    error, spread = (np.average(abs(v), weights=counts) for v in (rest, predicted - np.median(predicted)))
    n = n if spread > HARDLY * error else 1  # another fit's predictions may all be outside their range
    cuts = np.unique(np.quantile(predicted, np.arange(1, n) / n))
    _, part = np.unique(np.searchsorted(cuts, predicted, side="right"), return_inverse=True)
    at, mean = (np.bincount(part, v * counts) / np.bincount(part, counts) for v in (predicted, abs(rest)))
    size = np.maximum(mean, error / 10) if rest.any() else mean + 1.0
    low, high = margin_of(rest / np.interp(predicted, at, size), weights)
    rises = np.diff(at, prepend=-np.inf) > 0  # but for rounding
    return np.column_stack([at, low * size, high * size])[rises].tolist()


def ends(predicted: np.ndarray, margin: Margin, floor: float | None) -> tuple[np.ndarray, np.ndarray]:
    """Return both ends of each prediction's interval, float64 (n,), none below the floor.

    Between the predictions of the margin what is added is on a straight line; outside it is the last one's.
    """
    at, low, high = np.transpose(margin)
    below, above = np.interp(predicted, at, low), np.interp(predicted, at, high)
    return clip_lower(predicted + below, floor), predicted + above


def least_probability(
    labels: np.ndarray, probabilities: np.ndarray, weights: np.ndarray | None = None
) -> float:
    """Return the probability of a row's set's least class, so that `COVERED` of new rows' sets hold theirs.

    The scores of `conformal` are the probabilities of the rows' own classes with the sign turned, which makes
    for the smallest sets on average (Sadinle, Lei and Wasserman 2019). With too few rows it is 0: all
    classes. Where the rows stopped the fit, new rows may be held a little less often. Rows are some that were
    not fitted to; weights are `conformal`'s.
    """
    own = probabilities[np.arange(len(labels)), labels]
    return max(0.0, -conformal(-own, COVERED, weights))


def least_by_class(
    labels: np.ndarray, probabilities: np.ndarray, weights: np.ndarray | None = None
) -> list[float]:
    """Return `least_probability` of each class by its own rows: `COVERED` of each class's new rows are held.

    Label-conditional (Mondrian) conformal prediction (Vovk 2012). A class with too few rows, under nine, has
    0: it is in all sets.
    """
    of_class = [labels == k for k in range(probabilities.shape[1])]
    return [
        least_probability(labels[own], probabilities[own], None if weights is None else weights[own])
        if own.any()
        else 0.0
        for own in of_class
    ]

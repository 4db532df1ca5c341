"""Weighted means and quantiles, and tests of the difference between two models."""

from collections.abc import Callable, Sequence

import numpy as np

from usboost.shards.collective import unsharded, world


def mean(values: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Return the mean of (n,), or (n, 1), numbers; of those of all shards of a fit."""
    shards, n = world(), len(values)
    if shards.count > 1 and not n:
        return float(shards.mean(0.0, 0.0))
    own = values.mean() if weights is None else np.average(values.reshape(-1), weights=weights)
    return float(shards.mean(float(own), float(n if weights is None else weights.sum())))


def deviation(values: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Return the standard deviation (ddof 0) of (n,) numbers."""
    if weights is None and world().count == 1:
        return float(values.std())
    return float(np.sqrt(mean(np.square(values - mean(values, weights)), weights)))


def effective_sample_size(weights: np.ndarray) -> float:
    """Return how many rows of equal weight would give a mean as exact: Kish's (Σw)² / Σw²; at most n."""
    shares = weights / weights.sum()
    return float(1 / np.square(shares).sum())


def quantile(values: np.ndarray, level: float, weights: np.ndarray | None = None) -> float:
    """Return a quantile of (n,) numbers, by linear interpolation, as of each repeated weight times.

    With weights that are no whole numbers: the number at position t, from 0, is the first one with more than
    t of the weight up to and with it. Weights that add up to less than they are worth are scaled up to that.
    """
    if world().count > 1:
        # of the numbers of all shards, or of a sample of so many of them that it makes no difference
        chosen = world().sample(len(values))
        gathered = np.concatenate(world().gather(values[chosen]))
        shared = None if weights is None else np.concatenate(world().gather(weights[chosen]))
        return world().once(lambda: unsharded(lambda: quantile(gathered, level, shared)))
    if weights is None:
        return float(np.quantile(values, level))
    weights = weights * max(1.0, effective_sample_size(weights) / weights.sum())
    order = np.argsort(values, kind="stable")
    ranked, ends = values[order], np.cumsum(weights[order])
    place = max(level * (ends[-1] - 1), 0.0)
    low = np.floor(place + 1e-9)
    ends = ends - 1e-9 * weights.mean()  # what adds up to a position may lie above it by a rounding error
    at = np.minimum(np.searchsorted(ends, [low, low + 1], side="right"), len(ranked) - 1)
    below, above = ranked[at]
    return float(below + max(place - low, 0.0) * (above - below))


def median(values: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Return the median of (n,) numbers; the mean of the two in the middle where there are two."""
    simple = weights is None and world().count == 1
    return float(np.median(values)) if simple else quantile(values, 0.5, weights)


def error_of_mean(values: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Return the standard error of the mean of (n,) numbers; whatever the scale of the weights."""
    n = len(values)
    if weights is None and world().count == 1:
        return float(values.std(ddof=1) / np.sqrt(n))
    own = np.ones(n) if weights is None else weights
    shares, centre = own / world().sum(own.sum()), mean(values, weights)
    return float(np.sqrt(world().sum(np.square(shares) @ np.square(values - centre))))


def column_moments(values: np.ndarray, weights: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance (ddof 0) of each column of (n, p) numbers, float64 (p,) each."""
    if weights is None and world().count == 1:
        return values.mean(axis=0, dtype=np.float64), values.var(axis=0, dtype=np.float64)
    own = np.ones(len(values)) if weights is None else weights
    shares = own / world().sum(own.sum())
    means = world().sum(shares @ values.astype(np.float64))
    variances = world().sum(shares @ np.square(values - means))
    return means, np.where(variances <= np.square(1e-15 * means), 0.0, variances)  # equal, but for rounding


LEVEL = 0.05
"""Level of the two-sided tests."""

Statistic = Callable[[np.ndarray, np.ndarray], float]
"""A score of labels (n,) and what was predicted for these rows, an array of n rows."""


def corrected_t_test(differences: Sequence[float] | np.ndarray, ratio: float) -> tuple[float, float]:
    """Return the resampled t-test as corrected by Nadeau and Bengio (2003).

    t = d̄ / √((1/J + n_test/n_train) · s²), s² the sample variance of the J differences, referred to
    Student's t with J − 1 degrees of freedom. The folds' training sets overlap, so their scores are not
    independent; the second term of the factor, n_test / n_train, is `ratio` and stands for that.

    Returns t and its two-sided p-value, of two models' differences on each of J ≥ 2 folds (of all repeats):
    (0, 1) where all differences are 0, and where they are equal ±inf and the sign test's 2^(1 − J).
    """
    from scipy import stats  # not for those who only need means

    d = np.asarray(differences, dtype=np.float64)
    mean = float(d.mean())
    # equal differences leave a variance of rounding errors
    variance = 0.0 if np.ptp(d) <= 1e-12 * np.abs(d).max() else float(d.var(ddof=1))
    if variance == 0:
        return (0.0, 1.0) if mean == 0 else (float(np.copysign(np.inf, mean)), 2.0 ** (1 - len(d)))
    t = mean / np.sqrt((1 / len(d) + ratio) * variance)
    return float(t), float(2 * stats.t.sf(abs(t), len(d) - 1))


def sign_test(first: int, second: int) -> float:
    """Return the two-sided p-value of so many rows that only one model has right, and only another.

    McNemar's exact test: were they alike, such a row would be the one's as often as the other's.
    """
    from scipy import stats  # not for those who only need means

    return float(stats.binomtest(first, first + second).pvalue) if first + second else 1.0


def holm(p: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return Holm's adjusted p-values of a family of tests, in the order given.

    p̃ of the j-th smallest of m is max_{i ≤ j} min(1, (m − i + 1) · p_(i)).
    """
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    scaled = np.minimum(1.0, values[order] * np.arange(len(values), 0, -1))
    out = np.empty(len(values))
    out[order] = np.maximum.accumulate(scaled)
    return out


def randomization_test(
    labels: np.ndarray, first: np.ndarray, second: np.ndarray, statistic: Statistic, *, draws: int = 2000
) -> float:
    """Return the two-sided p-value of two models' difference on the same rows (approximate randomization).

    If the models were alike, which of them had made a row's prediction would not matter: in each draw a fair
    coin for every row swaps the two. p = (1 + draws with a difference as large as the one seen) /
    (1 + draws). It holds the sampling of the rows, not the variation of the training. `first` and `second`
    are the models' predictions, arrays of n rows.
    """
    rng = np.random.default_rng(0)
    seen = abs(statistic(labels, first) - statistic(labels, second))
    shape = (len(labels), *(1,) * (first.ndim - 1))
    larger = 0
    for _ in range(draws):
        swapped = (rng.random(len(labels)) < 0.5).reshape(shape)
        one, two = np.where(swapped, second, first), np.where(swapped, first, second)
        larger += abs(statistic(labels, one) - statistic(labels, two)) >= seen - 1e-12
    return (1 + larger) / (1 + draws)


def paired_interval(
    labels: np.ndarray, first: np.ndarray, second: np.ndarray, statistic: Statistic
) -> tuple[float, float]:
    """Return the 95 % bootstrap percentile interval of one model's score less another's, on the same rows.

    Parameters are as of `randomization_test`.
    """
    rng, n = np.random.default_rng(0), len(labels)
    drawn = (rng.integers(0, n, n) for _ in range(500))
    differences = [statistic(labels[at], first[at]) - statistic(labels[at], second[at]) for at in drawn]
    low, high = np.quantile(differences, [0.025, 0.975])
    return float(low), float(high)

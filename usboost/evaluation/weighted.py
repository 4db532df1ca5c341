"""Means, deviations and quantiles of samples of which each counts as so many."""

from __future__ import annotations

import numpy as np

from usboost.shards.here import alone, here


def mean(values: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Of (n,), or (n, 1), numbers; of those of all shards of a fit."""
    shards, n = here(), len(values)
    if shards.count > 1 and not n:
        return float(shards.mean(0.0, 0.0))
    own = values.mean() if weights is None else np.average(values.reshape(-1), weights=weights)
    return float(shards.mean(float(own), float(n if weights is None else weights.sum())))


def deviation(values: np.ndarray, weights: np.ndarray | None = None) -> float:
    """The standard deviation (ddof 0) of (n,) numbers."""
    if weights is None and here().count == 1:
        return float(values.std())
    return float(np.sqrt(mean(np.square(values - mean(values, weights)), weights)))


def effective_sample_size(weights: np.ndarray) -> float:
    """As many rows of equal weight would give a mean as exact: Kish's (Σw)² / Σw²; at most n."""
    shares = weights / weights.sum()
    return float(1 / np.square(shares).sum())


def quantile(values: np.ndarray, level: float, weights: np.ndarray | None = None) -> float:
    """Of (n,) numbers, between two of them by linear interpolation, as of each repeated weight times.

    With weights that are no whole numbers: the number at position t, from 0, is the first one with more than
    t of the weight up to and with it. Weights that add up to less than they are worth are scaled up to that.
    """
    if here().count > 1:
        return _quantile_of_all(values, level, weights)
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


def _quantile_of_all(values: np.ndarray, level: float, weights: np.ndarray | None) -> float:
    """Of the numbers of all shards, or of a sample of so many of them that it makes no difference."""
    chosen = here().sample(len(values))
    found = np.concatenate(here().gather(values[chosen]))
    held = None if weights is None else np.concatenate(here().gather(weights[chosen]))
    return here().once(lambda: alone(lambda: quantile(found, level, held)))


def median(values: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Of (n,) numbers; the mean of the two in the middle where there are two."""
    alone = weights is None and here().count == 1
    return float(np.median(values)) if alone else quantile(values, 0.5, weights)


def error_of_mean(values: np.ndarray, weights: np.ndarray | None = None) -> float:
    """The standard error of the mean of (n,) numbers; whatever the scale of the weights."""
    n = len(values)
    if weights is None and here().count == 1:
        return float(values.std(ddof=1) / np.sqrt(n))
    own = np.ones(n) if weights is None else weights
    shares, centre = own / here().sum(own.sum()), mean(values, weights)
    return float(np.sqrt(here().sum(np.square(shares) @ np.square(values - centre))))


def column_moments(values: np.ndarray, weights: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (ddof 0) of each column of (n, p) numbers, float64 (p,) each."""
    if weights is None and here().count == 1:
        return values.mean(axis=0, dtype=np.float64), values.var(axis=0, dtype=np.float64)
    own = np.ones(len(values)) if weights is None else weights
    shares = own / here().sum(own.sum())
    found = here().sum(shares @ values.astype(np.float64))
    return found, here().sum(shares @ np.square(values - found))

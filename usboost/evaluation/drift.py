"""How far values seen later are from those that a model was fitted to."""

from __future__ import annotations

import numpy as np
from scipy import stats

BINS = 10


def psi(reference: np.ndarray, found: np.ndarray) -> float:
    """The population stability index Σ_b (a_b − e_b) · ln(a_b / e_b) of two sets of counts.

    e_b and a_b are the shares of bin b, after half a count is added to each bin: none is 0.

    Parameters
    ----------
    reference, found : counts of shape (B,).
    """
    shares = [(np.asarray(counts, dtype=np.float64) + 0.5) for counts in (reference, found)]
    expected, actual = (counts / counts.sum() for counts in shares)
    return float(np.sum((actual - expected) * np.log(actual / expected)))


def noise(bins: int, n_reference: int, n_found: int, level: float) -> float:
    """What the index of two samples of one distribution exceeds with probability `level`.

    Their index is about (1/n_reference + 1/n_found) · χ² with B − 1 degrees of freedom.

    Parameters
    ----------
    bins : B, those that the distribution reaches.
    """
    if bins < 2:
        return 0.0
    return float(stats.chi2.isf(level, bins - 1) * (1 / n_reference + 1 / n_found))


def edges(values: np.ndarray, bins: int = BINS) -> np.ndarray:
    """Inner edges that cut values of shape (n,) into bins of about equal counts.

    A value that is more frequent than that has a bin of its own. A value equal to an edge lies above it.
    """
    distinct, counts = np.unique(values, return_counts=True)
    frequent = distinct[counts > len(values) / bins]
    cuts = [np.quantile(values, np.linspace(0, 1, bins + 1)[1:-1]), frequent, np.nextafter(frequent, np.inf)]
    inner = np.unique(np.concatenate(cuts))
    return inner[(inner > distinct[0]) & (inner <= distinct[-1])]


def number_counts(reference: np.ndarray, found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Counts of both in bins of equal counts of the reference, NaN left out; at least one each is there."""
    inner = edges(reference[~np.isnan(reference)])
    counts = [
        np.bincount(np.searchsorted(inner, values[~np.isnan(values)], side="right"), minlength=len(inner) + 1)
        for values in (reference, found)
    ]
    return counts[0], counts[1]


def ks(reference: np.ndarray, found: np.ndarray) -> float:
    """The Kolmogorov–Smirnov statistic, the largest distance of the distribution functions; NaN left out."""
    known, seen = (np.sort(values[~np.isnan(values)]) for values in (reference, found))
    at = np.concatenate([known, seen])
    below = [np.searchsorted(each, at, side="right") / len(each) for each in (known, seen)]
    return float(np.abs(below[0] - below[1]).max())


def improbable(count: int, n: int, share: float, level: float) -> bool:
    """Whether `count` or more of n rows have a probability below `level` where each has one of `share`."""
    return bool(stats.binom.sf(count - 1, n, share) < level)

"""Whether a difference seen on the same folds, or on the same rows, is more than noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy import stats

LEVEL = 0.05
"""Level of the two-sided tests."""

Statistic = Callable[[np.ndarray, np.ndarray], float]
"""A score of labels (n,) and what was predicted for these rows, an array of n rows."""


def corrected_t_test(differences: Sequence[float] | np.ndarray, ratio: float) -> tuple[float, float]:
    """The resampled t-test as Nadeau and Bengio corrected it (Inference for the generalization error, 2003).

    t = d̄ / √((1/J + n_test/n_train) · s²), s² the sample variance of the J differences, referred to
    Student's t with J − 1 degrees of freedom. The folds' training sets overlap, so their scores are not
    independent; the second term of the factor stands for that.

    Parameters
    ----------
    differences : of two models' scores on each of J folds (of all repeats), J ≥ 2.
    ratio : n_test / n_train.

    Returns
    -------
    t and its two-sided p-value; (0, 1) where all differences are 0, (±inf, 0) where they are all equal.
    """
    d = np.asarray(differences, dtype=np.float64)
    mean = float(d.mean())
    # equal differences leave a variance of rounding errors
    variance = 0.0 if np.ptp(d) <= 1e-12 * np.abs(d).max() else float(d.var(ddof=1))
    if variance == 0:
        return (0.0, 1.0) if mean == 0 else (float(np.copysign(np.inf, mean)), 0.0)
    t = mean / np.sqrt((1 / len(d) + ratio) * variance)
    return float(t), float(2 * stats.t.sf(abs(t), len(d) - 1))


def holm(p: Sequence[float] | np.ndarray) -> np.ndarray:
    """Holm's adjusted p-values of a family of tests, in the order given.

    p̃ of the j-th smallest of m is max_{i ≤ j} min(1, (m − i + 1) · p_(i)).
    """
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    scaled = np.minimum(1.0, values[order] * np.arange(len(values), 0, -1))
    out = np.empty(len(values))
    out[order] = np.maximum.accumulate(scaled)
    return out


def randomization_test(
    labels: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    statistic: Statistic,
    *,
    draws: int = 2000,
) -> float:
    """Two-sided p-value of two fitted models' difference on the same rows (approximate randomization).

    If the models were alike, which of them had made a row's prediction would not matter: in each draw a fair
    coin for every row swaps the two. p = (1 + draws with a difference as large as the one seen) /
    (1 + draws). It holds the sampling of the rows, not the variation of the training.

    Parameters
    ----------
    labels : of n rows; first, second : the models' predictions, arrays of n rows.
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
    labels: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    statistic: Statistic,
) -> tuple[float, float]:
    """Bootstrap percentile interval of 95 % of the first model's score less the second's, on the same rows.

    Parameters are as of `randomization_test`.
    """
    rng, n = np.random.default_rng(0), len(labels)
    found = []
    for rows in (rng.integers(0, n, n) for _ in range(500)):
        found.append(statistic(labels[rows], first[rows]) - statistic(labels[rows], second[rows]))
    low, high = np.quantile(found, [0.025, 0.975])
    return float(low), float(high)

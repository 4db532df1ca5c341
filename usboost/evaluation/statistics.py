"""Whether a difference seen on the same folds is more than noise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats


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

"""Whether a trial is better than the model's own settings, or only has luck with the rows that score it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

DRAWS = 100
"""Bootstrap samples of the scored rows, the same for all trials."""

Draws = Sequence[float | None]
"""A trial's score in each sample; None where the sample has none, an AUC of one class say."""


def drawn(
    score: Callable[[np.ndarray], float], n: int, groups: np.ndarray | None = None, part: int = 0
) -> np.ndarray:
    """The score of each bootstrap sample of n rows, float64 (DRAWS,).

    Parameters
    ----------
    score : of rows, given by their positions.
    groups : codes (n,); whole groups are drawn, as many as there are, since rows of one group are alike.
    part : the number of the rows' fold. Each has samples of its own: with equal ones, rows that stand at the
        same place of their folds, of one class say, would be drawn together.
    """
    rng = np.random.default_rng([0, part])
    if groups is None:
        return np.array([score(rng.integers(0, n, n)) for _ in range(DRAWS)])
    sizes = np.unique(groups, return_counts=True)[1]
    rows = np.split(np.argsort(groups, kind="stable"), np.cumsum(sizes)[:-1])
    samples = (rng.integers(0, len(rows), len(rows)) for _ in range(DRAWS))
    return np.array([score(np.concatenate([rows[k] for k in chosen])) for chosen in samples])


def error_of_difference(first: Draws, second: Draws) -> float:
    """The standard error of the difference of two trials' scores on the same rows; 0 if it is not known."""
    pairs = [(a, b) for a, b in zip(first, second, strict=False) if a is not None and b is not None]
    return float(np.std([a - b for a, b in pairs], ddof=1)) if len(pairs) > 1 else 0.0

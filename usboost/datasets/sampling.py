"""Random choices of rows that keep the classes' shares."""

import numpy as np
from numpy.typing import ArrayLike

from usboost.errors import UsboostError
from usboost.evaluation.folds import stratified_order


def stratified_sample(labels: ArrayLike, size: int | None, seed: int) -> np.ndarray:
    """Draw `size` rows, in their order, with the classes' shares; all of them when None or too few."""
    n = len(np.asarray(labels))
    if size is None or size >= n:
        return np.arange(n)
    return np.sort(stratified_order(labels, seed)[:size])


def switch_labels(y: ArrayLike, rate: float = 0.09, *, n_classes: int = 3, seed: int) -> np.ndarray:
    """Switch exactly round(rate · n) labels, each to one of the other classes at random.

    Takes clean labels 0..n_classes-1 of shape (n,), and returns int64 ones. Raises UsboostError if the rate
    or a label is out of range, or there is only one class.
    """
    clean = np.asarray(y, dtype=np.int64)
    if not 0 <= rate <= 1:
        raise UsboostError(f"rate is {rate}, but must be between 0 and 1")
    if n_classes < 2:
        raise UsboostError(f"n_classes is {n_classes}, but labels can only be switched between two or more")
    if len(clean) and (clean.min() < 0 or clean.max() >= n_classes):
        raise UsboostError(f"labels range from {clean.min()} to {clean.max()}, not within 0..{n_classes - 1}")
    rng = np.random.default_rng([seed, 1])
    rows = rng.choice(len(clean), size=round(rate * len(clean)), replace=False)
    noisy = clean.copy()
    noisy[rows] = (clean[rows] + rng.integers(1, n_classes, size=len(rows))) % n_classes
    return noisy

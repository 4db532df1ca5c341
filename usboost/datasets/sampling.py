"""Random choices of rows that keep the classes' shares."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from usboost.errors import UsboostError


def stratified_order(labels: ArrayLike, seed: int) -> np.ndarray:
    """Return the rows in a random order in which every class is spread evenly.

    A class of m rows gets the places (k + u) / m for k = 0..m−1, u uniform in [0, 1), in a random
    order of its rows. So any run of the order holds each class's share to within a few rows, and when
    no class has a single row, the first two thirds hold every class.

    Returns int64 positions of shape (n,).

    Parameters
    ----------
    labels : of shape (n,), anything `numpy.unique` takes.
    """
    rng = np.random.default_rng(seed)
    _, codes, counts = np.unique(np.asarray(labels), return_inverse=True, return_counts=True)
    shuffled = rng.permutation(len(codes))
    by_class = shuffled[np.argsort(codes[shuffled], kind="stable")]
    rank = np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts, counts)
    place = (rank + np.repeat(rng.random(len(counts)), counts)) / np.repeat(counts, counts)
    return by_class[np.argsort(place, kind="stable")]


def stratified_sample(labels: ArrayLike, size: int | None, seed: int) -> np.ndarray:
    """Draw `size` rows, in their order, with the classes' shares; all of them when None or too few."""
    n = len(np.asarray(labels))
    if size is None or size >= n:
        return np.arange(n)
    return np.sort(stratified_order(labels, seed)[:size])


def stratified_parts(labels: ArrayLike, shares: Sequence[float], seed: int) -> list[np.ndarray]:
    """Draw parts of about the given shares, each with the classes' shares and its rows in order.

    The last part gets what rounding leaves.
    """
    return _parts(stratified_order(labels, seed), shares)


def random_parts(n: int, shares: Sequence[float], seed: int) -> list[np.ndarray]:
    """Draw the same of n rows that have no classes."""
    return _parts(np.random.default_rng(seed).permutation(n), shares)


def _parts(order: np.ndarray, shares: Sequence[float]) -> list[np.ndarray]:
    cuts = np.rint(np.cumsum(shares[:-1]) * len(order)).astype(int)
    return [np.sort(part) for part in np.split(order, cuts)]


def stream(seed: int, *keys: int) -> int:
    """Return a seed for one purpose, so that no choice depends on how many numbers another one drew."""
    return int(np.random.SeedSequence(seed, spawn_key=keys).generate_state(1)[0])


def switch_labels(y: ArrayLike, rate: float = 0.09, *, n_classes: int = 3, seed: int) -> np.ndarray:
    """Switch exactly round(rate · n) labels, each to one of the other classes at random.

    Returns int64 labels of shape (n,). Raises UsboostError if the rate or a label is out of range, or there
    is only one class.

    Parameters
    ----------
    y : clean labels 0..n_classes-1 of shape (n,); not changed.
    rate : share of the rows, in [0, 1].
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

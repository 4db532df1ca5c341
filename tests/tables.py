"""Small seeded tables that many tests fit to; `conftest.make_views` has numbers and categories."""

import numpy as np

from usboost import Images, Table, Views


def one(numbers: np.ndarray, *names: str) -> Views:
    """Numbers as the view S."""
    return Views(S=Table.from_numeric(numbers, names))


def two(u: np.ndarray, s: np.ndarray) -> Views:
    """Numbers as the views U and S."""
    return Views(U=Table.from_numeric(u), S=Table.from_numeric(s))


def crossed(n: int, columns: int = 3, noise: float = 0.5, seed: int = 0) -> tuple[Views, np.ndarray]:
    """Two views of numbers, and a number to which one adds and the other an interaction."""
    rng = np.random.default_rng(seed)
    u, s = (rng.normal(size=(n, width)).round(1).astype(np.float32) for width in (columns, 3))
    return two(u, s), u[:, 0] + s[:, 1] * s[:, 2] + noise * rng.normal(size=n)


def bright(n: int, side: int = 8, channels: int = 1, seed: int = 0) -> tuple[Views, np.ndarray]:
    """Images whose upper half is bright where the class is 1, beside a table of noise."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    pixels = rng.integers(0, 120, (n, channels, side, side)).astype(np.uint8)
    pixels[y == 1, :, : side // 2] += 100
    return Views(U=Images(pixels), S=Table.from_numeric(rng.normal(size=(n, 2)))), y


def sequences(n_classes: int, n: int = 90, frames: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Sequences of two features about a centre for each class and frame, and their classes."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    centres = np.random.default_rng(99).normal(size=(n_classes, frames, 2))
    return centres[y] + 1.5 * rng.normal(size=(n, frames, 2)), y

"""Several images a row as one view."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any, ClassVar

import numpy as np

from usboost.data.images import EncodedImages, Images
from usboost.errors import UsboostError


class PooledImages:
    """Several images a row, such as a house from four sides, which a learner sees as one: as their mean.

    Parameters
    ----------
    columns : the first, second, ... image of the same n rows, of equal size.

    Raises
    ------
    UsboostError
        If there is none, or their rows or sizes differ.
    """

    kind: ClassVar[str] = "pooled_images"

    def __init__(self, columns: Sequence[Images | EncodedImages]) -> None:
        self.columns = tuple(columns)
        if len({(len(each), each.channels, each.height, each.width) for each in self.columns}) != 1:
            raise UsboostError("pooled images need one column or more, all of the same rows and size")

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, rows: Any) -> PooledImages:
        return PooledImages([each[rows] for each in self.columns])

    @property
    def channels(self) -> int:
        return self.columns[0].channels

    @property
    def height(self) -> int:
        return self.columns[0].height

    @property
    def width(self) -> int:
        return self.columns[0].width

    @property
    def absent(self) -> np.ndarray | None:
        """Bool of shape (n,), True where a row has no image at all; None where all have one."""
        found = (self.weights == 0).all(axis=1)
        return found if found.any() else None

    @property
    def weights(self) -> np.ndarray:
        """What each image counts in its row's mean, float32 (n, columns): 1 / (images there), else 0."""
        there = np.ones((len(self), len(self.columns)), dtype=np.float32)
        for k, each in enumerate(self.columns):
            if each.absent is not None:
                there[each.absent, k] = 0
        return there / np.maximum(there.sum(axis=1, keepdims=True), 1)

    def mean(self, values: Iterable[np.ndarray]) -> np.ndarray:
        """Each row's mean over its images, float32 (n, d); zeros where it has none.

        Parameters
        ----------
        values : of the images of each column, such as embeddings: arrays of shape (n, d).
        """
        weights = self.weights
        parts = (weight[:, None] * each for weight, each in zip(weights.T, values, strict=True))
        return reduce(np.add, parts).astype(np.float32, copy=False)

    def update_digest(self, digest: Any) -> None:
        """Feed what the images are to a hash of `hashlib`."""
        for each in self.columns:
            each.update_digest(digest)

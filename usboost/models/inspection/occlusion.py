"""Where a fitted model looks in an image: its answer while parts of the image are covered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from usboost.data.images import EncodedImages, Images
from usboost.data.pooled_images import PooledImages
from usboost.data.progress import Progress
from usboost.data.views import View, Views
from usboost.learners.networks.images import embeddings
from usboost.models.base import ViewsClassifier
from usboost.models.estimator import as_views

SHARE = 4
"""A patch's side is the image's by this; neighbouring patches overlap by half."""

MOST_IMAGES, MOST_BYTES = 128, 1 << 26
"""Covered images at a time, and bytes of their pixels."""

Patch = tuple[slice, slice]
"""The rows and columns of pixels that are covered."""


@dataclass(frozen=True)
class Occlusion:
    """What covering parts of one image does to the probability of the class predicted with all of it.

    Attributes
    ----------
    patches : the p parts, each covered alone.
    falls : float64 (p,), by how much the probability falls; negative where it rises.
    height, width : of the image, in pixels.
    """

    patches: Sequence[Patch]
    falls: np.ndarray
    height: int
    width: int

    def heat(self) -> np.ndarray:
        """For each pixel the mean fall over the patches that cover it: float64 (height, width)."""
        total, count = np.zeros((2, self.height, self.width))
        for patch, fall in zip(self.patches, self.falls, strict=True):
            total[patch] += fall
            count[patch] += 1
        return total / count


def occlusions(
    classifier: ViewsClassifier,
    X: Views | Mapping[str, Any],
    rows: Sequence[int],
    *,
    progress: Progress | None = None,
) -> dict[tuple[int, str, int], Occlusion]:
    """Cover each part of the images of some rows, one at a time, and predict.

    A covered part has the mean colour of its image. Nothing is added to the embeddings on disk.

    Parameters
    ----------
    rows : positions of samples, each once.
    progress : called with (covered images predicted, in all).

    Returns
    -------
    By row, view and the column within it (0 but for pooled images); rows without that image have none.
    """
    views, chosen = as_views(X), np.asarray(rows, dtype=np.int64)
    if not len(chosen):
        return {}
    before = classifier.predict_proba(views[chosen])
    predicted = before.argmax(axis=1)
    parts = [(name, k, each) for name in views.names for k, each in enumerate(_columns(views[name]))]
    # of each column of images the (place in rows, patch) that it takes
    asked = [
        [(place, patch) for place in np.flatnonzero(_there(each)[chosen]) for patch in _patches(each)]
        for _, _, each in parts
    ]
    total, done = sum(map(len, asked)), 0
    out: dict[tuple[int, str, int], Occlusion] = {}
    for (name, k, each), pairs in zip(parts, asked, strict=True):
        falls = np.empty(len(pairs))
        size = max(1, min(MOST_IMAGES, MOST_BYTES // (each.channels * each.height * each.width)))
        for start in range(0, len(pairs), size):
            batch = pairs[start : start + size]
            places = np.array([place for place, _ in batch])
            covered = Images(_covered(each.decode(chosen[places]), [patch for _, patch in batch]))
            some = views[chosen[places]]
            with embeddings.not_kept():
                after = classifier.predict_proba(some.with_view(name, _replaced(some[name], k, covered)))
            classes = predicted[places]
            found = before[places, classes] - after[np.arange(len(batch)), classes]
            falls[start : start + size] = found
            done += len(batch)
            if progress:
                progress(done, total)
        patches = _patches(each)
        for j, first in enumerate(range(0, len(pairs), len(patches))):
            place = pairs[j * len(patches)][0]
            own = falls[first : first + len(patches)]
            out[int(chosen[place]), name, k] = Occlusion(patches, own, each.height, each.width)
    return out


def _columns(view: View) -> Sequence[Images | EncodedImages]:
    """The columns of images of a view; none of a table."""
    if isinstance(view, PooledImages):
        return view.columns
    return (view,) if isinstance(view, (Images, EncodedImages)) else ()


def _there(images: Images | EncodedImages) -> np.ndarray:
    """The rows that have an image, bool (n,)."""
    return np.ones(len(images), dtype=bool) if images.absent is None else ~images.absent


def _patches(images: Images | EncodedImages) -> list[Patch]:
    """The parts to cover: squares that reach every pixel."""
    side = max(1, min(images.height, images.width) // SHARE)
    return [
        (slice(top, top + side), slice(left, left + side))
        for top in _starts(images.height, side)
        for left in _starts(images.width, side)
    ]


def _starts(length: int, side: int) -> list[int]:
    return [*range(0, length - side, max(1, side // 2)), length - side]


def _covered(pixels: np.ndarray, patches: Sequence[Patch]) -> np.ndarray:
    """The images, uint8 (b, C, H, W), each with its patch in its mean colour."""
    out = pixels.copy()
    for image, (rows, columns) in zip(out, patches, strict=True):
        image[:, rows, columns] = np.rint(image.mean(axis=(1, 2)))[:, None, None]
    return out


def _replaced(view: View, k: int, images: Images) -> View:
    """The view with other images in its column k."""
    if not isinstance(view, PooledImages):
        return images
    return PooledImages([*view.columns[:k], images, *view.columns[k + 1 :]])

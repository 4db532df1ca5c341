"""Near-equal images: rows whose images are nearer to each other than images of different things get.

The null has no constant of distance in it. Where density is about even around a row and images of different
things have m degrees of freedom, the volumes V_1 < V_2 < … of the balls that reach a row's neighbours grow by
uniform steps: V_k / V_{k+1} = (d_k / d_{k+1})^m has the distribution function x^k. So −k·m·ln(d_k / d_{k+1})
is exponential of mean 1, whatever the density is. m is that of the table: the median of ln(d_2k / d_k) is
ln 2 / m in balls large enough that a few copies of an image do not matter. Real density is not even; by how
much longer that makes the tail is measured on the steps where copies cannot be, far from the row.
A row has copies among its first k neighbours where the step behind them is improbable, with a false discovery
rate of `LEVEL` among all rows (Benjamini and Hochberg's); of its steps the least probable one counts.
Two images are a pair where both say so: a third image beside two copies has two neighbours that are one.
Shots of one thing also agree in their columns and label: half of the level goes to steps that only neighbours
come before which agree in more columns than those behind. Under the null any of these may come first.

Distances are those of embeddings, and, among the neighbours by these, of small pictures, as they are, turned
by quarters, mirrored, or cut to their middle: a network sees a re-encoded picture as another one.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy.stats import false_discovery_control
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize
from torch.nn.functional import adaptive_avg_pool2d

NEIGHBOURS, LEVEL = 40, 0.05
"""Neighbours of each image that are looked at, and the share of the pairs found that may be wrong."""

_AXES, _FITTED = 128, 20_000
_LEAST = 60  # images: of fewer nothing is known of how near different things are
_LONGEST = 8.0  # times the tail of even density; where it is longer the null does not hold
_EPSILON = 1e-3  # distance of equal images, which rounding makes of none
_SIDE, _MARGIN, _NEAREST = 8, 0.07, 8  # of small pictures: pixels, share cut off a side, steps looked at


def whitened(values: np.ndarray, absent: np.ndarray | None = None) -> np.ndarray:
    """Return embeddings (n, d) as unit vectors of at most 128 principal axes that vary alike, float32.

    `absent`: bool (n,), True where there is no image; those are 0.
    """
    there = np.arange(len(values)) if absent is None else np.flatnonzero(~absent)
    if len(there) < _LEAST:
        return np.zeros((len(values), 1), dtype=np.float32)
    rows = there[np.sort(np.random.default_rng(0).permutation(len(there))[:_FITTED])]
    made = PCA(min(_AXES, len(rows) // 4, values.shape[1]), whiten=True, random_state=0).fit(values[rows])
    out = np.zeros((len(values), made.n_components_), dtype=np.float32)
    out[there] = normalize(made.transform(values[there]))
    return out


def find_twins(units: np.ndarray, images: Any = None, columns: Sequence[np.ndarray] = ()) -> np.ndarray:
    """Return pairs of rows with near-equal images, int64 (p, 2), the first less than the second.

    `units`: of `whitened`; `images`: these, to compare small pictures, too; `columns`: codes of the label and
    of columns, int64 (n,) each, which are equal for shots of one thing.
    """
    there = np.flatnonzero(units.any(axis=1))
    if len(there) < _LEAST:
        return np.zeros((0, 2), dtype=np.int64)
    # scikit-learn looks at a block of rows at a time
    near = NearestNeighbors(n_neighbors=NEIGHBOURS, algorithm="brute").fit(units[there])
    distances, nearest = near.kneighbors()
    equal = np.zeros(nearest.shape, dtype=np.int16)
    for codes in columns:
        equal += codes[there[nearest]] == codes[there, None]
    pairs = _copies(distances, nearest, equal)
    if images is not None:
        apart = np.sqrt(np.maximum(2 - 2 * likeness(small_pictures(images, there), nearest), 0))
        order = np.argsort(apart, axis=1)
        apart, nearest, equal = (np.take_along_axis(each, order, 1) for each in (apart, nearest, equal))
        pairs = np.unique(np.concatenate([pairs, _copies(apart[:, :_NEAREST], nearest, equal)]), axis=0)
    return there[pairs]


def small_pictures(images: Any, rows: np.ndarray) -> np.ndarray:
    """Return images as 8 × 8 pixels, whole and cut to their middle: float32 (n, 2, C, 8, 8), of norm 1.

    Each channel's mean is 0, so that brightness does not count.
    """
    out = np.empty((len(rows), 2, images.channels, _SIDE, _SIDE), dtype=np.float32)
    y, x = (round(_MARGIN * side) for side in (images.height, images.width))
    for start in range(0, len(rows), 256):
        pixels = torch.from_numpy(images.decode(rows[start : start + 256])).float()
        middle = pixels[:, :, y : images.height - y, x : images.width - x]
        both = torch.stack([adaptive_avg_pool2d(each, _SIDE) for each in (pixels, middle)], 1)
        both = both - both.mean((3, 4), keepdim=True)
        norm = both.square().sum((2, 3, 4), keepdim=True).sqrt()
        out[start : start + 256] = (both / norm.clamp(min=1e-6)).numpy()
    return out


def likeness(pictures: np.ndarray, nearest: np.ndarray) -> np.ndarray:
    """Return the largest correlation of small pictures (n, 2, …) with those of some rows, float64 (n, k).

    Over quarter turns, mirrored or not, both whole or one of them cut to its middle.
    """
    every, best = torch.from_numpy(pictures), np.empty(nearest.shape)
    for start in range(0, len(nearest), 256):
        others = every[torch.from_numpy(nearest[start : start + 256])].flatten(3)
        own, found = every[start : start + 256], []
        for turn in range(8):
            turned = torch.rot90(own if turn < 4 else own.flip(4), turn, (3, 4)).flatten(2)
            found.append(torch.einsum("nzd,nkd->nkz", turned, others[:, :, 0]).amax(2))
            found.append(torch.einsum("nd,nkd->nk", turned[:, 0], others[:, :, 1]))
        best[start : start + 256] = torch.stack(found).amax(0).numpy()
    return best


def _copies(distances: np.ndarray, nearest: np.ndarray, equal: np.ndarray) -> np.ndarray:
    """Return the pairs (p, 2) of rows that are copies to each other.

    `distances`: of the first others of each row, rising; `nearest`: which rows these are, and further ones;
    `equal`: in how many columns each of them equals the row.
    """
    distances = np.maximum(distances.astype(np.float64), _EPSILON)
    k = distances.shape[1]
    half = k // 4
    spread = np.log(distances[:, 2 * half - 1] / distances[:, half - 1])
    degrees = np.log(2) / max(float(np.median(spread)), 1e-6)
    ranks = np.arange(1, k)
    steps = np.log(distances[:, 1:] / distances[:, :-1]) * degrees * ranks
    # of even density the quantile at 1 − 1/e⁴ of any step is 4
    tail = max(1.0, float(np.median(np.quantile(steps[:, half:], 1 - np.exp(-4), axis=0))) / 4)
    # a step behind k neighbours has the share 1 / (k · (k + 1)) of the level, and all rows are one family
    scores = steps / tail - np.log(ranks * (ranks + 1))
    if equal.any():
        # half of the level is for columns: so many of those behind the step are as equal as those before it
        least = np.minimum.accumulate(equal, axis=1)
        behind = [(equal[:, j:] >= least[:, j - 1 : j]).sum(axis=1) for j in ranks]
        shares = (1 + np.stack(behind, axis=1)) / (1 + equal.shape[1] - ranks)
        scores += np.maximum(-np.log(shares), 0) - np.log(2)
    improbable = false_discovery_control(np.exp(-scores.max(axis=1).clip(0))) <= LEVEL
    reach = np.where(improbable & (tail <= _LONGEST), scores.argmax(axis=1) + 1, 0)
    rows, places = np.nonzero(np.arange(k) < reach[:, None])
    ends = np.sort(np.stack([rows, nearest[rows, places]], axis=1), axis=1)
    pairs, times = np.unique(ends, axis=0, return_counts=True)
    return pairs[times == 2]

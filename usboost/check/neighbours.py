"""Near-equal images, or numbers: rows that are nearer to each other than rows of different things get.

The null has no constant of distance in it. Where density is even and images of different things have m
degrees of freedom, the volumes V_1 < V_2 < … of the balls that reach a row's neighbours grow by uniform
steps: V_k / V_{k+1} = (d_k / d_{k+1})^m has the distribution function x^k, so −k·m·ln(d_k / d_{k+1}) is
exponential of mean 1. m is that of the table: the median of ln(d_2k / d_k) is ln 2 / m in balls so large
that a few copies do not matter. Real density is not even, that of drawings least of all: how much longer
that makes the tail is the median over the second to the eighth step, since copies end at one of them. A row
has copies among its first k neighbours where the step behind them is improbable, with a false discovery rate
of `LEVEL` among all rows; of its steps the least probable one counts. Two images are a pair where both say
so: a third image beside two copies has two neighbours that are one. Shots of one thing also agree in their
columns and label: half of the level goes to steps that only neighbours come before which agree in more
columns than those behind.

Distances are those of embeddings, and, among the neighbours by these, of small pictures, as they are, turned
by quarters, mirrored, or cut to their middle: a network sees a re-encoded picture as another one, and
drawings of one layout as one. What is near by embeddings has to be as near by pictures, too.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import false_discovery_control, norm, zscore
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize
from torch.nn.functional import adaptive_avg_pool2d

NEIGHBOURS, LEVEL = 40, 0.05
"""Neighbours of each image that are looked at, and the share of the pairs found that may be wrong."""

_AXES, _FITTED = 128, 20_000
_LEAST = 60  # rows: of fewer nothing is known of how near different things are
_FINE, _TIES, _COLUMNS, _MOST = 200, 0.02, 4, 128  # values of a column, the share of one; columns
_BETWEEN, _FLAT = 5e-7, 0.1  # 1 less the cosine of a straight line; spread of a third dimension, at least
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


def fine_columns(numbers: pd.DataFrame) -> pd.DataFrame:
    """Return columns (n, p) with hardly a tie, in which a distance says something: 4 to 128, or none."""
    n = len(numbers)
    counts = {name: column.value_counts() for name, column in numbers.items()}
    fine = [k for k, v in counts.items() if len(v) >= min(_FINE, n / 2) and v.max() <= max(3, _TIES * n)]
    return numbers[fine[:_MOST] if len(fine) >= _COLUMNS else []]


def normal_scores(numbers: pd.DataFrame) -> np.ndarray:
    """Return columns (n, p) as normal scores, float32, for `find_twins`; repeated rows are 0."""
    ranks = numbers.rank().fillna((len(numbers) + 1) / 2)
    scores = norm.ppf((ranks - 0.5) / len(numbers)).astype(np.float32).reshape(len(numbers), -1)
    return scores * ~numbers.duplicated().to_numpy()[:, None]


def are_between(numbers: pd.DataFrame) -> np.ndarray:
    """Return which rows lie on the straight line between two of their neighbours, bool (n,).

    SMOTE and interpolation make such rows; in four columns or more chance does so in a plane alone.
    """
    values = numbers.loc[:, (numbers % 1 > 0).mean() >= 0.2]
    there, out = np.flatnonzero(values.notna().all(axis=1)), np.zeros(len(numbers), dtype=bool)
    if len(there) < _LEAST or values.shape[1] < _COLUMNS:
        return out
    z = zscore(values.to_numpy()[there], axis=0)
    nearest = NearestNeighbors(n_neighbors=NEIGHBOURS).fit(z).kneighbors(return_distance=False)
    for start in range(0, len(z), 256):
        ways = z[nearest[start : start + 256]] - z[start : start + 256, None]
        ways /= np.maximum(np.linalg.norm(ways, axis=2, keepdims=True), 1e-300)
        spread, cosines = np.linalg.svd(ways, compute_uv=False), ways @ ways.transpose(0, 2, 1)
        is_flat = spread[:, 2] < _FLAT * spread[:, 0]
        out[there[start : start + 256]] = (cosines.min(axis=(1, 2)) < _BETWEEN - 1) & ~is_flat
    return out


def find_twins(units: np.ndarray, images: Any = None, columns: Sequence[np.ndarray] = ()) -> np.ndarray:
    """Return pairs of rows with near-equal images, or numbers, int64 (p, 2), the first less than the second.

    `units`: of `whitened` or `normal_scores`; `images`: these, to compare small pictures, too; `columns`:
    codes of the label and of columns, int64 (n,) each, which are equal for shots of one thing.
    """
    there = np.flatnonzero(units.any(axis=1))
    if len(there) < _LEAST:
        return np.zeros((0, 2), dtype=np.int64)
    distances, nearest = NearestNeighbors(n_neighbors=NEIGHBOURS).fit(units[there]).kneighbors()
    are_equal = (codes[there[nearest]] == codes[there, None] for codes in columns)
    equal = sum(are_equal, start=np.zeros(nearest.shape, dtype=np.int16))
    reach = _reach(distances, equal)
    # some drawings are a cluster: its members agree in no column and not in the label, as copies do
    least = np.take_along_axis(np.minimum.accumulate(equal, axis=1), reach - 1, axis=1)
    reach[(least == 0) & equal.any()] = 0
    are_near = np.arange(NEIGHBOURS) < reach
    if images is not None:
        apart = np.sqrt(np.maximum(2 - 2 * likeness(small_pictures(images, there), nearest), 0))
        order = np.argsort(apart, axis=1, kind="stable")
        apart, equal = (np.take_along_axis(each, order, 1) for each in (apart, equal))
        places = np.argsort(order, axis=1)
        are_near = (are_near & (places < reach)) | (places < _reach(apart[:, :_NEAREST], equal))
    rows, places = np.nonzero(are_near)
    ends = np.sort(np.stack([rows, nearest[rows, places]], axis=1), axis=1)
    pairs, times = np.unique(ends, axis=0, return_counts=True)
    return there[pairs[times == 2]]


def small_pictures(images: Any, rows: np.ndarray) -> np.ndarray:
    """Return images as 8 × 8 pixels, whole and cut to their middle: float32 (n, 2, C, 8, 8), of norm 1.

    Their mean is 0, so that brightness does not count; a picture of one grey is nothing.
    """
    pictures, (y, x) = [], (round(_MARGIN * side) for side in (images.height, images.width))
    for start in range(0, len(rows), 256):
        pixels = torch.from_numpy(images.decode(rows[start : start + 256])).float()
        middle = pixels[:, :, y : images.height - y, x : images.width - x]
        both = torch.stack([adaptive_avg_pool2d(each, _SIDE) for each in (pixels, middle)], 1)
        both = both - both.mean((2, 3, 4), keepdim=True)
        pictures.append(both / torch.linalg.vector_norm(both, dim=(2, 3, 4), keepdim=True).clamp(min=1))
    return torch.cat(pictures).numpy()


def likeness(pictures: np.ndarray, nearest: np.ndarray) -> np.ndarray:
    """Return how alike pictures (n, 2, …) and others, turned and mirrored, are at most: float64 (n, k)."""
    every, best = torch.from_numpy(pictures), np.empty(nearest.shape)
    for start in range(0, len(nearest), 256):
        own, others = every[start : start + 256], every[torch.from_numpy(nearest[start : start + 256])]
        turned = [torch.rot90(each, turn, (3, 4)) for each in (own, own.flip(4)) for turn in range(4)]
        alike = torch.einsum("ntyd,nkzd->nktyz", torch.stack(turned, 1).flatten(3), others.flatten(3))
        best[start : start + 256] = alike.amax((2, 3, 4)).numpy()
    return best


def _reach(distances: np.ndarray, equal: np.ndarray) -> np.ndarray:
    """Return how many of the first others of each row are its copies, int64 (n, 1).

    `distances`: of these, rising; `equal`: in how many columns each of them, and of further ones, equals it.
    """
    distances = np.maximum(distances.astype(np.float64), _EPSILON)
    k = distances.shape[1]
    spread = np.log(distances[:, k // 2 - 1] / distances[:, k // 4 - 1])
    degrees = np.log(2) / max(float(np.median(spread)), 1e-6)
    ranks = np.arange(1, k)
    steps = np.log(distances[:, 1:] / distances[:, :-1]) * degrees * ranks
    # of even density the quantile at 1 − 1/e⁴ of any step is 4
    tail = max(1.0, float(np.median(np.quantile(steps[:, 1:_NEAREST], 1 - np.exp(-4), axis=0))) / 4)
    # a step behind k neighbours has the share 1 / (k · (k + 1)) of the level, and all rows are one family
    scores = steps / tail - np.log(ranks * (ranks + 1))
    if equal.any():
        # half of the level is for columns: so many of those behind the step are as equal as those before it
        least = np.minimum.accumulate(equal, axis=1)
        behind = [(equal[:, j:] >= least[:, j - 1 : j]).sum(axis=1) for j in ranks]
        shares = (1 + np.stack(behind, axis=1)) / (1 + equal.shape[1] - ranks)
        scores -= np.log(2 * shares)
    improbable = false_discovery_control(np.exp(-scores.max(axis=1).clip(0))) <= LEVEL
    return np.where(improbable, scores.argmax(axis=1) + 1, 0)[:, None]

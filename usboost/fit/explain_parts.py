"""Explain single rows by their parts: each column, and each square of each image, in units of the margin.

All images have one Shapley value (`usboost.fit.explain`). Of several columns of images it is shared out by
the game whose value of some columns is what the images add where the others' images are those of the rows
compared with; a column's share by the game whose value of some squares is what the images add where the
others are covered, and of none what the other columns add (as in unions, Owen 1977). Its Shapley values are
estimated: in orders drawn at random, and their reverses, one square after another is uncovered.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from usboost.data.images import Images
from usboost.data.progress import Progress
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.fit.bundle import Bundle
from usboost.fit.explain import FEWEST, WHY, explain, margins, read_reference, read_rows, reference_of
from usboost.learners.networks import embeddings
from usboost.models.inspection.attribution import check_explainable
from usboost.table.source import FrameRows, Source

GRID = 5
"""Squares along each side of an image."""

ORDERS = 12
"""Orders in which an image's squares are uncovered; an even number."""

_REFERENCE = 4  # of the rows to compare with every such one is taken where images are mixed
_BYTES = 1 << 26  # of the pixels of covered images at a time


def cuts_of(length: int) -> np.ndarray:
    """Return where so many pixels are cut into squares, int64 (GRID + 1,)."""
    return np.linspace(0, length, GRID + 1).round().astype(np.int64)


@dataclass(frozen=True)
class Parts:
    """Shares of all parts in the answers of n rows.

    Attributes
    ----------
    columns : by column float64 (n,), what it adds to the margin of the row's answer.
    squares : by column of images that the model reads float64 (n, `GRID`, `GRID`), from the upper left; all
        equal where the row has no image.
    mean : float64 (n,), of the margin over the reference rows; with all others it sums to the row's.
    """

    columns: Mapping[str, np.ndarray]
    squares: Mapping[str, np.ndarray]
    mean: np.ndarray

    def frame(self) -> pd.DataFrame:
        """Return a column for each part, ``photo 1,2`` for the second square of the first line, and mean."""
        squares = {
            f"{name} {y + 1},{x + 1}": each[:, y, x]
            for name, each in self.squares.items()
            for y in range(GRID)
            for x in range(GRID)
        }
        return pd.DataFrame({**self.columns, **squares, "mean": self.mean})

    def texts(self) -> list[str]:
        """Return each row as JSON: ``columns``, ``images`` with the lines of squares, and ``mean``."""
        found = []
        for row in range(len(self.mean)):
            columns = {name: float(values[row]) for name, values in self.columns.items()}
            images = {name: squares[row].tolist() for name, squares in self.squares.items()}
            document = {"columns": columns, "images": images, "mean": float(self.mean[row])}
            found.append(json.dumps(document, ensure_ascii=False))
        return found


def explain_parts(
    bundle: Bundle,
    views: Views,
    reference: Views,
    predicted: np.ndarray,
    progress: Progress | None = None,
) -> Parts:
    """Return what each column and each square of each image adds to the margin of some rows' answers.

    Nothing is added to the embeddings on disk. Raises `UsboostError` as `explain`.

    Parameters
    ----------
    views, reference, predicted : as of `explain`; an image takes some 300 predictions.
    progress : called with (rows done, n).
    """
    found, form = explain(bundle, views, reference, predicted), bundle.reader.images
    columns = {name: found.values[:, k] for k, name in enumerate(bundle.card.columns)}
    # rounding, of learners that add up float32, goes into the mean
    mean = margins(bundle, views, predicted) - found.values.sum(axis=1)
    if form is None or len(found.names) == len(columns):
        return Parts(columns, {}, mean)
    unread = getattr(bundle.model, "left_out_", ())
    read = {view: name for view, name in zip(form.names, form.columns, strict=True) if view not in unread}
    squares = {view: np.empty((len(views), GRID, GRID)) for view in read}
    few = reference[np.arange(0, len(reference), _REFERENCE)]
    for row, total in enumerate(found.values[:, -1]):
        game = _Game(bundle, views[[row]], few, predicted[[row]])
        with embeddings.without_writing():
            for view, share in game.columns(tuple(read), float(total)).items():
                squares[view][row] = game.squares(view)
                squares[view][row] += (share - squares[view][row].sum()) / GRID**2
        if progress:
            progress(row + 1, len(views))
    return Parts(columns, {read[view]: each for view, each in squares.items()}, mean)


@dataclass(frozen=True)
class _Game:
    """What the images of one row add to its margin when they are others."""

    bundle: Bundle
    own: Views
    reference: Views
    predicted: np.ndarray

    def added(self, given: Mapping[str, Images]) -> np.ndarray:
        """Return what the images add when those of some views are these k, float64 (k,)."""
        k = len(next(iter(given.values())))
        views = self.own[np.zeros(k, dtype=np.int64)]
        for name, images in given.items():
            views = views.with_view(name, images)
        predicted = np.repeat(self.predicted, k, axis=0)
        return explain(self.bundle, views, self.reference, predicted).values[:, -1]

    def columns(self, names: tuple[str, ...], total: float) -> dict[str, float]:
        """Return the share of each view of images in what all of them add."""
        worth, n = {(): 0.0, names: total}, len(names)
        for size in range(1, n):
            for some in combinations(names, size):
                others = {name: self.reference[name] for name in names if name not in some}
                worth[some] = float(self.added(others).mean())
        shares = dict.fromkeys(names, 0.0)
        for some, value in worth.items():
            for name in names:
                inside, k = name in some, len(some)
                weight = 1 / (n * math.comb(n - 1, k - inside))
                shares[name] += weight * value if inside else -weight * value
        return shares

    def squares(self, view: str) -> np.ndarray:
        """Return what uncovering each square of an image adds, float64 (GRID, GRID); 0 without an image."""
        found, images = np.zeros(GRID * GRID), self.own[view]
        if images.absent is not None and images.absent[0]:
            return found.reshape(GRID, GRID)
        (pixels,), rng = images.decode(), np.random.default_rng(0)
        covered = np.empty_like(pixels)
        covered[:] = np.rint(pixels.mean(axis=(1, 2)))[:, None, None]
        cuts = [cuts_of(length) for length in pixels.shape[1:]]
        orders = [rng.permutation(GRID * GRID) for _ in range(ORDERS // 2)]
        orders = [each[::step] for each in orders for step in (1, -1)]
        size = max(1, _BYTES // ((GRID * GRID + 1) * pixels.nbytes))
        for first in range(0, ORDERS, size):
            some, stages = orders[first : first + size], []
            for order in some:
                stages.append(covered.copy())
                for square in order:
                    shown = stages[-1].copy()
                    down, across = (
                        slice(*cut[at : at + 2]) for cut, at in zip(cuts, divmod(int(square), GRID))
                    )
                    shown[:, down, across] = pixels[:, down, across]
                    stages.append(shown)
            worth = self.added({view: Images(np.stack(stages))}).reshape(len(some), -1)
            for order, values in zip(some, worth, strict=True):
                found[order] += np.diff(values) / ORDERS
        return found.reshape(GRID, GRID)


def explain_rows_by_parts(bundle: Bundle, rows: Source, against: Source) -> pd.DataFrame:
    """Return `Parts.frame` of all rows of a source, compared with rows of another."""
    check_explainable(bundle.model, bundle.card.model)
    reference = read_reference(bundle, against)
    found = [
        explain_parts(bundle, batch.views, reference, bundle.predicted(batch.views)).frame()
        for batch in bundle.reader.read(rows)
    ]
    return pd.concat(found, ignore_index=True)


def with_why(bundle: Bundle, rows: pd.DataFrame, answers: pd.DataFrame, first: int) -> pd.DataFrame:
    """Return answers to rows with a column `WHY`: `Parts.texts` of the first rows, None of the others.

    Raises `UsboostError` if there are too few rows to compare one with, or as `explain`.

    Parameters
    ----------
    first : rows to explain; with 0 the answers stay as they are.
    """
    if first <= 0:
        return answers
    if len(rows) < FEWEST:
        raise UsboostError(
            f"{len(rows)} rows are too few to explain one by; send at least {FEWEST}, which `explain` "
            "compares the first ones with"
        )
    check_explainable(bundle.model, bundle.card.model)
    views = read_rows(bundle, FrameRows(rows, mixed=True)).views
    own = views[np.arange(min(first, len(views)))]
    texts = explain_parts(bundle, own, reference_of(views), bundle.predicted(own)).texts()
    return answers.assign(**{WHY: [*texts, *[None] * (len(answers) - len(texts))]})

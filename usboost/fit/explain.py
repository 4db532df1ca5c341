"""Explain why a model answers a row as it does: what columns and squares of images add to its margin.

All images have one Shapley value. Of several columns of images it is shared out by the game whose value of
some columns is what the images add where the others' images are those of the rows compared with; a column's
share by the game whose value of some squares is what the images add where the others are covered, and of none
what the other columns add (as in unions, Owen 1977). Its Shapley values are estimated: in orders drawn at
random, and their reverses, one square after another is uncovered.
"""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from usboost.data.images import Images
from usboost.data.progress import Progress
from usboost.data.views import Views
from usboost.errors import UsboostError, warn
from usboost.fit.bundle import Bundle
from usboost.learners.networks import embeddings
from usboost.models.inspection.attribution import Owners, check_explainable, direction, left_out, shapley
from usboost.table.columns.encoding import SUFFIX
from usboost.table.notes import Tally, check_paths, notes_of_rows
from usboost.table.rows import Rows
from usboost.table.source import FrameRows, Source

AGAINST = 64  # rows that each row is compared with
FEWEST = 10  # rows to draw these from, at least
SHOWN = 5  # columns that are named of a row

WHY = "why"


@dataclass(frozen=True)
class Shares:
    """Hold what parts of n rows add to their answers' margins; with the mean they sum to a row's margin."""

    columns: Mapping[str, np.ndarray]  # float64 (n,); all images are the last one if they are not cut
    # by column of images that the model reads float64 (n, `GRID`, `GRID`), from the upper left; all equal
    # where the row has no image
    squares: Mapping[str, np.ndarray]
    mean: np.ndarray  # float64 (n,), of the margin over the reference rows

    def frame(self) -> pd.DataFrame:
        """Return a column for each part, ``photo 1,2`` for the second square of the first line, and mean.

        Where a column of the table is called so, the mean is called ``mean_``, or ``mean__``.
        """
        squares = {
            f"{name} {y + 1},{x + 1}": each[:, y, x]
            for name, each in self.squares.items()
            for y in range(GRID)
            for x in range(GRID)
        }
        parts, mean = {**self.columns, **squares}, "mean"
        while mean in parts:
            mean += "_"
        return pd.DataFrame({**parts, mean: self.mean})

    def words(self) -> list[str]:
        """Return the columns that add or take most in each row, ``age +0.83; sex -0.21`` say."""
        names, lines = list(self.columns), []
        for values in np.column_stack([*self.columns.values()]):
            largest = np.argsort(-np.abs(values), kind="stable")[:SHOWN]
            digits = digits_of(values)
            shown = [k for k in largest if abs(values[k]) >= 0.5 * 10.0**-digits]
            lines.append("; ".join(f"{names[k]} {values[k]:+.{digits}f}" for k in shown))
        return lines

    def texts(self) -> list[str]:
        """Return each row as JSON: ``columns``, ``images`` with the lines of squares, and ``mean``."""
        texts = []
        for row in range(len(self.mean)):
            columns = {name: float(values[row]) for name, values in self.columns.items()}
            images = {name: squares[row].tolist() for name, squares in self.squares.items()}
            document = {"columns": columns, "images": images, "mean": float(self.mean[row])}
            texts.append(json.dumps(document, ensure_ascii=False))
        return texts


def digits_of(shares: ArrayLike) -> int:
    """Count the digits after the point that give the largest share three figures, or two below 1."""
    largest = float(np.max(np.abs(shares), initial=0.0))
    return max(0, 2 - (largest < 1) - math.floor(math.log10(largest))) if largest else 2


def names_of(bundle: Bundle) -> tuple[str, ...]:
    """Return what adds to an answer: the columns, and all images as the last one if the model reads any."""
    form, columns = bundle.reader.images, tuple(bundle.card.columns)
    if form is None or set(form.names) <= set(left_out(bundle.model)):
        return columns
    return (*columns, f"images ({', '.join(form.columns)})")


def encoded_names(bundle: Bundle) -> dict[str, list[str]]:
    """Return by column of the table the names that it, dates, texts and missing values have when encoded."""
    several: dict[str, Any] = {**bundle.encoding.dates, **bundle.texts}
    parts = {name: several[name].names(name) if name in several else [name] for name in bundle.card.columns}
    marked = {name for name, rule in bundle.encoding.imputation.items() if rule["indicator"]}
    return {name: [*own, *(each + SUFFIX for each in own if each in marked)] for name, own in parts.items()}


def owners_of(bundle: Bundle) -> Owners:
    """Return the function from a learner's columns to the places in `names_of` that have them."""
    plain = {part: k for k, parts in enumerate(encoded_names(bundle).values()) for part in parts}
    images = len(names_of(bundle)) - 1

    def owners(names: Sequence[str]) -> np.ndarray:
        # a learner of several views reads the table's a as S__a, which may be another column's name
        several = any({f"{view}__{each}" for each in bundle.encoding.names} <= {*names} for view in "US")
        own = (name.split("__", 1)[-1] if several else name for name in names)
        return np.array([plain.get(name, images) for name in own])

    return owners


def explain(
    bundle: Bundle, views: Views, reference: Views, predicted: np.ndarray, *, images_alone: bool = False
) -> Shares:
    """Return what each column adds to the margin of some rows' answers.

    The margin of a class is its score less the mean of the others', as calibrated: of two classes its
    log-odds. A number's is the number, before its floor. `reference` are views of the rows that these are
    compared with, `predicted` is as of `Bundle.predicted`. With `images_alone` only what the images add is
    right, which is quicker. Raises `UsboostError` if the model cannot be explained.
    """
    check_explainable(bundle.model, bundle.card.model)
    names, owners = names_of(bundle), owners_of(bundle)
    images = len(names) - 1
    alone = images if images_alone else None
    added = shapley(bundle.model, views, reference, owners, len(names), images, alone)
    turn = _turn(bundle, predicted)
    values = np.einsum("npd,nd->np", added.values, turn)
    mean = turn @ added.mean + getattr(bundle.model, "target_centre_", 0.0)
    return Shares(dict(zip(names, values.T, strict=True)), {}, mean)


def explain_rows(bundle: Bundle, rows: Source, against: Source, *, parts: bool = False) -> pd.DataFrame:
    """Return what `explain` does of all rows, or `explain_parts`, as the table of `Shares.frame`."""
    check_explainable(bundle.model, bundle.card.model)
    reference, frames, tally = reference_of(read_rows(bundle, against).views), [], Tally()
    for batch in bundle.reader.read(rows, tally=tally):
        given = bundle, batch.views, reference, bundle.predicted(batch.views)
        frames.append((explain_parts(*given) if parts else explain(*given)).frame())
    check_paths(rows, tally.paths)
    for each in notes_of_rows(tally):
        warn(each)
    if not frames:
        raise UsboostError(f"{rows} has no rows to explain")
    return pd.concat(frames, ignore_index=True)


def _turn(bundle: Bundle, predicted: np.ndarray) -> np.ndarray:
    """Return the factors that turn f into the margin of each row's answer, float64 (n, D)."""
    answers = bundle.codes(predicted) if bundle.card.classes else predicted
    return direction(bundle.model, answers) / bundle.card.temperature


def read_rows(bundle: Bundle, source: Source, more: Collection[str] = ()) -> Rows:
    """Return the first rows of a table, as many as `RowReader.read` reads at a time.

    Raises `UsboostError` if it has fewer than `FEWEST` rows, or as `RowReader.read`, which has `more`.
    """
    tally = Tally()
    rows = next(iter(bundle.reader.read(source, more=more, tally=tally)), None)
    check_paths(source, tally.paths)
    for each in tally.misfits.values():
        each.check()
    n = 0 if rows is None else len(rows.views)
    if rows is None or n < FEWEST:
        raise UsboostError(
            f"{source} has {n} row{'s' * (n != 1)}, too few to compare a row with: {FEWEST} are needed; name "
            f"a table that has more with `against`"
        )
    return rows


def reference_of(views: Views) -> Views:
    """Return `AGAINST` of the rows, drawn at random."""
    rows = np.random.default_rng(0).permutation(len(views))[:AGAINST]
    return views[np.sort(rows)]


GRID = 5  # squares along each side of an image
ORDERS = 12  # orders in which an image's squares are uncovered; an even number

_REFERENCE = 4  # of the rows to compare with every such one is taken where images are mixed
_BYTES = 1 << 26  # of the pixels of covered images at a time


def cuts_of(length: int) -> np.ndarray:
    """Return where so many pixels are cut into squares, int64 (GRID + 1,)."""
    return np.linspace(0, length, GRID + 1).round().astype(np.int64)


def explain_parts(
    bundle: Bundle, views: Views, reference: Views, predicted: np.ndarray, progress: Progress | None = None
) -> Shares:
    """Return what each column and each square of each image adds to the margin of some rows' answers.

    Nothing is added to the embeddings on disk; an image takes some 300 predictions. `progress` is called with
    (rows done, n), the rest is as of `explain`.
    """
    shares, form = explain(bundle, views, reference, predicted), bundle.reader.images
    columns = {name: shares.columns[name] for name in bundle.card.columns}
    margins = np.einsum("nd,nd->n", bundle.model._f(views), _turn(bundle, predicted))
    # rounding, of learners that add up float32, goes into the mean
    mean = margins + getattr(bundle.model, "target_centre_", 0.0) - np.sum([*shares.columns.values()], axis=0)
    if form is None or len(shares.columns) == len(columns):
        return Shares(columns, {}, mean)
    unread = left_out(bundle.model)
    read = {view: name for view, name in zip(form.names, form.columns, strict=True) if view not in unread}
    squares = {view: np.empty((len(views), GRID, GRID)) for view in read}
    few = reference[np.arange(0, len(reference), _REFERENCE)]
    for row, total in enumerate([*shares.columns.values()][-1]):
        game = _Game(bundle, views[[row]], few, predicted[[row]])
        with embeddings.without_writing():
            for view, share in game.columns(tuple(read), float(total)).items():
                squares[view][row] = game.squares(view)
                squares[view][row] += (share - squares[view][row].sum()) / GRID**2
        if progress:
            progress(row + 1, len(views))
    return Shares(columns, {read[view]: each for view, each in squares.items()}, mean)


@dataclass(frozen=True)
class _Game:
    """Measure what the images of one row add to its margin when others take their place."""

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
        shares = explain(self.bundle, views, self.reference, predicted, images_alone=True)
        return [*shares.columns.values()][-1]

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
        effects, images = np.zeros(GRID * GRID), self.own[view]
        if images.absent is not None and images.absent[0]:
            return effects.reshape(GRID, GRID)
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
                    down, across = (slice(*cut[k : k + 2]) for cut, k in zip(cuts, divmod(int(square), GRID)))
                    shown[:, down, across] = pixels[:, down, across]
                    stages.append(shown)
            worth = self.added({view: Images(np.stack(stages))}).reshape(len(some), -1)
            for order, values in zip(some, worth, strict=True):
                effects[order] += np.diff(values) / ORDERS
        return effects.reshape(GRID, GRID)


def with_why(bundle: Bundle, rows: pd.DataFrame, answers: pd.DataFrame, first: int) -> pd.DataFrame:
    """Return answers to rows with a column `WHY`: `Shares.texts` of the first rows, None of the others.

    With `first` 0 the answers stay as they are. Raises `UsboostError` if there are too few rows to compare
    one with, or as `explain`.
    """
    if first == 0:
        return answers
    if first < 0 or len(rows) < FEWEST:
        raise UsboostError(f"`explain` is {first} of {len(rows)} rows; send {FEWEST} rows or more")
    check_explainable(bundle.model, bundle.card.model)
    views = read_rows(bundle, FrameRows(rows, mixed=True)).views
    own = views[np.arange(min(first, len(views)))]
    texts = explain_parts(bundle, own, reference_of(views), bundle.predicted(own)).texts()
    return answers.assign(**{WHY: [*texts, *[None] * (len(answers) - len(texts))]})

"""Explain single rows: the Shapley value of each column, and the parts of an image that a class rests on.

The value of a set of columns is the mean f of a boosted model over the reference rows, when these have the
row's own values of the columns (Štrumbelj and Kononenko 2014). A model is a sum, and Shapley values are, too:
of trees they are exact (`usboost.learners.tree`), of linear models each column's term less its mean.
Any other learner's are estimated: each reference row is turned into the row one column after another, in an
order of its own. Parts of an image are covered, one at a time, and the model predicts again (occlusion).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from usboost.boosting.loop import ensemble_scores
from usboost.data.images import EncodedImages, Images
from usboost.data.progress import Progress
from usboost.data.table import Table
from usboost.data.views import View, Views
from usboost.errors import UsboostError
from usboost.learners.base import prepare
from usboost.learners.forest import trees_of
from usboost.learners.networks import embeddings
from usboost.learners.tree import shapley_values
from usboost.models.base import ViewsClassifier
from usboost.models.baselines.wrapper import NAME
from usboost.models.estimator import ViewsEstimator, as_views
from usboost.models.methods.blend import Blend
from usboost.models.methods.weak_learners import BoostedWeakLearners

Owners = Callable[[Sequence[str]], np.ndarray]  # of the names of columns, int64 (p,)
_CELLS = 1 << 22  # numbers of mixed rows that are predicted at a time
_ADDITIVE = ("ridge",)
"""Kinds of learners whose outputs are sums of a term for each column."""


@dataclass(frozen=True)
class Contributions:
    """Shapley values of n rows.

    Attributes
    ----------
    values : float64 (n, owners, D), what each adds to f
    mean : float64 (D,), of f over the reference rows; with the values it sums to the row's f
    """

    values: np.ndarray
    mean: np.ndarray


@dataclass(frozen=True)
class _Term:
    """A start, or all weak learners of a name: its view of both kinds of rows, and its outputs."""

    read: View
    reference: View
    output: Callable[[Any], np.ndarray]
    additive: bool
    learners: Sequence[tuple[Any, float]] = ()


def shapley(
    model: BoostedWeakLearners,
    views: Views,
    reference: Views,
    owners_of: Owners,
    n_owners: int,
    images: int,
    alone: int | None = None,
) -> Contributions:
    """Return what each owner of columns adds to f.

    Parameters
    ----------
    views, reference : of n and m rows.
    owners_of : who have the columns of a learner's table, or of what it reads of images, by their names.
    images : the owner of views that a learner reads as they are, and not as a table.
    alone : an owner, whose values alone are needed: those of others are without meaning, and not estimated.
    """
    values, mean = np.zeros((len(views), n_owners, model._n_outputs())), np.zeros(model._n_outputs())
    for part in _parts(model, views, reference):
        base = part.output(part.reference)
        mean += base.mean(axis=0)
        read, against = part.read, part.reference
        owners = owners_of(read.names) if isinstance(read, Table) else np.array([images])
        if alone is not None and alone not in owners:
            continue
        if len(set(owners.tolist())) == 1 or not isinstance(read, Table) or not isinstance(against, Table):
            values[:, owners[0]] += part.output(read) - base.mean(axis=0)
        elif part.learners and all(trees_of(learner) for learner, _ in part.learners):
            for learner, step in part.learners:
                first = 0  # of a learner's trees each has outputs of its own
                for tree in trees_of(learner):
                    shares = shapley_values(tree, read.matrix(), against.matrix(), owners, n_owners)
                    values[:, :, first : first + shares.shape[2]] += np.float64(step) * shares
                    first += shares.shape[2]
        elif part.additive:
            # a row's own columns change the output of any row alike: less the mean of that over the reference
            fixed, base_fixed = (against[np.zeros(len(each), dtype=np.int64)] for each in (read, against))
            for each in sorted(set(owners.tolist())) if alone is None else [alone]:
                own = owners == each
                change = part.output(_mixed(base_fixed, against, own)).mean(axis=0)
                values[:, each] += part.output(_mixed(fixed, read, own)) - change
        else:
            _add_estimates(values, part.output, read, against, owners, alone)
    if isinstance(model, Blend) and values.shape[2] > 1:  # whose f sums to 0 over the classes
        return Contributions(values - values.mean(axis=2, keepdims=True), mean - mean.mean())
    return Contributions(values, mean)


def unlikeness(
    model: BoostedWeakLearners, views: Views, others: Views, owners_of: Owners, weights: np.ndarray
) -> np.ndarray:
    """Return how far each of m other rows is from each of n rows in what the model reads, float64 (n, m).

    The squared difference in standard deviations of the others, of categories whether they differ, as a mean
    over the columns that an owner has, times its weight. Images that a network reads as pixels count nothing.

    Parameters
    ----------
    owners_of : as of `shapley`.
    weights : float64 (n, owners).
    """
    distances = np.zeros((len(views), len(others)))
    for part in _parts(model, views, others):
        read, against = part.read, part.reference
        if isinstance(read, Table) and isinstance(against, Table):
            spread = against.numeric.std(axis=0, dtype=np.float64)
            scale = np.where(spread > 0, spread, 1.0)
            owners = owners_of(read.names)
            for row in range(len(views)):
                numeric = np.square((against.numeric - read.numeric[row]) / scale)
                apart = np.hstack([numeric, against.codes != read.codes[row]])
                for each in set(owners.tolist()):
                    distances[row] += weights[row, each] * apart[:, owners == each].mean(axis=1)
    return distances


def left_out(model: Any) -> tuple[str, ...]:
    """Return the views that a model was given and does not read, since they did not help."""
    if isinstance(model, Blend):  # those that no member reads
        own = [set(left_out(fit)) for fit, _ in model.weighted_fits()]
        return tuple(sorted(set.intersection(*own)))
    return tuple(getattr(model, "left_out_", ()))


def check_explainable(model: Any, name: str) -> None:
    """Refuse a model that is no sum of what is known. Raises UsboostError; `name` is what it is called."""
    if not isinstance(model, BoostedWeakLearners | Blend):
        raise UsboostError(
            f"single rows of {name} cannot be explained, only those of models that are boosted, such as "
            "average, best and crossed; its report says which columns matter over all rows"
        )


def _parts(model: BoostedWeakLearners | Blend, views: Views, reference: Views) -> Iterator[_Term]:
    if isinstance(model, Blend):
        for fit, weight in model.weighted_fits():
            yield from _parts_of_fit(model, fit, weight, views, reference)
        return
    if (start := model.start_) is not None:
        read, against = (start.reading_(each)[NAME] for each in (views, reference))

        def of_start(table: Table) -> np.ndarray:
            scores = start._entry.scores(start, start._columns_of(table))
            if hasattr(model, "classes_"):  # centred, as a start's scores are
                scores = scores - scores.mean(axis=1, keepdims=True)
            return model._from_scores(scores)

        yield _Term(read, against, of_start, additive=True)
    learners, n_outputs = model._learners(), model._n_outputs()
    tables, references = model.reading_(views), model.reading_(reference)
    for name, learner in learners.items():

        def of_learner(view: View, name: str = name, learner: Any = learner) -> np.ndarray:
            return ensemble_scores(model.stages_, {name: prepare(learner, view)}, (len(view), n_outputs))

        fitted = [(each.learners[name], each.steps[name]) for each in model.stages_ if name in each.learners]
        yield _Term(tables[name], references[name], of_learner, learner.kind in _ADDITIVE, fitted)


def _parts_of_fit(model: Blend, fit: Any, weight: float, views: Views, reference: Views) -> Iterator[_Term]:
    """Yield what a fit adds to the f of a blend, times its weight."""
    # a regressor has scaled its targets, which are those of the blend, once more
    constant = weight * getattr(fit, "target_centre_", 0.0)
    weight *= getattr(fit, "target_scale_", 1.0)

    def of_package(table: Table) -> np.ndarray:
        predicted = fit._entry.predict(fit, fit._columns_of(table))
        return np.asarray(model._margins(predicted) if hasattr(model, "classes_") else predicted)

    if isinstance(fit, BoostedWeakLearners):
        terms = list(_parts(fit, views, reference))
    else:
        read, against = (fit.reading_(each)[NAME] for each in (views, reference))
        terms = [_Term(read, against, of_package, False)]
    for k, term in enumerate(terms):

        def weighted(view: Any, term: _Term = term, more: float = 0.0 if k else constant) -> np.ndarray:
            return weight * term.output(view) + more

        learners = [(learner, weight * step) for learner, step in term.learners]
        yield replace(term, output=weighted, learners=learners)


def _add_estimates(
    values: np.ndarray,
    output: Callable[[Table], np.ndarray],
    read: Table,
    reference: Table,
    owners: np.ndarray,
    alone: int | None,
) -> None:
    """Add the mean over reference rows of what each owner changes, in random orders and their reverses."""
    rng = np.random.default_rng(0)
    players, n, m = np.array(sorted(set(owners.tolist()))), len(read), len(reference)
    orders = [rng.permutation(players) for _ in range((m + 1) // 2)]
    orders = [each[::step] for each in orders for step in (1, -1)][:m]
    size = max(1, _CELLS // ((len(players) + 1) * len(owners) * m))
    for first in range(0, n, size):
        rows = np.arange(first, min(first + size, n))
        # every row with every reference row: the columns of the first k owners of the order are the row's
        own, other = read[np.repeat(rows, m)], reference[np.tile(np.arange(m), len(rows))]
        place = np.empty((m, values.shape[1]), dtype=np.int64)
        for j, order in enumerate(orders):
            place[j, order] = np.arange(len(players))
        of_column = np.tile(place[:, owners], (len(rows), 1))
        if alone is not None:  # two predictions are enough
            turn = np.tile(place[:, alone], len(rows))[:, None]
            turns = of_column < turn, of_column <= turn
            without, with_it = (output(_mixed(other, own, each)) for each in turns)
            change = (with_it - without) / m
            values[rows, alone] += change.reshape(len(rows), m, -1).sum(axis=1)
            continue
        before = output(other)
        for k in range(len(players)):
            after = output(_mixed(other, own, of_column <= k))
            change = ((after - before) / m).reshape(len(rows), m, -1)
            for j, order in enumerate(orders):
                values[rows, order[k]] += change[:, j]
            before = after


def _mixed(table: Table, other: Table, own: np.ndarray) -> Table:
    """Return the table with other values where `own`, bool (p,) or (n, p), is true."""
    q, own = table.n_numeric, np.broadcast_to(own, (len(table), table.n_columns))
    numeric = np.where(own[:, :q], other.numeric, table.numeric)
    codes = np.where(own[:, q:], other.codes, table.codes)
    return Table(numeric, codes, table.cardinalities, table.names)


def direction(model: ViewsEstimator, answers: np.ndarray) -> np.ndarray:
    """Return the factors that turn f into a row's margin, float64 (n, D): margin = Σ_d direction_d · f_d.

    The margin of a class is its score less the mean of the others': of two classes its log-odds. Of a number
    it is the prediction, in its units and without its constant.

    Parameters
    ----------
    answers : int (n,), the positions of the classes that are the answers; of numbers any (n,)
    """
    if not hasattr(model, "classes_"):
        return np.full((len(answers), 1), model.target_scale_)
    loss = model._loss()
    scores = loss.scores(np.eye(loss.n_outputs)).T  # (M, D)
    margins = scores - (scores.sum(axis=0) - scores) / (len(scores) - 1)
    return np.asarray(margins[answers])


SHARE = 4
"""A patch's side is the image's by this; neighbouring patches overlap by half."""

MOST_IMAGES, MOST_BYTES = 128, 1 << 26
"""Covered images at a time, and bytes of their pixels."""

Patch = tuple[slice, slice]
"""The rows and columns of pixels that are covered."""


@dataclass(frozen=True)
class Occlusion:
    """The changes of the probability of the class predicted with all of an image, when parts are covered.

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
        """Return for each pixel the mean fall over the patches that cover it: float64 (height, width)."""
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
) -> dict[tuple[int, str], Occlusion]:
    """Cover each part of the images of some rows, one at a time, and predict.

    A covered part has the mean colour of its image. Nothing is added to the embeddings on disk. The answer is
    by row and view; rows without that image have none.

    Parameters
    ----------
    rows : positions of samples, each once.
    progress : called with (covered images predicted, in all).
    """
    views, chosen = as_views(X), np.asarray(rows, dtype=np.int64)
    if not len(chosen):
        return {}
    before = classifier.predict_proba(views[chosen])
    predicted = before.argmax(axis=1)
    # each column of images, the places in `rows` that have an image there, and its parts to cover: squares
    # that reach every pixel
    columns: list[tuple[str, Images | EncodedImages, np.ndarray, list[Patch]]] = []
    for name in views.names:
        images = views[name]
        if isinstance(images, (Images, EncodedImages)):
            absent = np.zeros(len(chosen), bool) if images.absent is None else images.absent[chosen]
            side = max(1, min(images.height, images.width) // SHARE)
            down, across = (
                [*range(0, length - side, max(1, side // 2)), length - side]
                for length in (images.height, images.width)
            )
            patches = [(slice(y, y + side), slice(x, x + side)) for y in down for x in across]
            columns.append((name, images, np.flatnonzero(~absent), patches))
    total, done = sum(len(own) * len(patches) for _, _, own, patches in columns), 0
    out: dict[tuple[int, str], Occlusion] = {}
    for name, images, own, patches in columns:
        pairs = [(place, patch) for place in own for patch in patches]
        falls = np.empty(len(pairs))
        size = max(1, min(MOST_IMAGES, MOST_BYTES // (images.channels * images.height * images.width)))
        for start in range(0, len(pairs), size):
            batch = pairs[start : start + size]
            places = np.array([place for place, _ in batch])
            pixels = images.decode(chosen[places]).copy()
            for image, (_, (rows_of, columns_of)) in zip(pixels, batch, strict=True):
                image[:, rows_of, columns_of] = np.rint(image.mean(axis=(1, 2)))[:, None, None]
            some, covered = views[chosen[places]], Images(pixels)
            with embeddings.without_writing():
                after = classifier.predict_proba(some.with_view(name, covered))
            classes = predicted[places]
            falls[start : start + size] = before[places, classes] - after[np.arange(len(batch)), classes]
            done += len(batch)
            if progress:
                progress(done, total)
        for place, of_row in zip(own, falls.reshape(len(own), -1), strict=True):
            out[int(chosen[place]), name] = Occlusion(patches, of_row, images.height, images.width)
    return out

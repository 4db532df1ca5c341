"""What each column of a table adds to the f of a boosted model: Shapley values against reference rows.

The value of a set of columns is the mean f over the reference rows, when these have the row's own values of
the columns (Štrumbelj and Kononenko 2014). A model is a sum, and Shapley values are, too: of trees they are
exact (`usboost.learners.trees.shapley`), of linear models each column's term less its mean. Any other
learner's are estimated: each reference row is turned into the row one column after another, in an order of
its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from usboost.boosting.loop import ensemble_scores
from usboost.data.table import Table
from usboost.data.views import View, Views
from usboost.errors import UsboostError
from usboost.learners.missing_views import prepare
from usboost.learners.trees.fitted import trees_of
from usboost.learners.trees.shapley import shapley_values
from usboost.models.baselines.wrapper import NAME
from usboost.models.estimator import ViewsEstimator
from usboost.models.methods.weak_learners import BoostedWeakLearners

_CELLS = 1 << 22  # numbers of mixed rows that are predicted at a time
_ADDITIVE = ("ridge",)
"""Kinds of learners whose outputs are sums of a term for each column."""


@dataclass(frozen=True)
class Contributions:
    """Of n rows.

    Attributes
    ----------
    values : float64 (n, owners, D), what each adds to f
    mean : float64 (D,), of f over the reference rows; with the values it sums to the row's f
    """

    values: np.ndarray
    mean: np.ndarray


@dataclass(frozen=True)
class _Part:
    """A start, or all weak learners of a name: what it reads of both kinds of rows, and says of such."""

    read: View
    reference: View
    says: Callable[[Any], np.ndarray]
    additive: bool
    learners: Sequence[tuple[Any, float]] = ()


def shapley(
    model: BoostedWeakLearners,
    views: Views,
    reference: Views,
    owner: Callable[[str], int],
    n_owners: int,
    images: int,
) -> Contributions:
    """What each owner of columns adds to f.

    Parameters
    ----------
    views, reference : of n and m rows.
    owner : who has a column of a view, or of what is read of images, by its name.
    images : the owner of views that a learner reads as they are, and not as a table.
    """
    values, mean = np.zeros((len(views), n_owners, model._n_outputs())), np.zeros(model._n_outputs())
    for part in _parts(model, views, reference):
        base = part.says(part.reference)
        mean += base.mean(axis=0)
        read, against = part.read, part.reference
        owners = (
            np.array([owner(name) for name in read.names]) if isinstance(read, Table) else np.array([images])
        )
        if len(set(owners.tolist())) == 1 or not isinstance(read, Table) or not isinstance(against, Table):
            values[:, owners[0]] += part.says(read) - base.mean(axis=0)
        elif part.learners and all(trees_of(learner) for learner, _ in part.learners):
            _add_trees(values, part.learners, read.matrix(), against.matrix(), owners)
        elif part.additive:
            _add_terms(values, part.says, read, against, owners)
        else:
            _add_estimates(values, part.says, read, against, owners, np.random.default_rng(0))
    return Contributions(values, mean)


def check_explainable(model: Any, name: str) -> None:
    """Refuse a model that is no sum of what is known. Raises UsboostError; `name` is what it is called."""
    if not isinstance(model, BoostedWeakLearners):
        raise UsboostError(
            f"single rows of {name} cannot be explained, only those of models that are boosted, such as "
            "linear_trees and crossed; its report says which columns matter over all rows"
        )


def _parts(model: BoostedWeakLearners, views: Views, reference: Views) -> Iterator[_Part]:
    if (start := model.start_) is not None:
        read, against = (start.reading_(each)[NAME] for each in (views, reference))

        def of_start(table: Table) -> np.ndarray:
            scores = start._entry.scores(start, start._columns_of(table))
            if hasattr(model, "classes_"):  # centred, as a start's scores are
                scores = scores - scores.mean(axis=1, keepdims=True)
            return model._from_scores(scores)

        yield _Part(read, against, of_start, additive=True)
    learners, n_outputs = model._learners(), model._n_outputs()
    tables, references = model.reading_(views), model.reading_(reference)
    for name, learner in learners.items():

        def of_learner(view: View, name: str = name, learner: Any = learner) -> np.ndarray:
            return ensemble_scores(model.stages_, {name: prepare(learner, view)}, (len(view), n_outputs))

        fitted = [
            (stage.learners[name], stage.steps[name]) for stage in model.stages_ if name in stage.learners
        ]
        yield _Part(tables[name], references[name], of_learner, learner.kind in _ADDITIVE, fitted)


def _add_trees(
    values: np.ndarray,
    learners: Sequence[tuple[Any, float]],
    rows: np.ndarray,
    reference: np.ndarray,
    owners: np.ndarray,
) -> None:
    for learner, step in learners:
        first = 0
        for tree in trees_of(learner):
            found = shapley_values(tree, rows, reference, owners, values.shape[1])
            values[:, :, first : first + found.shape[2]] += np.float64(step) * found
            first += found.shape[2]


def _add_terms(
    values: np.ndarray,
    says: Callable[[Table], np.ndarray],
    read: Table,
    reference: Table,
    owners: np.ndarray,
) -> None:
    """Of a sum of terms: what a row's own columns change in any one row, less the mean of that."""
    fixed = (
        reference[np.zeros(len(read), dtype=np.int64)],
        reference[np.zeros(len(reference), dtype=np.int64)],
    )
    for each in sorted(set(owners.tolist())):
        own = owners == each
        values[:, each] += says(_mixed(fixed[0], read, own)) - says(_mixed(fixed[1], reference, own)).mean(
            axis=0
        )


def _add_estimates(
    values: np.ndarray,
    says: Callable[[Table], np.ndarray],
    read: Table,
    reference: Table,
    owners: np.ndarray,
    rng: np.random.Generator,
) -> None:
    """The mean over reference rows of what each owner changes, in orders of which every second is turned."""
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
        before = says(other)
        for k in range(len(players)):
            after = says(_mixed(other, own, of_column <= k))
            change = ((after - before) / m).reshape(len(rows), m, -1)
            for j, order in enumerate(orders):
                values[rows, order[k]] += change[:, j]
            before = after


def _mixed(table: Table, other: Table, own: np.ndarray) -> Table:
    """The table with other values where `own`, bool (p,) or (n, p), is true."""
    q, own = table.n_numeric, np.broadcast_to(own, (len(table), table.n_columns))
    numeric = np.where(own[:, :q], other.numeric, table.numeric)
    codes = np.where(own[:, q:], other.codes, table.codes)
    return Table(numeric, codes, table.cardinalities, table.names)


def direction(model: ViewsEstimator, answers: np.ndarray) -> np.ndarray:
    """What turns f into the margin of a row's answer, float64 (n, D): margin = Σ_d direction_d · f_d.

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

"""Explain why a model answers a row as it does: what each column, and the images, add to its margin."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.fit.bundle import Bundle
from usboost.models.inspection.attribution import check_explainable, direction, shapley
from usboost.table.columns.encoding import SUFFIX
from usboost.table.rows import Rows
from usboost.table.source import Source

AGAINST = 64
"""Rows that each row is compared with."""

FEWEST = 10
"""Rows to draw these from, at least."""

SHOWN = 5
"""Columns that are named of a row."""

WHY = "why"


@dataclass(frozen=True)
class Explanations:
    """Shares of columns in the answers of n rows.

    Attributes
    ----------
    names : of the columns that the model reads; all images are the last one, if it reads any.
    values : float64 (n, names), what each adds to the margin of the row's answer.
    mean : float64 (n,), of that margin over the reference rows; with the values it sums to the row's.
    """

    names: tuple[str, ...]
    values: np.ndarray
    mean: np.ndarray

    def largest(self, row: int, most: int = SHOWN) -> list[tuple[str, float]]:
        """Return the columns that add or take most, and what."""
        order = np.argsort(-np.abs(self.values[row]), kind="stable")[:most]
        return [(self.names[k], float(self.values[row, k])) for k in order]

    def texts(self, most: int = SHOWN) -> list[str]:
        """Return `largest` of each row, ``age +0.83; sex -0.21`` say; without those that change nothing."""
        found = []
        for row in range(len(self.values)):
            shares = [(name, value) for name, value in self.largest(row, most) if abs(value) >= 0.005]
            found.append("; ".join(f"{name} {value:+.2f}" for name, value in shares))
        return found


def names_of(bundle: Bundle) -> tuple[str, ...]:
    """Return what adds to an answer: the columns, and all images as the last one if the model reads any."""
    form, columns = bundle.reader.images, tuple(bundle.card.columns)
    if form is None or set(form.names) <= set(getattr(bundle.model, "left_out_", ())):
        return columns
    return (*columns, f"images ({', '.join(form.columns)})")


def owner_of(bundle: Bundle) -> Callable[[str], int]:
    """Return the function from a column that a learner reads to the place in `names_of` that has it."""
    owners = dict[str, int]()
    several: dict[str, Any] = {**bundle.encoding.dates, **bundle.texts}
    for k, name in enumerate(bundle.card.columns):  # encoded columns by their own column
        for part in several[name].names(name) if name in several else [name]:
            owners |= {part: k, f"{part}{SUFFIX}": k}
    images = len(names_of(bundle)) - 1
    return lambda column: owners.get(column, owners.get(column.split("__", 1)[-1], images))


def explain(bundle: Bundle, views: Views, reference: Views, predicted: np.ndarray) -> Explanations:
    """Return what each column adds to the margin of some rows' answers.

    The margin of a class is its score less the mean of the others', as calibrated: of two classes its
    log-odds. A number's is the number.

    Raises `UsboostError` if the model is none that can be explained.

    Parameters
    ----------
    views, reference : of the n rows, and of those that they are compared with.
    predicted : for the rows, as of `Bundle.predicted`.
    """
    check_explainable(bundle.model, bundle.card.model)
    names, owner = names_of(bundle), owner_of(bundle)
    images = len(names) - 1
    found = shapley(bundle.model, views, reference, owner, len(names), images)
    turn = _turn(bundle, predicted)
    values = np.einsum("npd,nd->np", found.values, turn)
    return Explanations(names, values, turn @ found.mean + getattr(bundle.model, "target_centre_", 0.0))


def explain_rows(bundle: Bundle, rows: Source, against: Source) -> pd.DataFrame:
    """Return what each column adds to the margin of each row's answer, and ``mean``, of `Explanations`."""
    check_explainable(bundle.model, bundle.card.model)
    reference, parts = read_reference(bundle, against), []
    for batch in bundle.reader.read(rows):
        found = explain(bundle, batch.views, reference, bundle.predicted(batch.views))
        parts.append(pd.DataFrame(found.values, columns=list(found.names)).assign(mean=found.mean))
    return pd.concat(parts, ignore_index=True)


def margins(bundle: Bundle, views: Views, predicted: np.ndarray) -> np.ndarray:
    """Return the margin of each row's answer, float64 (n,): what `explain` shares out, and its mean."""
    f = bundle.model._f(views)
    return np.einsum("nd,nd->n", f, _turn(bundle, predicted)) + getattr(bundle.model, "target_centre_", 0.0)


def _turn(bundle: Bundle, predicted: np.ndarray) -> np.ndarray:
    """Return the factors that turn f into the margin of each row's answer, float64 (n, D)."""
    answers = bundle.codes(predicted) if bundle.card.classes else predicted
    return direction(bundle.model, answers) / bundle.card.temperature


def read_reference(bundle: Bundle, source: Source) -> Views:
    """Return rows to compare others with: `AGAINST` of the first ones of a table, drawn at random.

    Raises `UsboostError` as `read_rows`.
    """
    return reference_of(read_rows(bundle, source).views)


def read_rows(bundle: Bundle, source: Source, more: Collection[str] = ()) -> Rows:
    """Return the first rows of a table, as many as `RowReader.read` reads at a time.

    Raises `UsboostError` if it has fewer than `FEWEST` rows, or as `RowReader.read`, which has `more`.
    """
    rows = next(iter(bundle.reader.read(source, more=more)), None)
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
    found: Views = views[np.sort(rows)]
    return found

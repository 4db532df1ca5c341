"""What all estimators on views share: the validation split, checkpoints, importances."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, column_or_1d

from usboost.boosting.checkpoint import Checkpoint, identity_of
from usboost.boosting.context import FitContext
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.learners.trees.tree import Tree

Validation = tuple[Views, np.ndarray]


def as_views(X: Views | Mapping[str, Any]) -> Views:
    """`X` as row-aligned views; a mapping of name to view is taken too."""
    if isinstance(X, Views):
        return X
    if isinstance(X, Mapping):
        return Views(X)
    raise UsboostError(
        f"X must be Views or a dict of views, not {type(X).__name__}; "
        "for a plain matrix wrap the classifier in usboost.models.split_columns.SplitColumns"
    )


def open_checkpoint(
    given: Checkpoint | Path | str | None,
    model: Any,
    samples: Sequence[Validation],
    learners: Mapping[str, Any],
) -> Checkpoint | None:
    """The checkpoint that a model's parameter names, begun for a fit of these samples.

    Raises
    ------
    UsboostError
        If it holds another fit, or what the learners fit could not be written.
    """
    if given is None:
        return None
    opened = given if isinstance(given, Checkpoint) else Checkpoint(given)
    opened.begin(opened.identity or identity_of(model, samples), learners)
    return opened


def one_for_each_row(y: Any, n: int, what: str) -> np.ndarray:
    """y as an array (n,); a single column is taken, too.

    Raises
    ------
    UsboostError
        If y is missing, or has another shape; `what` is the word for one of it.
    """
    if y is None:
        raise UsboostError(f"fit requires y to be passed, but the target y is None; pass the {what}s")
    values = np.asarray(y)
    if values.ndim == 2 and values.shape[1] == 1:
        values = column_or_1d(values, warn=True)
    if values.ndim != 1 or len(values) != n:
        raise UsboostError(f"y must have one {what} for each of the {n} rows, not {values.shape}")
    return values


class ViewsEstimator(BaseEstimator):
    """Base of classifiers and regressors on views.

    A subclass implements ``_fit(views, y, context)``, which trains on y as `ViewsClassifier` or
    `ViewsRegressor` encodes it and sets ``history_`` and ``best_round_``, and, to be saved, ``_write`` and
    ``_read`` (see `usboost.models.persistence`).
    """

    holds: ClassVar[Mapping[str, Any]] = {}
    """Parameters that are estimators themselves: a registry of what they may be, or classes' names."""

    columns_: dict[str, tuple[str, ...]]
    history_: list[dict[str, float]]
    best_round_: int

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False  # Views
        return tags

    def _fit_to(self, views: Views, y: np.ndarray, held_out: Validation | None) -> None:
        """Fit to encoded training samples, with encoded validation samples or none."""
        parameters = self.get_params(deep=False)
        samples = [(views, y), *([held_out] if held_out else [])]
        checkpoint = open_checkpoint(parameters.get("checkpoint"), self, samples, self._weak_learners())
        self._fit(views, y, FitContext(held_out, parameters.get("callbacks") or (), checkpoint))

    def _fit(self, views: Views, y: np.ndarray, context: FitContext) -> None:
        raise AttributeError("_fit is defined by each model")

    def _weak_learners(self) -> dict[str, Any]:
        """The learners whose fits a checkpoint holds, by name."""
        return {}

    def _kept(self) -> ViewsEstimator:
        """The fitted model that files hold."""
        return self

    def _set_aside(
        self, views: Views, y: np.ndarray, validation: tuple[Any, Any] | None
    ) -> tuple[Views, np.ndarray, Validation | None]:
        """Training and validation samples; the latter given, drawn, or none."""
        if validation is not None:
            return views, y, (as_views(validation[0]), self._encode(np.asarray(validation[1])))
        parameters = self.get_params(deep=False)
        if not parameters.get("validation_fraction"):
            return views, y, None
        try:
            fit_rows, held_rows = train_test_split(
                np.arange(len(y)),
                test_size=parameters["validation_fraction"],
                stratify=self._strata(y),
                random_state=parameters["random_state"],
            )
        except ValueError as error:
            raise UsboostError(f"cannot set samples aside for validation: {error}") from error
        return views[fit_rows], y[fit_rows], (views[held_rows], y[held_rows])

    def _encode(self, y: np.ndarray) -> np.ndarray:
        raise AttributeError("_encode is defined for each task")

    def _strata(self, y: np.ndarray) -> np.ndarray | None:
        """Groups that samples set aside are drawn from in equal shares; None: from all alike."""
        return None

    @property
    def feature_names_(self) -> np.ndarray:
        """Names of the columns that `feature_importances_` counts, str (p,).

        The names of the table that trees read; with several such tables ``<view>__<column>``.
        """
        columns = self._columns()
        several = len(columns) > 1
        named = [f"{view}__{name}" if several else name for view, own in columns.items() for name in own]
        return np.asarray(named, dtype=object)

    @property
    def feature_importances_(self) -> np.ndarray:
        """Importance of each column that trees read, float64 (p,), summing to 1; see `feature_names_`.

        The splits' reductions of the squared error that their trees were fitted to, summed by column,
        each tree's multiplied by the size of its step. Where the trees are fitted to the negative
        gradient that is, up to a factor, the first-order decrease of the risk that each column brought.
        All are 0 where no tree has a split. Like all importances of this kind they favour columns of
        many values.
        """
        columns = self._columns()
        starts = dict(zip(columns, np.cumsum([0, *map(len, columns.values())]).tolist()))
        total = np.zeros(sum(map(len, columns.values())))
        for view, tree, step in self._trees():
            if len(tree.gain) != len(tree.feature):
                raise AttributeError("the model's file is from before gains were kept; train it again")
            if len(tree.feature) and tree.feature.max() >= len(columns[view]):
                raise UsboostError(f"a tree reads column {tree.feature.max()} of view {view!r}")
            np.add.at(total, starts[view] + tree.feature, abs(step) * tree.gain)
        return total / total.sum() if total.any() else total

    def _columns(self) -> dict[str, tuple[str, ...]]:
        self._check_fitted()
        if not getattr(self, "columns_", None):
            raise AttributeError(f"this {type(self).__name__} knows of no table that trees read")
        return self.columns_

    def _trees(self) -> Iterator[tuple[str, Tree, float]]:
        """View, tree and step of every tree."""
        return iter(())

    def _reads(self, n_columns: int) -> Sequence[str]:
        """Names of the views to cut a matrix of so many columns into."""
        return "U", "S"

    def _check_fitted(self) -> None:
        check_is_fitted(self, "best_round_")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "best_round_")

"""What all estimators on views share: the validation split, checkpoints, importances."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, column_or_1d

from usboost.boosting.checkpoint import Checkpoint, identity_of
from usboost.boosting.context import FitContext
from usboost.data.row_groups import Related
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.learners.trees.tree import Tree
from usboost.shards.here import here


@dataclass(frozen=True)
class Samples:
    """n samples to fit to, or to stop early on.

    Attributes
    ----------
    views : Views
    y : encoded labels, or targets, (n,)
    weights : float64 (n,), positive, how many rows each stands for; None for 1
    related : how they are related; None: in no way
    """

    views: Views
    y: np.ndarray
    weights: np.ndarray | None = None
    related: Related | None = None

    @classmethod
    def counted(
        cls,
        views: Views,
        y: np.ndarray,
        weights: Any,
        *,
        what: str = "sample_weight",
        related: Related | None = None,
    ) -> Samples:
        """Without the rows of weight 0, and without weights where all are 1.

        Parameters
        ----------
        y : as given, of whatever type; weights : as `checked_weights` takes them, or None
        """
        if weights is None:
            return cls(views, y, None, related)
        found = checked_weights(weights, len(views), what)
        if not found.all():
            rows = np.flatnonzero(found)
            views, y, found = views[rows], y[rows], found[rows]
            related = None if related is None else related[rows]
        return cls(views, y, found if here().highest(bool((found != 1).any())) else None, related)

    def __getitem__(self, rows: np.ndarray) -> Samples:
        weights = None if self.weights is None else self.weights[rows]
        related = None if self.related is None else self.related[rows]
        return Samples(self.views[rows], self.y[rows], weights, related)

    @property
    def weighted(self) -> tuple[Views, np.ndarray, np.ndarray | None]:
        """Views, y and weights, or None."""
        return self.views, self.y, self.weights

    @property
    def parts(self) -> tuple[Any, ...]:
        """Views, y and, if there are any, weights and how they are related."""
        weights = () if self.weights is None else (self.weights,)
        return (self.views, self.y, *weights, *(() if self.related is None else self.related.arrays))


def checked_weights(weights: Any, n: int, what: str = "sample_weight") -> np.ndarray:
    """Weights of n rows, float64 (n,).

    Raises `UsboostError` if there is not one for each row, one is negative or no finite number, or all are 0.
    """
    try:
        found = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise UsboostError(f"{what} holds something that is no number; give a number for each row") from None
    if found.shape != (n,):
        raise UsboostError(f"{what} has the shape {found.shape}; give one number for each of the {n} rows")
    wrong = ~(np.isfinite(found) & (found >= 0))
    if wrong.any():
        at = int(wrong.argmax())
        raise UsboostError(f"{what} is {found[at]} in row {at}; weights are finite and not negative")
    if not here().highest(bool(found.any())):
        raise UsboostError(f"{what} is zero in all {n} rows; give some row a positive weight")
    return found


HELD_WEIGHT = "the weight in validation"


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
    samples: Sequence[tuple[Any, ...]],
    learners: Mapping[str, Any],
) -> Checkpoint | None:
    """The checkpoint that a model's parameter names, begun for a fit of these samples, (views, y[, weights]).

    Raises `UsboostError` if it holds another fit, or what the learners fit could not be written.
    """
    if given is None:
        return None
    opened = given if isinstance(given, Checkpoint) else Checkpoint(given)
    opened.begin(opened.identity or identity_of(model, samples), learners)
    return opened


def one_for_each_row(y: Any, n: int, what: str) -> np.ndarray:
    """y as an array (n,); a single column is taken, too.

    Raises `UsboostError` if y is missing, or has another shape; `what` is the word for one of it.
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

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name; `deep`, also those of estimators inside, of a mapping's by their names in it.

        ``learners__S__max_depth`` is the depth of the learner "S".
        """
        found: dict[str, Any] = super().get_params(deep)
        if not deep:
            return found
        for name, value in list(found.items()):
            for key, part in value.items() if isinstance(value, Mapping) and "__" not in name else ():
                if hasattr(part, "get_params") and not isinstance(part, type):
                    inner = part.get_params(deep=True)
                    found[f"{name}__{key}"] = part
                    found |= {f"{name}__{key}__{path}": each for path, each in inner.items()}
        return found

    def set_params(self, **given: Any) -> Any:
        """Set parameters by the names that `get_params` gives them."""
        own = self.get_params(deep=False)
        inside = {
            path: value
            for path, value in given.items()
            if "__" in path and isinstance(own.get(path.partition("__")[0]), Mapping)
        }
        super().set_params(**{path: value for path, value in given.items() if path not in inside})
        for path, value in inside.items():
            name, _, inner = path.partition("__")
            key, _, further = inner.partition("__")
            parts = getattr(self, name)
            if key not in parts:
                raise ValueError(f"{name} has no part {key!r}; it has {', '.join(parts)}")
            if further:
                parts[key].set_params(**{further: value})
            else:
                setattr(self, name, {**parts, key: value})
        return self

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False  # Views
        return tags

    def _fit_to(self, train: Samples, held: Samples | None) -> None:
        """Fit to encoded training samples, with encoded validation samples or none."""
        parameters = self.get_params(deep=False)
        samples = [each.parts for each in (train, held) if each is not None]
        checkpoint = open_checkpoint(parameters.get("checkpoint"), self, samples, self._weak_learners())
        validation = None if held is None else (held.views, held.y)
        held_weights = None if held is None else held.weights
        callbacks = parameters.get("callbacks") or ()
        context = FitContext(validation, callbacks, checkpoint, train.weights, held_weights, train.related)
        self._fit(train.views, train.y, context)

    def _fit(self, views: Views, y: np.ndarray, context: FitContext) -> None:
        raise AttributeError("_fit is defined by each model")

    def _weak_learners(self) -> dict[str, Any]:
        """The learners whose fits a checkpoint holds, by name."""
        return {}

    def _set_aside(
        self, samples: Samples, validation: tuple[Any, ...] | None
    ) -> tuple[Samples, Samples | None]:
        """Training and validation samples; the latter given, drawn, or none."""
        if validation is not None:
            views, y, *weights = validation
            labels = self._encode(np.asarray(y))
            return samples, Samples.counted(as_views(views), labels, *(weights or [None]), what=HELD_WEIGHT)
        parameters, y = self.get_params(deep=False), samples.y
        if not parameters.get("validation_fraction"):
            return samples, None
        share, seed = parameters["validation_fraction"], parameters["random_state"]
        if here().count > 1:
            held = np.random.default_rng(here().seed(seed)).random(len(y)) < share
            return samples[np.flatnonzero(~held)], samples[np.flatnonzero(held)]
        try:
            if samples.related is not None:
                fit_rows, held_rows = samples.related.hold_out(share, y, seed)
            else:
                fit_rows, held_rows = train_test_split(
                    np.arange(len(y)), test_size=share, stratify=self._strata(y), random_state=seed
                )
        except ValueError as error:
            raise UsboostError(f"cannot set samples aside for validation: {error}") from error
        return samples[fit_rows], samples[held_rows]

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

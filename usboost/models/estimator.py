"""The base of estimators on views: samples and their weights, validation rows, checkpoints, importances."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import train_test_split
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, column_or_1d

from usboost.boosting.checkpoint import Checkpoint, identity_of
from usboost.boosting.context import FitContext
from usboost.data.value import find
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.evaluation.folds import Related
from usboost.files.onnx_graph import Value, ViewNodes, no_form
from usboost.learners.tree import Tree
from usboost.process import OwnSettings
from usboost.shards.collective import world


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
    ) -> "Samples":
        """Make samples without the rows of weight 0, and without weights where all are 1.

        Parameters
        ----------
        y : as given, of whatever type; weights : as `checked_weights` takes them, or None
        """
        if weights is None:
            return cls(views, y, None, related)
        counts = checked_weights(weights, len(views), what)
        samples = cls(views, y, counts, related)
        samples = samples if counts.all() else samples[np.flatnonzero(counts)]
        differ = world().highest(bool((counts[counts > 0] != 1).any()))
        return samples if differ else replace(samples, weights=None)

    def __getitem__(self, rows: np.ndarray) -> "Samples":
        weights = None if self.weights is None else self.weights[rows]
        related = None if self.related is None else self.related[rows]
        return Samples(self.views[rows], self.y[rows], weights, related)

    @property
    def weighted(self) -> tuple[Views, np.ndarray, np.ndarray | None]:
        """Return views, y and weights, or None."""
        return self.views, self.y, self.weights

    @property
    def parts(self) -> tuple[Any, ...]:
        """Return views, y and, if there are any, weights and how they are related."""
        weights = () if self.weights is None else (self.weights,)
        return (self.views, self.y, *weights, *(() if self.related is None else self.related.arrays))


def checked_weights(weights: Any, n: int, what: str = "sample_weight") -> np.ndarray:
    """Return weights of n rows, float64 (n,).

    Raises `UsboostError` if there is not one for each row, one is negative or no finite number, or all are 0.
    """
    try:
        values = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise UsboostError(f"{what} holds something that is no number; give a number for each row") from None
    if values.shape != (n,):
        raise UsboostError(f"{what} has the shape {values.shape}; give one number for each of the {n} rows")
    wrong = ~(np.isfinite(values) & (values >= 0))
    if wrong.any():
        at = int(wrong.argmax())
        raise UsboostError(f"{what} is {values[at]} in row {at}; weights are finite and not negative")
    if not world().highest(bool(values.any())):
        raise UsboostError(f"{what} is zero in all {n} rows; give some row a positive weight")
    return values


ClassWeight = Literal["balanced"] | Mapping[str, float] | None


def class_factors(
    class_weight: ClassWeight, codes: np.ndarray, classes: Sequence[str], weights: np.ndarray | None = None
) -> np.ndarray:
    """Return the factor by which the rows of each class count more, float64 (M,).

    Raises `UsboostError` if it is neither, names no class, or a weight is no positive finite number.

    Parameters
    ----------
    class_weight : "balanced": all classes that these rows have count alike, with the sum of weights that
        there was; or the weight of each class by its name, 1 of those not in it
    codes : int (n,), positions in the `classes`; weights : of the rows, by default 1
    """
    if class_weight == "balanced":
        counts = np.ones(len(codes)) if weights is None else weights
        sizes = world().sum(np.bincount(codes, counts, len(classes)))
        share = sizes.sum() / np.count_nonzero(sizes)
        return np.divide(share, sizes, out=np.ones_like(sizes), where=sizes > 0)
    if not isinstance(class_weight, Mapping):
        raise UsboostError(f"class_weight is 'balanced' or a weight for each class, not {class_weight!r}")
    known = find({name: name for name in classes}, class_weight)
    unknown = [name for name in class_weight if name not in known]
    if unknown:
        raise UsboostError(f"class_weight names {unknown[0]!r}, which is none of the classes")
    for name, weight in class_weight.items():
        if not (isinstance(weight, Real) and 0 < weight < np.inf):
            raise UsboostError(f"class_weight of {name!r} is {weight!r}; give a positive number")
    weight_of = {known[name]: float(weight) for name, weight in class_weight.items()}
    return np.array([weight_of.get(name, 1.0) for name in classes])


def times_class_weight(
    class_weight: ClassWeight, classes: Sequence[str], *parts: tuple[np.ndarray, np.ndarray | None]
) -> list[np.ndarray | None]:
    """Return the rows' weights times those of their classes, for each part of them, float64 (n,) or None.

    Raises `UsboostError` as `class_factors`, or if a number is predicted.

    Parameters
    ----------
    class_weight : of `class_factors`; what "balanced" is, the first part's rows say; None: without
    classes : none where a number is predicted
    parts : (codes int (n,), weights of the rows or None)
    """
    if class_weight is None:
        return [weights for _, weights in parts]
    if not classes:
        raise UsboostError("`class_weight` is for classes, but a number is predicted; leave it out")
    factors = class_factors(class_weight, parts[0][0], classes, parts[0][1])
    return [factors[codes] * (1.0 if weights is None else weights) for codes, weights in parts]


def as_views(X: Views | Mapping[str, Any]) -> Views:
    """Return `X` as row-aligned views; a mapping of name to view is taken too."""
    if isinstance(X, Views):
        return X
    if isinstance(X, Mapping):
        return Views(X)
    raise UsboostError(
        f"X must be Views or a dict of views, not {type(X).__name__}; "
        "for a plain matrix wrap the classifier in usboost.models.split_columns.SplitColumns"
    )


def one_for_each_row(y: Any, n: int, what: str) -> np.ndarray:
    """Return y as an array (n,); a single column is taken, too.

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


def check_columns(now: Sequence[str], fitted: Sequence[str], view: str) -> None:
    """Refuse a view of more or fewer columns than a model was fitted to, or with these in another order."""
    if len(now) != len(fitted) or (tuple(now) != tuple(fitted) and set(now) == set(fitted)):
        k, (name, was) = next(p for p in enumerate(zip_longest(now, fitted)) if p[1][0] != p[1][1])
        raise UsboostError(f"column {k} of view {view!r} is {name!r}, was {was!r} in the fit; reorder them")


class ViewsEstimator(OwnSettings, BaseEstimator):
    """Base of classifiers and regressors on views.

    A subclass implements ``_fit(views, y, context)``, which trains on y as `ViewsClassifier` or
    `ViewsRegressor` encodes it and sets ``history_`` and ``best_round_``, and, to be saved, ``_write`` and
    ``_read`` (see `usboost.models.persistence`). To be fitted again to all rows it implements ``_as_far()``.
    """

    holds: ClassVar[Mapping[str, Any]] = {}
    """Parameters that are estimators themselves: a registry of what they may be, or classes' names."""

    columns_: dict[str, tuple[str, ...]]
    history_: list[dict[str, float]]
    best_round_: int

    _fit: ClassVar[Any]
    _encode: ClassVar[Any]  # (y): labels as codes, targets as numbers

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return parameters by name; `deep`, also those of estimators inside, in a mapping by their names.

        ``learners__S__max_depth`` is the depth of the learner "S".
        """
        parameters: dict[str, Any] = super().get_params(deep)
        if not deep:
            return parameters
        for name, value in list(parameters.items()):
            for key, part in value.items() if isinstance(value, Mapping) and "__" not in name else ():
                if hasattr(part, "get_params") and not isinstance(part, type):
                    inner = part.get_params(deep=True)
                    parameters[f"{name}__{key}"] = part
                    parameters |= {f"{name}__{key}__{path}": each for path, each in inner.items()}
        return parameters

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

    def to_onnx(self, views: Mapping[str, ViewNodes]) -> Value:
        """Return the probabilities in the graph of some views, float64 (n, M).

        Raises `UsboostError`, naming it, if a part has no ONNX form.
        """
        self._check_fitted()
        return self._to_onnx(views)

    def _to_onnx(self, views: Mapping[str, ViewNodes]) -> Value:
        """Return in the views' graph what is fitted: probabilities (n, M), or standardised numbers (n, 1)."""
        raise no_form(self, "a model")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False  # Views
        return tags

    def _fit_to(self, train: Samples, val: Samples | None) -> None:
        """Fit to encoded training samples, with encoded validation samples or none."""
        parameters = self.get_params(deep=False)
        samples = [each.parts for each in (train, val) if each is not None]
        checkpoint: Checkpoint | None = None
        if (given := parameters.get("checkpoint")) is not None:
            checkpoint = given if isinstance(given, Checkpoint) else Checkpoint(given)
            checkpoint.begin(checkpoint.identity or identity_of(self, samples), self._weak_learners())
        validation = None if val is None else (val.views, val.y)
        val_weights = None if val is None else val.weights
        callbacks = parameters.get("callbacks") or ()
        context = FitContext(validation, callbacks, checkpoint, train.weights, val_weights, train.related)
        self._fit(train.views, train.y, context)

    @property
    def n_outputs(self) -> int:
        """Count the classes, or return 1 of a regression."""
        return len(getattr(self, "classes_", ())) or 1

    @property
    def n_estimators_(self) -> int:
        """Count the trees, rounds or models that predict; 1 of a model that has none of these."""
        self._check_fitted()
        return 1

    def for_all_rows(self) -> Any:
        """Return an unfitted copy that a fit without validation rows takes as far as they let this one go.

        The same rounds, epochs or trees, and of what was chosen on validation rows (a penalty, a size of
        leaves) the choice. Views that a start leaves out are chosen anew. No callbacks and no checkpoint.

        Raises `UsboostError` if how far to go is no parameter of such a model.
        """
        copy = self.unfitted()
        alone = {"validation_fraction": 0.0} if hasattr(copy, "validation_fraction") else {}
        return copy.set_params(**alone, **self._as_far())

    def unfitted(self) -> Any:
        """Return a copy without checkpoint and callbacks: these may hold what cannot be copied, a bar say."""
        watching = self.callbacks
        try:
            copy = clone(self.set_params(callbacks=None))
        finally:
            self.set_params(callbacks=watching)
        return copy.set_params(checkpoint=None) if hasattr(copy, "checkpoint") else copy

    def _as_far(self) -> dict[str, Any]:
        """Return the parameters by which an unfitted copy goes as far as this model went."""
        raise UsboostError(f"a {type(self).__name__} cannot be fitted again to all rows; leave `refit` out")

    def _weak_learners(self) -> dict[str, Any]:
        """Return the learners whose fits are in a checkpoint, by name."""
        return {}

    def _set_aside(
        self, samples: Samples, validation: tuple[Any, ...] | None
    ) -> tuple[Samples, Samples | None]:
        """Return training and validation samples; the latter are given, drawn, or none.

        They are drawn by chance, stratified by class, or as rows are related.
        """
        if validation is not None:
            views, y, *weights = as_views(validation[0]), *validation[1:]
            # targets of several columns are the model's own affair
            y = one_for_each_row(y, len(views), "label") if samples.y.ndim == 1 else np.asarray(y)
            if not world().sum(len(views)) or len(y) != len(views):
                raise UsboostError(f"validation has {len(views)} rows, {len(y)} labels; give one for each")
            what, labels = "the weight in validation", self._encode(y)
            return samples, Samples.counted(views, labels, *(weights or [None]), what=what)
        parameters, y = self.get_params(deep=False), samples.y
        if not parameters.get("validation_fraction"):
            return samples, None
        share, seed = parameters["validation_fraction"], parameters["random_state"]
        if world().count > 1:
            val = np.random.default_rng(world().seed(seed)).random(len(y)) < share
            return samples[np.flatnonzero(~val)], samples[np.flatnonzero(val)]
        try:
            if samples.related is not None:
                seen, aside = samples.related.hold_out(share, y, seed)
            else:
                how: dict[str, Any] = {"stratify": y if y.dtype.kind in "iu" else None, "random_state": seed}
                seen, aside = train_test_split(np.arange(len(y)), test_size=share, **how)
        except ValueError as error:
            advice = "give them as `validation`"
            raise UsboostError(f"cannot set samples aside for validation: {error}; {advice}") from error
        return samples[seen], samples[aside]

    @property
    def feature_names_(self) -> np.ndarray:
        """Return the names of the columns that `feature_importances_` counts, str (p,).

        The names of the table that trees read; with several such tables ``<view>__<column>``.
        """
        columns = self._columns()
        several = len(columns) > 1
        named = [f"{view}__{name}" if several else name for view, own in columns.items() for name in own]
        return np.asarray(named, dtype=object)

    @property
    def feature_importances_(self) -> np.ndarray:
        """Return the importance of each column that trees read, float64 (p,), of sum 1; see `feature_names_`.

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
        """Yield view, tree and step of every tree."""
        return iter(())

    def _reads(self, n_columns: int) -> Sequence[str]:
        """Return the names of the views to cut a matrix of so many columns into."""
        return getattr(self, "views", ("U", "S"))

    def _check_fitted(self) -> None:
        check_is_fitted(self, "best_round_")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "best_round_")

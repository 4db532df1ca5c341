"""What all classifiers on views share: labels, checks, the validation split, predictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from usboost.boosting.checkpoint import Checkpoint, identity_of
from usboost.boosting.context import FitContext
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.files.parts import Registry
from usboost.learners.trees.tree import Tree

MODELS = Registry(
    "model",
    {
        "two_weak_learner": "usboost.models.two_weak_learner:TwoWeakLearnerClassifier",
        "two_branch": "usboost.models.two_branch:TwoBranchNetworkClassifier",
        "bfv_network": "usboost.models.bfv_network:BoostedFeatureNetworkClassifier",
        "boosted_network": "usboost.models.boosted_network:BoostedNetworkClassifier",
        "boosted_network_regressor": "usboost.models.boosted_network:BoostedNetworkRegressor",
        "earlyboost": "usboost.models.earlyboost:EarlyBoostClassifier",
        "lightgbm": "usboost.models.baselines:LightGBMBaseline",
        "linear": "usboost.models.linear:LinearBaseline",
    },
    aliases={"LightGBMOutsider": "lightgbm"},
)
"""Models by kind: those that files can name."""

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


def per_class(model: Any) -> bool:
    """Whether the f of a boosted model has a coordinate for each class; with two classes one is enough."""
    n_classes = len(model.classes_)
    return n_classes > 2 and getattr(model, "n_outputs_", n_classes) == n_classes


class ViewsClassifier(ClassifierMixin, BaseEstimator):
    """Base of the classifiers: subclasses fit encoded labels and give scores per class.

    A subclass implements ``_fit(views, codes, context)``, which trains on codes 0..M−1 and sets
    ``history_`` and ``best_round_``, ``predict_proba``, and, to be saved, ``_write`` and ``_read``
    (see `usboost.models.persistence`).
    """

    holds: ClassVar[Mapping[str, Any]] = {}
    """Parameters that are estimators themselves: a registry of what they may be, or classes' names."""

    columns_: dict[str, tuple[str, ...]]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False  # Views
        return tags

    def fit(
        self,
        X: Views | Mapping[str, Any],
        y: Sequence[Any] | np.ndarray,
        validation: tuple[Views | Mapping[str, Any], Sequence[Any] | np.ndarray] | None = None,
    ) -> ViewsClassifier:
        """Fit to the views of n samples and their labels.

        Parameters
        ----------
        X : Views, or dict of view name to view
        y : (n,) labels of any type that sorts
        validation : (X, y), optional
            Samples for early stopping; otherwise `validation_fraction` of the training samples,
            stratified, is set aside (0 for none: the last round is then kept).

        Raises
        ------
        UsboostError
            If rows do not match, only one class is there, or validation holds an unknown label.
        """
        if y is None:
            raise UsboostError("fit requires y to be passed, but the target y is None; pass the labels")
        views, labels = as_views(X), np.asarray(y)
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = column_or_1d(labels, warn=True)
        if labels.ndim != 1 or len(labels) != len(views):
            raise UsboostError(f"y must have one label for each of the {len(views)} rows, not {labels.shape}")
        if labels.dtype.kind == "f" and not np.isfinite(labels).all():
            raise UsboostError("y holds NaN or infinity; every row needs a label")
        try:
            check_classification_targets(labels)
        except ValueError as error:
            raise UsboostError(f"y does not hold class labels: {error}") from None
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise UsboostError(
                f"all {len(labels)} labels are {self.classes_[0]!r}, one class; two classes are needed"
            )
        self.n_features_in_ = len(views.names)
        views, codes, held_out = self._set_aside(views, codes, validation)
        parameters = self.get_params(deep=False)
        samples = [(views, codes), *([held_out] if held_out else [])]
        checkpoint = open_checkpoint(parameters.get("checkpoint"), self, samples, self._weak_learners())
        self._fit(views, codes, FitContext(held_out, parameters.get("callbacks") or (), checkpoint))
        return self

    def _fit(self, views: Views, codes: np.ndarray, context: FitContext) -> None:
        raise AttributeError("_fit is defined by each classifier")

    def _weak_learners(self) -> dict[str, Any]:
        """The learners whose fits a checkpoint holds, by name."""
        return {}

    def _kept(self) -> ViewsClassifier:
        """The fitted model that files hold."""
        return self

    def _set_aside(
        self, views: Views, codes: np.ndarray, validation: tuple[Any, Any] | None
    ) -> tuple[Views, np.ndarray, Validation | None]:
        """Training and validation samples; the latter given, drawn, or none."""
        if validation is not None:
            return views, codes, (as_views(validation[0]), self._encode(np.asarray(validation[1])))
        parameters = self.get_params(deep=False)
        if not parameters.get("validation_fraction"):
            return views, codes, None
        try:
            fit_rows, held_rows = train_test_split(
                np.arange(len(codes)),
                test_size=parameters["validation_fraction"],
                stratify=codes,
                random_state=parameters["random_state"],
            )
        except ValueError as error:
            raise UsboostError(f"cannot set samples aside for validation: {error}") from error
        return views[fit_rows], codes[fit_rows], (views[held_rows], codes[held_rows])

    def _encode(self, labels: np.ndarray) -> np.ndarray:
        known = np.isin(labels, self.classes_)
        if not known.all():
            label = labels[~known][:1].tolist()[0]
            raise UsboostError(f"label {label!r} is not among the classes seen in training")
        return np.searchsorted(self.classes_, labels)

    def predict(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """The most probable class of each sample, (n,)."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def predict_proba(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """Class probabilities, float64 (n, M), columns as in ``classes_``."""
        raise AttributeError("predict_proba is defined by each classifier")

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
        check_is_fitted(self, "classes_")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "best_round_")

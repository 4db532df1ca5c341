"""What all classifiers on views share: labels, checks, the validation split, predictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from usboost.boosting.callbacks import Callback, EarlyStopping, History
from usboost.boosting.checkpoint import Checkpoint, identity_of
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


class ViewsClassifier(ClassifierMixin, BaseEstimator):
    """Base of the classifiers: subclasses fit encoded labels and give scores per class.

    Subclasses have the parameters `validation_fraction`, `patience`, `callbacks`, `random_state`
    and implement ``_fit(views, codes, validation, callbacks)``, which trains on codes 0..M−1, and
    ``predict_proba``.
    """

    monitor = "f1_val"
    columns_: dict[str, tuple[str, ...]]
    _opened: Checkpoint | None = None

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
        views, codes, held_out = self._split(views, codes, validation)
        self._opened = self._open_checkpoint([(views, codes), *([held_out] if held_out else [])])
        history = History()
        stopping = EarlyStopping(self.monitor, self.patience) if held_out else None
        watchers: list[Callback] = [history, *([stopping] if stopping else []), *(self.callbacks or [])]
        try:
            self._fit(views, codes, held_out, watchers)
        finally:
            self._opened = None
        self.history_ = history.rounds
        self.best_round_ = stopping.best_round if stopping else len(history.rounds)
        return self

    def _open_checkpoint(self, samples: Sequence[Validation]) -> Checkpoint | None:
        given = getattr(self, "checkpoint", None)
        if given is None:
            return None
        opened = given if isinstance(given, Checkpoint) else Checkpoint(given)
        opened.begin(opened.identity or identity_of(self, samples))
        return opened

    def _split(
        self, views: Views, codes: np.ndarray, validation: tuple[Any, Any] | None
    ) -> tuple[Views, np.ndarray, Validation | None]:
        if validation is not None:
            return views, codes, (as_views(validation[0]), self._encode(np.asarray(validation[1])))
        if not self.validation_fraction:
            return views, codes, None
        try:
            fit_rows, held_rows = train_test_split(
                np.arange(len(codes)),
                test_size=self.validation_fraction,
                stratify=codes,
                random_state=self.random_state,
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

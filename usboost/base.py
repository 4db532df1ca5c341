"""What all classifiers on views share: labels, checks, the validation split, predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import train_test_split
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from usboost.callbacks import Callback, EarlyStopping, History
from usboost.checkpoint import Checkpoint, identity_of
from usboost.errors import UsboostError
from usboost.views import Views

Validation = tuple[Views, np.ndarray]


def as_views(X: Views | Mapping[str, Any]) -> Views:
    """`X` as row-aligned views; a mapping of name to view is taken too."""
    if isinstance(X, Views):
        return X
    if isinstance(X, Mapping):
        return Views(X)
    raise UsboostError(f"X must be Views or a dict of views, not {type(X).__name__}")


class ViewsClassifier(ClassifierMixin, BaseEstimator):
    """Base of the classifiers: subclasses fit encoded labels and give scores per class.

    Subclasses have the parameters `validation_fraction`, `patience`, `callbacks`, `random_state`
    and implement ``_fit(views, codes, validation, callbacks)``, which trains on codes 0..M−1, and
    ``predict_proba``.
    """

    monitor = "f1_val"
    _opened: Checkpoint | None = None

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
        views, labels = as_views(X), np.asarray(y)
        if labels.ndim != 1 or len(labels) != len(views):
            raise UsboostError(f"y must have one label for each of the {len(views)} rows, not {labels.shape}")
        try:
            check_classification_targets(labels)
        except ValueError as error:
            raise UsboostError(f"y does not hold class labels: {error}") from None
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise UsboostError(f"all {len(labels)} labels are {self.classes_[0]!r}; two classes are needed")
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

    def _check_fitted(self) -> None:
        check_is_fitted(self, "classes_")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "best_round_")

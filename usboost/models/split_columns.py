"""A plain numeric matrix for classifiers on views: its columns are dealt out to the views."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import Tags, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from usboost.data.table import Table
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.models.base import ViewsClassifier
from usboost.models.two_weak_learner import TwoWeakLearnerClassifier


def _inner_has(method: str) -> Callable[[SplitColumns], bool]:
    return lambda self: hasattr(self._inner(), method)


class SplitColumns(ClassifierMixin, BaseEstimator):
    """Fits a classifier on views to a matrix, so that pipelines and searches can hold it.

    Parameters
    ----------
    classifier : ViewsClassifier, optional
        Cloned in `fit`. Default: `TwoWeakLearnerClassifier`.
    views : mapping of view name to columns, optional
        The positions, or names where X is a DataFrame, of each view's columns; a column may be in several
        views, or in none. Default: the columns in order, in equal parts, to the views that the
        classifier reads, "U" first: the first half to "U", the rest to "S". Where there are fewer
        columns than views, views share them. An `EarlyBoostClassifier` gets each column as a frame.

    Attributes
    ----------
    classifier_ : the fitted clone
    positions_ : dict of view name to the positions of its columns
    classes_ : array of the M labels
    n_features_in_ : p
    feature_names_in_ : str (p,), where X had names
    """

    def __init__(
        self,
        classifier: ViewsClassifier | None = None,
        views: Mapping[str, Sequence[int] | Sequence[str]] | None = None,
    ) -> None:
        self.classifier = classifier
        self.views = views

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags = get_tags(self._inner()).classifier_tags
        return tags

    def fit(self, X: Any, y: Any, validation: tuple[Any, Any] | None = None) -> SplitColumns:
        """Fit the classifier to n samples.

        Parameters
        ----------
        X : array or DataFrame (n, p) of finite numbers
        y : (n,) labels
        validation : (X, y), optional; for the classifier's early stopping

        Raises
        ------
        ValueError, TypeError
            As scikit-learn raises them for input that is no matrix of finite numbers, or no labels.
        UsboostError
            If `views` names columns that are not there, or the classifier cannot be fitted.
        """
        if not isinstance(self._unfitted(), ViewsClassifier):
            raise UsboostError(
                "SplitColumns wraps a usboost classifier such as TwoWeakLearnerClassifier, not a "
                f"{type(self.classifier).__name__}"
            )
        X, y = validate_data(self, X, y, dtype=np.float32, order="C")
        check_classification_targets(y)
        self.positions_ = self._deal(X.shape[1])
        held_out = None if validation is None else (self._views(validation[0]), validation[1])
        self.classifier_ = clone(self._unfitted()).fit(self._cut(X), y, held_out)
        self.classes_ = self.classifier_.classes_
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The classifier's answers, (n,)."""
        return self._fitted().predict(self._views(X))

    @available_if(_inner_has("predict_proba"))
    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities, float64 (n, M)."""
        return self._fitted().predict_proba(self._views(X))

    @available_if(_inner_has("decision_function"))
    def decision_function(self, X: Any) -> np.ndarray:
        """The classifier's scores, float64 (n, M), or (n,) when M = 2."""
        return self._fitted().decision_function(self._views(X))

    @available_if(_inner_has("staged_predict"))
    def staged_predict(self, X: Any) -> Iterator[np.ndarray]:
        """The classifier's answers (n,) after each round."""
        return self._fitted().staged_predict(self._views(X))

    def _unfitted(self) -> ViewsClassifier:
        return TwoWeakLearnerClassifier() if self.classifier is None else self.classifier

    def _inner(self) -> Any:
        return getattr(self, "classifier_", None) or self._unfitted()

    def _fitted(self) -> Any:
        check_is_fitted(self, "classifier_")
        return self.classifier_

    def _views(self, X: Any) -> Views:
        return self._cut(validate_data(self, X, dtype=np.float32, order="C", reset=False))

    def _cut(self, X: np.ndarray) -> Views:
        names = getattr(self, "feature_names_in_", np.array([f"x{j}" for j in range(X.shape[1])]))
        return Views(
            {
                view: Table.from_numeric(X[:, columns], tuple(names[columns].tolist()))
                for view, columns in self.positions_.items()
            }
        )

    def _deal(self, p: int) -> dict[str, np.ndarray]:
        if self.views is not None:
            return {view: self._positions(view, columns, p) for view, columns in self.views.items()}
        names = sorted(self._unfitted()._reads(p), key=lambda name: name != "U")
        if p < len(names):
            return {name: np.array([i % p]) for i, name in enumerate(names)}
        bounds = [i * p // len(names) for i in range(len(names) + 1)]
        return {name: np.arange(*bounds[i : i + 2]) for i, name in enumerate(names)}

    def _positions(self, view: str, columns: Sequence[int] | Sequence[str], p: int) -> np.ndarray:
        known = {name: j for j, name in enumerate(getattr(self, "feature_names_in_", ()))}
        known |= {j: j for j in range(-p, p)}
        missing = [column for column in columns if column not in known]
        if missing or not len(columns):
            what = f"column {missing[0]!r}, which X has not" if missing else "no column"
            raise UsboostError(f"views gives view {view!r} {what}; X has {p} columns")
        return np.array([known[column] for column in columns])

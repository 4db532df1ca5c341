"""A plain numeric matrix for models on views: its columns are dealt out to the views."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.utils import Tags, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from usboost.data.table import Table, warn_of_lost
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.models.base import ViewsClassifier, ViewsRegressor
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier, TwoWeakLearnerRegressor
from usboost.process import OwnSettings


class _SplitColumns(OwnSettings, BaseEstimator):
    """Columns dealt out to a model on views, of the class `_kind`, which is the parameter named `_role`."""

    _role: ClassVar[str]
    _kind: ClassVar[type]
    _default: ClassVar[type]

    views: Mapping[str, Sequence[int] | Sequence[str]] | None

    def fit(
        self, X: Any, y: Any, validation: tuple[Any, ...] | None = None, sample_weight: Any = None
    ) -> Self:
        """Fit the model to n samples.

        Parameters
        ----------
        X : array or DataFrame (n, p) of finite numbers
        y : (n,) labels, or finite numbers
        validation : (X, y) or (X, y, sample_weight), optional; for the model's early stopping
        sample_weight : (n,), optional; as of `usboost.models.base.ViewsClassifier.fit`

        Raises
        ------
        ValueError, TypeError
            As scikit-learn raises them for input that is no matrix of finite numbers, or no labels.
        UsboostError
            If `views` names columns that are not there, or the model cannot be fitted.
        """
        model, of_classes = self._unfitted(), self._role == "classifier"
        if not isinstance(model, self._kind):
            name, given, example = type(self).__name__, type(model).__name__, self._default.__name__
            raise UsboostError(f"{name} wraps a usboost {self._role} such as {example}, not a {given}")
        warn_of_lost(X, getattr(X, "columns", ()))
        X, y = validate_data(self, X, y, dtype=np.float32, order="C", y_numeric=not of_classes)
        if of_classes:
            check_classification_targets(y)
        self.positions_ = self._deal(X.shape[1])
        val = None if validation is None else (self._views(validation[0]), *validation[1:])
        fitted = clone(model).fit(self._cut(X), y, val, sample_weight)
        setattr(self, f"{self._role}_", fitted)
        if of_classes:
            self.classes_ = fitted.classes_
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Predict labels or numbers by the model, (n,)."""
        return self._fitted().predict(self._views(X))

    @available_if(lambda self: hasattr(self._inner(), "staged_predict"))
    def staged_predict(self, X: Any) -> Iterator[np.ndarray]:
        """Predict (n,) after each round of the model."""
        return self._fitted().staged_predict(self._views(X))

    def _unfitted(self) -> Any:
        given = getattr(self, self._role)
        return self._default() if given is None else given

    def _inner(self) -> Any:
        return getattr(self, f"{self._role}_", None) or self._unfitted()

    def _fitted(self) -> Any:
        check_is_fitted(self, f"{self._role}_")
        return getattr(self, f"{self._role}_")

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
        """Return the positions of each view's columns, of p."""
        if self.views is None:
            names = sorted(self._unfitted()._reads(p), key=lambda name: name != "U")
            if p < len(names):
                return {name: np.array([i % p]) for i, name in enumerate(names)}
            bounds = [i * p // len(names) for i in range(len(names) + 1)]
            return {name: np.arange(*bounds[i : i + 2]) for i, name in enumerate(names)}
        known = {name: j for j, name in enumerate(getattr(self, "feature_names_in_", ()))}
        known |= {j: j for j in range(-p, p)}
        for view, columns in self.views.items():
            missing = [column for column in columns if column not in known]
            if missing or not len(columns):
                what = f"column {missing[0]!r}, which X has not" if missing else "no column"
                raise UsboostError(f"views gives view {view!r} {what}; X has {p} columns")
        return {view: np.array([known[column] for column in own]) for view, own in self.views.items()}


@dataclass(eq=False, repr=False)
class SplitColumns(ClassifierMixin, _SplitColumns):
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

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import cross_val_score
    >>> from usboost import LightGBMBaseline, SplitColumns
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SplitColumns(LightGBMBaseline(views=("U", "S"), n_trees=20), views={"U": [0, 1], "S": [2, 3]})
    >>> len(cross_val_score(model, X, y, cv=3))
    3
    """

    _role, _kind, _default = "classifier", ViewsClassifier, TwoWeakLearnerClassifier

    classifier: ViewsClassifier | None = None
    views: Mapping[str, Sequence[int] | Sequence[str]] | None = None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags = get_tags(self._inner()).classifier_tags
        return tags

    @available_if(lambda self: hasattr(self._inner(), "predict_proba"))
    def predict_proba(self, X: Any) -> np.ndarray:
        """Predict class probabilities, float64 (n, M)."""
        return self._fitted().predict_proba(self._views(X))

    @available_if(lambda self: hasattr(self._inner(), "decision_function"))
    def decision_function(self, X: Any) -> np.ndarray:
        """Return the classifier's scores, float64 (n, M), or (n,) when M = 2."""
        return self._fitted().decision_function(self._views(X))


@dataclass(eq=False, repr=False)
class SplitColumnsRegressor(RegressorMixin, _SplitColumns):
    """Fits a regressor on views to a matrix, as `SplitColumns` fits a classifier.

    Parameters
    ----------
    regressor : ViewsRegressor, optional
        Cloned in `fit`. Default: `TwoWeakLearnerRegressor`.
    views : as of `SplitColumns`

    Attributes
    ----------
    regressor_ : the fitted clone
    positions_, n_features_in_, feature_names_in_ : as of `SplitColumns`

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from usboost import RidgeBaseline, SplitColumnsRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> SplitColumnsRegressor(RidgeBaseline(views=("U", "S"))).fit(X, y).score(X, y) > 0.3
    True
    """

    _role, _kind, _default = "regressor", ViewsRegressor, TwoWeakLearnerRegressor

    regressor: ViewsRegressor | None = None
    views: Mapping[str, Sequence[int] | Sequence[str]] | None = None

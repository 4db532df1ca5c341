"""Another package's estimator on a table with pictures, to be measured against; it has no file form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import PredefinedSplit
from sklearn.utils.validation import has_fit_parameter

from usboost.boosting.callbacks import Callback, tell, watched
from usboost.boosting.context import FitContext
from usboost.boosting.rounds import Clock, Round
from usboost.data.related import Related
from usboost.data.table import Table
from usboost.data.views import Views
from usboost.errors import Unsuited, UsboostError, option
from usboost.learners.dimensions import Space
from usboost.learners.networks.backbones import Backbone
from usboost.models.base import ViewsClassifier
from usboost.models.entry import COMPONENTS
from usboost.models.estimator import as_views
from usboost.models.linear_views import MatrixOnViews
from usboost.models.package_list import PACKAGES, Package, check_outside, imported
from usboost.models.regressor import ViewsRegressor


class _Scikit(MatrixOnViews):
    """What the classifier and the regressor share."""

    estimator: Any
    stops_early: bool
    random_state: int
    callbacks: Sequence[Callback] | None

    own_categories_: bool  # whether the fitted estimator is given codes, and no indicators of them

    components = COMPONENTS
    n_rounds = 1
    learns_from_held = True  # from validation rows, too, where it chooses nothing on them

    @property
    def space(self) -> Space:
        """That of the package that the estimator is of; nothing of any other."""
        known = self._known()
        return known.space if known is not None else {}

    def _known(self) -> Package | None:
        """The package that the estimator is of, if it is one of `PACKAGES`."""
        return PACKAGES.get(type(self.estimator).__module__.partition(".")[0])

    @property
    def n_estimators_(self) -> int:
        """One."""
        self._check_fitted()
        return 1

    def _ready(self, y: np.ndarray, related: Related | None) -> Any:
        """The estimator to be fitted to labels or targets (n,), of which the first rows are related."""
        made = clone(self.estimator)
        if "random_state" in made.get_params(deep=False):
            made.set_params(random_state=self.random_state)
        return made

    def _may_have_categories(self) -> bool:
        """Whether the estimator has not been told to take no categories, as XGBoost's may be."""
        estimator = getattr(self, "estimator", None)
        return estimator is None or estimator.get_params().get("enable_categorical", True) is not False

    def _matrix(self, table: Table) -> Any:
        """As of every linear baseline, or a frame whose columns of categories are of pandas' own type."""
        if not self.own_categories_:
            return super()._matrix(table)
        from pandas import Categorical, DataFrame

        numbers = (table.numeric - self.mean_) * self.scale_
        frame = DataFrame(numbers, columns=range(numbers.shape[1]))
        for codes, count in zip(table.codes.T, table.cardinalities, strict=True):
            frame[frame.shape[1]] = Categorical.from_codes(codes, categories=range(count))
        return frame

    def _fit(self, views: Views, y: np.ndarray, context: FitContext) -> None:
        known = self._known()
        self.own_categories_ = known is not None and known.own_categories and self._may_have_categories()
        x, watch, weights = self._learn(views, context.weights), context.watch(), context.weights
        held = None
        if context.validation is not None:
            held = self._rows(context.validation[0]), context.validation[1]
        if held is not None and not self.stops_early and self.learns_from_held:
            both = (weights, y), (context.held_weights, held[1])
            if any(each is not None for each, _ in both):
                weights = np.concatenate([np.ones(len(of)) if each is None else each for each, of in both])
            x, y = np.concatenate([x, held[0]]), np.concatenate([y, held[1]])
        self._learnt(x, y, len(views))
        clock = Clock()
        with watched(self, watch.callbacks):
            given = self._hooks(watch.callbacks)
            told = not given
            categories = list(range(len(self.mean_), x.shape[1])) if self.own_categories_ else []
            if held is not None and self.stops_early:
                given |= {"eval_set": [held], "verbose": False}
                weigh = None if known is None else known.weighted
                if weigh is not None and context.held_weights is not None:
                    given |= weigh(held[0], held[1], context.held_weights, categories)
            if known is not None and self.own_categories_ and known.told_categories:
                given[known.told_categories] = categories
            ready = self._ready(y, context.apart)
            if weights is not None:
                if not has_fit_parameter(ready, "sample_weight"):
                    raise Unsuited(f"a {type(ready).__name__} takes no weights; leave it out")
                given["sample_weight"] = weights
            self.estimator_ = ready.fit(x, y, **given)
            if told:
                tell(watch.callbacks, Round(1, None, {}, clock.seconds()))
        self.history_, self.best_round_ = watch.history, 1
        if held is not None and self.stops_early and known is not None:
            self.best_round_ = 1 + int(getattr(self.estimator_, known.best))

    def for_rounds(self, n: int) -> Any:
        """The estimator, unfitted, for so many rounds; as it is where it does not stop early.

        Raises
        ------
        UsboostError
            If it is of a package that this is not known of.
        """
        copy, known = clone(self.estimator), self._known()
        if not self.stops_early:
            return copy
        if known is None:
            raise UsboostError(
                f"a {type(copy).__name__} cannot be told when to stop; leave {option('refit')} out"
            )
        settings = copy.get_params(deep=False)
        settings.pop("early_stopping_rounds", None)  # CatBoost's with None cannot be cloned
        return type(copy)(**{**settings, known.length: n})

    def _learnt(self, x: np.ndarray, y: np.ndarray, rows: int) -> None:
        """Told of what the estimator will be fitted to, (n, p) and (n,); so many are training rows."""

    def _hooks(self, callbacks: Sequence[Callback]) -> dict[str, Any]:
        """Arguments of the estimator's fit by which it tells of its rounds; empty if it cannot."""
        return {}


class ScikitBaseline(_Scikit, ViewsClassifier):
    """A scikit-learn classifier on everything: numbers standardised, categories one-hot, pictures embedded.

    XGBoost and CatBoost are given the categories themselves.

    Parameters
    ----------
    estimator : a classifier; without ``predict_proba`` its decisions are calibrated by a sigmoid, fitted to
        out-of-fold ones. One that divides the rows by itself (``LogisticRegressionCV``, say) does not know
        how they are related
    views : names of the views it reads
    stops_early : whether its ``fit`` takes the validation rows as ``eval_set``; else it learns from them, too
    validation_fraction, random_state, callbacks : as everywhere
    backbone : Backbone, optional; what embeds pictures (always frozen here)
    device : where pictures are embedded

    Attributes
    ----------
    classes_ ; estimator_ : fitted, of the classes' positions
    """

    def __init__(
        self,
        estimator: Any = None,
        views: Sequence[str] = ("U", "S"),
        stops_early: bool = False,
        validation_fraction: float = 0.0,
        backbone: Backbone | None = None,
        device: str = "auto",
        random_state: int = 0,
        callbacks: Sequence[Callback] | None = None,
    ) -> None:
        self.estimator = estimator
        self.views = views
        self.stops_early = stops_early
        self.validation_fraction = validation_fraction
        self.backbone = backbone
        self.device = device
        self.random_state = random_state
        self.callbacks = callbacks

    def _ready(self, y: np.ndarray, related: Related | None) -> Any:
        made = super()._ready(y, related)
        if hasattr(made, "predict_proba"):
            return made
        fewest = int(np.bincount(y)[np.unique(y)].min())
        cv = min(5, max(2, fewest)) if related is None else self._parts(y, related)
        return CalibratedClassifierCV(made, ensemble=False, cv=cv)

    def _parts(self, y: np.ndarray, related: Related) -> PredefinedSplit:
        """Parts of related training rows; validation rows after them, if there are any, are one more."""
        n = sum(map(len, related.arguments.values()))
        part = related.parts(5, y[:n], self.random_state)
        part = np.append(part, np.full(len(y) - n, part.max() + 1))
        if any(len(np.unique(y[part != k])) < len(np.unique(y)) for k in range(int(part.max()) + 1)):
            raise Unsuited(
                f"the decisions of a {type(self.estimator).__name__} cannot be calibrated, as some class is "
                "in one part of the groups or times only; name an estimator with predict_proba"
            )
        return PredefinedSplit(part)

    def predict_proba(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """Class probabilities, float64 (n, M), columns as in ``classes_``."""
        self._check_fitted()
        found = np.asarray(self.estimator_.predict_proba(self._rows(as_views(X))), dtype=np.float64)
        return found / found.sum(axis=1, keepdims=True)


class ScikitBaselineRegressor(_Scikit, ViewsRegressor):
    """A scikit-learn regressor on everything; see `ScikitBaseline`.

    Parameters
    ----------
    As of `ScikitBaseline`; the estimator is fitted to centred and scaled targets.

    Attributes
    ----------
    estimator_ ; target_centre_, target_scale_ : of the training targets
    """

    def __init__(
        self,
        estimator: Any = None,
        views: Sequence[str] = ("U", "S"),
        stops_early: bool = False,
        validation_fraction: float = 0.0,
        backbone: Backbone | None = None,
        device: str = "auto",
        random_state: int = 0,
        callbacks: Sequence[Callback] | None = None,
    ) -> None:
        self.estimator = estimator
        self.views = views
        self.stops_early = stops_early
        self.validation_fraction = validation_fraction
        self.backbone = backbone
        self.device = device
        self.random_state = random_state
        self.callbacks = callbacks

    def _predict(self, views: Views) -> np.ndarray:
        found = np.asarray(self.estimator_.predict(self._rows(views)), dtype=np.float64)
        return found.reshape(len(views))


def outside(
    name: str, task: str, *, views: Sequence[str], backbone: Backbone | None = None, seed: int = 0
) -> ScikitBaseline | ScikitBaselineRegressor:
    """A package of `PACKAGES`, or any scikit-learn estimator by its import path, on views.

    Parameters
    ----------
    name : "catboost", or "sklearn.svm:SVC".
    task : of `entry.TASKS`.
    views : those that it reads; backbone : what embeds pictures among them.

    Raises
    ------
    UsboostError
        As `check_outside`.
    """
    check_outside(name, task)
    package = PACKAGES.get(name, Package({task: name}))
    settings = package.settings(torch.get_num_threads(), seed)
    made = imported(package.classes[task])(**settings)
    wrapped = ScikitBaseline if task == "classification" else ScikitBaselineRegressor
    return wrapped(made, views, package.stops_early, backbone=backbone, random_state=seed)

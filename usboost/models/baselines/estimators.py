"""Others' estimators on views: the wrapper with the parameters of each, and its entry of `PACKAGES`."""

# Annotations are not postponed: a class takes its fields, and their types, from those of other modules, too.

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import PredefinedSplit

from usboost.boosting.callbacks import Callback, tell, watched
from usboost.boosting.context import FitContext
from usboost.boosting.rounds import Clock, Round
from usboost.data.row_groups import Related
from usboost.data.views import Views
from usboost.errors import Unsuited, UsboostError, option
from usboost.learners.networks.images.backbones import Backbone
from usboost.losses.regression import best_constant, check_loss_name, regression_loss
from usboost.models.base import ViewsClassifier, ViewsRegressor
from usboost.models.baselines.package import Package, Rows, imported, without_stopping
from usboost.models.baselines.packages import PACKAGES, check_outside, named
from usboost.models.baselines.wrapper import Classifier, Names, Regressor, Wrapper
from usboost.models.catalogue.entry import COMPONENTS
from usboost.models.estimator import ViewsEstimator, as_views


@dataclass(eq=False, repr=False)
class _LightGBM(Wrapper):
    """Parameters of both."""

    views: Names = ("U", "S")
    n_trees: int = 2000
    learning_rate: float = 0.05
    num_leaves: int = 31
    min_samples_leaf: int = 20
    patience: int = 50
    components: int | None = None
    feature_fraction: float = 1.0
    lambda_l2: float = 0.0
    category_l2: float = 10.0

    _entry: ClassVar[Package] = PACKAGES["lightgbm"]

    def _staged_scores(self, X: Views | Mapping[str, Any]) -> Iterator[np.ndarray]:
        self._check_fitted()
        found: Iterator[np.ndarray] = self.gbm_.staged_raw_score(self._rows(as_views(X)))
        return found


class LightGBMBaseline(_LightGBM, Classifier):
    """A LightGBM classifier on one or more views, early-stopped on the validation log-loss.

    Sample weights count as LightGBM takes them: in gradients, while bins and `min_samples_leaf` count rows.

    Parameters
    ----------
    views : names of the views it reads; tables as they are, images as frozen embeddings
    n_trees : at most this many stages
    learning_rate, num_leaves, min_samples_leaf : as LightGBM's
    patience : stages without a better validation log-loss before stopping
    components : images are read as so many principal components of their embeddings; None: as all features
    feature_fraction, lambda_l2 : as LightGBM's; category_l2 : its cat_l2, on splits by category
    validation_fraction, random_state, callbacks : as everywhere
    backbone : Backbone, optional; what embeds images (always frozen here)
    device : where images are embedded

    Attributes
    ----------
    classes_, gbm_ : GradientBoostedTrees
    history_ : list of dicts, one a stage, with validation data "risk_val", the log-loss in nats
    best_round_, n_estimators_ : int, the stages kept
    feature_importances_, feature_names_ : of all columns, as ``<view>__<column>`` with several views

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from usboost import LightGBMBaseline, Table, Views
    >>> X, y = load_iris(return_X_y=True)
    >>> views = Views(U=Table.from_numeric(X[:, :2]), S=Table.from_numeric(X[:, 2:]))
    >>> model = LightGBMBaseline(views=("U", "S"), n_trees=30).fit(views, y)
    >>> model.predict_proba(views[:2]).shape
    (2, 3)
    """

    def staged_predict(self, X: Views | Mapping[str, Any]) -> Iterator[np.ndarray]:
        """Predictions (n,) after each stage kept."""
        for raw in self._staged_scores(X):
            yield self.classes_[raw.argmax(axis=1) if raw.shape[1] > 1 else (raw[:, 0] > 0).astype(int)]


@dataclass(eq=False, repr=False)
class LightGBMBaselineRegressor(_LightGBM, Regressor):
    """A LightGBM regressor on one or more views, early-stopped on the validation loss.

    Parameters
    ----------
    As of `LightGBMBaseline`, and
    loss : {"squared", "absolute", "huber", "quantile"}
        LightGBM's own losses; its Huber loss goes over to the absolute one at 0.9 standard deviations of y.
    quantile : level of the quantile loss
    monotone : dict of column of numbers to "+" or "-", optional
        The prediction never falls, or never rises, as that column grows and the others stay. Not with the
        absolute and the quantile loss, whose leaf values LightGBM finds without that.

    Attributes
    ----------
    target_centre_, target_scale_ : mean (median, quantile) and standard deviation of the training targets
    gbm_ : GradientBoostedTrees, of standardised targets
    history_ : list of dicts, one a stage, with validation data "risk_val", the loss as LightGBM reports it
    best_round_, n_estimators_, feature_importances_, feature_names_ : as of `LightGBMBaseline`

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from usboost import LightGBMBaselineRegressor, Table, Views
    >>> X, y = load_diabetes(return_X_y=True)
    >>> views = Views(U=Table.from_numeric(X[:, :5]), S=Table.from_numeric(X[:, 5:]))
    >>> model = LightGBMBaselineRegressor(views=("U", "S"), n_trees=30).fit(views, y)
    >>> model.score(views, y) > 0.3
    True
    """

    loss: str = "squared"
    quantile: float = 0.5
    monotone: Mapping[str, str] | None = None

    def _centre(self, y: np.ndarray, weights: np.ndarray | None) -> float:
        check_loss_name(self.loss)
        if self.loss == "squared":
            return super()._centre(y, weights)
        level = self.quantile if self.loss == "quantile" else 0.5
        return best_constant(regression_loss("quantile", quantile=level), y, weights)

    def _staged(self, views: Views) -> Iterator[np.ndarray]:
        return (raw[:, 0].copy() for raw in self._staged_scores(views))


@dataclass(eq=False, repr=False)
class _Forest(Wrapper):
    """Parameters of both."""

    views: Names = ("U", "S")
    n_trees: int = 300
    leaf_sizes: Sequence[int] = (1, 5)
    components: int | None = COMPONENTS
    max_features: float | str = "sqrt"

    _entry: ClassVar[Package] = PACKAGES["forest"]


class ForestBaseline(_Forest, Classifier):
    """A random forest on one or more views: trees of bootstrap samples.

    By default √p columns are tried at each split.

    Sample weights count as scikit-learn takes them: rows are drawn and leaves filled whatever the weights,
    which count in splits and means.

    Parameters
    ----------
    views : names of the views it reads; tables as they are, images as components of frozen embeddings
    n_trees : how many
    leaf_sizes : fewest samples of a leaf, each tried; the one of the lowest validation log-loss is kept,
        without validation rows the first
    components : images are read as so many principal components of their embeddings; None: as all features
    max_features : columns tried at each split, "sqrt" or a share of them
    validation_fraction, random_state, callbacks, backbone, device : as of `LightGBMBaseline`

    Attributes
    ----------
    classes_, trees_ ; n_estimators_ : int
    history_ : list of dicts, one for each size: "leaf_size", and "risk_val", the validation log-loss in nats
    best_round_ : the position of the size kept, from 1
    feature_importances_, feature_names_ : of all columns, as ``<view>__<column>`` with several views
    """


@dataclass(eq=False, repr=False)
class ForestBaselineRegressor(_Forest, Regressor):
    """A random forest of regression trees, by default of a third of the columns; see `ForestBaseline`.

    Of the `leaf_sizes` the one of the lowest validation mean squared error is kept.
    """

    max_features: float | str = 1 / 3


@dataclass(eq=False, repr=False)
class _Scikit(Wrapper):
    """Parameters of both: any estimator with scikit-learn's interface."""

    estimator: Any = None
    views: Names = ("U", "S")
    stops_early: bool = False
    _: KW_ONLY
    validation_fraction: float = 0.0

    @property
    def _entry(self) -> Package:
        return named(type(self.estimator).__module__.partition(".")[0]) or Package()

    def _given(self, views: Views, y: np.ndarray, context: FitContext) -> Rows:
        rows = super()._given(views, y, context)
        return rows if self.stops_early else rows.joined()

    def _unfitted(self, rows: Rows | None = None) -> Any:
        made = clone(self.estimator)
        if "random_state" in made.get_params(deep=False):
            made.set_params(random_state=self.random_state)
        return made

    def for_rounds(self, n: int) -> Any:
        """The estimator, unfitted, for so many rounds; as it is where it does not stop early.

        Raises
        ------
        UsboostError
            If it is of a package that this is not known of.
        """
        copy, length = clone(self.estimator), self._entry.length
        if not self.stops_early:
            return copy
        if not length:
            raise UsboostError(
                f"a {type(copy).__name__} cannot be told when to stop; leave {option('refit')} out"
            )
        return without_stopping(copy, **{length: n})


class ScikitBaseline(_Scikit, Classifier):
    """A scikit-learn classifier on everything: numbers standardised, categories one-hot, images embedded.

    XGBoost and CatBoost are given the categories themselves.

    Parameters
    ----------
    estimator : a classifier; without ``predict_proba`` its decisions are calibrated by a sigmoid, fitted to
        out-of-fold ones. One that divides the rows by itself (``LogisticRegressionCV``, say) does not know
        how they are related
    views : names of the views it reads
    stops_early : whether its ``fit`` takes the validation rows as ``eval_set``; else it learns from them, too
    validation_fraction, random_state, callbacks, backbone, device : as of `LightGBMBaseline`

    Attributes
    ----------
    classes_ ; estimator_ : fitted, of the classes' positions
    """

    def _unfitted(self, rows: Rows | None = None) -> Any:
        made = super()._unfitted(rows)
        if rows is None or hasattr(made, "predict_proba"):
            return made
        fewest = int(np.bincount(rows.y)[np.unique(rows.y)].min())
        cv = min(5, max(2, fewest)) if rows.apart is None else self._parts(rows.y, rows.apart)
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


class ScikitBaselineRegressor(_Scikit, Regressor):
    """A scikit-learn regressor on everything, fitted to standardised targets; see `ScikitBaseline`."""


@dataclass(eq=False, repr=False)
class _Package(Wrapper):
    """Parameters of both: a package of the table by its name, with a file."""

    package: str = "catboost"
    views: Names = ("U", "S")
    n_trees: int = 2000
    _: KW_ONLY
    validation_fraction: float = 0.0

    @property
    def _entry(self) -> Package:
        found = named(self.package)
        if found is None:
            known = ", ".join(name for name in PACKAGES if named(name))
            raise UsboostError(f"unknown package {self.package!r}; choose among {known}")
        return found

    @property
    def stops_early(self) -> bool:
        """Whether validation rows end its fit."""
        return self._entry.stops_early

    def _unfitted(self, rows: Rows | None = None) -> Any:
        if find_spec(self.package) is None:
            raise UsboostError(
                f"the model needs {self.package}, which is not installed; `pip install {self.package}`"
            )
        task = "classification" if isinstance(self, ViewsClassifier) else "regression"
        settings = self._entry.settings(torch.get_num_threads(), self.random_state)
        rounds = {self._entry.length: self.n_trees} if self._entry.length else {}
        return imported(self._entry.classes[task])(**settings | rounds)

    def _fit(self, views: Views, y: np.ndarray, context: FitContext) -> None:
        try:
            super()._fit(views, y, context)
        except UsboostError:
            raise
        except Exception as error:  # a package's own errors: no weights to be had, no memory, any other
            said = str(error).splitlines() or [type(error).__name__]
            raise Unsuited(f"{self.package}: {said[0]}") from error

    def _given(self, views: Views, y: np.ndarray, context: FitContext) -> Rows:
        rows, package = super()._given(views, y, context), self._entry
        most = package.rows if torch.cuda.is_available() else package.rows_on_cpu
        for what, count, limit in (
            ("rows", len(y), most),
            ("columns", rows.x.shape[1], package.columns),
            ("classes", self.n_outputs, package.n_classes),
        ):
            if limit is not None and count > limit:
                raise Unsuited(f"{self.package} takes up to {limit:,} {what} here, not {count:,}")
        if not package.file:
            self.rows_ = np.asarray(rows.x, dtype=np.float32), y
        return rows


class PackageClassifier(_Package, Classifier):
    """A classifier of another package: numbers standardised, categories one-hot, images embedded.

    CatBoost and XGBoost are given the categories themselves.

    Parameters
    ----------
    package : a name of `PACKAGES`
    views : names of the views it reads
    n_trees : CatBoost's and XGBoost's rounds at most
    validation_fraction, random_state, callbacks, backbone, device : as of `LightGBMBaseline`

    Attributes
    ----------
    classes_ ; estimator_ : fitted, of the classes' positions

    Raises
    ------
    Unsuited
        By ``fit``, of more rows, columns or classes than the package is made for, and where it fails.
    """


class PackageRegressor(_Package, Regressor):
    """A regressor of another package, fitted to standardised targets; see `PackageClassifier`."""


@dataclass(eq=False, repr=False)
class _Prior(ViewsEstimator):
    """Reads no column of any row."""

    validation_fraction: float = 0.0
    random_state: int = 0
    callbacks: Sequence[Callback] | None = None

    n_rounds: ClassVar[int] = 1

    @property
    def n_estimators_(self) -> int:
        """One answer."""
        self._check_fitted()
        return 1

    def _fit(self, views: Views, y: np.ndarray, context: FitContext) -> None:
        watch = context.watch()
        with watched(self, watch.callbacks):
            tell(watch.callbacks, Round(1, None, {}, Clock().seconds()))
        self.history_, self.best_round_ = watch.history, 1

    def _write(self, folder: Path) -> dict[str, Any]:
        return {}

    def _read(self, document: Mapping[str, Any], folder: Path) -> None:
        pass


class PriorBaseline(_Prior, ViewsClassifier):
    """The training rows' shares of the classes, for every row.

    Parameters
    ----------
    validation_fraction, random_state, callbacks : as everywhere

    Attributes
    ----------
    classes_ ; shares_ : float64 (M,)
    """

    def _fit(self, views: Views, y: np.ndarray, context: FitContext) -> None:
        counts = np.bincount(y, context.weights, len(self.classes_))
        self.shares_ = counts / counts.sum()
        super()._fit(views, y, context)

    def predict_proba(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """The shares, float64 (n, M)."""
        self._check_fitted()
        return np.tile(self.shares_, (len(as_views(X)), 1))

    def _write(self, folder: Path) -> dict[str, Any]:
        return {"shares": self.shares_.tolist()}

    def _read(self, document: Mapping[str, Any], folder: Path) -> None:
        self.shares_ = np.asarray(document["shares"], dtype=np.float64)
        right = self.shares_.shape == (len(self.classes_),) and (self.shares_ >= 0).all()
        if not right or abs(self.shares_.sum() - 1) > 1e-6:
            raise UsboostError("the classes' shares are not one for each, which sum to 1")


class PriorBaselineRegressor(_Prior, ViewsRegressor):
    """The training rows' mean, for every row; see `PriorBaseline`."""

    def _predict(self, views: Views) -> np.ndarray:
        return np.zeros(len(views))


def outside(
    name: str, task: str, *, views: Names, backbone: Backbone | None = None, seed: int = 0
) -> ScikitBaseline | ScikitBaselineRegressor:
    """A package of `PACKAGES`, or any scikit-learn estimator by its import path, on views.

    Parameters
    ----------
    name : "catboost", or "sklearn.svm:SVC".
    task : of `entry.TASKS`.
    views : those that it reads; backbone : what embeds images among them.

    Raises
    ------
    UsboostError
        As `check_outside`.
    """
    check_outside(name, task)
    package = named(name) or Package({task: name})
    made = imported(package.classes[task])(**package.settings(torch.get_num_threads(), seed))
    wrapped = ScikitBaseline if task == "classification" else ScikitBaselineRegressor
    return wrapped(made, views, package.stops_early, backbone=backbone, random_state=seed)

"""Others' estimators on views: one wrapper, whose parameters and entry of `PACKAGES` make each of them."""

# Annotations are not postponed: a class takes its fields, and their types, from those of other modules, too.

import re
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
from usboost.data.related import Related
from usboost.data.table import Table
from usboost.data.views import Views
from usboost.errors import Unsuited, UsboostError
from usboost.evaluation.weighted import column_moments
from usboost.learners.dimensions import Space
from usboost.learners.networks.backbones import Backbone
from usboost.learners.trees.tree import Tree
from usboost.losses.regression import best_constant, check_loss_name, regression_loss
from usboost.models.base import ViewsClassifier
from usboost.models.baselines.linear import LogisticStart, RidgeStart
from usboost.models.baselines.package import Package, Rows, imported, without_stopping
from usboost.models.baselines.packages import PACKAGES, check_outside, named
from usboost.models.entry import COMPONENTS
from usboost.models.estimator import ViewsEstimator, as_views
from usboost.models.reading import Reading, Wanted
from usboost.models.regressor import ViewsRegressor

NAME = "all"
"""What a baseline reads, as a learner's name."""

_FEATURE = re.compile(r"__(embedding|component)_\d+$")  # of a picture

Names = Sequence[str]


@dataclass(eq=False, repr=False, kw_only=True)
class Wrapper(ViewsEstimator):
    """Another's method on views: reads them, fits as its entry of `PACKAGES` says, and has its file."""

    validation_fraction: float = 0.1
    backbone: Backbone | None = None
    device: str = "auto"
    random_state: int = 0
    callbacks: Sequence[Callback] | None = None

    entry: ClassVar[str] = ""
    holds: ClassVar[Mapping[str, Any]] = {"backbone": ("Backbone",)}

    @property
    def _entry(self) -> Package:
        return PACKAGES[self.entry]

    @property
    def space(self) -> Space:
        """What may be chosen of it."""
        return self._entry.space

    @property
    def n_rounds(self) -> int:
        """Values that are tried, or the package's own rounds at most, under the name that callbacks know."""
        if self._entry.chosen:
            return len(getattr(self, self._entry.chosen))
        return int(getattr(self, "n_trees", 1)) if self._entry.stages else 1

    @property
    def tells_stages(self) -> bool:
        """Whether callbacks are told of the package's own rounds, and not of the fit as one."""
        return self._entry.stages and hasattr(self, "n_trees")

    @property
    def n_outputs(self) -> int:
        """M classes, or 1 of a regression."""
        return len(getattr(self, "classes_", ())) or 1

    @property
    def n_estimators_(self) -> int:
        """Trees or stages kept; 1 of a model without."""
        self._check_fitted()
        return self._entry.size(self)

    def _fit(self, views: Views, y: np.ndarray, context: FitContext) -> None:
        package, watch = self._entry, context.watch()
        choices = self._choices(context.validation is not None)
        rows = self._given(views, y, context)
        best, kept, clock = np.inf, dict[str, Any](), Clock()
        with watched(self, watch.callbacks):
            for index, choice in enumerate(choices, start=1):
                found, metrics = package.fit(self, rows, choice, watch.callbacks)
                self.__dict__.update(found)
                if package.scored and rows.held is not None:
                    metrics["risk_val"] = package.risk(self, rows)
                if index == 1 or metrics["risk_val"] < best:
                    best, kept = metrics.get("risk_val", np.inf), {"best_round_": index, **found}
                if self.tells_stages:
                    break
                stop = tell(watch.callbacks, Round(index, None, metrics, clock.seconds()))
                clock = Clock()
                if stop or (package.patience and index == kept["best_round_"] + package.patience):
                    break
        self.__dict__.update(kept)
        self.history_ = watch.history

    def _choices(self, held: bool) -> Sequence[Any]:
        """The values to be tried of the parameter that is chosen on validation rows, if there are any."""
        package = self._entry
        if not package.chosen:
            return (None,)
        choices: Sequence[Any] = getattr(self, package.chosen)
        if not choices:
            raise UsboostError(f"{package.chosen} is empty; give one or more")
        return choices if held else (choices[len(choices) // 2 if package.middle else 0],)

    def _given(self, views: Views, y: np.ndarray, context: FitContext) -> Rows:
        """Learn from the training rows how they are read and scaled; what the package is given."""
        weights, reads = context.weights, self._entry.reads
        self.reading_ = self._reading()
        table = self.reading_.fit(views, weights)[NAME]
        if reads == "table":
            self.columns_ = {"+".join(self.views): table.names}
        else:
            told = getattr(self, "estimator", None)  # XGBoost's may have been told to take no categories
            takes = told is None or told.get_params().get("enable_categorical", True) is not False
            self.own_categories_ = reads == "frame" and takes
            self.mean_, self.scale_ = _centre_and_scale(table, weights)
        x = self._columns_of(table)
        held = context.validation and (self._rows(context.validation[0]), context.validation[1])
        categories = range(len(self.mean_), x.shape[1]) if reads == "frame" and self.own_categories_ else ()
        return Rows(x, y, weights, held, context.held_weights, context.apart, tuple(categories))

    def _rows(self, views: Views) -> Any:
        """Any rows, as the package reads them."""
        return self._columns_of(self.reading_(views)[NAME])

    def _columns_of(self, table: Table) -> Any:
        """The table as it is; or float32 (n, p): numbers, then each category's indicators; or a frame whose
        columns of categories are of pandas' own type."""
        if self._entry.reads == "table":
            return table
        numbers = (table.numeric - self.mean_) * self.scale_
        coded = zip(table.codes.T, table.cardinalities, strict=True)
        if not self.own_categories_:
            indicators = [np.eye(k, dtype=np.float32)[codes] for codes, k in coded]
            return np.concatenate([numbers, *indicators], axis=1)
        from pandas import Categorical, DataFrame

        frame = DataFrame(numbers, columns=range(numbers.shape[1]))
        for codes, k in coded:
            frame[frame.shape[1]] = Categorical.from_codes(codes, categories=range(k))
        return frame

    def _outputs(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """Probabilities, or standardised numbers (n, 1)."""
        self._check_fitted()
        return self._entry.predict(self, self._rows(as_views(X)))

    def _unfitted(self, rows: Rows | None = None) -> Any:
        """The estimator, to be fitted to rows, or to be read from a file."""
        raise AttributeError("_unfitted is defined by models of scikit-learn's interface")

    def _reading(self) -> Reading:
        if not self.views:
            raise UsboostError("views names no view; give one or more")
        components = getattr(self, "components", self._entry.components)
        several = len(self.views) > 1 or self._entry.reads != "table"
        wanted = {NAME: Wanted(tuple(self.views), components, filled=True)}
        return Reading(wanted, self.backbone, self.device, qualified=several)

    def _reads(self, n_columns: int) -> Names:
        return self.views

    def _trees(self) -> Iterator[tuple[str, Tree, float]]:
        return (("+".join(self.views), tree, 1.0) for tree in self._entry.trees(self))

    def _write(self, folder: Path) -> dict[str, Any]:
        return {**self._entry.write(self, folder), self._entry.reading: self.reading_.write(folder)}

    def _read(self, document: Mapping[str, Any], folder: Path) -> None:
        self.reading_ = self._reading()
        self.reading_.read(document.get(self._entry.reading), folder)
        self._entry.read(self, folder, document)


class _Classifier(Wrapper, ViewsClassifier):
    """Of classes."""

    def predict_proba(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """Class probabilities, float64 (n, M), columns as in ``classes_``."""
        found = self._outputs(X)
        return found if self._entry.sums_to_one else found / found.sum(axis=1, keepdims=True)


class _Regressor(Wrapper, ViewsRegressor):
    """Of numbers."""

    def _predict(self, views: Views) -> np.ndarray:
        return self._outputs(views)[:, 0]


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

    entry: ClassVar[str] = "lightgbm"

    def _staged_scores(self, X: Views | Mapping[str, Any]) -> Iterator[np.ndarray]:
        self._check_fitted()
        found: Iterator[np.ndarray] = self.gbm_.staged_raw_score(self._rows(as_views(X)))
        return found


class LightGBMBaseline(_LightGBM, _Classifier):
    """A LightGBM classifier on one or more views, early-stopped on the validation log-loss.

    Sample weights count as LightGBM takes them: in gradients, while bins and `min_samples_leaf` count rows.

    Parameters
    ----------
    views : names of the views it reads; tables as they are, pictures as frozen embeddings
    n_trees : at most this many stages
    learning_rate, num_leaves, min_samples_leaf : as LightGBM's
    patience : stages without a better validation log-loss before stopping
    components : pictures are read as so many principal components of their embeddings; None: as all features
    feature_fraction, lambda_l2 : as LightGBM's; category_l2 : its cat_l2, on splits by category
    validation_fraction, random_state, callbacks : as everywhere
    backbone : Backbone, optional; what embeds pictures (always frozen here)
    device : where pictures are embedded

    Attributes
    ----------
    classes_, gbm_ : GradientBoostedTrees
    history_ : list of dicts, one a stage, with validation data "risk_val", the log-loss in nats
    best_round_, n_estimators_ : int, the stages kept
    feature_importances_, feature_names_ : of all columns, as ``<view>__<column>`` with several views
    """

    def staged_predict(self, X: Views | Mapping[str, Any]) -> Iterator[np.ndarray]:
        """Predictions (n,) after each stage kept."""
        for raw in self._staged_scores(X):
            yield self.classes_[raw.argmax(axis=1) if raw.shape[1] > 1 else (raw[:, 0] > 0).astype(int)]


@dataclass(eq=False, repr=False)
class LightGBMBaselineRegressor(_LightGBM, _Regressor):
    """A LightGBM regressor on one or more views, early-stopped on the validation loss.

    Parameters
    ----------
    As of `LightGBMBaseline`, and
    loss : {"squared", "absolute", "huber", "quantile"}
        LightGBM's own losses; its Huber loss goes over to the absolute one at 0.9 standard deviations of y.
    quantile : level of the quantile loss

    Attributes
    ----------
    target_centre_, target_scale_ : mean (median, quantile) and standard deviation of the training targets
    gbm_ : GradientBoostedTrees, of standardised targets
    history_ : list of dicts, one a stage, with validation data "risk_val", the loss as LightGBM reports it
    best_round_, n_estimators_, feature_importances_, feature_names_ : as of `LightGBMBaseline`
    """

    loss: str = "squared"
    quantile: float = 0.5

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

    entry: ClassVar[str] = "forest"


class ForestBaseline(_Forest, _Classifier):
    """A random forest on one or more views: trees of bootstrap samples.

    By default √p columns are tried at each split.

    Sample weights count as scikit-learn takes them: rows are drawn and leaves filled whatever the weights,
    which count in splits and means.

    Parameters
    ----------
    views : names of the views it reads; tables as they are, pictures as components of frozen embeddings
    n_trees : how many
    leaf_sizes : fewest samples of a leaf, each tried; the one of the lowest validation log-loss is kept,
        without validation rows the first
    components : pictures are read as so many principal components of their embeddings; None: as all features
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
class ForestBaselineRegressor(_Forest, _Regressor):
    """A random forest of regression trees, by default of a third of the columns; see `ForestBaseline`.

    Of the `leaf_sizes` the one of the lowest validation mean squared error is kept.
    """

    max_features: float | str = 1 / 3


@dataclass(eq=False, repr=False)
class LinearBaseline(LogisticStart, _Classifier):
    """Multinomial logistic regression with an L2 penalty, on one or more views.

    Numbers are standardised, categories one-hot, pictures the centred features of a frozen backbone, all on
    one scale.

    Parameters
    ----------
    views : names of the views that it reads
    penalties : of mean log-loss + penalty/2 · ‖coefficients‖² (1/(nC) in scikit-learn), each tried; the one
        of the lowest validation log-loss is kept, without validation rows the one in the middle
    max_iter : of each fit
    validation_fraction, random_state, callbacks, backbone, device : as of `LightGBMBaseline`

    Attributes
    ----------
    classes_
    coefficients_ : float32 (p, M); intercepts_ : float32 (M,); penalty_ : the one kept
    history_ : list of dicts, one for each penalty: "penalty", and "risk_val", the validation log-loss in nats
    best_round_ : the position of the penalty kept, from 1; n_estimators_ : 1
    """

    views: Names = ("U", "S")
    penalties: Sequence[float] = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003)
    max_iter: int = 200

    entry: ClassVar[str] = "logistic"


@dataclass(eq=False, repr=False)
class RidgeBaseline(RidgeStart, _Regressor):
    """Linear regression with an L2 penalty, on one or more views.

    Numbers are standardised, categories one-hot, pictures the centred features of a frozen backbone, all on
    one scale. One eigendecomposition gives the exact leave-one-out error of every penalty, so that no
    samples need be set aside. Of related rows a penalty's error is that of `Related.folds`: of whole groups
    left out, or of later rows.

    Parameters
    ----------
    views : names of the views that it reads
    penalties : of Σ_i (y_i − x_i w − b)² + α ‖w‖², tried in units of the columns' mean eigenvalue; the one of
        the least leave-one-out error is kept. By default 10⁻⁴ to 10⁵, two a decade, and infinity
    validation_fraction : share of the training samples that are set aside and only scored
    random_state, callbacks, backbone, device : as of `LightGBMBaseline`

    Attributes
    ----------
    target_centre_, target_scale_ : mean and standard deviation of the training targets
    coefficients_ : float32 (p, 1); intercepts_ : float32 (1,), of standardised targets
    penalty_ : the one kept, in the units of `penalties`
    history_ : one dict: "penalty", "risk_train", the leave-one-out mean squared error of standardised
        targets (of related rows, that of the rows left out), and with validation data "risk_val"
    best_round_, n_estimators_ : 1
    """

    views: Names = ("U", "S")
    penalties: Sequence[float] | None = None
    _: KW_ONLY
    validation_fraction: float = 0.0

    entry: ClassVar[str] = "ridge"


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
            raise UsboostError(f"a {type(copy).__name__} cannot be told when to stop; leave --refit out")
        return without_stopping(copy, **{length: n})


class ScikitBaseline(_Scikit, _Classifier):
    """A scikit-learn classifier on everything: numbers standardised, categories one-hot, pictures embedded.

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


class ScikitBaselineRegressor(_Scikit, _Regressor):
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


class PackageClassifier(_Package, _Classifier):
    """A classifier of another package: numbers standardised, categories one-hot, pictures embedded.

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


class PackageRegressor(_Package, _Regressor):
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
    views : those that it reads; backbone : what embeds pictures among them.

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


def _centre_and_scale(table: Table, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Means and factors of the numeric columns, float32 (p,): numbers each on their own scale, features of
    pictures, hundreds that belong together, on their common one."""
    mean, variance = column_moments(table.numeric, weights)
    of = np.array([_FEATURE.sub("", name) for name in table.names])
    for view in {each for each, name in zip(of, table.names[: len(mean)]) if _FEATURE.search(name)}:
        rows = of[: len(mean)] == view
        variance[rows] = variance[rows].mean()
    scale = np.divide(1, np.sqrt(variance), out=np.zeros_like(variance), where=variance > 0)
    return mean.astype(np.float32), scale.astype(np.float32)

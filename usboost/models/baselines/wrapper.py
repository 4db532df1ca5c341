"""The wrapper of others' estimators: how it reads views, what it fits and chooses, and its file.

A `Package` says how another's estimator is fitted, predicts, and is written to files; `Wrapper` is the model
on views that has one.
"""

# Annotations are not postponed: a class takes its fields, and their types, from those of other modules, too.

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import has_fit_parameter

from usboost.boosting.callbacks import Callback, begin_and_end, notify
from usboost.boosting.context import FitContext
from usboost.boosting.rounds import Clock, Round
from usboost.data.table import Table
from usboost.data.views import Views
from usboost.errors import Unsuited, UsboostError
from usboost.evaluation.folds import Related
from usboost.evaluation.metrics import row_losses
from usboost.evaluation.statistics import column_moments, mean
from usboost.files.arrays import read_arrays, write_arrays
from usboost.files.onnx_graph import TableNodes, Value, ViewNodes, no_form
from usboost.learners.networks.backbones import Backbone
from usboost.learners.search_space import Space
from usboost.learners.spectrum import with_indicators
from usboost.learners.tree import Tree
from usboost.models.base import ViewsClassifier, ViewsRegressor
from usboost.models.entry import COMPONENTS
from usboost.models.estimator import ViewsEstimator, as_views, check_columns
from usboost.models.inputs import InputReader, InputSpec

ARRAYS = "package.safetensors"

NAME = "all"
"""The view that a baseline reads, as a learner's name."""

Names = Sequence[str]
FitResult = tuple[dict[str, Any], dict[str, float]]
"""Learnt attributes of a fitted model, and its metrics."""


@dataclass(frozen=True)
class FitRows:
    """n rows to fit to.

    Attributes
    ----------
    x : as the package reads them: a Table, a DataFrame, or float32 (n, p)
    y : (n,) int64 codes 0..M−1, or standardised targets
    weights : float64 (n,), positive, or None
    val, val_weights : x and y of validation rows, and their weights, or None
    apart : how the rows are related, for those who divide them; None: in no way
    categories : of a DataFrame, the positions of columns of categories
    shared : what the fits of several values of a parameter have in common
    """

    x: Any
    y: np.ndarray
    weights: np.ndarray | None = None
    val: tuple[Any, np.ndarray] | None = None
    val_weights: np.ndarray | None = None
    apart: Related | None = None
    categories: tuple[int, ...] = ()
    shared: dict[str, Any] = field(default_factory=dict)

    def joined(self) -> Self:
        """Return the validation rows among those to fit to."""
        if self.val is None:
            return self
        weights, both = None, ((self.weights, self.y), (self.val_weights, self.val[1]))
        if any(each is not None for each, _ in both):
            weights = np.concatenate([np.ones(len(of)) if each is None else each for each, of in both])
        x, y = np.concatenate([self.x, self.val[0]]), np.concatenate([self.y, self.val[1]])
        return replace(self, x=x, y=y, weights=weights, val=None, val_weights=None)


@dataclass(frozen=True)
class Package:
    """A package: what it reads, how it is fitted, and its file.

    The methods are those of estimators with scikit-learn's interface; a package with another one has a class
    of its own. `model` is the wrapper: its parameters, and what `fit` has learnt.

    Attributes
    ----------
    classes : import paths of its estimators by task, ``"module:Class"``.
    settings : of these, given a number of threads and a seed.
    reads : "table": numbers and categories as they are; "frame": numbers standardised, columns of pandas'
        own categories; "matrix": numbers standardised, categories one-hot.
    components : images are read as so many principal components of their embeddings; None: as all features.
    chosen : the parameter whose values are tried in turn, of which the one of the lowest validation risk is
        kept; without validation rows the first, or the one in the `middle`.
    patience : values that are tried after the best one; None: all.
    scored : whether its risk on the validation rows is computed here.
    stages : whether callbacks hear of its own rounds.
    stops_early : whether its ``fit`` takes validation rows as ``eval_set``.
    length : its setting of the rounds at most; best : its attribute of the best round's position, from 0.
    arguments : further ones of its ``fit``, given the model, the rows and the callbacks.
    file : what its ``save_model`` writes; "": its file is its training rows, to which it is fitted again.
    reading : the key of what is read, in a model's document.
    space : what may be chosen of it, by path.
    rows, columns, n_classes : most that it is made for; None for any.
    rows_on_cpu : most that are bearable without a GPU.
    """

    classes: Mapping[str, str] = field(default_factory=dict)
    settings: Callable[[int, int], dict[str, Any]] = field(default=lambda threads, seed: {})
    reads: str = "matrix"
    components: int | None = COMPONENTS
    chosen: str = ""
    middle: bool = False
    patience: int | None = None
    scored: bool = False
    stages: bool = False
    stops_early: bool = False
    length: str = ""
    best: str = ""
    arguments: Callable[[Any, FitRows, Sequence[Callback]], dict[str, Any]] = field(default=lambda *_: {})
    file: str = ""
    reading: str = "reading"
    space: Space = field(default_factory=dict)
    rows: int | None = None
    columns: int | None = None
    n_classes: int | None = None
    rows_on_cpu: int | None = None

    takes_sparse = False  # whether rows of very many indicators may be a sparse matrix
    sums_to_one = False  # whether predicted probabilities need not be divided by their sum

    def fit(self, model: Any, rows: FitRows, choice: Any, callbacks: Sequence[Callback]) -> FitResult:
        """Fit to the rows, with this choice of the parameter that is chosen."""
        estimator, given = model._unfitted(rows), dict[str, Any]()
        if rows.val is not None and model.stops_early:
            given |= {"eval_set": [rows.val], "verbose": False}
        elif model.stops_early:
            estimator = without_stopping(estimator)
        given |= self.arguments(model, rows, callbacks)
        if rows.weights is not None:
            if not has_fit_parameter(estimator, "sample_weight"):
                raise Unsuited(f"a {type(estimator).__name__} takes no weights; leave it out")
            given["sample_weight"] = rows.weights
        fitted: dict[str, Any] = {"estimator_": estimator.fit(rows.x, rows.y, **given)}
        if rows.val is not None and model.stops_early and self.best:
            fitted["best_round_"] = 1 + int(getattr(fitted["estimator_"], self.best))
        elif self.stops_early and hasattr(model, "n_trees"):
            fitted["best_round_"] = int(getattr(fitted["estimator_"], "tree_count_", model.n_trees))
        return fitted, {}

    def predict(self, model: Any, x: Any) -> np.ndarray:
        """Predict probabilities, float64 (n, M), or standardised numbers, (n, 1)."""
        if not hasattr(model, "classes_"):
            return np.asarray(model.estimator_.predict(x), dtype=np.float64).reshape(len(x), 1)
        probabilities = np.asarray(model.estimator_.predict_proba(x), dtype=np.float64)
        if probabilities.shape[1] != len(model.classes_):
            name = type(model.estimator_).__name__
            raise UsboostError(f"a {name} knows {probabilities.shape[1]} classes, not {len(model.classes_)}")
        return probabilities

    def risk(self, model: Any, rows: FitRows) -> float:
        """Return the log-loss in nats, or the mean squared error, of the validation rows."""
        x, y = rows.val or (rows.x, rows.y)
        predicted = self.predict(model, x)
        losses = row_losses(y, predicted if hasattr(model, "classes_") else predicted[:, 0])
        return mean(losses, rows.val_weights)

    def to_onnx(self, model: Any, table: TableNodes) -> Value:
        """Return in the table's graph what `predict` gives, float64 (n, D)."""
        raise no_form(getattr(model, "estimator_", model), "a model of another package")

    def write(self, model: Any, folder: Path) -> dict[str, Any]:
        """Write what `fit` has learnt; return JSON for the model's document."""
        arrays = {"mean": model.mean_, "scale": model.scale_}
        if self.file:
            model.estimator_.save_model(str(folder / self.file))
        else:
            arrays |= {"x": model.rows_[0], "y": model.rows_[1]}
        write_arrays(arrays, folder / ARRAYS)
        return {"own_categories": model.own_categories_}

    def read(self, model: Any, folder: Path, document: Mapping[str, Any]) -> None:
        """Read what `write` wrote. Raises `UsboostError` if it is none of it."""
        arrays = read_arrays(folder / ARRAYS)
        model.mean_, model.scale_ = arrays["mean"], arrays["scale"]
        model.own_categories_ = document.get("own_categories") is True
        model.estimator_ = model._unfitted()
        if self.file:
            model.estimator_.load_model(str(folder / self.file))
            return
        x, y = model.rows_ = arrays["x"], arrays["y"]
        right = x.ndim == 2 and y.shape == (len(x),) and np.isfinite(x).all() and np.isfinite(y).all()
        if not right or (hasattr(model, "classes_") and y.dtype != np.int64):
            raise UsboostError("its training rows are none that it can learn from")
        model.estimator_.fit(x, y)


class Stages:
    """Shows a package's own rounds to callbacks: as LightGBM calls it, and as CatBoost does.

    Attributes
    ----------
    losses : of the validation rows, one a round, if there are any
    """

    order = 20  # after LightGBM has scored the validation rows, before it decides to stop

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._callbacks, self._clock = callbacks, Clock()
        self.losses: list[float] = []

    def _stop(self, index: int, losses: Sequence[float]) -> bool:
        self.losses += [float(loss) for loss in losses]
        metrics = {"risk_val": self.losses[-1]} if losses else {}
        stop = notify(self._callbacks, Round(index, None, metrics, self._clock.seconds()))
        self._clock = Clock()
        return stop

    def __call__(self, env: Any) -> None:
        """Take LightGBM's round."""
        if self._stop(env.iteration + 1, [each[2] for each in env.evaluation_result_list[:1]]):
            from lightgbm.callback import EarlyStopException

            raise EarlyStopException(env.iteration, env.evaluation_result_list)

    def after_iteration(self, info: Any) -> bool:
        """Take CatBoost's round; return True to go on."""
        losses: list[float] = next(iter(info.metrics.get("validation", {}).values()), [])
        return not self._stop(info.iteration, losses[-1:])


def without_stopping(estimator: Any, **changes: Any) -> Any:
    """Return an unfitted copy that does not stop early."""
    settings = estimator.get_params(deep=False)
    settings.pop("early_stopping_rounds", None)  # CatBoost's with None cannot be cloned
    return type(estimator)(**{**settings, **changes})


@dataclass(eq=False, repr=False, kw_only=True)
class Wrapper(ViewsEstimator):
    """Another's method on views: reads them, fits as its `Package` says, and has its file."""

    validation_fraction: float = 0.1
    backbone: Backbone | None = None
    device: str = "auto"
    random_state: int = 0
    callbacks: Sequence[Callback] | None = None

    holds: ClassVar[Mapping[str, Any]] = {"backbone": ("Backbone",)}
    _entry: ClassVar[Any]  # its Package
    _unfitted: ClassVar[Any]  # (rows or None): the estimator, to be fitted, or to be read from a file

    @property
    def space(self) -> Space:
        """Return what may be chosen of it."""
        return self._entry.space

    @property
    def n_rounds(self) -> int:
        """Count values that are tried, or the package's own rounds at most; callbacks know this name."""
        if self._entry.chosen:
            return len(getattr(self, self._entry.chosen))
        return int(getattr(self, "n_trees", 1)) if self._entry.stages else 1

    @property
    def tells_stages(self) -> bool:
        """Tell if callbacks hear of the package's own rounds, and not of the fit as one."""
        return self._entry.stages and hasattr(self, "n_trees")

    def _fit(self, views: Views, y: np.ndarray, context: FitContext) -> None:
        package, watch = self._entry, context.watch()
        choices: Sequence[Any] = (None,)
        if package.chosen:
            if not (choices := getattr(self, package.chosen)):
                raise UsboostError(f"{package.chosen} is empty; give one or more")
            if context.validation is None:
                choices = (choices[len(choices) // 2 if package.middle else 0],)
        rows = self._given(views, y, context)
        best, best_fit, clock = np.inf, dict[str, Any](), Clock()
        with begin_and_end(self, watch.callbacks):
            for index, choice in enumerate(choices, start=1):
                fitted, metrics = package.fit(self, rows, choice, watch.callbacks)
                self.__dict__.update(fitted)
                if package.scored and rows.val is not None:
                    metrics["risk_val"] = package.risk(self, rows)
                if index == 1 or metrics["risk_val"] < best:
                    best, best_fit = metrics.get("risk_val", np.inf), {"best_round_": index, **fitted}
                if self.tells_stages:
                    break
                stop = notify(watch.callbacks, Round(index, None, metrics, clock.seconds()))
                clock = Clock()
                if stop or (package.patience and index == best_fit["best_round_"] + package.patience):
                    break
        self.__dict__.update(best_fit)
        self.history_ = watch.history

    def _as_far(self) -> dict[str, Any]:
        if hasattr(self, "penalty_"):
            return {"penalties": (float(self.penalty_),)}
        if chosen := self._entry.chosen:
            return {chosen: (getattr(self, chosen)[self.best_round_ - 1],)}
        return {"n_trees": max(1, self.best_round_)}

    def _given(self, views: Views, y: np.ndarray, context: FitContext) -> FitRows:
        """Learn from the training rows how to read and scale them; return them as the package takes them."""
        weights, reads = context.weights, self._entry.reads
        self.reading_ = self._reading()
        table = self.reading_.fit(views, weights)[NAME]
        if reads == "table":
            self.columns_ = {"+".join(self.views): table.names}
        else:
            given = getattr(self, "estimator", None)  # XGBoost's may be set to take no categories
            takes = given is None or given.get_params().get("enable_categorical", True) is not False
            self.own_categories_ = reads == "frame" and takes
            mean, variance = column_moments(table.numeric, weights)
            # numbers are each on their own scale; features of images, hundreds that belong together, on one
            for view in (name for name in self.views if not isinstance(views[name], Table)):
                rows = np.array([name.startswith(f"{view}__") for name in table.names[: len(mean)]])
                variance[rows] = variance[rows].mean() if rows.any() else 0
            scale = np.divide(1, np.sqrt(variance), out=np.zeros_like(variance), where=variance > 0)
            self.mean_, self.scale_ = mean.astype(np.float32), scale.astype(np.float32)
        x = self._columns_of(table)
        val = context.validation and (self._rows(context.validation[0]), context.validation[1])
        categories = range(len(self.mean_), x.shape[1]) if reads == "frame" and self.own_categories_ else ()
        return FitRows(x, y, weights, val, context.val_weights, context.apart, tuple(categories))

    def _rows(self, views: Views) -> Any:
        """Return any rows as the package reads them."""
        table = self.reading_(views)[NAME]
        for view, columns in getattr(self, "columns_", {}).items():
            check_columns(table.names, columns, view)
        return self._columns_of(table)

    def _columns_of(self, table: Table) -> Any:
        """Return the table as it is; or float32 (n, p): numbers, then each category's indicators; or a frame
        whose columns of categories are of pandas' own type."""
        if self._entry.reads == "table":
            return table
        numbers = (table.numeric - self.mean_) * self.scale_
        if not self.own_categories_:
            return with_indicators(numbers, table.codes, table.cardinalities, sparse=self._entry.takes_sparse)
        from pandas import Categorical, DataFrame

        frame = DataFrame(numbers, columns=range(numbers.shape[1]))
        for codes, k in zip(table.codes.T, table.cardinalities, strict=True):
            frame[frame.shape[1]] = Categorical.from_codes(codes, categories=range(k))
        return frame

    def _outputs(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """Predict probabilities, or standardised numbers (n, 1)."""
        self._check_fitted()
        return self._entry.predict(self, self._rows(as_views(X)))

    def _nodes(self, views: Mapping[str, ViewNodes]) -> TableNodes:
        """Return in the views' graph what the package reads of them, as `_rows` does of rows."""
        table: Any = self.reading_.to_onnx(views)[NAME]
        if self._entry.reads == "table" or table.numeric is None:
            return table
        return replace(table, numeric=(table.numeric - self.mean_) * self.scale_)

    def _to_onnx(self, views: Mapping[str, ViewNodes]) -> Value:
        output: Value = self._entry.to_onnx(self, self._nodes(views))
        is_whole = not hasattr(self, "classes_") or self._entry.sums_to_one
        return output if is_whole else output / output.summed(1, keep=True)

    def _reading(self) -> InputReader:
        if not self.views:
            raise UsboostError("views names no view; give one or more")
        components = getattr(self, "components", self._entry.components)
        several = len(self.views) > 1 or self._entry.reads != "table"
        wanted = {NAME: InputSpec(tuple(self.views), components, filled=True)}
        return InputReader(wanted, self.backbone, self.device, qualified=several)

    def _trees(self) -> Iterator[tuple[str, Tree, float]]:
        trees = self.gbm_.trees if hasattr(self, "gbm_") else getattr(self, "trees_", ())
        return (("+".join(self.views), tree, 1.0) for tree in trees)

    def _write(self, folder: Path) -> dict[str, Any]:
        return {**self._entry.write(self, folder), self._entry.reading: self.reading_.write(folder)}

    def _read(self, document: Mapping[str, Any], folder: Path) -> None:
        self.reading_ = self._reading()
        self.reading_.read(document.get(self._entry.reading), folder)
        self._entry.read(self, folder, document)


class Classifier(Wrapper, ViewsClassifier):
    """Another's classifier."""

    def predict_proba(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """Predict class probabilities, float64 (n, M), columns as in ``classes_``."""
        proba = self._outputs(X)
        return proba if self._entry.sums_to_one else proba / proba.sum(axis=1, keepdims=True)


class Regressor(Wrapper, ViewsRegressor):
    """Another's regressor."""

    def _predict(self, views: Views) -> np.ndarray:
        return self._outputs(views)[:, 0]

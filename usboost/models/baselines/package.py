"""How another's estimator is fitted, asked, and kept in files: what an entry of `PACKAGES` says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import has_fit_parameter

from usboost.boosting.callbacks import Callback, tell
from usboost.boosting.rounds import Clock, Round
from usboost.data.row_groups import Related
from usboost.errors import Unsuited, UsboostError
from usboost.evaluation.metrics import row_losses
from usboost.evaluation.weighted import mean
from usboost.files.arrays import read_arrays, write_arrays
from usboost.learners.search_space import Space
from usboost.learners.trees.tree import Tree
from usboost.models.catalogue.entry import COMPONENTS

ARRAYS = "package.safetensors"


@dataclass(frozen=True)
class Rows:
    """n rows to fit to.

    Attributes
    ----------
    x : as the package reads them: a Table, a DataFrame, or float32 (n, p)
    y : (n,) int64 codes 0..M−1, or standardised targets
    weights : float64 (n,), positive, or None
    held, held_weights : x and y of validation rows, and their weights, or None
    apart : how the rows are related, for those who divide them; None: in no way
    categories : of a DataFrame, the positions of columns of categories
    shared : what the fits of several values of a parameter have in common
    """

    x: Any
    y: np.ndarray
    weights: np.ndarray | None = None
    held: tuple[Any, np.ndarray] | None = None
    held_weights: np.ndarray | None = None
    apart: Related | None = None
    categories: tuple[int, ...] = ()
    shared: dict[str, Any] = field(default_factory=dict)

    def joined(self) -> Rows:
        """The validation rows among those to fit to."""
        if self.held is None:
            return self
        weights, both = None, ((self.weights, self.y), (self.held_weights, self.held[1]))
        if any(each is not None for each, _ in both):
            weights = np.concatenate([np.ones(len(of)) if each is None else each for each, of in both])
        x, y = np.concatenate([self.x, self.held[0]]), np.concatenate([self.y, self.held[1]])
        return replace(self, x=x, y=y, weights=weights, held=None, held_weights=None)


@dataclass(frozen=True)
class Package:
    """A package: what it reads, how it is fitted, and its file.

    The methods are those of estimators with scikit-learn's interface; a package with another one has a class
    of its own. `model` is the wrapper: its parameters, and what `fit` found.

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
    scored : whether its fit to the validation rows is told.
    stages : whether it tells callbacks of its own rounds.
    stops_early : whether its ``fit`` takes validation rows as ``eval_set``.
    length : its setting of the rounds at most; best : its attribute of the best round's position, from 0.
    weighted : arguments of its ``fit`` for validation rows that have weights.
    told_categories : its ``fit``'s argument for the columns of categories, if it has one.
    hooks : arguments of its ``fit`` by which callbacks are told of its rounds, of one with `stages`.
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
    weighted: Callable[[Rows], dict[str, Any]] | None = None
    told_categories: str = ""
    hooks: Callable[[Sequence[Callback]], dict[str, Any]] | None = None
    file: str = ""
    reading: str = "reading"
    space: Space = field(default_factory=dict)
    rows: int | None = None
    columns: int | None = None
    n_classes: int | None = None
    rows_on_cpu: int | None = None

    takes_sparse = False  # whether rows of very many indicators may be a sparse matrix
    sums_to_one = False  # whether predicted probabilities need not be divided by their sum

    def fit(
        self, model: Any, rows: Rows, choice: Any, callbacks: Sequence[Callback]
    ) -> tuple[dict[str, Any], dict[str, float]]:
        """What is found, as attributes of the model, and metrics of the fit."""
        estimator, given = model._unfitted(rows), dict[str, Any]()
        if self.hooks is not None and model.tells_stages:
            given |= self.hooks(callbacks)
        if rows.held is not None and model.stops_early:
            given |= {"eval_set": [rows.held], "verbose": False}
            if self.weighted is not None and rows.held_weights is not None:
                given |= self.weighted(rows)
        elif model.stops_early:
            estimator = without_stopping(estimator)
        if self.told_categories and model.own_categories_:
            given[self.told_categories] = list(rows.categories)
        if rows.weights is not None:
            if not has_fit_parameter(estimator, "sample_weight"):
                raise Unsuited(f"a {type(estimator).__name__} takes no weights; leave it out")
            given["sample_weight"] = rows.weights
        found: dict[str, Any] = {"estimator_": estimator.fit(rows.x, rows.y, **given)}
        if rows.held is not None and model.stops_early and self.best:
            found["best_round_"] = 1 + int(getattr(found["estimator_"], self.best))
        elif self.stops_early and hasattr(model, "n_trees"):
            found["best_round_"] = int(getattr(found["estimator_"], "tree_count_", model.n_trees))
        return found, {}

    def predict(self, model: Any, x: Any) -> np.ndarray:
        """Probabilities, float64 (n, M), or standardised numbers, (n, 1)."""
        if not hasattr(model, "classes_"):
            return np.asarray(model.estimator_.predict(x), dtype=np.float64).reshape(len(x), 1)
        found = np.asarray(model.estimator_.predict_proba(x), dtype=np.float64)
        if found.shape[1] != len(model.classes_):
            name = type(model.estimator_).__name__
            raise UsboostError(f"a {name} knows {found.shape[1]} classes, not {len(model.classes_)}")
        return found

    def risk(self, model: Any, rows: Rows) -> float:
        """The log-loss in nats, or the mean squared error, of the validation rows."""
        x, y = rows.held or (rows.x, rows.y)
        predicted = self.predict(model, x)
        losses = row_losses(y, predicted if hasattr(model, "classes_") else predicted[:, 0])
        return mean(losses, rows.held_weights)

    def size(self, model: Any) -> int:
        """How many estimators it is of."""
        return 1

    def trees(self, model: Any) -> Sequence[Tree]:
        """Those whose splits are the importances of columns."""
        return ()

    def write(self, model: Any, folder: Path) -> dict[str, Any]:
        """Write what `fit` found; JSON for the model's document."""
        arrays = {"mean": model.mean_, "scale": model.scale_}
        if self.file:
            model.estimator_.save_model(str(folder / self.file))
        else:
            arrays |= {"x": model.rows_[0], "y": model.rows_[1]}
        write_arrays(arrays, folder / ARRAYS)
        return {"own_categories": model.own_categories_}

    def read(self, model: Any, folder: Path, document: Mapping[str, Any]) -> None:
        """Take back what `write` wrote. Raises `UsboostError` if it is none of it."""
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

    def _told(self, index: int, losses: Sequence[float]) -> bool:
        """Whether a callback asks to stop."""
        self.losses += [float(loss) for loss in losses]
        metrics = {"risk_val": self.losses[-1]} if losses else {}
        stop = tell(self._callbacks, Round(index, None, metrics, self._clock.seconds()))
        self._clock = Clock()
        return stop

    def __call__(self, env: Any) -> None:
        if self._told(env.iteration + 1, [each[2] for each in env.evaluation_result_list[:1]]):
            from lightgbm.callback import EarlyStopException

            raise EarlyStopException(env.iteration, env.evaluation_result_list)

    def after_iteration(self, info: Any) -> bool:
        """Whether it is to go on."""
        losses: list[float] = next(iter(info.metrics.get("validation", {}).values()), [])
        return not self._told(info.iteration, losses[-1:])


def without_stopping(estimator: Any, **changes: Any) -> Any:
    """An unfitted copy that is not told when to stop."""
    settings = estimator.get_params(deep=False)
    settings.pop("early_stopping_rounds", None)  # CatBoost's with None cannot be cloned
    return type(estimator)(**{**settings, **changes})


def imported(path: str) -> type[BaseEstimator]:
    """The estimator's class that "module:Class" names.

    Raises `UsboostError` if there is no such module or class, or it is no scikit-learn estimator that needs
    no arguments.
    """
    module, _, name = path.partition(":")
    if not module or not name:
        raise UsboostError(f"{path!r} names no class; write module:Class, sklearn.svm:SVC say")
    try:
        found = getattr(import_module(module), name)
    except ImportError as error:
        raise UsboostError(f"{path}: {error}; install it, or name another class") from None
    except AttributeError:
        raise UsboostError(f"{module} has no class {name!r}; name another one") from None
    if not (
        isinstance(found, type) and all(hasattr(found, each) for each in ("fit", "predict", "get_params"))
    ):
        raise UsboostError(f"{path} is no scikit-learn estimator; name a class with fit and predict")
    try:
        found()
    except TypeError as error:
        raise UsboostError(f"{path} cannot be made without arguments ({error}); name another class") from None
    return found

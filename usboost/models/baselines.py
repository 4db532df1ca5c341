"""External baseline: LightGBM on the structured columns, or on them plus everything else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from usboost.boosting.callbacks import Callback, tell, watched
from usboost.boosting.context import FitContext
from usboost.boosting.rounds import Clock, Round
from usboost.data.table import Table
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.learners.dimensions import COMPONENTS, Choice, Integer, Real, Space
from usboost.learners.networks.backbones import Backbone
from usboost.learners.trees.engines import quiet_lightgbm
from usboost.learners.trees.tree import Tree
from usboost.losses.regression import best_constant, check_loss_name, regression_loss
from usboost.models.base import ViewsClassifier
from usboost.models.estimator import ViewsEstimator, as_views
from usboost.models.gbm import GradientBoostedTrees, initial_score, lightgbm_parameters, lightgbm_threads
from usboost.models.gbm_files import load_gbm, save_gbm
from usboost.models.reading import Reading, Wanted
from usboost.models.regressor import ViewsRegressor

NAME = "all"
"""What a baseline reads, as a learner's name."""


class _Stages:
    """Shows LightGBM's stages to callbacks as rounds."""

    order = 20  # after LightGBM has scored the validation rows, before it decides to stop

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._callbacks, self._clock = callbacks, Clock()

    def __call__(self, env: Any) -> None:
        losses = [float(entry[2]) for entry in env.evaluation_result_list]
        metrics = {"risk_val": losses[0]} if losses else {}
        stop = tell(self._callbacks, Round(env.iteration + 1, None, metrics, self._clock.seconds()))
        self._clock = Clock()
        if stop:
            from lightgbm.callback import EarlyStopException

            raise EarlyStopException(env.iteration, env.evaluation_result_list)


class _LightGBM(ViewsEstimator):
    """What the classifier and the regressor share."""

    views: Sequence[str]
    n_trees: int
    learning_rate: float
    num_leaves: int
    min_samples_leaf: int
    patience: int
    backbone: Backbone | None
    device: str
    random_state: int
    components: int | None
    feature_fraction: float
    lambda_l2: float
    category_l2: float

    gbm_: GradientBoostedTrees
    reading_: Reading

    holds: ClassVar[Mapping[str, Any]] = {"backbone": ("Backbone",)}
    space: ClassVar[Space] = {
        "learning_rate": Real(0.01, 0.3, log=True),
        "num_leaves": Integer(4, 256, log=True),
        "min_samples_leaf": Integer(1, 200, log=True),
        "feature_fraction": Real(0.3, 1.0),
        "lambda_l2": Choice((0.0, 0.1, 1.0, 10.0, 100.0), ordered=True),
        "category_l2": Choice((0.0, 3.0, 10.0, 30.0, 300.0, 3000.0), ordered=True),
        "components": COMPONENTS,
    }

    @property
    def n_estimators_(self) -> int:
        """Stages kept."""
        self._check_fitted()
        return self.gbm_.n_stages

    def _trees(self) -> Iterator[tuple[str, Tree, float]]:
        return (("+".join(self.views), tree, 1.0) for tree in self.gbm_.trees)

    def _reads(self, n_columns: int) -> Sequence[str]:
        return self.views

    def _n_classes(self) -> int:
        """M; 1 for a regression."""
        raise AttributeError("_n_classes is defined by each model")

    def _initial(self, y: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        """The raw score before the first stage, float64 (T,)."""
        return initial_score(y, self._n_classes(), weights)

    def _objective(self) -> dict[str, Any]:
        """LightGBM's parameters for the loss, where it is not the one that it takes by itself."""
        return {}

    def _fit(self, views: Views, y: np.ndarray, context: FitContext) -> None:
        lightgbm = quiet_lightgbm()
        n_classes = self._n_classes()
        initial = self._initial(y, context.weights)
        parameters = lightgbm_parameters(n_classes) | {
            "learning_rate": self.learning_rate,
            "num_leaves": self.num_leaves,
            "min_data_in_leaf": self.min_samples_leaf,
            "feature_fraction": self.feature_fraction,
            "lambda_l2": self.lambda_l2,
            "cat_l2": self.category_l2,
            "seed": self.random_state,
            "num_threads": lightgbm_threads(len(y)),
            **self._objective(),
        }

        def dataset(table: Table, y: np.ndarray, weights: np.ndarray | None, reference: Any = None) -> Any:
            return lightgbm.Dataset(
                table.matrix(),
                label=y,
                weight=weights,
                init_score=np.repeat(initial, len(y)),
                params=parameters,
                categorical_feature=list(table.categorical),
                reference=reference,
            )

        self.reading_ = self._reading()
        table, validation, watch = (
            self.reading_.fit(views, context.weights)[NAME],
            context.validation,
            context.watch(),
        )
        self.columns_ = {"+".join(self.views): table.names}
        train, held = dataset(table, y, context.weights), []
        if validation:
            seen = self.reading_(validation[0])[NAME]
            held = [dataset(seen, validation[1], context.held_weights, train)]
        hooks = [_Stages(watch.callbacks)]
        if held:
            hooks.append(lightgbm.early_stopping(self.patience, verbose=False))
        with watched(self, watch.callbacks):
            booster = lightgbm.train(parameters, train, self.n_trees, valid_sets=held, callbacks=hooks)
        # LightGBM calls the round in which a callback asks to stop its best
        losses = [row["risk_val"] for row in watch.history] if held else []
        best = 1 + int(np.argmin(losses)) if losses else booster.current_iteration()
        grown = booster.dump_model(num_iteration=best)["tree_info"]
        trees = [Tree.from_lightgbm(tree, scale=1 / self.learning_rate) for tree in grown]
        self.gbm_ = GradientBoostedTrees(trees, initial, self.learning_rate, n_classes)
        self.history_, self.best_round_ = watch.history, best

    @property
    def n_rounds(self) -> int:
        """Stages at most, under the name that callbacks know."""
        return self.n_trees

    def _write(self, folder: Path) -> dict[str, Any]:
        save_gbm(self.gbm_, folder / "gbm")
        return {"reading": self.reading_.write(folder)}

    def _read(self, document: Mapping[str, Any], folder: Path) -> None:
        self.gbm_ = load_gbm(folder / "gbm", self._n_classes())
        self.reading_ = self._reading()
        self.reading_.read(document.get("reading"), folder)

    def _reading(self) -> Reading:
        if not self.views:
            raise UsboostError("views names no view; give one or more")
        wanted = {NAME: Wanted(tuple(self.views), self.components, filled=True)}
        return Reading(wanted, self.backbone, self.device, qualified=len(self.views) > 1)

    def _table(self, X: Views | Mapping[str, Any]) -> Table:
        self._check_fitted()
        found: Table = self.reading_(as_views(X))[NAME]
        return found


class LightGBMBaseline(_LightGBM, ViewsClassifier):
    """A LightGBM classifier on one or more views, early-stopped on the validation log-loss.

    Sample weights count as LightGBM takes them: in gradients, while bins and `min_samples_leaf` count rows.

    Parameters
    ----------
    views : names of the views it reads; tables as they are, pictures as frozen embeddings
    n_trees : at most this many stages
    learning_rate, num_leaves, min_samples_leaf : as LightGBM's
    patience : stages without a better validation log-loss before stopping
    validation_fraction, random_state, callbacks : as everywhere
    backbone : Backbone, optional; what embeds pictures (always frozen here)
    device : where pictures are embedded
    components : pictures are read as so many principal components of their embeddings; None: as all features
    feature_fraction, lambda_l2 : as LightGBM's; category_l2 : its cat_l2, on splits by category

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

    def __init__(
        self,
        views: Sequence[str] = ("U", "S"),
        n_trees: int = 2000,
        learning_rate: float = 0.05,
        num_leaves: int = 31,
        min_samples_leaf: int = 20,
        patience: int = 50,
        validation_fraction: float = 0.1,
        backbone: Backbone | None = None,
        device: str = "auto",
        random_state: int = 0,
        callbacks: Sequence[Callback] | None = None,
        components: int | None = None,
        feature_fraction: float = 1.0,
        lambda_l2: float = 0.0,
        category_l2: float = 10.0,
    ) -> None:
        self.views = views
        self.n_trees = n_trees
        self.learning_rate = learning_rate
        self.num_leaves = num_leaves
        self.min_samples_leaf = min_samples_leaf
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.backbone = backbone
        self.device = device
        self.random_state = random_state
        self.callbacks = callbacks
        self.components = components
        self.feature_fraction = feature_fraction
        self.lambda_l2 = lambda_l2
        self.category_l2 = category_l2

    def _n_classes(self) -> int:
        return len(self.classes_)

    def staged_predict(self, X: Views | Mapping[str, Any]) -> Iterator[np.ndarray]:
        """Predictions (n,) after each stage kept."""
        for raw in self.gbm_.staged_raw_score(self._table(X)):
            yield self.classes_[raw.argmax(axis=1) if raw.shape[1] > 1 else (raw[:, 0] > 0).astype(int)]

    def predict_proba(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """Class probabilities, float64 (n, M), columns as in ``classes_``."""
        return self.gbm_.probabilities(self._table(X))


_OBJECTIVES = {"squared": "regression", "absolute": "regression_l1", "huber": "huber", "quantile": "quantile"}


class LightGBMBaselineRegressor(_LightGBM, ViewsRegressor):
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

    def __init__(
        self,
        views: Sequence[str] = ("U", "S"),
        n_trees: int = 2000,
        learning_rate: float = 0.05,
        num_leaves: int = 31,
        min_samples_leaf: int = 20,
        loss: str = "squared",
        quantile: float = 0.5,
        patience: int = 50,
        validation_fraction: float = 0.1,
        backbone: Backbone | None = None,
        device: str = "auto",
        random_state: int = 0,
        callbacks: Sequence[Callback] | None = None,
        components: int | None = None,
        feature_fraction: float = 1.0,
        lambda_l2: float = 0.0,
        category_l2: float = 10.0,
    ) -> None:
        self.views = views
        self.n_trees = n_trees
        self.learning_rate = learning_rate
        self.num_leaves = num_leaves
        self.min_samples_leaf = min_samples_leaf
        self.loss = loss
        self.quantile = quantile
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.backbone = backbone
        self.device = device
        self.random_state = random_state
        self.callbacks = callbacks
        self.components = components
        self.feature_fraction = feature_fraction
        self.lambda_l2 = lambda_l2
        self.category_l2 = category_l2

    def _n_classes(self) -> int:
        return 1

    def _centre(self, y: np.ndarray, weights: np.ndarray | None) -> float:
        check_loss_name(self.loss)
        if self.loss == "squared":
            return super()._centre(y, weights)
        level = self.quantile if self.loss == "quantile" else 0.5
        return best_constant(regression_loss("quantile", quantile=level), y, weights)

    def _initial(self, y: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        return np.zeros(1)

    def _objective(self) -> dict[str, Any]:
        alpha = {"alpha": self.quantile} if self.loss == "quantile" else {}
        return {"objective": _OBJECTIVES[self.loss], **alpha}

    def _predict(self, views: Views) -> np.ndarray:
        return self.gbm_.raw_score(self._table(views))[:, 0]

    def _staged(self, views: Views) -> Iterator[np.ndarray]:
        return (raw[:, 0].copy() for raw in self.gbm_.staged_raw_score(self._table(views)))

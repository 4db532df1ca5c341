"""External baseline: LightGBM on the structured columns, or on them plus everything else."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from usboost.boosting.callbacks import Callback, tell, watched
from usboost.boosting.rounds import Round
from usboost.data.images import EncodedImages, Images
from usboost.data.table import Table
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.evaluation.metrics import accuracy, f1
from usboost.learners.networks.backbones import Backbone, embedded
from usboost.learners.networks.training import pick_device
from usboost.learners.trees.learner import quiet_lightgbm
from usboost.learners.trees.tree import Tree
from usboost.models.base import Validation, ViewsClassifier, as_views
from usboost.models.gbm import GradientBoostedTrees, lightgbm_parameters, lightgbm_threads, log_odds


class LightGBMBaseline(ViewsClassifier):
    """A LightGBM classifier on one or more views, early-stopped on the validation log-loss.

    Parameters
    ----------
    views : names of the views it reads; tables as they are, pictures as frozen embeddings
    n_trees : at most this many stages; learning_rate, num_leaves, min_samples_leaf as LightGBM's
    patience : stages without a better validation log-loss before stopping
    validation_fraction, random_state, callbacks : as everywhere
    backbone : Backbone, optional; what embeds pictures (always frozen here)
    device : where pictures are embedded

    Attributes
    ----------
    classes_, history_ (one entry: the fit is LightGBM's own loop), gbm_ : GradientBoostedTrees
    best_round_ : 1, that entry's; n_estimators_ : int, the stages kept
    feature_importances_, feature_names_ : of all columns, as ``<view>__<column>`` with several views
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

    @property
    def n_rounds(self) -> int:
        return 1

    @property
    def n_estimators_(self) -> int:
        """Stages kept."""
        self._check_fitted()
        return self.gbm_.n_stages

    def _trees(self) -> Iterator[tuple[str, Tree, float]]:
        return (("+".join(self.views), tree, 1.0) for tree in self.gbm_.trees)

    def _reads(self, n_columns: int) -> Sequence[str]:
        return self.views

    def _fit(
        self, views: Views, codes: np.ndarray, validation: Validation | None, callbacks: list[Callback]
    ) -> None:
        lightgbm = quiet_lightgbm()
        started = time.perf_counter()
        n_classes = len(self.classes_)
        initial = log_odds(codes, n_classes)
        parameters = lightgbm_parameters(n_classes) | {
            "learning_rate": self.learning_rate,
            "num_leaves": self.num_leaves,
            "min_data_in_leaf": self.min_samples_leaf,
            "seed": self.random_state,
            "num_threads": lightgbm_threads(len(codes)),
        }

        def dataset(table: Table, y: np.ndarray, reference: Any = None) -> Any:
            return lightgbm.Dataset(
                table.matrix(),
                label=y,
                init_score=np.repeat(initial, len(y)),
                params=parameters,
                categorical_feature=list(table.categorical),
                reference=reference,
            )

        table = self._table(views)
        self.columns_ = {"+".join(self.views): table.names}
        train = dataset(table, codes)
        held = [dataset(self._table(validation[0]), validation[1], train)] if validation else []
        stops = [lightgbm.early_stopping(self.patience, verbose=False)] if held else []
        booster = lightgbm.train(parameters, train, self.n_trees, valid_sets=held, callbacks=stops)
        best = booster.best_iteration if held and booster.best_iteration > 0 else booster.current_iteration()
        grown = booster.dump_model(num_iteration=best)["tree_info"]
        trees = [Tree.from_lightgbm(tree, scale=1 / self.learning_rate) for tree in grown]
        self.gbm_ = GradientBoostedTrees(trees, initial, self.learning_rate, n_classes)
        metrics: dict[str, float] = {"risk_train": float("nan")}
        if validation:
            predicted = self.gbm_.probabilities(self._table(validation[0])).argmax(axis=1)
            metrics["f1_val"] = f1(validation[1], predicted, n_classes)
            metrics["accuracy_val"] = accuracy(validation[1], predicted)
        with watched(self, callbacks):
            tell(callbacks, Round(1, None, metrics, {"total": time.perf_counter() - started}))

    def _table(self, views: Views) -> Table:
        """The chosen views side by side."""
        if not self.views:
            raise UsboostError("views names no view; give one or more")
        tables = []
        for name in self.views:
            view = views[name]
            if isinstance(view, (Images, EncodedImages)):
                view = embedded(view, self.backbone, pick_device(self.device))
            if len(self.views) > 1:
                view = replace(view, names=tuple(f"{name}__{column}" for column in view.names))
            tables.append(view)
        joined = tables[0]
        for table in tables[1:]:
            joined = joined.beside(table)
        return joined

    def staged_predict(self, X: Views | Mapping[str, Any]) -> Iterator[np.ndarray]:
        """Predictions (n,) after each stage kept."""
        self._check_fitted()
        for raw in self.gbm_.staged_raw_score(self._table(as_views(X))):
            yield self.classes_[raw.argmax(axis=1) if raw.shape[1] > 1 else (raw[:, 0] > 0).astype(int)]

    def predict_proba(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """Class probabilities, float64 (n, M), columns as in ``classes_``."""
        self._check_fitted()
        return self.gbm_.probabilities(self._table(as_views(X)))

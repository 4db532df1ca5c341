"""LightGBM and random forests on views: how each is fitted and written, and its estimators."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from usboost.boosting.callbacks import Callback
from usboost.data.table import Table
from usboost.data.views import Views
from usboost.errors import Unsuited, UsboostError, choices
from usboost.files.arrays import read_arrays, write_arrays
from usboost.files.onnx_graph import TableNodes, Value
from usboost.learners.forest import FittedTrees
from usboost.learners.search_space import COMPONENTS as COMPONENTS_SPACE
from usboost.learners.search_space import Choice, Integer, Real
from usboost.learners.tree import Tree
from usboost.learners.tree_learner import quiet_lightgbm
from usboost.learners.tree_nodes import tree_sum
from usboost.losses.regression import best_constant, check_loss_name, regression_loss
from usboost.models.baselines.wrapper import (
    Classifier,
    FitResult,
    FitRows,
    Names,
    Package,
    Regressor,
    Stages,
    Wrapper,
)
from usboost.models.entry import COMPONENTS
from usboost.models.estimator import as_views
from usboost.models.methods.boosted_features import (
    GradientBoostedTrees,
    grow_lightgbm,
    initial_score,
    load_gbm,
    save_gbm,
)

TREES = "forest.safetensors"

OBJECTIVES = {"squared": "regression", "absolute": "regression_l1", "huber": "huber", "quantile": "quantile"}
"""LightGBM's names of losses."""


def monotone_constraints(directions: Any, loss: str, table: Table) -> dict[str, list[int]]:
    """Return LightGBM's setting for the columns in which predictions are to be monotone.

    Encoded numbers grow with those of the table, so that it holds for these. Raises `UsboostError` if the
    loss cannot keep it, a column is none of numbers, or a direction is neither "+" nor "-".
    """
    if loss in ("absolute", "quantile"):
        raise UsboostError(f"LightGBM keeps no column monotone with the {loss} loss; leave one of them out")
    if not isinstance(directions, Mapping):
        raise UsboostError(f"monotone is columns with + or -, such as {{age: +}}, not {directions!r}")
    numbers = {name.rpartition("__")[2]: k for k, name in enumerate(table.names[: table.n_numeric])}
    numbers |= {name: k for k, name in enumerate(table.names[: table.n_numeric])}
    constraints = [0] * table.n_columns
    for name, direction in directions.items():
        if name not in numbers:
            raise UsboostError(f"monotone: {name!r} is no number; {choices(str(name), list(numbers))}")
        if direction not in ("+", "-"):
            raise UsboostError(f"monotone: the direction of {name!r} is + or -, not {direction!r}")
        constraints[numbers[name]] = 1 if direction == "+" else -1
    return {"monotone_constraints": constraints}


class LightGBM(Package):
    """LightGBM by its own interface, so that the initial score stays apart from the trees."""

    sums_to_one = True

    def fit(self, model: Any, rows: FitRows, choice: Any, callbacks: Sequence[Callback]) -> FitResult:
        n_outputs, stages = model.n_outputs, Stages(callbacks)
        initial = initial_score(rows.y, n_outputs, rows.weights) if n_outputs > 1 else np.zeros(1)
        own = {
            "learning_rate": model.learning_rate,
            "num_leaves": model.num_leaves,
            "min_data_in_leaf": model.min_samples_leaf,
            "feature_fraction": model.feature_fraction,
            "lambda_l2": model.lambda_l2,
            "cat_l2": model.category_l2,
            "seed": model.random_state,
        }
        if n_outputs == 1:
            own["objective"] = OBJECTIVES[model.loss]
            own |= {"alpha": model.quantile} if model.loss == "quantile" else {}
            own |= monotone_constraints(model.monotone, model.loss, rows.x) if model.monotone else {}
        val, hooks = None, [stages]
        if rows.val is not None:
            val = *rows.val, rows.val_weights
            hooks.append(quiet_lightgbm().early_stopping(model.patience, verbose=False))
        seen = rows.x, rows.y, rows.weights
        booster = grow_lightgbm(own, initial, n_outputs, model.n_trees, seen, val, hooks)
        # LightGBM calls the round in which a callback asks to stop its best
        best = 1 + int(np.argmin(stages.losses)) if stages.losses else booster.current_iteration()
        grown = booster.dump_model(num_iteration=best)["tree_info"]
        trees = [Tree.from_lightgbm(tree, scale=1 / model.learning_rate) for tree in grown]
        gbm = GradientBoostedTrees(trees, initial, model.learning_rate, n_outputs)
        return {"gbm_": gbm, "best_round_": best}, {}

    def predict(self, model: Any, x: Table) -> np.ndarray:
        gbm: GradientBoostedTrees = model.gbm_
        return gbm.probabilities(x) if model.n_outputs > 1 else gbm.raw_score(x)

    def to_onnx(self, model: Any, table: TableNodes) -> Value:
        return model.gbm_.to_onnx(table)

    def write(self, model: Any, folder: Path) -> dict[str, Any]:
        save_gbm(model.gbm_, folder / "gbm")
        return {}

    def read(self, model: Any, folder: Path, document: Mapping[str, Any]) -> None:
        model.gbm_ = load_gbm(folder / "gbm", model.n_outputs)


@dataclass(eq=False, repr=False)
class _LightGBM(Wrapper):
    """Parameters of the classifier and the regressor."""

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

    _entry: ClassVar[Package] = LightGBM(
        reads="table",
        stages=True,
        space={
            "learning_rate": Real(0.01, 0.3, log=True),
            "num_leaves": Integer(4, 256, log=True),
            "min_samples_leaf": Integer(1, 200, log=True),
            "feature_fraction": Real(0.3, 1.0),
            "lambda_l2": Choice((0.0, 0.1, 1.0, 10.0, 100.0), ordered=True),
            "category_l2": Choice((0.0, 3.0, 10.0, 30.0, 300.0, 3000.0), ordered=True),
            "components": COMPONENTS_SPACE,
        },
    )

    @property
    def n_estimators_(self) -> int:
        """Count the stages kept."""
        self._check_fitted()
        return int(self.gbm_.n_stages)

    def _staged_scores(self, X: Views | Mapping[str, Any]) -> Iterator[np.ndarray]:
        self._check_fitted()
        return self.gbm_.staged_raw_score(self._rows(as_views(X)))


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
        """Predict (n,) after each stage kept."""
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


FOREST_BYTES, MANY_CLASSES, MOST_CLASSES = 1 << 31, 20, 300
"""Bytes that nodes of a forest of more than MANY_CLASSES classes may take, and the most classes of one."""


class ForestPackage(Package):
    """scikit-learn's random forest: the mean of trees, each of a bootstrap sample.

    A node holds a number for each class, and each split looks at all: of more than `MANY_CLASSES`, leaves are
    so large that all nodes fit in `FOREST_BYTES`; more than `MOST_CLASSES` are refused as `Unsuited`.
    """

    def fit(self, model: Any, rows: FitRows, choice: Any, callbacks: Sequence[Callback]) -> FitResult:
        from sklearn.ensemble import RandomForestRegressor

        if model.n_outputs > MOST_CLASSES:
            raise Unsuited(
                f"a random forest takes up to {MOST_CLASSES} classes, not {model.n_outputs:,}; fit another "
                "model, logistic say"
            )
        # on indicators of the classes the squared error is Gini's impurity
        outputs = np.eye(model.n_outputs)[rows.y] if model.n_outputs > 1 else rows.y
        if model.n_outputs > MANY_CLASSES:
            # two nodes for each leaf, of the 63 in 100 rows that a bootstrap sample has
            numbers = model.n_trees * 1.26 * len(rows.y) * model.n_outputs
            choice = max(choice, int(np.ceil(8 * numbers / FOREST_BYTES)))
        forest = RandomForestRegressor(
            model.n_trees,
            min_samples_leaf=choice,
            max_features=model.max_features,
            n_jobs=torch.get_num_threads(),
            random_state=model.random_state,
        ).fit(rows.x.matrix(), outputs, rows.weights)
        return {"trees_": [Tree.from_sklearn(each.tree_) for each in forest.estimators_]}, {
            "leaf_size": float(choice)
        }

    def predict(self, model: Any, x: Table) -> np.ndarray:
        matrix = x.matrix()
        total = np.zeros((len(matrix), model.n_outputs))
        for tree in model.trees_:
            total += tree.predict(matrix)
        if model.n_outputs == 1:
            return total / len(model.trees_)
        # another tree that knows nothing: no class that a leaf lacks is impossible
        return (total + 1 / model.n_outputs) / (len(model.trees_) + 1)

    def to_onnx(self, model: Any, table: TableNodes) -> Value:
        count, m = len(model.trees_), model.n_outputs
        total = tree_sum(table, model.trees_)
        return total / float(count) if m == 1 else (total + 1 / m) / (count + 1.0)

    def write(self, model: Any, folder: Path) -> dict[str, Any]:
        arrays, document = FittedTrees(tuple(model.trees_)).to_arrays()
        write_arrays(arrays, folder / TREES)
        return document

    def read(self, model: Any, folder: Path, document: Mapping[str, Any]) -> None:
        arrays, count = read_arrays(folder / TREES), int(document["trees"])
        model.trees_ = list(FittedTrees.from_arrays(arrays, {"trees": count}).trees)
        columns = next(iter(getattr(model, "columns_", {}).values()), None)
        for tree in model.trees_:
            tree.check(len(columns) if columns else None)
            if tree.value.shape[1] != model.n_outputs:
                raise UsboostError(f"a tree has {tree.value.shape[1]} outputs, not {model.n_outputs}")
        if not model.trees_:
            raise UsboostError("a forest has no tree")


@dataclass(eq=False, repr=False)
class _Forest(Wrapper):
    """Parameters of the classifier and the regressor."""

    views: Names = ("U", "S")
    n_trees: int = 300
    leaf_sizes: Sequence[int] = (1, 5)
    components: int | None = COMPONENTS
    max_features: float | str = "sqrt"

    _entry: ClassVar[Package] = ForestPackage(
        reads="table",
        chosen="leaf_sizes",
        scored=True,
        space={
            "n_trees": Integer(100, 1000, log=True),
            "leaf_sizes": Choice(((1, 5), (1,), (3,), (10,), (30,))),
            "max_features": Choice(("sqrt", 0.1, 1 / 3, 0.6, 1.0)),
            "components": COMPONENTS_SPACE,
        },
    )

    @property
    def n_estimators_(self) -> int:
        """Count the trees."""
        self._check_fitted()
        return len(self.trees_)


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

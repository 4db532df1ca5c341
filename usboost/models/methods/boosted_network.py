"""Boosted Neural Networks (BNN): each round a small network is fitted to what the sum still misses.

Of the stagewise loop's parts: the squared loss (or another convex one), one view, −(∇²L)⁻¹∇L as the
target, and the loss's own best step γ.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import validate_data

from usboost.boosting.callbacks import Callback
from usboost.boosting.checkpoint import Checkpoint
from usboost.boosting.context import FitContext
from usboost.boosting.loop import StagewiseLoop, advance, ensemble_scores, ensemble_to_onnx, fit_error
from usboost.boosting.rounds import BoostedSamples, Stage, StagewiseModel
from usboost.boosting.steps import ClosedForm, Newton
from usboost.boosting.targets import NewtonTarget
from usboost.data.table import VIEW, Table, as_table, as_targets
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.evaluation.metrics import accuracy, f1
from usboost.files.onnx_graph import TableNodes, Value, ViewNodes
from usboost.learners.base import LEARNERS, Learner, Target, prepare
from usboost.learners.networks.learner import NetworkLearner
from usboost.losses.cross_entropy import SoftmaxCrossEntropy
from usboost.losses.regression import Squared
from usboost.models.base import ViewsClassifier
from usboost.models.estimator import Samples, ViewsEstimator
from usboost.models.sharded import unsharded_learner


class _BoostedNetwork(StagewiseModel, ViewsEstimator):
    """Rounds of the classifier and the regressor."""

    learner: Learner | None
    n_rounds: int
    patience: int | None
    random_state: int
    weighted: bool = True
    n_features_in_: int

    holds: ClassVar[Mapping[str, Any]] = {"learner": LEARNERS}
    _monitor: ClassVar[str] = "risk_val"

    def _weak_learners(self) -> dict[str, Any]:
        return {VIEW: self.learner or NetworkLearner((16,), "adam", 0.01, 32, 30)}

    def _learner_names(self, index: int) -> set[str]:
        return {VIEW}

    def not_sharded(self) -> str | None:
        """Describe the part that cannot be fitted on several shards; see `usboost.models.sharded`."""
        return unsharded_learner(self._weak_learners())

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags

    def _as_far(self) -> dict[str, Any]:
        return {"n_rounds": max(1, self.best_round_)}

    def _labels(self, y: np.ndarray) -> np.ndarray:
        """Return encoded labels or targets as the loss takes them, (n, D)."""
        return np.eye(len(self.classes_))[y] if hasattr(self, "classes_") else y

    def _scored(self, f: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> dict[str, float]:
        """Score f by labels, or targets, as the loss takes them."""
        return {}

    def _fit(self, views: Views, y: np.ndarray, context: FitContext) -> None:
        weights, val_weights = context.weights, context.val_weights

        def describe(
            stage: Stage, train: BoostedSamples, targets: Sequence[Target], outputs: Sequence[np.ndarray]
        ) -> dict[str, float]:
            error = fit_error(targets[0], outputs[0])
            scored = {f"{name}_train": x for name, x in self._scored(train.f, train.y, weights).items()}
            return {"gamma": stage.steps[VIEW], "fit_error": error, **scored}

        if self.n_rounds < 1:
            raise UsboostError(f"n_rounds must be at least 1, not {self.n_rounds}")
        loss, watch = self._loss(), context.watch(self._monitor, self.patience)
        self.n_outputs_ = loss.n_outputs
        loop = StagewiseLoop(
            loss=loss,
            learners=self._weak_learners(),
            target=NewtonTarget(self.weighted),
            # γ by BNN's equation (3), for γ₀ too: its Algorithm 1 prints y − h₀ there, a misprint for y
            step=ClosedForm() if isinstance(loss, Squared) else Newton(),
            n_rounds=self.n_rounds,
            evaluate=lambda f, y: self._scored(f, y, val_weights),
            describe=describe,
            seed=self.random_state,
            callbacks=watch.callbacks,
            checkpoint=context.checkpoint,
        )
        validation = context.validation and (context.validation[0], self._labels(context.validation[1]))
        stages = loop.run(views, self._labels(y), validation, (), weights, val_weights)
        self.history_, self.best_round_ = watch.history, watch.best_round
        self.stages_ = stages[: self.best_round_]

    def _table(self, X: Any, reset: bool = False) -> Table:
        """Return X as a table of the columns that the model was, or with `reset` is now, fitted to."""
        if isinstance(X, (Table, Views)):
            table = as_table(X, None if reset else self.n_features_in_)
            if reset:
                self.__dict__.pop("feature_names_in_", None)
                self.n_features_in_ = table.n_columns
            return table
        table = as_table(X)
        try:
            validate_data(self, X, reset=reset, skip_check_array=True)  # names and number of columns
        except ValueError as error:
            raise UsboostError(str(error)) from None
        return table

    @property
    def gammas_(self) -> np.ndarray:
        """Return γ_j of every kept round, float64."""
        return np.array([stage.steps[VIEW] for stage in self.stages_])

    def _staged_f(self, X: Any) -> Iterator[np.ndarray]:
        n, prepared = self._prepared(X)
        f = np.zeros((n, self._n_outputs()))
        for stage in self.stages_:
            advance(f, stage, prepared)
            yield f

    def _f(self, X: Any) -> np.ndarray:
        n, prepared = self._prepared(X)
        return ensemble_scores(self.stages_, prepared, (n, self._n_outputs()))

    def _to_onnx(self, views: Mapping[str, ViewNodes]) -> Value:
        """Return f in the views' graph, float64 (n, D)."""
        tables = [view for view in views.values() if isinstance(view, TableNodes)]
        table = reduce(TableNodes.beside, tables)
        return ensemble_to_onnx(self.stages_, self._weak_learners(), {VIEW: table})

    def _prepared(self, X: Any) -> tuple[int, dict[str, Any]]:
        table = self._table(X)
        return len(table), {VIEW: prepare(self._weak_learners()[VIEW], table)}


@dataclass(eq=False, repr=False)
class BoostedNetworkClassifier(_BoostedNetwork, ViewsClassifier):
    """Boosted neural networks as a classifier, on one-hot targets.

    f ← f + γ_j h_j(x), where the network h_j is fitted to y − f (squared loss) or in general to
    −(∇²L)⁻¹∇L, and γ_j is the loss's best step: by equation (3) for the squared loss, by an exact
    convex search otherwise. Algorithm 1 of the paper computes γ_0 with y − h_0, which contradicts its
    equation (3); y itself is right.

    Parameters
    ----------
    loss : {"squared", "cross_entropy"}
    learner : Learner, optional
        Default: `NetworkLearner` with one hidden layer of 16 units, Adam at 0.01, batches of 32, 30
        epochs a round. The paper gives none of these.
    n_rounds : at most this many networks
    weighted : whether a network's fit counts each sample by the curvature of its loss, see `NewtonTarget`;
        False is the paper's general form to the letter. No difference for the squared loss.
    patience : rounds without a better validation F1 before stopping; the best round is then kept
    validation_fraction : share of the training samples set aside when `fit` is given no validation data. 0,
        the paper's way, runs and keeps all rounds.
    random_state, callbacks, checkpoint : as of `TwoWeakLearnerClassifier`

    Attributes
    ----------
    classes_ : array of the M labels
    stages_ : list of Stage, up to the best round
    gammas_ : float64, γ_j of every kept round
    history_ : list of dicts, one a network
        "gamma", "risk_train" (the cost C of equation (1) over n, after this network), "fit_error",
        "accuracy_train", "f1_train", with validation data "risk_val", "accuracy_val" and "f1_val", and
        seconds.
    best_round_ : int
    n_estimators_ : int, the networks kept
    n_features_in_ : p; feature_names_in_ : its columns' names, if it was fitted to a DataFrame

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from usboost import BoostedNetworkClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BoostedNetworkClassifier(n_rounds=2).fit(X, y)
    >>> model.score(X, y) > 0.8, len(model.gammas_) == model.best_round_
    (True, True)
    """

    _monitor = "f1_val"

    loss: str = "squared"
    learner: Learner | None = None
    n_rounds: int = 5
    weighted: bool = True
    patience: int | None = None
    validation_fraction: float = 0.0
    random_state: int = 0
    callbacks: Sequence[Callback] | None = None
    checkpoint: Checkpoint | Path | str | None = None

    def _loss(self) -> Squared | SoftmaxCrossEntropy:
        n_classes = len(self.classes_)
        if self.loss == "squared":
            return Squared(n_classes)
        if self.loss == "cross_entropy":
            # without weights only a cut keeps the worst samples from being all that is fitted
            return SoftmaxCrossEntropy(n_classes, 1e3 if self.weighted else 4.0, per_class=n_classes > 2)
        raise UsboostError(f"unknown loss {self.loss!r}; choose 'squared' or 'cross_entropy'")

    def fit(
        self,
        X: Any,
        y: Any,
        validation: tuple[Any, ...] | None = None,
        sample_weight: Any = None,
        groups: Any = None,
        times: Any = None,
    ) -> Self:
        """Fit to n samples and their labels.

        Raises `UsboostError` if X, y, a weight or a setting is not usable, or a network's outputs are all
        zero (it names the round).

        Parameters
        ----------
        X : array or DataFrame (n, p) of finite numbers on comparable scales (standardise them, as for
            any network), or a `Table`
        y : (n,) labels of any type that sorts
        validation : (X, y) or (X, y, sample_weight), optional
        sample_weight, groups, times : as of `usboost.models.base.ViewsClassifier.fit`
        """
        table = self._table(X, reset=True)
        if validation is not None:
            validation = {VIEW: self._table(validation[0])}, *validation[1:]
        super().fit({VIEW: table}, y, validation, sample_weight, groups, times)
        self.n_features_in_ = table.n_columns
        return self

    def _scored(self, f: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> dict[str, float]:
        true, predicted = y.argmax(axis=1), self._loss().scores(f).argmax(axis=1)
        scored = {"f1": f1(true, predicted, len(self.classes_), weights)}
        return scored | {"accuracy": accuracy(true, predicted, weights)}

    def decision_function(self, X: Any) -> np.ndarray:
        """Return scores, float64: (n, M), or (n,) with the margin of class 1 when M = 2."""
        self._check_fitted()
        scores = self._loss().scores(self._f(X))
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Any) -> np.ndarray:
        """Predict class probabilities, float64 (n, M).

        Cross-entropy: the softmax. Squared loss: f estimates them itself but may leave [0, 1]; given
        is the nearest point of the simplex, which keeps the order of the classes.
        """
        self._check_fitted()
        return self._loss().probabilities(self._f(X))

    def _to_onnx(self, views: Mapping[str, ViewNodes]) -> Value:
        return self._loss().to_onnx(super()._to_onnx(views))

    def predict(self, X: Any) -> np.ndarray:
        """Predict the class of the largest score, (n,)."""
        self._check_fitted()
        return self.classes_[self._loss().scores(self._f(X)).argmax(axis=1)]

    def staged_predict(self, X: Any) -> Iterator[np.ndarray]:
        """Predict (n,) after each kept round."""
        self._check_fitted()
        for f in self._staged_f(X):
            yield self.classes_[self._loss().scores(f).argmax(axis=1)]


@dataclass(eq=False, repr=False)
class BoostedNetworkRegressor(RegressorMixin, _BoostedNetwork):
    """Boosted neural networks as a regressor, by squared loss; see `BoostedNetworkClassifier`.

    Parameters and attributes are its, but for those below; what must improve for `patience` is the
    validation risk.

    Attributes
    ----------
    n_outputs_ : m
    flat_ : bool, whether y had the shape (n,)

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from usboost import BoostedNetworkRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> BoostedNetworkRegressor(n_rounds=2).fit(X, y).predict(X[:3]).shape
    (3,)
    """

    learner: Learner | None = None
    n_rounds: int = 5
    patience: int | None = None
    validation_fraction: float = 0.0
    random_state: int = 0
    callbacks: Sequence[Callback] | None = None
    checkpoint: Checkpoint | Path | str | None = None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def not_sharded(self) -> str | None:
        drawn = f"a {type(self).__name__} with `validation_fraction`"
        return drawn if self.validation_fraction else super().not_sharded()

    def _loss(self) -> Squared:
        return Squared(self.n_outputs_)

    def fit(
        self, X: Any, y: Any, validation: tuple[Any, ...] | None = None, sample_weight: Any = None
    ) -> "BoostedNetworkRegressor":
        """Fit to n samples and their targets.

        X, validation, sample_weight and the errors raised are as of `BoostedNetworkClassifier.fit`.

        Parameters
        ----------
        y : (n,) or (n, m) finite numbers
        """
        table, targets = self._table(X, reset=True), as_targets(y)
        self.flat_, self.n_outputs_ = np.asarray(y).ndim == 1, targets.shape[1]
        if len(targets) != len(table):
            raise UsboostError(f"X has {len(table)} rows but y has {len(targets)}")
        if validation is not None:
            validation = {VIEW: self._table(validation[0])}, *validation[1:]
        samples = Samples.counted(Views({VIEW: table}), targets, sample_weight)
        self._fit_to(*self._set_aside(samples, validation))
        return self

    def _encode(self, y: Any) -> np.ndarray:
        if (targets := as_targets(y)).shape[1] != self.n_outputs_:
            raise UsboostError(f"y has {targets.shape[1]} columns, not {self.n_outputs_} as that of the fit")
        return targets

    def predict(self, X: Any) -> np.ndarray:
        """Predict f(x), float64 of the shape that y had: (n,) or (n, m)."""
        self._check_fitted()
        f = self._f(X)
        return f[:, 0] if self.flat_ else f

    def staged_predict(self, X: Any) -> Iterator[np.ndarray]:
        """Predict after each kept round."""
        self._check_fitted()
        for f in self._staged_f(X):
            yield f[:, 0].copy() if self.flat_ else f.copy()

    def _read(self, document: Mapping[str, Any], folder: Path) -> None:
        if not hasattr(self, "flat_"):
            raise UsboostError("it lacks flat_; save the model again")
        StagewiseModel._read(self, document, folder)

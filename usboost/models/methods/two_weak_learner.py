"""Two-weak-learner gradient boosting (US Algorithms 1 and 2), and variants with one or more views."""

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from usboost.boosting.steps import StepRule
from usboost.boosting.targets import PseudoResidual, TargetRule, target_rule
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.evaluation.metrics import accuracy, f1, mae, rmse
from usboost.evaluation.statistics import median, quantile
from usboost.files.onnx_graph import Value, ViewNodes, added
from usboost.losses.base import ClassLoss, RegressionLoss, from_scores
from usboost.losses.regression import best_constant, check_loss_name, regression_loss
from usboost.models.base import ViewsClassifier, ViewsRegressor
from usboost.models.baselines.linear import LinearBaseline, RidgeBaseline
from usboost.models.estimator import as_views
from usboost.models.losses import LOSSES
from usboost.models.methods.weak_learners import BoostedWeakLearners
from usboost.shards.collective import world


@dataclass(eq=False, repr=False)
class TwoWeakLearnerClassifier(BoostedWeakLearners, ViewsClassifier):
    """Gradient boosting with one weak learner per view (2WL, 2WL2O, 1WL, 2WL-Newton).

    f ← f + ε·g(x_U) + δ·h(x_S), on the codeword exponential loss or on cross-entropy.

    Parameters
    ----------
    learners : dict of name to learner, optional
        Default: a network on view "U" and a tree of depth 3 on view "S". One entry makes a
        one-weak-learner model, a third entry adds a modality; all steps are searched jointly. A learner
        reads the view with its own name, or those in its parameter `reads`. Several views are read side
        by side, so that it can fit interactions; images among them, and images that a tree or ridge
        regression reads, are read as frozen embeddings, or as their principal components where a learner
        has `components`. A scikit-learn regressor works as a learner, too.
    target : {"gradient", "second_order", "newton"}
        2WL, 2WL2O as published, 2WL-Newton.
    n_inner : N₂: fits per round of the second-order methods
    step : {"newton", "bayes", "fixed"} or StepRule
    step_settings : settings of the step rule, e.g. ``{"value": 0.1}`` for "fixed".
    n_rounds : N (or N₁): at most this many rounds
    shrinkage : factor on every searched step
    sequential : whether each view's learner is fitted to the residual of those before it in `learners`, with
        its own step (``{"S": tree, "U": network}``: tree first, network on the updated residual)
    step_fraction : float or "wide"
        Share of the samples, drawn anew each round, that learners do not see and on which the steps
        are searched; with 0, as in the paper, they are searched on the training samples. "wide" is .2 where
        a learner reads tables with a column for every ten samples or fewer, which a network knows by heart in
        a few rounds, and else 0.
    loss : {"exponential", "cross_entropy"} or the kind of one in `usboost.models.losses.LOSSES`
        The papers' codeword loss, or one that is more robust to wrong labels (ours), or your own.
    patience : int, (int, float) or None
        Rounds without a better `monitor` before stopping, or those at least and a share of the rounds up to
        the best one; the best round is restored.
    monitor : {"f1_val", "risk_val", "accuracy_val"}
    validation_fraction : share of the training samples set aside when `fit` gets no validation data
    random_state : int
    callbacks : sequence of Callback, optional
    checkpoint : Checkpoint or path, optional
        A folder to which the fit writes every round, and from which the same fit resumes.
    backbone : what embeds images for learners that read tables; by default that of a network among the
        learners, else `Backbone()`
    start : LinearBaseline, optional
        A model that is fitted first, and whose scores are f⁰; on the training samples those that it gives
        out of fold, so that the rounds see what it leaves on samples it has not seen. f⁰ = 0 by default.
    optional : tuple of view names
        Views that the start reads only if they help it on samples that it has not seen; if they do not, no
        learner reads them. Only with a start.

    Attributes
    ----------
    classes_ : array of the M labels
    stages_ : list of Stage, up to the best round
    history_ : list of dicts, every round's metrics
    best_round_ : int
    step_fraction_ : the share that steps were searched on
    n_outputs_ : D: 1 for two classes, else one for each class, so that no order of the classes counts
    n_estimators_ : int, the rounds kept
    feature_importances_, feature_names_ : of the columns of views that trees read
    start_ : the fitted start, or None
    left_out_ : the optional views that did not help, and are not read
    columns_ : dict of learner's name to its columns' names, of the learners that grow trees
    reading_ : what the learners read of views

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from usboost import Table, TwoWeakLearnerClassifier, Views
    >>> X, y = load_iris(return_X_y=True)
    >>> views = Views(U=Table.from_numeric(X[:, :2]), S=Table.from_numeric(X[:, 2:]))
    >>> model = TwoWeakLearnerClassifier(n_rounds=20).fit(views, y)  # a network on U, a tree on S
    >>> model.score(views, y) > 0.8, sorted(model.stages_[0].steps)
    (True, ['S', 'U'])
    """

    holds: ClassVar[Mapping[str, Any]] = {**BoostedWeakLearners.holds, "start": ("LinearBaseline",)}
    _least_gain = 0.01  # of all validation samples' losses: less is only more certain of what is right

    target: str = "gradient"
    n_inner: int = 1
    _: KW_ONLY
    start: LinearBaseline | None = None

    def _from_scores(self, scores: np.ndarray) -> np.ndarray:
        return from_scores(self._loss(), scores)

    def _to_onnx(self, views: Mapping[str, ViewNodes]) -> Value:
        return added(self._loss(), "the loss", super()._to_onnx(views))

    @property
    def named_parts(self) -> tuple[type, ...]:
        """The class of the loss: its code decides a fit as that of the learners does."""
        return (LOSSES[self.loss],)

    def _loss(self) -> ClassLoss:
        # with two classes one coordinate of f is enough
        return LOSSES[self.loss].of_classes(len(self.classes_), per_class=len(self.classes_) > 2)

    def _target(self) -> TargetRule:
        return target_rule(self.target, self.n_inner)

    def _scored(self, f: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> dict[str, float]:
        predicted = self._loss().scores(f).argmax(axis=1)
        scored = {"f1": f1(y, predicted, len(self.classes_), weights)}
        return scored | {"accuracy": accuracy(y, predicted, weights)}

    def _of_f(self, f: np.ndarray) -> np.ndarray:
        return self._loss().probabilities(f)

    def decision_function(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """Return the scores ⟨f, y^k⟩, float64: (n, M), or (n,) with the margin of class 1 when M = 2."""
        scores = self._loss().scores(self._f(as_views(X)))
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """Return the softmax of the scores, float64 (n, M): the link at which the loss is calibrated."""
        return self._of_f(self._f(as_views(X)))

    def staged_predict(self, X: Views | Mapping[str, Any]) -> Iterator[np.ndarray]:
        """Predict (n,) after each kept round."""
        for f in self._staged_f(as_views(X)):
            yield self.classes_[self._loss().scores(f).argmax(axis=1)]


@dataclass(eq=False, repr=False, kw_only=True)
class TwoWeakLearnerRegressor(BoostedWeakLearners, ViewsRegressor):
    """Gradient boosting with one weak learner per view, for numbers (2WL, 1WL and their variants).

    f ← f + ε·g(x_U) + δ·h(x_S) from f⁰, the best constant, on targets that are centred and scaled. Learners
    are fitted to the loss's pseudo-residuals: y − f (squared), its sign (absolute), y − f cut to ±δ (huber),
    α or α − 1 (quantile). For the last three the leaves of trees then hold the residuals' median, Huber
    location or quantile (Friedman 2001).

    Parameters
    ----------
    learners : dict of name to learner, optional
        As of `TwoWeakLearnerClassifier`. Default: a network on view "U" and a tree of depth 3 on view "S".
    step : {"closed", "newton", "bayes", "fixed"} or StepRule
        "closed" is the exact minimum of the convex risk, whatever the loss.
    step_settings : settings of the step rule, e.g. ``{"value": 0.1}`` for "fixed".
    n_rounds : at most this many rounds
    shrinkage : factor on every searched step
    sequential, step_fraction : as of `TwoWeakLearnerClassifier`
    loss : {"squared", "absolute", "huber", "quantile"}
        What the prediction is: the mean, the median, between the two, or the quantile of level `quantile`.
    quantile : the level of the quantile loss
    delta : δ of the Huber loss in the units of y; by default the `delta_quantile` quantile of the training
        targets' absolute residuals from their median
    delta_quantile : Friedman's share of residuals that count as they are
    monitor : {"risk_val", "rmse_val", "mae_val"}
    patience, validation_fraction, random_state, callbacks, checkpoint, backbone
        As of `TwoWeakLearnerClassifier`.
    start : RidgeBaseline, optional
        A model that is fitted first, and whose predictions are f⁰; on the training samples those that it
        gives each without having seen it.
    optional : tuple of view names
        As of `TwoWeakLearnerClassifier`.

    Attributes
    ----------
    target_centre_, target_scale_ : float
        f⁰ without a start: the mean, median, Huber location or quantile of the training targets; and their
        standard deviation, or for all losses but the squared one their robust scale.
    delta_ : float, δ in the units of y, of the Huber loss
    stages_ : list of Stage, up to the best round
    history_ : list of dicts, every round's metrics
        Risks are those of the scaled targets; "rmse_val" and "mae_val" are in the units of y.
    best_round_, n_estimators_ : int, the rounds kept
    feature_importances_, feature_names_, columns_, reading_, start_, left_out_
        As of `TwoWeakLearnerClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from usboost import Table, TwoWeakLearnerRegressor, Views
    >>> X, y = load_diabetes(return_X_y=True)
    >>> views = Views(U=Table.from_numeric(X[:, :5]), S=Table.from_numeric(X[:, 5:]))
    >>> model = TwoWeakLearnerRegressor(loss="huber", n_rounds=30, shrinkage=0.3).fit(views, y)
    >>> model.score(views, y) > 0.3
    True
    """

    holds: ClassVar[Mapping[str, Any]] = {**BoostedWeakLearners.holds, "start": ("RidgeBaseline",)}

    step: str | StepRule = "closed"
    loss: str = "squared"
    monitor: str = "risk_val"
    start: RidgeBaseline | None = None
    quantile: float = 0.5
    delta: float | None = None
    delta_quantile: float = 0.9

    def _n_outputs(self) -> int:
        return 1

    def _loss(self, unit: float | None = None) -> RegressionLoss:
        """Return the loss of targets that are divided by `unit`, by default their scale."""
        delta = getattr(self, "delta_", 1.0) / (self.target_scale_ if unit is None else unit)
        return regression_loss(self.loss, quantile=self.quantile, delta=delta)

    def _centre(self, y: np.ndarray, weights: np.ndarray | None) -> float:
        check_loss_name(self.loss)
        self.__dict__.pop("delta_", None)  # an earlier fit's
        if self.loss == "huber":
            if self.delta is not None:
                self.delta_ = float(self.delta)
            elif not 0 < self.delta_quantile < 1:
                raise UsboostError(f"delta_quantile is a share between 0 and 1, not {self.delta_quantile}")
            else:
                size = np.abs(y - median(y, weights))
                highest = float(world().highest(float(size.max(initial=0.0))))
                # more than half of the targets may be equal; then all that are not would count as outliers
                self.delta_ = quantile(size, self.delta_quantile, weights) or highest or 1.0
        return best_constant(self._loss(1.0), y, weights)

    def _scale(self, residual: np.ndarray, weights: np.ndarray | None) -> float:
        # the median absolute residual, in deviations of normal ones; where that is 0 the deviation
        scale = 0.0 if self.loss == "squared" else 1.4826 * median(np.abs(residual), weights)
        return scale if scale > 0 else super()._scale(residual, weights)

    def _target(self) -> TargetRule:
        return PseudoResidual()

    def _scored(self, f: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> dict[str, float]:
        scored = {"rmse": rmse(y[:, None], f, weights), "mae": mae(y[:, None], f, weights)}
        return {name: self.target_scale_ * value for name, value in scored.items()}

    def _of_f(self, f: np.ndarray) -> np.ndarray:
        return self._in_units(f[:, 0])

    def _predict(self, views: Views) -> np.ndarray:
        return self._f(views)[:, 0]

    def _staged(self, views: Views) -> Iterator[np.ndarray]:
        return (f[:, 0] for f in self._staged_f(views))

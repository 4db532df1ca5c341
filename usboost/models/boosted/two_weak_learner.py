"""Two-weak-learner gradient boosting (US Algorithms 1 and 2), and variants with one or more views."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from usboost.boosting.callbacks import Callback, Patience
from usboost.boosting.checkpoint import Checkpoint
from usboost.boosting.context import FitContext
from usboost.boosting.steps import StepRule
from usboost.boosting.targets import target_rule
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.evaluation.metrics import accuracy, f1
from usboost.learners.base import Learner
from usboost.learners.networks.images.backbones import Backbone
from usboost.losses.codeword import CodewordExponential
from usboost.losses.cross_entropy import SoftmaxCrossEntropy
from usboost.models.base import ViewsClassifier, per_class
from usboost.models.baselines.linear import LinearBaseline
from usboost.models.boosted.weak_learners import BoostedWeakLearners
from usboost.models.estimator import as_views


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
    n_inner : int
        N₂: fits per round of the second-order methods.
    step : {"newton", "bayes", "fixed"} or StepRule
    step_settings : dict, optional
        Settings of the step rule, e.g. ``{"value": 0.1}`` for "fixed".
    n_rounds : int
        N (or N₁): at most this many rounds.
    shrinkage : float
        Factor on every searched step.
    sequential : bool
        Whether each view's learner is fitted to the residual of those before it in `learners`, with
        its own step (``{"S": tree, "U": network}``: tree first, network on the updated residual).
    step_fraction : float or "wide"
        Share of the samples, drawn anew each round, that learners do not see and on which the steps
        are searched; with 0, as in the paper, they are searched on the training samples. "wide" is .2 where
        a learner reads tables with a column for every ten samples or fewer, which a network knows by heart in
        a few rounds, and else 0.
    trim : float
        Share of the total weight left out of a round's fits, lightest samples first; for ``target="newton"``.
    loss : {"exponential", "cross_entropy"}
        The papers' codeword loss, or one that is more robust to wrong labels (ours).
    patience : int, (int, float) or None
        Rounds without a better `monitor` before stopping, or those at least and a share of the rounds up to
        the best one; the best round is restored.
    monitor : {"f1_val", "risk_val", "accuracy_val"}
    validation_fraction : float
        Share of the training samples held out when `fit` gets no validation data.
    random_state : int
    callbacks : sequence of Callback, optional
    checkpoint : Checkpoint or path, optional
        A folder to which the fit writes every round, and from which the same fit resumes.
    backbone : Backbone, optional
        What embeds images for learners that read tables; by default that of a network among the
        learners, else `Backbone()`.
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
    n_outputs_ : int
        D: 1 for two classes, else one for each class, so that no order of the classes counts.
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

    learners: Mapping[str, Learner] | None = None
    target: str = "gradient"
    n_inner: int = 1
    step: str | StepRule = "newton"
    step_settings: Mapping[str, Any] | None = None
    n_rounds: int = 100
    shrinkage: float = 1.0
    sequential: bool = False
    step_fraction: float | Literal["wide"] = 0.0
    trim: float = 0.0
    loss: str = "exponential"
    patience: Patience = 20
    monitor: str = "f1_val"
    validation_fraction: float = 0.1
    random_state: int = 0
    callbacks: Sequence[Callback] | None = None
    checkpoint: Checkpoint | Path | str | None = None
    backbone: Backbone | None = None
    start: LinearBaseline | None = None
    optional: tuple[str, ...] = ()

    def _fit_start_model(self, model: Any, views: Views, y: np.ndarray, context: FitContext) -> None:
        model.fit_codes(views, y, len(self.classes_), context)

    def _mark_start(self, model: Any) -> None:
        model.classes_ = np.arange(len(self.classes_))

    def _from_scores(self, scores: np.ndarray) -> np.ndarray:
        """The f whose scores ⟨f, y^k⟩ are these, (n, M) with rows that sum to 0."""
        # scores are linear in f: f = scores · B⁺, where row d of B are the scores of the d-th unit vector
        codewords = self._loss().scores(np.eye(self._loss().n_outputs))
        return scores @ np.linalg.pinv(codewords)

    def _loss(self) -> CodewordExponential | SoftmaxCrossEntropy:
        if self.loss == "exponential":
            n_classes = len(self.classes_)
            return (
                CodewordExponential.unit(n_classes)
                if per_class(self)
                else CodewordExponential.simplex(n_classes)
            )
        if self.loss == "cross_entropy":
            if self.target == "second_order":
                raise UsboostError(
                    "target 'second_order' is the papers' expansion of the exponential loss; with "
                    "loss='cross_entropy' choose 'newton' or 'gradient'"
                )
            return SoftmaxCrossEntropy(len(self.classes_), zero_steps=True, per_class=per_class(self))
        raise UsboostError(f"unknown loss {self.loss!r}; choose 'exponential' or 'cross_entropy'")

    def _fit(self, views: Views, codes: np.ndarray, context: FitContext) -> None:
        loss = self._loss()
        self.n_outputs_ = loss.n_outputs
        held_out, held_codes = None, codes[:0]
        start = self._fit_start(views, codes, context)
        if context.validation is not None:
            held, held_codes = context.validation
            held_out = held, loss.labels(held_codes)

        def evaluate(f: np.ndarray, y: np.ndarray) -> dict[str, float]:
            predicted = loss.scores(f).argmax(axis=1)
            return {
                "f1": f1(held_codes, predicted, loss.n_classes, context.held_weights),
                "accuracy": accuracy(held_codes, predicted, context.held_weights),
            }

        target = target_rule(self.target, self.n_inner)
        self._boost(loss, target, views, loss.labels(codes), held_out, context, start, evaluate)

    def _of_f(self, f: np.ndarray) -> np.ndarray:
        return self._loss().probabilities(f)

    def decision_function(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """The scores ⟨f, y^k⟩, float64: (n, M), or (n,) with the margin of class 1 when M = 2."""
        scores = self._loss().scores(self._f(as_views(X)))
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """softmax of the scores, float64 (n, M): the link at which the loss is calibrated."""
        return self._of_f(self._f(as_views(X)))

    def staged_predict(self, X: Views | Mapping[str, Any]) -> Iterator[np.ndarray]:
        """Predictions (n,) after each kept round."""
        for f in self._staged_f(as_views(X)):
            yield self.classes_[self._loss().scores(f).argmax(axis=1)]

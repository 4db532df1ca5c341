"""Two-weak-learner gradient boosting (US Algorithms 1 and 2), and variants with one or more views."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from usboost.boosting.callbacks import Callback
from usboost.boosting.checkpoint import Checkpoint
from usboost.boosting.context import FitContext
from usboost.boosting.loop import StagewiseLoop, advance, ensemble_scores
from usboost.boosting.steps import StepRule, step_rule
from usboost.boosting.targets import target_rule
from usboost.data.images import EncodedImages, Images
from usboost.data.views import View, Views
from usboost.errors import UsboostError
from usboost.evaluation.metrics import accuracy, f1
from usboost.learners.base import LEARNERS, Learner, view_names
from usboost.learners.networks.backbones import embedded
from usboost.learners.networks.learner import NetworkLearner
from usboost.learners.networks.training import pick_device
from usboost.learners.present import prepare
from usboost.learners.regressors import RegressorLearner
from usboost.learners.trees.fitted import trees_of
from usboost.learners.trees.learner import TreeLearner
from usboost.learners.trees.tree import Tree
from usboost.losses.codeword import CodewordExponential
from usboost.losses.cross_entropy import SoftmaxCrossEntropy
from usboost.models.base import ViewsClassifier, as_views, per_class
from usboost.models.stagewise import StagewiseModel


class TwoWeakLearnerClassifier(StagewiseModel, ViewsClassifier):
    """Gradient boosting with one weak learner per view (2WL, 2WL2O, 1WL, 2WL-Newton).

    f ← f + ε·g(x_U) + δ·h(x_S), on the codeword exponential loss or on cross-entropy.

    Parameters
    ----------
    learners : dict of name to learner, optional
        Default: a network on view "U" and a tree of depth 3 on view "S". One entry makes a
        one-weak-learner model, a third entry adds a modality; all steps are searched jointly. A learner
        reads the view with its own name, or those in its parameter `reads`. Several views are read side
        by side, so that it can fit interactions; pictures among them are read as frozen embeddings by
        the networks' backbone. A scikit-learn regressor works as a learner, too.
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
    step_fraction : float
        Share of the samples, drawn anew each round, that learners do not see and on which the steps
        are searched; with 0, as in the paper, they are searched on the training samples.
    trim : float
        Share of the total weight left out of a round's fits, lightest samples first; for ``target="newton"``.
    loss : {"exponential", "cross_entropy"}
        The papers' codeword loss, or one that is more robust to wrong labels (ours).
    patience : int or None
        Rounds without a better `monitor` before stopping; the best round is restored.
    monitor : {"f1_val", "risk_val", "accuracy_val"}
    validation_fraction : float
        Share of the training samples held out when `fit` gets no validation data.
    random_state : int
    callbacks : sequence of Callback, optional
    checkpoint : Checkpoint or path, optional
        A folder to which the fit writes every round, and from which the same fit resumes.

    Attributes
    ----------
    classes_ : array of the M labels
    stages_ : list of Stage, up to the best round
    history_ : list of dicts, every round's metrics
    best_round_ : int
    n_outputs_ : int
        D: 1 for two classes, else one for each class, so that no order of the classes counts.
    n_estimators_ : int, the rounds kept
    feature_importances_, feature_names_ : of the columns of views that trees read
    columns_ : dict of learner's name to its columns' names, of the learners that grow trees
    absent_ : names of the views that some training rows lacked; their learners add 0 to such rows
    """

    holds: ClassVar[Mapping[str, Any]] = {"learners": (LEARNERS, *RegressorLearner.holds["estimator"])}

    def __init__(
        self,
        learners: Mapping[str, Learner] | None = None,
        target: str = "gradient",
        n_inner: int = 1,
        step: str | StepRule = "newton",
        step_settings: Mapping[str, Any] | None = None,
        n_rounds: int = 100,
        shrinkage: float = 1.0,
        sequential: bool = False,
        step_fraction: float = 0.0,
        trim: float = 0.0,
        loss: str = "exponential",
        patience: int | None = 20,
        monitor: str = "f1_val",
        validation_fraction: float = 0.1,
        random_state: int = 0,
        callbacks: Sequence[Callback] | None = None,
        checkpoint: Checkpoint | Path | str | None = None,
    ) -> None:
        self.learners = learners
        self.target = target
        self.n_inner = n_inner
        self.step = step
        self.step_settings = step_settings
        self.n_rounds = n_rounds
        self.shrinkage = shrinkage
        self.sequential = sequential
        self.step_fraction = step_fraction
        self.trim = trim
        self.loss = loss
        self.patience = patience
        self.monitor = monitor
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.callbacks = callbacks
        self.checkpoint = checkpoint

    def _learners(self) -> dict[str, Learner]:
        if not self.learners:
            return {"U": NetworkLearner(), "S": TreeLearner()}
        wrapped = {name: each for name, each in self.learners.items() if not hasattr(each, "trainer")}
        return {**self.learners, **{name: RegressorLearner(each) for name, each in wrapped.items()}}

    def _weak_learners(self) -> dict[str, Any]:
        return self._learners()

    def _learner_names(self, index: int) -> set[str]:
        return set(self._learners())

    def _read(self, document: Mapping[str, Any], folder: Path) -> None:
        if not hasattr(self, "n_outputs_"):  # files from before they were one for each class
            self.n_outputs_ = len(self.classes_) - 1
        absent = document.get("absent", [])
        if not isinstance(absent, list) or not all(isinstance(name, str) for name in absent):
            raise UsboostError("the views that rows may lack are not names")
        self.absent_ = tuple(absent)
        super()._read(document, folder)

    def _columns_of(self, name: str) -> int | None:
        columns = getattr(self, "columns_", {})
        return len(columns[name]) if name in columns else None

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
        self.__dict__.pop("n_outputs_", None)  # an earlier fit's
        loss, learners = self._loss(), self._learners()
        self.n_outputs_ = loss.n_outputs
        self.absent_ = tuple(name for name in views.names if np.any(getattr(views[name], "absent", None)))
        held_out, held_codes = None, codes[:0]
        if context.validation is not None:
            held_out = self._read_views(context.validation[0]), loss.labels(context.validation[1])
            held_codes = context.validation[1]

        def evaluate(f: np.ndarray, y: np.ndarray) -> dict[str, float]:
            predicted = loss.scores(f).argmax(axis=1)
            return {
                "f1": f1(held_codes, predicted, loss.n_classes),
                "accuracy": accuracy(held_codes, predicted),
            }

        read, watch = self._read_views(views), context.watch(self.monitor, self.patience)
        stages = StagewiseLoop(
            loss=loss,
            learners=learners,
            target=target_rule(self.target, self.n_inner, self.trim),
            step=step_rule(self.step, **(self.step_settings or {})),
            n_rounds=self.n_rounds,
            shrinkage=self.shrinkage,
            sequential=self.sequential,
            step_fraction=self.step_fraction,
            evaluate=evaluate,
            seed=self.random_state,
            callbacks=watch.callbacks,
            checkpoint=context.checkpoint,
        ).run(read, loss.labels(codes), held_out)
        self.history_, self.best_round_ = watch.history, watch.best_round
        self.stages_ = stages[: self.best_round_]
        grown = {name for stage in stages for name, each in stage.learners.items() if trees_of(each)}
        self.columns_ = {name: read[name].names for name in learners if name in grown}

    def _write(self, folder: Path) -> dict[str, Any]:
        return {**super()._write(folder), **({"absent": list(self.absent_)} if self.absent_ else {})}

    def _read_views(self, views: Views, names: Iterable[str] | None = None) -> Views:
        """What each learner reads, by its name: a view, or several side by side, pictures as embeddings."""
        learners = self._learners()
        network = next((each for each in learners.values() if isinstance(each, NetworkLearner)), None)
        reader = network or NetworkLearner()

        def as_table(view: View) -> View:
            if not isinstance(view, (Images, EncodedImages)):
                return view
            return embedded(view, reader.backbone, pick_device(reader.device))

        chosen = learners if names is None else names
        reads = {name: view_names(name, learners[name]) for name in chosen}
        return views.side_by_side(reads, as_table, self.absent_)

    def _prepare(self, views: Views) -> dict[str, Any]:
        self._check_fitted()
        read = self._read_views(views)
        return {name: prepare(learner, read[name]) for name, learner in self._learners().items()}

    def _trees(self) -> Iterator[tuple[str, Tree, float]]:
        for stage in self.stages_:
            for name, learner in stage.learners.items():
                for tree in trees_of(learner):
                    yield name, tree, stage.steps[name]

    def _reads(self, n_columns: int) -> Sequence[str]:
        named = (view for name, learner in self._learners().items() for view in view_names(name, learner))
        return list(dict.fromkeys(named))

    def _f(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        views = as_views(X)
        return ensemble_scores(self.stages_, self._prepare(views), (len(views), self._loss().n_outputs))

    def _staged_f(self, X: Views | Mapping[str, Any]) -> Iterator[np.ndarray]:
        views = as_views(X)
        prepared = self._prepare(views)
        f = np.zeros((len(views), self._loss().n_outputs))
        for stage in self.stages_:
            advance(f, stage, prepared)
            yield f

    def decision_function(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """The scores ⟨f, y^k⟩, float64: (n, M), or (n,) with the margin of class 1 when M = 2."""
        scores = self._loss().scores(self._f(X))
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """softmax of the scores, float64 (n, M): the link at which the loss is calibrated."""
        return self._loss().probabilities(self._f(X))

    def staged_predict(self, X: Views | Mapping[str, Any]) -> Iterator[np.ndarray]:
        """Predictions (n,) after each kept round."""
        for f in self._staged_f(X):
            yield self.classes_[self._loss().scores(f).argmax(axis=1)]

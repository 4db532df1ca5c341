"""Models boosted of weak learners: rounds, files, and the linear model that they may start from."""

# Annotations are not postponed: models take fields, and their types, from this module.

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.base import clone

from usboost.boosting.callbacks import Callback, Patience
from usboost.boosting.checkpoint import Checkpoint
from usboost.boosting.context import FitContext
from usboost.boosting.loop import StagewiseLoop, advance, ensemble_scores, ensemble_to_onnx
from usboost.boosting.rounds import StagewiseModel
from usboost.boosting.steps import StepRule, shared_risk, step_rule
from usboost.data.table import Table
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.evaluation.folds import Related
from usboost.evaluation.statistics import error_of_mean, mean
from usboost.files.onnx_graph import Value, ViewNodes
from usboost.learners.base import LEARNERS, Learner, prepare, view_names
from usboost.learners.estimators import RegressorLearner
from usboost.learners.forest import trees_of
from usboost.learners.networks.backbones import Backbone
from usboost.learners.networks.learner import NetworkLearner
from usboost.learners.search_space import Real, Space
from usboost.learners.tree import Tree
from usboost.learners.tree_learner import TreeLearner
from usboost.models.estimator import Samples, ViewsEstimator, check_columns
from usboost.models.inputs import InputReader, InputSpec
from usboost.models.sharded import unsharded_learner
from usboost.shards.collective import world

WIDE, FOR_STEPS = 10, 0.2
"""Samples for each column of a table, below which it is wide; the share of them for steps then."""


@dataclass(eq=False, repr=False)
class BoostedWeakLearners(StagewiseModel, ViewsEstimator):
    """One weak learner per view and round, or more: learners, start, loop, files.

    A subclass gives ``_loss()``, and documents its parameters.
    """

    learners: Mapping[str, Learner] | None = None
    _: KW_ONLY
    step: str | StepRule = "newton"
    step_settings: Mapping[str, Any] | None = None
    n_rounds: int = 100
    shrinkage: float = 1.0
    sequential: bool = False
    step_fraction: float | Literal["wide"] = 0.0
    loss: str = "exponential"
    patience: Patience = 20
    monitor: str = "f1_val"
    validation_fraction: float = 0.1
    random_state: int = 0
    callbacks: Sequence[Callback] | None = None
    checkpoint: Checkpoint | Path | str | None = None
    backbone: Backbone | None = None
    start: Any = None
    optional: tuple[str, ...] = ()

    holds: ClassVar[Mapping[str, Any]] = {
        "learners": (LEARNERS, *RegressorLearner.holds["estimator"]),
        "backbone": ("Backbone",),
    }
    space: ClassVar[Space] = {"shrinkage": Real(0.03, 1.0, log=True)}
    _least_gain: ClassVar[float] = 0.0
    _target: ClassVar[Any]  # (): the rule of what learners are fitted to
    _scored: ClassVar[Any]  # (f, y, weights): metrics of samples with labels, or targets, as encoded
    _of_f: ClassVar[Any]  # (f): its predictions, float64 (n, D)

    def _learners(self) -> dict[str, Learner]:
        if not self.learners:
            return {"U": NetworkLearner(), "S": TreeLearner()}
        learners = {
            name: each if hasattr(each, "trainer") else RegressorLearner(each)
            for name, each in self.learners.items()
        }
        left_out = getattr(self, "left_out_", ())
        usable: dict[str, Learner] = {}  # without the views left out, and without learners that read no other
        for name, learner in learners.items():
            views = view_names(name, learner)
            reads = tuple(view for view in views if view not in left_out)
            if reads:
                usable[name] = learner if reads == views else clone(learner).set_params(reads=reads)
        return usable or learners

    _weak_learners = _learners

    def not_sharded(self) -> str | None:
        """Describe the part that cannot be fitted on several shards; see `usboost.models.sharded`."""
        return unsharded_learner(self._learners())

    def _learner_names(self, index: int) -> set[str]:
        return set(self._learners())

    def _from_scores(self, scores: np.ndarray) -> np.ndarray:
        """Return the f, float64 (n, D), of the start's scores."""
        return scores

    def _fit_start(self, views: Views, y: np.ndarray, context: FitContext) -> list[np.ndarray]:
        """Fit the start; return f⁰ of the training samples and, if there are any, the validation samples."""
        self.start_: Any = None
        self.left_out_: tuple[str, ...] = ()
        if self.start is None:
            return []
        settings = clone(self.start).set_params(random_state=self.random_state)

        def fit(model: Any) -> None:
            if hasattr(self, "classes_"):
                model.fit_codes(views, y, len(self.classes_), context)
                return
            val = context.validation and Samples(*context.validation, context.val_weights)
            model.fit_standardised(Samples(views, y, context.weights, context.related), val)

        self.start_, scores, self.left_out_ = fit_start(
            settings, self.optional, views, y, fit, context.weights, context.apart
        )
        val = [] if context.validation is None else [self._start_f(context.validation[0])]
        return [self._from_scores(scores), *val]

    def _start_f(self, views: Views) -> np.ndarray:
        """Return f⁰, float64 (n, D)."""
        if self.start_ is None:
            return np.zeros((len(views), self._n_outputs()))
        return self._from_scores(self.start_.scores(views))

    def _write(self, folder: Path) -> dict[str, Any]:
        start: dict[str, Any] = {}
        if self.start_ is not None:
            names = {"start": list(self.start_.views), "left_out": list(self.left_out_)}
            start = {**self.start_._write(folder), **names}
        return {**start, **super()._write(folder), "reading": self.reading_.write(folder)}

    def _read(self, document: Mapping[str, Any], folder: Path) -> None:
        self.start_, self.left_out_ = None, ()
        if self.start is not None:
            read, left_out = document["start"], document["left_out"]
            if set(left_out) - set(self.optional) or set(read) - set(self.start.views):
                raise UsboostError("the views that its start reads are not those of its settings")
            self.left_out_, self.start_ = tuple(left_out), clone(self.start).set_params(views=tuple(read))
            # what the file of a start alone would have said of its targets
            if hasattr(self, "classes_"):
                self.start_.classes_ = np.arange(len(self.classes_))
            else:
                self.start_._as_part()
            self.start_.best_round_ = 1
            self.start_._read(document, folder)
        self.reading_ = self._reading()
        self.reading_.read(document.get("reading"), folder)
        super()._read(document, folder)

    def _columns_of(self, name: str) -> int | None:
        columns = getattr(self, "columns_", {})
        return len(columns[name]) if name in columns else None

    def _fit(self, views: Views, y: np.ndarray, context: FitContext) -> None:
        loss, validation, labels = self._loss(), context.validation, y[:, None]
        val_samples: tuple[Views, np.ndarray] | None = None
        if hasattr(self, "classes_"):
            self.n_outputs_, labels = loss.n_outputs, loss.labels(y)
        start = self._fit_start(views, y, context)
        val_y = y[:0] if validation is None else validation[1]
        if validation is not None:
            val_samples = validation[0], loss.labels(val_y) if hasattr(self, "classes_") else val_y[:, None]

        def evaluate(f: np.ndarray, _: np.ndarray) -> dict[str, float]:
            return self._scored(f, val_y, context.val_weights)

        target, self.reading_, learners = self._target(), self._reading(), self._learners()
        least = self._least_gain if self.monitor == "risk_val" else 0.0
        self.before_: dict[str, float] | None = None
        if val_samples is not None and start:  # the validation samples' metrics by the start alone
            scored = {f"{name}_val": value for name, value in evaluate(start[1], val_samples[1]).items()}
            risk = shared_risk(loss, start[1], val_samples[1], context.val_weights)
            self.before_ = {"risk_val": risk, **scored}
        watch = context.watch(self.monitor, self.patience, least, self.before_)
        read = self.reading_.fit(views, context.weights)
        self.step_fraction_: float = 0.0
        if self.step_fraction != "wide":
            self.step_fraction_ = self.step_fraction
        else:
            tables = [[views[view] for view in view_names(name, each)] for name, each in learners.items()]
            columns = [sum(each.n_columns for each in one if isinstance(each, Table)) for one in tables]
            if world().sum(len(views)) < WIDE * max(columns):
                self.step_fraction_ = FOR_STEPS
        if val_samples is not None:
            val_samples = self.reading_(val_samples[0]), val_samples[1]
        loop = StagewiseLoop(
            loss=loss,
            learners=learners,
            target=target,
            step=step_rule(self.step, **(self.step_settings or {})),
            n_rounds=self.n_rounds,
            shrinkage=self.shrinkage,
            sequential=self.sequential,
            step_fraction=self.step_fraction_,
            evaluate=evaluate,
            seed=self.random_state,
            callbacks=watch.callbacks,
            checkpoint=context.checkpoint,
        )
        stages = loop.run(read, labels, val_samples, start, context.weights, context.val_weights)
        self.history_, self.best_round_ = watch.history, watch.best_round
        # early stopping ends some rounds after the best one
        self.stages_ = stages[: self.best_round_]
        grown = {name for stage in stages for name, each in stage.learners.items() if trees_of(each)}
        self.columns_ = {
            name: read[name].names
            for name, each in learners.items()
            if name in grown or isinstance(each, TreeLearner)  # which has split in no round, too
        }

    def _as_far(self) -> dict[str, Any]:
        least = 1 if self.start_ is None else 0
        far = {"n_rounds": max(least, self.best_round_), "step_fraction": self.step_fraction_}
        if self.start_ is None:
            return far
        return {**far, "start": clone(self.start).set_params(penalties=(float(self.start_.penalty_),))}

    def _reading(self) -> InputReader:
        """Return the reader of views for the learners; `fit` fits it to its rows."""
        learners = self._learners()
        network = next((each for each in learners.values() if isinstance(each, NetworkLearner)), None)
        backbone = self.backbone or (network.backbone if network else None)
        wanted = {}
        for name, each in learners.items():
            components, images = getattr(each, "components", None), getattr(each, "reads_images", False)
            wanted[name] = InputSpec(view_names(name, each), components, images)
        views = {view for each in wanted.values() for view in each.views}
        return InputReader(wanted, backbone, network.device if network else "auto", qualified=len(views) > 2)

    def _prepare(self, views: Views) -> dict[str, Any]:
        self._check_fitted()
        read = self.reading_(views)
        for name, columns in getattr(self, "columns_", {}).items():
            check_columns(read[name].names, columns, name)
        return {name: prepare(learner, read[name]) for name, learner in self._learners().items()}

    def _trees(self) -> Iterator[tuple[str, Tree, float]]:
        for stage in self.stages_:
            for name, learner in stage.learners.items():
                for tree in trees_of(learner):
                    yield name, tree, stage.steps[name]

    def _reads(self, n_columns: int) -> Sequence[str]:
        named = (view for name, learner in self._learners().items() for view in view_names(name, learner))
        return list(dict.fromkeys([*(self.start.views if self.start else ()), *named]))

    def _f(self, views: Views) -> np.ndarray:
        prepared, f = self._prepare(views), self._start_f(views)
        return f + ensemble_scores(self.stages_, prepared, f.shape)

    def _to_onnx(self, views: Mapping[str, ViewNodes]) -> Value:
        """Return f in the views' graph, float64 (n, D)."""
        start = list[Value]()
        if self.start_ is not None:
            own = self.start_
            scores = own._nodes(views).linear(np.float64(own.coefficients_), np.float64(own.intercepts_))
            # scores of classes need no centre: what all of a row have more changes no probability
            start.append(scores @ self._from_scores(np.eye(len(own.intercepts_))))
        return ensemble_to_onnx(self.stages_, self._learners(), self.reading_.to_onnx(views), start)

    def _staged_f(self, views: Views) -> Iterator[np.ndarray]:
        prepared = self._prepare(views)
        f = self._start_f(views)
        for stage in self.stages_:
            advance(f, stage, prepared)
            yield f


def fit_start(
    settings: Any,
    optional: Sequence[str],
    views: Views,
    y: np.ndarray,
    fit: Callable[[Any], None],
    weights: np.ndarray | None = None,
    related: Related | None = None,
) -> tuple[Any, np.ndarray, tuple[str, ...]]:
    """Fit a start with all its views, and without those that are optional.

    They are left out if, on scores without the row, the training rows' mean loss is higher with them by
    more than its standard error (of the difference, row by row). Views that say nothing do that much harm
    through their hundreds of columns; of few rows, views that help cannot show it so clearly.

    Returns the fitted model; its scores of the training rows, each by a fit without the row, or without its
    fold, float64 (n, M), centred, of classes, and (n, 1) of a regression; and the views that are left out.

    Parameters
    ----------
    settings : the model, unfitted, a `LinearBaseline` or `RidgeBaseline`
    optional : names of views, of those that it reads
    views, y : of the n training rows; y as the model takes it
    fit : fits such a model to these rows
    weights : float64 (n,), positive, of the rows; None for 1
    related : how the rows are related: then a row's score is of a fit without its group or stretch of time
    """

    def fitted(names: Sequence[str]) -> tuple[Any, np.ndarray]:
        model = clone(settings).set_params(views=tuple(names))
        fit(model)
        return model, model.out_of_fold(views, y, weights, related)

    names = tuple(settings.views)
    model, scores = fitted(names)
    fewer = tuple(name for name in names if name not in optional)
    if fewer and fewer != names:
        without, other = fitted(fewer)
        gains = without.losses(other, y) - model.losses(scores, y)
        if not mean(gains, weights) >= -error_of_mean(gains, weights):
            return without, other, tuple(name for name in names if name in optional)
    return model, scores, ()

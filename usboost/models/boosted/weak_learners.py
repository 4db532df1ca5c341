"""What models that are boosted of weak learners share, and the linear model that they may start from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.base import clone

from usboost.boosting.callbacks import Patience
from usboost.boosting.context import FitContext
from usboost.boosting.loop import StagewiseLoop, advance, ensemble_scores
from usboost.boosting.rounds import StagewiseModel
from usboost.boosting.shared import shared_risk
from usboost.boosting.steps import StepRule, step_rule
from usboost.boosting.targets import TargetRule
from usboost.data.row_groups import Related
from usboost.data.table import Table
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.evaluation.weighted import error_of_mean, mean
from usboost.learners.base import LEARNERS, Learner, view_names
from usboost.learners.missing_views import prepare
from usboost.learners.networks.images.backbones import Backbone
from usboost.learners.networks.learner import NetworkLearner
from usboost.learners.regressors import RegressorLearner
from usboost.learners.search_space import Real, Space
from usboost.learners.trees.fitted import trees_of
from usboost.learners.trees.learner import TreeLearner
from usboost.learners.trees.tree import Tree
from usboost.losses.base import Loss
from usboost.models.estimator import ViewsEstimator
from usboost.models.inputs import InputReader, InputSpec
from usboost.models.sharded import unsharded_learner
from usboost.shards.here import here

WIDE, FOR_STEPS = 10, 0.2
"""Samples for each column of a table, below which it is wide; the share of them for steps then."""


class BoostedWeakLearners(StagewiseModel, ViewsEstimator):
    """One weak learner per view and round, or more: learners, start, loop, files.

    A subclass gives ``_loss()``, ``_fit_start_model(model, views, y, context)`` and what its constructor
    takes; its parameters are documented there.
    """

    learners: Mapping[str, Learner] | None
    step: str | StepRule
    step_settings: Mapping[str, Any] | None
    n_rounds: int
    shrinkage: float
    sequential: bool
    step_fraction: float | Literal["wide"]
    patience: Patience
    monitor: str
    random_state: int
    backbone: Backbone | None
    start: Any
    optional: tuple[str, ...]

    trim = 0.0
    """Share of the weight that sits a round's fits out; of regressors none."""

    start_: Any
    step_fraction_: float
    before_: dict[str, float] | None
    left_out_: tuple[str, ...]
    reading_: InputReader

    holds: ClassVar[Mapping[str, Any]] = {
        "learners": (LEARNERS, *RegressorLearner.holds["estimator"]),
        "backbone": ("Backbone",),
    }
    _least_gain: ClassVar[float] = 0.0
    space: ClassVar[Space] = {"shrinkage": Real(0.03, 1.0, log=True)}

    def _learners(self) -> dict[str, Learner]:
        if not self.learners:
            return {"U": NetworkLearner(), "S": TreeLearner()}
        wrapped = {name: each for name, each in self.learners.items() if not hasattr(each, "trainer")}
        learners = {**self.learners, **{name: RegressorLearner(each) for name, each in wrapped.items()}}
        return self._without(learners) if getattr(self, "left_out_", ()) else learners

    def _without(self, learners: dict[str, Learner]) -> dict[str, Learner]:
        """The learners without the views that are left out, and without those that read no other."""
        kept: dict[str, Learner] = {}
        for name, learner in learners.items():
            views = view_names(name, learner)
            reads = tuple(view for view in views if view not in self.left_out_)
            if reads == views:
                kept[name] = learner
            elif reads:
                kept[name] = clone(learner).set_params(reads=reads)
        return kept or learners

    def _weak_learners(self) -> dict[str, Any]:
        return self._learners()

    def not_sharded(self) -> str | None:
        """What of this model cannot be fitted on several shards; see `usboost.models.sharded`."""
        return unsharded_learner(self._learners())

    def _learner_names(self, index: int) -> set[str]:
        return set(self._learners())

    def _fit_start_model(self, model: Any, views: Views, y: np.ndarray, context: FitContext) -> None:
        """Fit the start to the training samples, as encoded."""
        raise AttributeError("_fit_start_model is defined by each model")

    def _mark_start(self, model: Any) -> None:
        """Give a start that is read from a file what its own file would have said of its targets."""
        raise AttributeError("_mark_start is defined by each model")

    def _of_f(self, f: np.ndarray) -> np.ndarray:
        """The predictions of an f, float64 (n, D)."""
        raise AttributeError("_of_f is defined by each model")

    def _from_scores(self, scores: np.ndarray) -> np.ndarray:
        """The f, float64 (n, D), of the start's scores."""
        return scores

    def _fit_start(self, views: Views, y: np.ndarray, context: FitContext) -> list[np.ndarray]:
        """Fit the start; f⁰ of the training samples and, if there are any, the validation samples."""
        self.start_, self.left_out_ = None, ()
        if self.start is None:
            return []
        settings = clone(self.start).set_params(random_state=self.random_state)

        def fit(model: Any) -> None:
            self._fit_start_model(model, views, y, context)

        fitted = fit_start(settings, self.optional, views, y, fit, context.weights, context.apart)
        self.start_, self.left_out_ = fitted.model, fitted.left_out
        found = [self._from_scores(fitted.scores)]
        if context.validation is not None:
            found.append(self._start_f(context.validation[0]))
        return found

    def _start_f(self, views: Views) -> np.ndarray:
        """f⁰, float64 (n, D)."""
        if self.start_ is None:
            return np.zeros((len(views), self._n_outputs()))
        return self._from_scores(self.start_.scores(views))

    def _write(self, folder: Path) -> dict[str, Any]:
        start: dict[str, Any] = {}
        if self.start_ is not None:
            start = {**self.start_._write(folder), "start": list(self.start_.views)}
            start["left_out"] = list(self.left_out_)
        return {**start, **super()._write(folder), "reading": self.reading_.write(folder)}

    def _read(self, document: Mapping[str, Any], folder: Path) -> None:
        self.start_, self.left_out_ = None, ()
        if self.start is not None:
            read, left_out = document["start"], document["left_out"]
            if set(left_out) - set(self.optional) or set(read) - set(self.start.views):
                raise UsboostError("the views that its start reads are not those of its settings")
            self.left_out_, self.start_ = tuple(left_out), clone(self.start).set_params(views=tuple(read))
            self._mark_start(self.start_)
            self.start_.best_round_ = 1
            self.start_._read(document, folder)
        self.reading_ = self._reading()
        self.reading_.read(document.get("reading"), folder)
        super()._read(document, folder)

    def _columns_of(self, name: str) -> int | None:
        columns = getattr(self, "columns_", {})
        return len(columns[name]) if name in columns else None

    def _boost(
        self,
        loss: Loss,
        target: TargetRule,
        views: Views,
        y: np.ndarray,
        held_out: tuple[Views, np.ndarray] | None,
        context: FitContext,
        start: Sequence[np.ndarray],
        evaluate: Any,
    ) -> None:
        """All rounds, from f⁰ on, with labels as the loss takes them."""
        self.reading_, learners = self._reading(), self._learners()
        least = self._least_gain if self.monitor == "risk_val" else 0.0
        self.before_ = self._before(loss, held_out, context, start, evaluate)
        watch = context.watch(self.monitor, self.patience, least, self.before_)
        read = self.reading_.fit(views, context.weights)
        self.step_fraction_ = self._share_for_steps(views)
        if held_out is not None:
            held_out = self.reading_(held_out[0]), held_out[1]
        loop = StagewiseLoop(
            loss=loss,
            learners=learners,
            target=target,
            step=step_rule(self.step, **(self.step_settings or {})),
            n_rounds=self.n_rounds,
            shrinkage=self.shrinkage,
            sequential=self.sequential,
            step_fraction=self.step_fraction_,
            trim=self.trim,
            evaluate=evaluate,
            seed=self.random_state,
            callbacks=watch.callbacks,
            checkpoint=context.checkpoint,
        )
        stages = loop.run(read, y, held_out, start, context.weights, context.held_weights)
        self.history_, self.best_round_ = watch.history, watch.best_round
        # early stopping ends some rounds after the best one
        self.stages_ = stages[: self.best_round_]
        grown = {name for stage in stages for name, each in stage.learners.items() if trees_of(each)}
        grown |= {
            name for name, each in learners.items() if isinstance(each, TreeLearner)
        }  # of no round, too
        self.columns_ = {name: read[name].names for name in learners if name in grown}

    def _before(
        self,
        loss: Loss,
        held_out: tuple[Views, np.ndarray] | None,
        context: FitContext,
        start: Sequence[np.ndarray],
        evaluate: Any,
    ) -> dict[str, float] | None:
        """The validation samples' metrics by the start alone."""
        if held_out is None or not start:
            return None
        (_, y), f, weights = held_out, start[1], context.held_weights
        scored = {f"{name}_val": value for name, value in evaluate(f, y).items()}
        return {"risk_val": shared_risk(loss, f, y, weights), **scored}

    def _share_for_steps(self, views: Views) -> float:
        """The share of the samples that steps are searched on, and that learners do not see."""
        if self.step_fraction != "wide":
            return self.step_fraction
        read = [[views[view] for view in view_names(name, each)] for name, each in self._learners().items()]
        columns = [sum(each.n_columns for each in one if isinstance(each, Table)) for one in read]
        return FOR_STEPS if here().sum(len(views)) < WIDE * max(columns) else 0.0

    def _reading(self) -> InputReader:
        """What the learners read; `fit` learns it from its rows."""
        learners = self._learners()
        network = next((each for each in learners.values() if isinstance(each, NetworkLearner)), None)
        backbone = self.backbone or (network.backbone if network else None)
        wanted = {name: InputSpec.by(name, learner) for name, learner in learners.items()}
        views = {view for each in wanted.values() for view in each.views}
        return InputReader(wanted, backbone, network.device if network else "auto", qualified=len(views) > 2)

    def _prepare(self, views: Views) -> dict[str, Any]:
        self._check_fitted()
        read = self.reading_(views)
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
        f = self._start_f(views)
        return f + ensemble_scores(self.stages_, self._prepare(views), f.shape)

    def _staged_f(self, views: Views) -> Iterator[np.ndarray]:
        prepared = self._prepare(views)
        f = self._start_f(views)
        for stage in self.stages_:
            advance(f, stage, prepared)
            yield f


@dataclass(frozen=True)
class LinearStart:
    """A fitted start.

    Attributes
    ----------
    model : the linear model
    scores : its scores of the training rows, each by a fit without the row, or without its fold: float64
        (n, M), centred, of classes, and (n, 1) of a regression
    left_out : views that it does not read, because they did harm on rows that were not fitted to
    """

    model: Any
    scores: np.ndarray
    left_out: tuple[str, ...] = ()


def fit_start(
    settings: Any,
    optional: Sequence[str],
    views: Views,
    y: np.ndarray,
    fit: Callable[[Any], None],
    weights: np.ndarray | None = None,
    related: Related | None = None,
) -> LinearStart:
    """Fit it with all its views, and without those that are optional.

    They are left out if, on scores without the row, the training rows' mean loss is higher with them by
    more than its standard error (of the difference, row by row). Views that say nothing do that much harm
    through their hundreds of columns; of few rows, views that help cannot show it so clearly.

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
    if not fewer or fewer == names:
        return LinearStart(model, scores)
    without, other = fitted(fewer)
    gains = without.losses(other, y) - model.losses(scores, y)
    if mean(gains, weights) >= -error_of_mean(gains, weights):
        return LinearStart(model, scores)
    return LinearStart(without, other, tuple(name for name in names if name in optional))

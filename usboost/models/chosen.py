"""The model of several that predicts the validation rows best."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone

from usboost.boosting.callbacks import Callback
from usboost.boosting.checkpoint import Checkpoint
from usboost.boosting.context import FitContext
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.evaluation.metrics import rmse, score
from usboost.learners.trees.tree import Tree
from usboost.models.base import MODELS, ViewsClassifier
from usboost.models.estimator import Samples, ViewsEstimator
from usboost.models.inner_fits import InnerFits
from usboost.models.regressor import ViewsRegressor


class _Choice(ViewsEstimator):
    """What the classifier and the regressor share."""

    candidates: Mapping[str, Any] | None
    chosen_: Any
    chosen_name_: str
    losses_: dict[str, float]

    holds: ClassVar[Mapping[str, Any]] = {"candidates": MODELS}

    def _given(self, y: np.ndarray) -> np.ndarray:
        """Encoded labels or targets as they were given."""
        raise AttributeError("_given is defined for each task")

    def _lost(self, model: Any, views: Views, y: np.ndarray, weights: np.ndarray | None) -> float:
        """What a candidate loses on samples with encoded labels or targets."""
        raise AttributeError("_lost is defined for each task")

    def _fit(self, views: Views, y: np.ndarray, context: FitContext) -> None:
        if not self.candidates:
            raise UsboostError("candidates is empty; give the models to choose among by name")
        if context.validation is None:
            raise UsboostError("models are chosen on validation rows; give some, or a validation_fraction")
        held, held_y = context.validation
        self.losses_, self.chosen_name_ = {}, ""
        for index, (name, candidate) in enumerate(self.candidates.items()):
            train = Samples(views, self._given(y), context.weights, context.related)
            validation = Samples(held, self._given(held_y), context.held_weights)
            model = InnerFits(context.checkpoint, context.callbacks).fit(
                clone(candidate), f"c{index}", train, validation
            )
            self.losses_[name] = self._lost(model, held, held_y, context.held_weights)
            if not self.chosen_name_ or self.losses_[name] < self.losses_[self.chosen_name_]:
                self.chosen_, self.chosen_name_ = model, name
        self.history_, self.best_round_ = self.chosen_.history_, self.chosen_.best_round_

    def _kept(self) -> ViewsEstimator:
        self._check_fitted()
        found: ViewsEstimator = self.chosen_
        return found

    def _columns(self) -> dict[str, tuple[str, ...]]:
        self._check_fitted()
        found: dict[str, tuple[str, ...]] = self.chosen_._columns()
        return found

    def _trees(self) -> Iterator[tuple[str, Tree, float]]:
        found: Iterator[tuple[str, Tree, float]] = self.chosen_._trees()
        return found


class ChosenClassifier(_Choice, ViewsClassifier):
    """Fits several models, and keeps the one with the lowest log-loss on the validation rows.

    The same rows stop the fits and choose among them, so the chosen model's score on them is optimistic.
    What is saved of it is the chosen model.

    Parameters
    ----------
    candidates : mapping of name to ViewsClassifier
        Unfitted; of equals the first is kept.
    validation_fraction : float
        Share of the training samples that stop the fits and choose, where `fit` is given none.
    callbacks : sequence of Callback
        Watch every fit.
    random_state : int
        Of the samples set aside.
    checkpoint : Checkpoint or path, optional
        Keeps the rounds of every candidate that can keep them.

    Attributes
    ----------
    chosen_ : the fitted model
    chosen_name_ : its name
    losses_ : log-loss of each candidate on the validation rows, by name
    history_ : of the chosen model's fit
    """

    def __init__(
        self,
        candidates: Mapping[str, ViewsClassifier] | None = None,
        *,
        validation_fraction: float = 0.15,
        callbacks: Sequence[Callback] = (),
        random_state: int = 0,
        checkpoint: Checkpoint | Path | str | None = None,
    ) -> None:
        self.candidates = candidates
        self.validation_fraction = validation_fraction
        self.callbacks = callbacks
        self.random_state = random_state
        self.checkpoint = checkpoint

    def _given(self, y: np.ndarray) -> np.ndarray:
        return self.classes_[y]

    def _lost(self, model: Any, views: Views, y: np.ndarray, weights: np.ndarray | None) -> float:
        return score(y, model.predict_proba(views), weights)["log_loss"]

    def predict_proba(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """The chosen model's class probabilities, float64 (n, M)."""
        self._check_fitted()
        found: np.ndarray = self.chosen_.predict_proba(X)
        return found


class ChosenRegressor(_Choice, ViewsRegressor):
    """Fits several models, and keeps the one with the lowest RMSE on the validation rows.

    Parameters
    ----------
    candidates : mapping of name to ViewsRegressor
    validation_fraction, callbacks, random_state, checkpoint : as of `ChosenClassifier`

    Attributes
    ----------
    losses_ : RMSE of each candidate on the validation rows, by name, in the units of y
    chosen_, chosen_name_, history_ : as of `ChosenClassifier`
    target_centre_, target_scale_ : 0 and 1; each candidate has its own
    """

    def __init__(
        self,
        candidates: Mapping[str, ViewsRegressor] | None = None,
        *,
        validation_fraction: float = 0.15,
        callbacks: Sequence[Callback] = (),
        random_state: int = 0,
        checkpoint: Checkpoint | Path | str | None = None,
    ) -> None:
        self.candidates = candidates
        self.validation_fraction = validation_fraction
        self.callbacks = callbacks
        self.random_state = random_state
        self.checkpoint = checkpoint

    def _centre(self, y: np.ndarray, weights: np.ndarray | None) -> float:
        return 0.0

    def _scale(self, residual: np.ndarray, weights: np.ndarray | None) -> float:
        return 1.0

    def _given(self, y: np.ndarray) -> np.ndarray:
        return y

    def _lost(self, model: Any, views: Views, y: np.ndarray, weights: np.ndarray | None) -> float:
        return rmse(y, model.predict(views), weights)

    def _predict(self, views: Views) -> np.ndarray:
        found: np.ndarray = self.chosen_.predict(views)
        return found

    def _staged(self, views: Views) -> Iterator[np.ndarray]:
        found: Iterator[np.ndarray] = self.chosen_.staged_predict(views)
        return found

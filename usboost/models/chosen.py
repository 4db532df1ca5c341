"""The model of several that predicts the validation rows best."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone

from usboost.boosting.callbacks import Callback
from usboost.boosting.context import FitContext
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.evaluation.metrics import score
from usboost.learners.trees.tree import Tree
from usboost.models.base import MODELS, ViewsClassifier


class ChosenClassifier(ViewsClassifier):
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

    Attributes
    ----------
    chosen_ : the fitted model
    chosen_name_ : its name
    losses_ : log-loss of each candidate on the validation rows, by name
    history_ : of the chosen model's fit
    """

    holds: ClassVar[Mapping[str, Any]] = {"candidates": MODELS}

    def __init__(
        self,
        candidates: Mapping[str, ViewsClassifier] | None = None,
        *,
        validation_fraction: float = 0.15,
        callbacks: Sequence[Callback] = (),
        random_state: int = 0,
    ) -> None:
        self.candidates = candidates
        self.validation_fraction = validation_fraction
        self.callbacks = callbacks
        self.random_state = random_state

    def _fit(self, views: Views, codes: np.ndarray, context: FitContext) -> None:
        if not self.candidates:
            raise UsboostError("candidates is empty; give the models to choose among by name")
        if context.validation is None:
            raise UsboostError("models are chosen on validation rows; give some, or a validation_fraction")
        held, held_codes = context.validation
        self.losses_: dict[str, float] = {}
        self.chosen_name_ = ""
        for name, candidate in self.candidates.items():
            model = clone(candidate).set_params(callbacks=list(context.callbacks))
            model.fit(views, self.classes_[codes], (held, self.classes_[held_codes]))
            self.losses_[name] = score(held_codes, model.predict_proba(held))["log_loss"]
            if not self.chosen_name_ or self.losses_[name] < self.losses_[self.chosen_name_]:
                self.chosen_, self.chosen_name_ = model, name
        self.history_, self.best_round_ = self.chosen_.history_, self.chosen_.best_round_

    def predict_proba(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """The chosen model's class probabilities, float64 (n, M)."""
        self._check_fitted()
        found: np.ndarray = self.chosen_.predict_proba(X)
        return found

    def _kept(self) -> ViewsClassifier:
        self._check_fitted()
        return self.chosen_

    def _columns(self) -> dict[str, tuple[str, ...]]:
        self._check_fitted()
        return self.chosen_._columns()

    def _trees(self) -> Iterator[tuple[str, Tree, float]]:
        return self.chosen_._trees()

"""Bagged folds of several models, weighted by what they predict of rows that they have not seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from usboost.boosting.callbacks import Callback
from usboost.boosting.checkpoint import Checkpoint
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.models.base import ViewsClassifier, ViewsRegressor
from usboost.models.ensembles.base import Ensemble


@dataclass(eq=False, repr=False)
class _Ensemble(Ensemble):
    """Parameters of both."""

    members: Mapping[str, Any] | None = None
    folds: int = 5
    fast_predict: bool = False
    refit_full: bool = True
    repeats: int = 1
    validation_fraction: float = 0.0
    random_state: int = 0
    callbacks: Sequence[Callback] | None = None
    checkpoint: Checkpoint | Path | str | None = None


class EnsembleClassifier(_Ensemble, ViewsClassifier):
    """Several classifiers, each fitted once for each fold, their probabilities averaged by greedy weights.

    Each fold's fit stops early on the fold that it is not fitted to; the weights are those that predict these
    rows best (Caruana et al., 2004), which flatters members that stop early a little. Once three folds have
    held out 2,000 rows, or the first one 10,000, no other is fitted. Where the blend is not better than the
    best member beyond the standard error, that member alone is kept. Members that are kept are fitted to all
    rows, too, as far as their fits to folds went; in a member's mean those to folds count together as much as
    one of these. Validation samples are not looked at. Related rows are divided as
    `usboost.data.row_groups.Related.folds` says: by whole groups, or so that later rows judge each fit; these
    are half of all rows then.

    Parameters
    ----------
    members : mapping of name to ViewsClassifier, unfitted; the first should be quick and good, as it is all
        there is where there is time for no other
    folds : how many fits of each at most
    fast_predict : keep one model instead of the blend: the best member, fitted once more to all rows
    refit_full : whether members that are kept are fitted to all rows, too; else `add_full_refits` does it
    repeats : how many such fits of each, with other seeds, but no more than folds were fitted; of a member
        that draws nothing there is one
    validation_fraction, random_state, callbacks : as everywhere; no samples need be set aside. A `TimeLimit`
        holds for all fits together, see `usboost.models.ensembles.fold_fits.in_time`
    checkpoint : Checkpoint or path, optional; keeps the fits of every member and fold

    Attributes
    ----------
    weights_ : of the members kept, by name; fits_ : their fitted models, one a fold
    full_refits_ : their fits to all rows by name, of those that there was time for
    losses_ : log-loss of every member on the rows that its fits stopped on, and were not fitted to; where
        time was short, on the folds that all members were fitted for
    blend_loss_ : of the blend on these rows, that chose its weights
    out_of_fold_ : the blend's probabilities for the training rows, each by fits that did not see the row,
        float64 (n, M); NaN where there was no time for such a fit. Not kept in files.
    members_ : a `Member` of each, by name, also of those that are not kept
    alone_ : with `fast_predict` the seconds in which the one model predicts 1,000 rows; else None
    bytes_ : of each member's files, once they are written or read
    classes_ ; n_estimators_ ; history_ : "loss" of each member
    """

    def _of(self, model: Any, views: Views) -> np.ndarray:
        found: np.ndarray = model.predict_proba(views)
        return found

    def _learnt_as(self, y: np.ndarray) -> np.ndarray:
        return self._encode(y)

    def _nothing(self, n: int) -> np.ndarray:
        return np.zeros((n, len(self.classes_)))

    def _check_member(self, model: Any) -> None:
        if list(model.classes_) != list(range(len(self.classes_))):
            raise UsboostError("a member has other classes")

    def predict_proba(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """The weighted mean of the members' probabilities, float64 (n, M)."""
        return self._blend(X)


class EnsembleRegressor(_Ensemble, ViewsRegressor):
    """Several regressors, each fitted once for each fold, their predictions averaged by greedy weights.

    Parameters
    ----------
    As of `EnsembleClassifier`.

    Attributes
    ----------
    As of `EnsembleClassifier`; losses_ : mean squared errors of standardised targets
    out_of_fold_ : standardised, too, float64 (n,)
    target_centre_, target_scale_ : of the training targets
    """

    def _of(self, model: Any, views: Views) -> np.ndarray:
        found: np.ndarray = model.predict(views)
        return found

    def _learnt_as(self, y: np.ndarray) -> np.ndarray:
        return self._standardised(self._encode(y))

    def _nothing(self, n: int) -> np.ndarray:
        return np.zeros(n)

    def _predict(self, views: Views) -> np.ndarray:
        return self._blend(views)

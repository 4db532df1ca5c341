"""The mean of a few models' scores: trees from a linear start, boosting with networks, and a forest."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from itertools import product
from math import gcd, inf
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from usboost.boosting.callbacks import Callback
from usboost.boosting.checkpoint import Checkpoint
from usboost.boosting.context import FitContext
from usboost.data.views import Views
from usboost.errors import Unsuited, UsboostError
from usboost.evaluation.statistics import error_of_mean, mean
from usboost.learners.tree import Tree
from usboost.models.estimator import Samples
from usboost.models.methods.blend import Blend, BlendClassifier, BlendRegressor
from usboost.models.methods.fold_fits import InnerFits, Member, blended
from usboost.models.methods.weak_learners import BoostedWeakLearners
from usboost.models.sharded import not_sharded
from usboost.shards.collective import world

SHARES, FEWEST = 3, 100
"""A weight is so many parts at most before weights are divided by their sum; rows that choose weights."""


@dataclass(eq=False, repr=False)
class Average(Blend):
    """Fits, weights and margins of the averages of classifiers and of regressors."""

    members: Mapping[str, Any] | None = None
    _: KW_ONLY
    weights: Mapping[str, float] | None = None
    most_rows: Mapping[str, int] | None = None
    validation_fraction: float = 0.1
    random_state: int = 0
    callbacks: Sequence[Callback] | None = None
    checkpoint: Checkpoint | Path | str | None = None

    def _fit(self, views: Views, y: np.ndarray, context: FitContext) -> None:
        if not self.members:
            raise UsboostError("members is empty; give the models to average by name")
        if any(not weight > 0 for weight in (self.weights or {}).values()):
            raise UsboostError(f"weights are positive, not {self.weights}; leave out members of no weight")
        samples, rows = Samples(views, y, context.weights, context.related), world().sum(len(views))
        val = None if context.validation is None else Samples(*context.validation, context.val_weights)
        inner = InnerFits(context.checkpoint, context.callbacks)
        fits, members, seen = dict[str, Any](), dict[str, Member](), dict[str, np.ndarray]()
        for name, member in self.members.items():
            if self.weights is not None and name not in self.weights:
                continue
            most = (self.most_rows or {}).get(name, inf)
            try:
                if rows > most:
                    raise Unsuited(f"it is fitted to {most:,} rows at most")
                if world().count > 1 and (why := not_sharded(member)):
                    raise Unsuited(f"{why} cannot be fitted on several shards")
                fits[name] = inner.fit_or_load(clone(member), name, samples, val)
            except Unsuited as error:
                members[name] = Member(left_out=str(error))
                continue
            members[name] = Member(fits=1)  # without seconds, so that the same fit has the same files
            if val is not None:
                seen[name] = self._of(fits[name], val.views)
        if not fits:
            raise Unsuited("; ".join(each.left_out for each in members.values()))
        chosen = {name: (self.weights or {}).get(name, 1.0) for name in fits}
        if val is not None and self.weights is None:
            chosen = self.choose_weights(seen, val.y, val.weights)
        self.tried_ = fits
        self._keep({name: weight / sum(chosen.values()) for name, weight in chosen.items()})
        # what validation rows, or folds, have said, where this fit has none
        self.members_, self.blend_loss_ = getattr(self, "_before", (members, None))
        if val is not None:
            self._score(members, seen, val.y, val.weights)
        self.losses_ = {name: each.loss for name, each in self.members_.items() if each.loss is not None}
        rounds = [(name, row) for name, fit in fits.items() for row in fit.history_]
        self.history_ = [dict[str, Any](row, member=name) for name, row in rounds]
        self.full_refits_, self.bytes_ = {}, {}

    def _keep(self, weights: dict[str, float]) -> None:
        """Keep the members that have a weight."""
        self.weights_, self.fits_ = weights, {name: [self.tried_[name]] for name in weights}
        self.best_round_ = sum(fit.best_round_ for (fit,) in self.fits_.values())
        self.columns_: dict[str, tuple[str, ...]] = {
            f"{name} {learner}": columns
            for name, fit in self.boosted().items()
            for learner, columns in fit.columns_.items()
        }

    def not_sharded(self) -> str | None:
        """Describe why no member can be fitted on several shards; those that cannot are left out there."""
        reasons = [not_sharded(member) for member in (self.members or {}).values()]
        return None if None in reasons else next(iter(reasons), None)

    def choose_weights(
        self, predicted: Mapping[str, np.ndarray], y: np.ndarray, weights: np.ndarray | None
    ) -> dict[str, float]:
        """Choose weights by n rows that no member was fitted to: of those beyond 0, which sum to 1.

        They are equal, unless there are `FEWEST` rows and others lose less by more than the standard error of
        the gain: then those of the largest gain less its standard error.

        Parameters
        ----------
        predicted : by each member for these rows; y : of them, as encoded
        weights : of the rows, float64 (n,), or None
        """
        margins = {name: self._margins(each) for name, each in predicted.items()}
        names = list(margins)
        chosen = dict.fromkeys(names, 1 / len(names))
        if world().sum(len(y)) < FEWEST:  # of many weights some gain by chance
            return chosen
        equal, most = self._losses(y, blended(margins, chosen)), 0.0
        for shares in product(range(SHARES + 1), repeat=len(names)):
            if gcd(*shares) == 1:  # else another one has the same proportions
                tried = {name: k / sum(shares) for name, k in zip(names, shares, strict=True) if k}
                gains = equal - self._losses(y, blended(margins, tried))
                gain = mean(gains, weights) - error_of_mean(gains, weights)
                if gain > most:
                    chosen, most = tried, gain
        return chosen

    def boosted(self) -> dict[str, Any]:
        """Return the fitted members that are boosted, by name."""
        fits = {name: fit for name, (fit,) in self.fits_.items()}
        return {name: fit for name, fit in fits.items() if isinstance(fit, BoostedWeakLearners)}

    def combined(self, predicted: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return f, float64 (n, D), of what each member predicts of n rows."""
        return blended({name: self._margins(predicted[name]) for name in self.weights_}, self.weights_)

    def _trees(self) -> Iterator[tuple[str, Tree, float]]:
        for name, fit in self.boosted().items():
            for learner, tree, step in fit._trees():
                yield f"{name} {learner}", tree, self.weights_[name] * step

    def _score(
        self,
        members: Mapping[str, Member],
        predicted: Mapping[str, np.ndarray],
        y: np.ndarray,
        weights: np.ndarray | None,
    ) -> None:
        """Describe each member by its loss of rows that it was not fitted to; see `choose_weights`."""
        losses = {name: mean(self._losses(y, self._margins(p)), weights) for name, p in predicted.items()}
        self.members_ = {
            name: replace(each, weight=self.weights_.get(name, 0.0), loss=losses.get(name))
            for name, each in members.items()
        }
        self.blend_loss_ = mean(self._losses(y, self.combined(predicted)), weights)

    def choose_again(
        self, predicted: Mapping[str, np.ndarray], y: np.ndarray, weights: np.ndarray | None
    ) -> np.ndarray:
        """Choose the weights once more, by more rows; return what the average predicts of them.

        Parameters
        ----------
        As of `choose_weights`; of a regressor in units of y.
        """
        scaled: Any = getattr(self, "_standardised", np.asarray)
        own, targets = {name: scaled(each) for name, each in predicted.items()}, scaled(y)
        self._keep(self.choose_weights(own, targets, weights))
        self._score(self.members_, own, targets, weights)
        return np.asarray(self._of_f(self.combined(own)))

    def for_all_rows(self) -> Any:
        """Return a copy for all rows, see `ViewsEstimator`: its members' copies, with the weights chosen."""
        copy = super().for_all_rows()
        copy._before = self.members_, self.blend_loss_
        return copy

    def _as_far(self) -> dict[str, Any]:
        members = {name: fit.for_all_rows() for name, (fit,) in self.fits_.items()}
        # those that were fitted and chosen are fitted to all rows, too, though these are more
        return {"members": members, "weights": dict(self.weights_), "most_rows": None}


class AverageClassifier(Average, BlendClassifier):
    """Several classifiers, each fitted once; their scores averaged.

    The answer is softmax(Σ_m w_m log p_m). Weights are equal, unless the validation rows say otherwise beyond
    the standard error, see `choose_weights`.

    Parameters
    ----------
    members : mapping of name to ViewsClassifier, unfitted
    weights : by name, positive; members without one are not fitted; by default they are chosen, or, without
        validation rows, equal
    most_rows : by name, rows to fit to above which a member is left out
    validation_fraction, random_state, callbacks : as everywhere
    checkpoint : Checkpoint or path, optional; keeps the rounds of every member

    Attributes
    ----------
    weights_ : of the members kept, by name, of sum 1; fits_ : by name, a list of the fitted one
    losses_ : log-loss of every member on the validation rows; blend_loss_ : of the average
    history_ : the rounds of every member, whose name is their "member"
    members_ : a `Member` of each, by name, also of those that are not kept
    classes_ ; n_estimators_
    """


class AverageRegressor(Average, BlendRegressor):
    """Several regressors, each fitted once, their predictions averaged.

    Parameters and attributes are those of `AverageClassifier`; losses_ are mean squared errors of
    standardised targets, target_centre_ and target_scale_ of the training targets.
    """

"""The fit to all rows after one with validation rows, so that these are used, too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from usboost.boosting.callbacks import Callback
from usboost.errors import Unsuited, UsboostError
from usboost.models.base import for_all_rows
from usboost.models.methods.ensemble import Ensemble
from usboost.models.methods.fold_fits import StopRecorder
from usboost.models.tuned_images import fit_weighted
from usboost.multimodal.fit.rounds import FITS, FoldRounds, OfFolds, by_folds
from usboost.multimodal.fit.splits import Part, arrays_of, related_of
from usboost.multimodal.fit.unfinished import Keep
from usboost.shards.collective import world
from usboost.table.columns.encoding import Encoding
from usboost.table.user_table import UserTable


@dataclass(frozen=True)
class Again:
    """A model that was fitted again, the encoding of its rows, and the folds that say how far it goes."""

    model: Any
    encoding: Encoding
    folds: OfFolds | None = None


class Refit:
    """Whether a model is fitted again, to the validation rows, too, as far as these let it go; and that fit.

    Parameters
    ----------
    wanted : by default, None, it is, except where a callback asks one of the two fits to stop before its end,
        or leaves no time for the second.
    callbacks : of the first fit; of_all : of that to all rows, by default the same.
    seed : of the folds that say how far to go where there are few rows.
    """

    def __init__(
        self,
        wanted: bool | None,
        callbacks: Sequence[Callback],
        of_all: Sequence[Callback] | None = None,
        seed: int = 0,
    ) -> None:
        self.wanted, self._seed = wanted, seed
        self._callbacks = callbacks
        self._of_all = callbacks if of_all is None else of_all
        self._asked = StopRecorder(callbacks)

    def prepare(self, model: Any) -> None:
        """Give a model its callbacks, before its first fit."""
        several = isinstance(model, Ensemble)
        if self._callbacks:
            # an ensemble asks each of them itself how much time its fits have
            model.set_params(callbacks=list(self._callbacks) if several else [self._asked])
        if several and self.wanted is not False:
            model.set_params(refit_full=False)  # members' fits to all rows wait for the validation rows

    def fit(
        self,
        model: Any,
        table: UserTable,
        parts: tuple[Part, Part],
        encoding: Encoding,
        took: float,
        keep: Keep | None,
    ) -> Again | None:
        """A model like `model`, fitted to all rows.

        Raises UsboostError if it has to be made, and cannot be told how far to go.

        Parameters
        ----------
        parts : training and validation rows; encoding : learnt from the former.
        took : seconds of the first fit.
        keep : where the rounds are kept.

        Returns
        -------
        None where the fit is not wanted, there is no time, it was
        asked to stop before its end, it is not made for so many rows, or a model of its kind cannot be told
        how far to go. An ensemble is `model` itself, to which such fits of its members are added.
        """
        if self.wanted is False or (self.wanted is None and world().highest(self._asked.stopped)):
            return None
        everything = _together(*parts)
        if isinstance(model, Ensemble):
            return self._added(model, table, everything, encoding)
        longer = took * world().sum(len(everything)) / world().sum(len(parts[0]))
        if not self.wanted and world().highest(longer > self._time_left()):
            return None
        folds = self._by_folds(model, table, everything, took)
        try:
            again = for_all_rows(model) if folds is None else folds.model
        except UsboostError:
            if self.wanted:
                raise
            return None
        return self._fitted(again, table, everything, keep, folds)

    def _by_folds(self, model: Any, table: UserTable, everything: Part, took: float) -> OfFolds | None:
        """How far to go by folds, where there are few rows and there is time."""
        if not by_folds(model, table, len(everything)):
            return None
        if not self.wanted and took * FITS > self._time_left():
            return None
        try:
            return FoldRounds(table, everything, model, self._seed, self._heard()).run()
        except UsboostError:  # fewer rows may be too few
            return None

    def _added(self, model: Ensemble, table: UserTable, everything: Part, encoding: Encoding) -> Again | None:
        """The ensemble with its members' fits to all rows."""
        rows = everything.rows
        # fits to folds read rows by the encoding that they have learnt from
        views, related = table.views(encoding, rows), related_of(table, rows)
        added = model.add_full_refits(
            views, table.labels[rows], everything.in_fit, related, always=bool(self.wanted)
        )
        return Again(model, encoding) if added else None

    def _fitted(
        self, again: Any, table: UserTable, everything: Part, keep: Keep | None, folds: OfFolds | None
    ) -> Again | None:
        """A model that knows how far to go, fitted to all rows."""
        asked = StopRecorder(self._heard())
        again.set_params(callbacks=[asked])
        rows = everything.rows
        encoding, related = table.fit_encoding(rows), related_of(table, rows)
        samples = table.views(encoding, rows), table.labels[rows], everything.in_fit
        if keep is not None:
            keep.keep(again, (*samples, *arrays_of(related)))
        try:
            fit_weighted(again, samples, None, related)
        except Unsuited:  # for more rows than the first fit had, say
            if self.wanted:
                raise
            return None
        return None if world().highest(asked.stopped) else Again(again, encoding, folds)

    def _heard(self) -> list[Callback]:
        """The callbacks of the fits after the first."""
        # one that has to be made has a known length, and a limit of time has ended the first
        return [each for each in self._of_all if not self.wanted or math.isinf(each.time_left())]

    def _time_left(self) -> float:
        return min((each.time_left() for each in self._of_all), default=math.inf)


def _together(train: Part, held: Part) -> Part:
    """All rows, in rising order."""
    rows = np.concatenate([train.rows, held.rows])
    order = np.argsort(rows)

    def both(first: np.ndarray | None, second: np.ndarray | None) -> np.ndarray | None:
        return None if first is None or second is None else np.concatenate([first, second])[order]

    return Part(rows[order], both(train.weights, held.weights), both(train.in_fit, held.in_fit))

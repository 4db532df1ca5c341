"""Shows the rounds of a fit as they are done."""

from __future__ import annotations

from typing import Any

from usboost.boosting.callbacks import Callback
from usboost.boosting.rounds import Round
from usboost.multimodal.table import Progress


class Bar(Callback):
    """Tells of (rounds done, rounds at most)."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._total = 0

    def on_fit_begin(self, fit: Any) -> None:
        self._total = int(fit.n_rounds)

    def on_round(self, round_: Round) -> bool:
        self._progress(round_.index, self._total)
        return False

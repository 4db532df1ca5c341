"""Successive halving: a fit that is behind at a rung of rounds ends there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from usboost.boosting.callbacks import Callback
from usboost.boosting.rounds import Round
from usboost.tuning.propose import quiet
from usboost.tuning.trials import Trial

if TYPE_CHECKING:
    import optuna

FIRST, SHARE = 8, 3
"""The rounds of the first rung, which are so many times as many at each further one, where one in so many
fits goes on."""

ROUNDS = tuple(FIRST * SHARE**k for k in range(8))
"""The rungs: 8, 24, 72, …"""

EARLIEST = 4
"""No fit ends before the model's own settings have done one in so many of their rounds: small steps begin
slowly."""


class Rungs(Callback):
    """Notes a fit's best validation risk at each rung, and ends a fit that is behind earlier ones there.

    Parameters
    ----------
    earlier : trials of the same model, the first with its own settings; without any no fit ends here.

    Attributes
    ----------
    risks : lowest "risk_val" so far, by rung reached; best : lowest "risk_val" so far
    pruned : whether the fit was ended here
    """

    def __init__(self, earlier: Sequence[Trial] = ()) -> None:
        self.risks: dict[int, float] = {}
        self.best, self.pruned = math.inf, False
        self._trial = _beside(earlier) if earlier else None

    def on_round(self, round_: Round) -> bool:
        risk = round_.metrics.get("risk_val", math.inf)
        self.best = min(self.best, risk if math.isfinite(risk) else math.inf)
        if round_.index in ROUNDS and math.isfinite(self.best):
            self.risks[round_.index] = self.best
            if self._trial is not None:
                self._trial.report(self.best, round_.index)
                self.pruned = self._trial.should_prune()
        return self.pruned


def _beside(earlier: Sequence[Trial]) -> optuna.Trial:
    """A trial of a study that holds what earlier ones have reported.

    The study is this fit's own: in a common one, who is pruned would depend on which fits are ahead.
    """
    import optuna

    skipped = sum(rung * EARLIEST < earlier[0].rounds for rung in ROUNDS)
    with quiet():
        study = optuna.create_study(pruner=optuna.pruners.SuccessiveHalvingPruner(FIRST, SHARE, skipped))
    for each in earlier:
        trial, end = study.ask(), each.end if each.state == "finished" else None
        for rung in ROUNDS:
            # one that ended by itself has its last risk at all later rungs, too
            if (risk := each.risks.get(rung, end)) is not None:
                trial.report(risk, rung)
                trial.should_prune()  # which takes note of the rung
        study.tell(trial, state=optuna.trial.TrialState.PRUNED)
    return study.ask()

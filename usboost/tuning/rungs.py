"""Successive halving: a fit that is behind at a rung of rounds ends there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from usboost.boosting.callbacks import Callback
from usboost.boosting.rounds import Round

ROUNDS = tuple(8 * 3**k for k in range(8))
"""The rungs: 8, 24, 72, …"""

SHARE = 3
"""One in so many goes on."""

EARLIEST = 4
"""No fit ends before the model's own settings have done one in so many of their rounds: small steps begin
slowly."""


class Rungs(Callback):
    """Notes a fit's best validation risk at each rung, and ends a fit that is above a rung's limit.

    Parameters
    ----------
    limits : highest risk with which a fit goes on, by rung.

    Attributes
    ----------
    risks : lowest "risk_val" so far, by rung reached
    best : lowest "risk_val" so far; rounds : how many there were
    pruned : whether the fit was ended here
    """

    def __init__(self, limits: Mapping[int, float] | None = None) -> None:
        self.limits = limits or {}
        self.risks: dict[int, float] = {}
        self.best, self.rounds, self.pruned = math.inf, 0, False

    def on_round(self, round_: Round) -> bool:
        risk = round_.metrics.get("risk_val", math.inf)
        self.best, self.rounds = min(self.best, risk if math.isfinite(risk) else math.inf), round_.index
        if round_.index in ROUNDS:
            self.risks[round_.index] = self.best
            self.pruned = self.best > self.limits.get(round_.index, math.inf)
        return self.pruned


def limits(earlier: Sequence[tuple[Mapping[int, float], float | None]], rounds: int) -> dict[int, float]:
    """With what risk a fit goes on, by rung: it has to be among the best third of earlier ones there.

    Parameters
    ----------
    earlier : of each earlier trial the risks at its rungs, and the risk with which it ended by itself (which
        it has at all later rungs, too), or None.
    rounds : that the model's own settings took.
    """
    found = {}
    for rung in ROUNDS:
        if rung * EARLIEST < rounds:
            continue
        there = [risks.get(rung, end) for risks, end in earlier]
        risks = sorted(risk for risk in there if risk is not None)
        if len(risks) >= SHARE:
            found[rung] = risks[-(-len(risks) // SHARE) - 1]
    return found

"""What a fit measured round by round, small enough for a card."""

from __future__ import annotations

from typing import Any

import numpy as np

MOST = 200
"""Rounds kept; of more, evenly spaced ones, the best and the last among them."""

_MEASURED = ("_train", "_val")


def history_of(model: Any) -> dict[str, list[float]]:
    """The rounds of a fit, and what was measured of training and validation rows after each of them.

    Returns
    -------
    ``round``, from 1, and ``risk_train``, ``risk_val``, ``f1_val`` and the like, each as long; a measure that
    some round does not have is left out. Empty where the steps of a fit are settings that were tried, or one.
    """
    rows = list(getattr(model, "history_", []))
    names = [name for name in (rows[0] if rows else ()) if str(name).endswith(_MEASURED)]
    names = [name for name in names if all(np.isfinite(row.get(name, np.nan)) for row in rows)]
    if len(rows) < 2 or not names or any(name in rows[0] for name in ("penalty", "leaf_size")):
        return {}
    kept = np.unique(np.linspace(0, len(rows) - 1, MOST).round().astype(int))
    best = int(getattr(model, "best_round_", len(rows))) - 1
    kept = np.unique([*kept, *([best] if 0 <= best < len(rows) else [])]).astype(int)
    found = {str(name): [float(rows[k][name]) for k in kept] for name in names}
    return {"round": [float(k + 1) for k in kept], **found}

"""What numbers are called in MLflow, whose pages make a section of charts of all that is before a slash."""

from __future__ import annotations

import re
from collections.abc import Mapping

STEPS = {"step_U": "epsilon", "step_S": "delta"}
"""The papers' letters for the steps along the papers' two views."""

_GROUPS = {
    **dict.fromkeys(("step", *STEPS.values(), "gamma", "alpha"), "step"),
    **dict.fromkeys(("f1", "accuracy", "rmse", "mae"), "score"),
    **dict.fromkeys(("fit_error", "error", "r"), "weak_learner"),
    "risk": "risk",
    "seconds": "seconds",
}
_FINAL = re.compile(r"(train|val|test)[/_]")


def key_of(name: str) -> str:
    """A name as MLflow takes it as a key: views may be called anything, "S+U" for one."""
    return re.sub(r"[^\w\-. :/]", "-", name)


def of_round(name: str) -> str:
    """Of a number of a round: ``step/epsilon``, ``risk/train``, ``score/f1_val``, ``seconds/fit_U``.

    A number that no other model has keeps its name.
    """
    for start, group in _GROUPS.items():
        if name == start or name.startswith(f"{start}_"):
            return key_of(f"{group}/{STEPS.get(name, name).removeprefix(f'{group}_')}")
    return key_of(name)


def of_score(split: str, metric: str) -> str:
    """Of a final score: ``test/f1``."""
    return key_of(f"{split}/{metric}")


def scores(metrics: Mapping[str, float]) -> dict[str, float]:
    """A run's final scores as ``test_f1`` and the like; of runs that were logged without groups, too."""
    return {name.replace("/", "_", 1): value for name, value in metrics.items() if _FINAL.match(name)}

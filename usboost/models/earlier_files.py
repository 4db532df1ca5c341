"""Model files of earlier formats, brought to the present one when they are read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from usboost.boosting.rounds import Stage
from usboost.data.frames import frame_name, frame_number


def upgraded(document: dict[str, Any], path: Path) -> dict[str, Any]:
    """A model's document in the present format; any other than format 1 is left as it is.

    Format 1 had what a learner reads in its name ("U+S"), and frames called "frame 1". A document that
    is not as in format 1 is not changed either: the reader reports what is wrong with it.
    """
    settings = document.get("settings")
    if document.get("format") != 1 or not isinstance(settings, dict):
        return document
    parameters = settings.get("parameters")
    learners = parameters.get("learners") if isinstance(parameters, dict) else None
    for name, learner in (learners if isinstance(learners, dict) else {}).items():
        if "+" in name and isinstance(learner, dict) and isinstance(learner.get("parameters"), dict):
            learner["parameters"].setdefault("reads", name.split("+"))
    return {**document, "format": 2, "upgraded_from": 1}


def renamed(stage: Stage) -> Stage:
    """A stage of format 1 with its learners' present names: frames had no leading zeros."""

    def name(old: str) -> str:
        return frame_name(frame_number(old)) if re.fullmatch(r"frame \d+", old) else old

    return Stage(
        {name(key): learner for key, learner in stage.learners.items()},
        {name(key): step for key, step in stage.steps.items()},
    )

"""Model files of earlier formats, brought to the present one when they are read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from usboost.boosting.rounds import Stage
from usboost.data.frames import frame_name, frame_number
from usboost.errors import UsboostError

_SMALL_CNN = {"name": "small_cnn", "pretrained": False, "finetune": "all", "random": True}


def upgraded(document: dict[str, Any], path: Path) -> dict[str, Any]:
    """A model's document in the present format; any other than formats 1 and 2 is left as it is.

    Format 1 had what a learner reads in its name ("U+S"), and frames called "frame 1". In format 2 a
    backbone that is not named was a small CNN, and frozen ones might be random without saying so. A
    document that is not as in these formats is not changed either: the reader reports what is wrong with it.

    Raises
    ------
    UsboostError
        If the model read pictures through random weights that nothing in its settings names.
    """
    settings = document.get("settings")
    if document.get("format") == 1 and isinstance(settings, dict):
        document = _from_1(document, settings)
    if document.get("format") == 2 and isinstance(settings, dict):
        document = _from_2(document, settings, path)
    return document


def _from_1(document: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    parameters = settings.get("parameters")
    learners = parameters.get("learners") if isinstance(parameters, dict) else None
    for name, learner in (learners if isinstance(learners, dict) else {}).items():
        if "+" in name and isinstance(learner, dict) and isinstance(learner.get("parameters"), dict):
            learner["parameters"].setdefault("reads", name.split("+"))
    return {**document, "format": 2, "upgraded_from": 1}


def _from_2(document: dict[str, Any], settings: dict[str, Any], path: Path) -> dict[str, Any]:
    named = False
    for part in _parts(settings):
        parameters = part["parameters"]
        if part["class"] == "Backbone" and "random" not in parameters:
            parameters["random"] = not parameters.get("pretrained")
        elif part["class"] in ("NetworkLearner", "LightGBMBaseline", "TwoBranchNetworkClassifier"):
            named = True
            if parameters.get("backbone") is None:
                parameters["backbone"] = {"class": "Backbone", "parameters": dict(_SMALL_CNN)}
    columns = document.get("columns")
    names = [name for each in columns.values() for name in each] if isinstance(columns, dict) else []
    if not named and any(re.search(r"(^|_)embedding_\d+$", str(name)) for name in names):
        raise UsboostError(
            f"{path} is of a model whose trees read pictures through random weights; train it again"
        )
    return {"upgraded_from": 2, **document, "format": 3}


def _parts(settings: Any) -> Iterator[dict[str, Any]]:
    """The described estimators within a document's settings, itself included."""
    if isinstance(settings, dict):
        if isinstance(settings.get("parameters"), dict) and isinstance(settings.get("class"), str):
            yield settings
        for part in list(settings.values()):
            yield from _parts(part)


def renamed(stage: Stage) -> Stage:
    """A stage of format 1 with its learners' present names: frames had no leading zeros."""

    def name(old: str) -> str:
        return frame_name(frame_number(old)) if re.fullmatch(r"frame \d+", old) else old

    return Stage(
        {name(key): learner for key, learner in stage.learners.items()},
        {name(key): step for key, step in stage.steps.items()},
    )

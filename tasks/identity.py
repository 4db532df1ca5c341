"""What decides a fit's result: its data, its configured model, its seed and the code that it runs."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from tasks import models
from tasks.features import features_folder
from tasks.folders import prepared_folder
from tasks.settings import Settings
from tasks.stages import code_of
from usboost.boosting.checkpoint import described
from usboost.boosting.code import code_digest, digest
from usboost.datasets.prepared import store
from usboost.errors import UsboostError

READER = "usboost.datasets.prepared.store"
"""Reads and encodes what is prepared; of the code that prepared it, the card's digest tells enough."""


def parts(dataset: str, model: str, seed: int, settings: Settings) -> dict[str, Any]:
    """Everything that a fit comes from, as JSON.

    The model's parameters are all that it has of params.yaml, so a setting that does not reach it
    does not change them.

    Raises
    ------
    UsboostError
        If the dataset is not prepared, the model unknown, or BFV+DNN's features are not there.
    """
    card = prepared_folder(dataset) / "card.json"
    if not card.is_file():
        raise UsboostError(f"{card} is missing; run `python -m flows.prepare {dataset}` first")
    built = models.build(model, dataset, settings, seed)
    found: dict[str, Any] = {
        "code": code_digest(built, READER),
        "data": _sha(card),
        "model": described(built),
        "seed": seed,
    }
    weights = settings.pictures.pretrained
    if isinstance(weights, str) and "images" in store.read_card(card.parent):
        if not Path(weights).is_file():
            raise UsboostError(f"{weights}, pictures.pretrained of params.yaml, is missing")
        found["weights"] = _sha(Path(weights))
    if model == "earlyboost":
        found["scored"] = settings.earlyboost.model_dump()
    if model == "bfv_dnn":
        folder = features_folder(dataset) / f"seed-{seed}"
        if not (folder / "gbm").is_dir():
            words = f"python -m flows.features {dataset} --seeds {seed + 1}"
            raise UsboostError(f"{folder} is missing, and bfv_dnn needs it; run `{words}` first")
        files = [folder / "scores.json", *sorted((folder / "gbm").iterdir())]
        found["features"] = [_sha(file) for file in files]
    return found


def fingerprint(dataset: str, model: str, seed: int, settings: Settings) -> str:
    """A digest of `parts` and of how a fit is scored, which its checkpoint does not depend on."""
    scoring = ["tasks.scores", "tasks.cross_validation", *(["tasks.early"] if model == "earlyboost" else [])]
    decided = {**parts(dataset, model, seed, settings), "scoring": digest(code_of(scoring))}
    text = json.dumps(decided, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()

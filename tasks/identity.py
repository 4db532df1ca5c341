"""A fit before it begins: its model, built once, and what decides its result: data, settings, seed, code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tasks import models, page
from tasks.features import features_folder
from tasks.folders import prepared_folder
from tasks.settings import Settings
from tasks.stages import code_of
from usboost.boosting.checkpoint import described
from usboost.boosting.code import code_digest, digest
from usboost.datasets.prepared import store
from usboost.errors import UsboostError
from usboost.evaluation.task import TASKS, Task
from usboost.models.earlyboost import EarlyBoostClassifier
from usboost.models.entry import Entry
from usboost.models.estimator import ViewsEstimator

READER = "usboost.datasets.prepared.store"
"""Reads and encodes what is prepared; the code that prepared it is covered by the card's digest."""

READERS_OF_A_TABLE = ("usboost.datasets.custom.read_prepared", "usboost.multimodal.fit_built")
"""Read a person's table and fit it."""


@dataclass(frozen=True)
class Planned:
    """A fit that is about to begin.

    Attributes
    ----------
    entry : what the model is.
    task : what it predicts.
    estimator : the model, unfitted.
    identity : everything that the fit comes from, as JSON.
    """

    dataset: str
    model: str
    seed: int
    settings: Settings
    entry: Entry
    task: Task
    estimator: ViewsEstimator
    identity: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.dataset} {self.model} seed {self.seed}"

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the identity and of how a fit is scored, which its checkpoint does not depend on."""
        scoring = ["tasks.scores", "tasks.cross_validation"]
        if isinstance(self.estimator, EarlyBoostClassifier):
            scoring.append("tasks.early")
        decided = {**self.identity, "scoring": digest(code_of(scoring))}
        return hashlib.sha256(json.dumps(decided, sort_keys=True).encode()).hexdigest()


def plan(dataset: str, model: str, seed: int, settings: Settings) -> Planned:
    """Build a model for a prepared dataset, and say what decides its fit's result.

    Raises
    ------
    UsboostError
        If the dataset is not prepared, the model unknown or not for the dataset's task, or BFV+DNN's features
        are not there.
    """
    entry = models.entry_of(model, dataset, settings)
    require_inputs(dataset, entry, [seed])
    task = task_of(dataset)
    estimator = models.build(model, dataset, settings, seed, task.name)
    identity = parts(dataset, entry, estimator, seed, settings)
    return Planned(dataset, model, seed, settings, entry, task, estimator, identity)


def task_of(dataset: str) -> Task:
    """What is predicted of a prepared dataset.

    Raises
    ------
    UsboostError
        If it is not prepared.
    """
    return TASKS[store.task_of(store.read_card(_prepared(dataset)))]


def of_task(dataset: str, names: Sequence[str], settings: Settings) -> list[str]:
    """Those of the models that are for the dataset's task; the others are named on the flow run's page."""
    task = task_of(dataset).name
    left_out = [name for name in names if task not in settings.model(name).tasks]
    if left_out:
        words = f"{dataset} is a {task}, which these models are not for: {', '.join(left_out)}; left out"
        print(words)
        page.say(words)
    return [name for name in names if name not in left_out]


def require_inputs(dataset: str, entry: Entry, seeds: Sequence[int]) -> None:
    """Check that what fits of a model read has been made.

    They do not make it themselves: what `dvc repro` makes has a digest in dvc.lock, by which a champion's
    data are known, and a GPU does not wait for a download.

    Raises
    ------
    UsboostError
        If the dataset is not prepared, or BFV+DNN's features are not there.
    """
    _prepared(dataset)
    for seed in seeds if entry.needs_features and dataset != models.OWN else ():
        folder = features_folder(dataset) / f"seed-{seed}"
        if not (folder / "gbm").is_dir():
            words = f"python -m flows.features {dataset} --seeds {max(seeds) + 1}"
            raise UsboostError(f"{folder} is missing, and {entry.name} needs it; run `{words}` first")


def _prepared(dataset: str) -> Path:
    card = prepared_folder(dataset) / "card.json"
    if not card.is_file():
        raise UsboostError(
            f"{card} is missing; run `python -m flows.prepare {dataset}` or the deployment "
            "prepare/prepare-dataset first"
        )
    return card.parent


def parts(
    dataset: str, entry: Entry, estimator: ViewsEstimator, seed: int, settings: Settings
) -> dict[str, Any]:
    """Everything that a fit comes from, as JSON.

    The model's parameters are all that it has of params.yaml, so a setting that does not reach it
    does not change them.

    Raises
    ------
    UsboostError
        If BFV+DNN's features, or the weights that params.yaml names, are not there.
    """
    card = prepared_folder(dataset) / "card.json"
    found: dict[str, Any] = {
        "code": code_digest(estimator, *(READERS_OF_A_TABLE if dataset == models.OWN else (READER,))),
        "data": _sha(card),
        "model": described(estimator),
        "seed": seed,
    }
    weights = settings.pictures.pretrained
    if isinstance(weights, str) and "images" in store.read_card(card.parent):
        if not Path(weights).is_file():
            raise UsboostError(f"{weights}, pictures.pretrained of params.yaml, is missing")
        found["weights"] = _sha(Path(weights))
    if isinstance(estimator, EarlyBoostClassifier):
        found["scored"] = settings.earlyboost.model_dump()
    if entry.needs_features:
        require_inputs(dataset, entry, [seed])
        folder = features_folder(dataset) / f"seed-{seed}"
        files = [folder / "scores.json", *sorted((folder / "gbm").iterdir())]
        found["features"] = [_sha(file) for file in files]
    return found


def _sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()

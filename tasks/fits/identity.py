"""A fit before it begins: its model, built once, and what decides its result: data, settings, seed, code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tasks.code import code_of, digest_of, sha
from tasks.fits import features, models
from tasks.folders import prepared_folder
from tasks.pages import flow_page as page
from tasks.prepared import task_of
from tasks.settings import Settings
from usboost.boosting.checkpoint import described
from usboost.boosting.code import code_digest, digest
from usboost.datasets import store
from usboost.errors import UsboostError
from usboost.evaluation.task import Task
from usboost.models.entry import Entry
from usboost.models.estimator import ViewsEstimator
from usboost.models.methods.earlyboost import EarlyBoostClassifier

READER = "usboost.datasets.store"
"""Reads and encodes what is prepared; the code that prepared it is covered by the card's digest."""

READERS_OF_A_TABLE = ("usboost.table.prepared", "usboost.fit.table_fit")
"""Read a user's table and fit it."""


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
        folds = store.read_card(prepared_folder(self.dataset)).get("folds")
        scoring = ["tasks.fits.cross_validation" if folds else "tasks.fits.scores"]
        if isinstance(self.estimator, EarlyBoostClassifier):
            scoring.append("tasks.fits.early")
        return digest_of({**self.identity, "scoring": digest(code_of(scoring))})


def plan(dataset: str, model: str, seed: int, settings: Settings) -> Planned:
    """Build a model for a prepared dataset, and say what decides its fit's result.

    Raises `UsboostError` if the dataset is not prepared, or the model is unknown or not for the dataset's
    task.
    """
    entry = models.entry_of(model, dataset, settings)
    task = task_of(dataset)
    estimator = models.build(model, dataset, settings, seed, task.name)
    identity = parts(dataset, entry, estimator, seed, settings)
    return Planned(dataset, model, seed, settings, entry, task, estimator, identity)


def of_task(dataset: str, names: Sequence[str], settings: Settings) -> list[str]:
    """Those of the models that are for the dataset's task; the others are named on the flow run's page."""
    task = task_of(dataset).name
    left_out = [name for name in names if task not in settings.model(name).tasks]
    if left_out:
        words = f"{dataset} is a {task}, which these models are not for: {', '.join(left_out)}; left out"
        print(words)
        page.say(words)
    return [name for name in names if name not in left_out]


def parts(
    dataset: str, entry: Entry, estimator: ViewsEstimator, seed: int, settings: Settings
) -> dict[str, Any]:
    """Everything that a fit comes from, as JSON.

    The model's parameters are all that it has of params.yaml, so a setting that does not reach it
    does not change them.

    Raises `UsboostError` if the weights that params.yaml names are not there.
    """
    card = prepared_folder(dataset) / "card.json"
    found: dict[str, Any] = {
        "code": code_digest(estimator, *(READERS_OF_A_TABLE if dataset == models.USER_TABLE else (READER,))),
        "data": sha(card),
        "model": described(estimator),
        "seed": seed,
    }
    weights = settings.images.pretrained
    if isinstance(weights, str) and "images" in store.read_card(card.parent):
        if not Path(weights).is_file():
            raise UsboostError(f"{weights}, images.pretrained of params.yaml, is missing")
        found["weights"] = sha(Path(weights))
    if isinstance(estimator, EarlyBoostClassifier):
        found["scored"] = settings.earlyboost.model_dump()
    if entry.needs_features:
        found["features"] = features_fingerprint(dataset, seed, settings)
    return found


def features_fingerprint(dataset: str, seed: int, settings: Settings) -> str:
    """A digest of everything that decides boosted feature vectors: data, GBM, seed and code."""
    learner = features.learner(dataset, seed, settings)
    chosen = settings.features
    return digest_of(
        {
            "code": [code_digest(learner, READER), digest(code_of(["tasks.fits.features"]))],
            "data": sha(prepared_folder(dataset) / "card.json"),
            "model": described(learner),
            "folds": chosen.folds if chosen.out_of_fold else None,
            "seed": seed,
        }
    )

"""A cell, one fit of a dataset, before it begins: its model, and all that decides its result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tasks.fits import features, models
from tasks.folders import RESULTS, code_of, prepared_folder, task_of
from tasks.pages import flow_page as page
from tasks.settings import Settings
from usboost.boosting.checkpoint import described
from usboost.boosting.code import code_digest, digest
from usboost.datasets import store
from usboost.datasets.sources import sha256
from usboost.errors import UsboostError
from usboost.evaluation.task import Task
from usboost.files.arrays import key_of
from usboost.models.entry import Entry
from usboost.models.estimator import ViewsEstimator
from usboost.models.methods.earlyboost import EarlyBoostClassifier

READER, READERS_OF_A_TABLE = "usboost.datasets.store", ("usboost.table.prepared", "usboost.fit.table_fit")
"""Read what is prepared, encode or fit it; the code that prepared it is covered by the card's digest."""


@dataclass(frozen=True)
class Cell:
    """One fit of a dataset: a model and a seed.

    Attributes
    ----------
    fingerprint : a digest of everything that decides its result; equal cells have equal ones.
    entry : what the model is; task : what it predicts; estimator : the model, unfitted.
    identity : everything that the fit comes from, as JSON, but not how it is scored.
    """

    dataset: str
    model: str
    seed: int
    fingerprint: str
    settings: Settings = field(compare=False, repr=False)
    entry: Entry = field(compare=False, repr=False)
    task: Task = field(compare=False, repr=False)
    estimator: ViewsEstimator = field(compare=False, repr=False)
    identity: dict[str, Any] = field(compare=False, repr=False)

    @property
    def name(self) -> str:
        return f"{self.dataset}/{self.model}/seed-{self.seed}"

    @property
    def title(self) -> str:
        """The name of its MLflow run and on pages."""
        return f"{self.dataset} {self.model} seed {self.seed}"

    @property
    def results(self) -> Path:
        """The folder of its record, see `tasks.fits.results`."""
        return RESULTS / self.name

    @property
    def checkpoint(self) -> Path:
        """The folder of its rounds until its record is written: no output of a stage, so DVC leaves it."""
        return Path("data/checkpoints") / self.name


def devices(description: Any) -> set[str]:
    """Return the devices that a described model names; none for trees alone."""
    if not isinstance(description, Mapping):
        return set()
    named = {value.strip("'") for key, value in description.items() if key == "device"}
    return named.union(*(devices(value) for value in description.values()))


def plan(dataset: str, model: str, seed: int, settings: Settings) -> Cell:
    """Build a model for a prepared dataset, and gather what decides its fit's result.

    The model's parameters are all that it has of params.yaml, so a setting that does not reach it does not
    change its fingerprint.

    Raises `UsboostError` if the dataset is not prepared, the model is unknown or not for the dataset's task,
    or the weights that params.yaml names are not there.
    """
    entry, task = models.entry_of(model, dataset, settings), task_of(dataset)
    estimator = models.build(model, dataset, settings, seed, task.name)
    path = prepared_folder(dataset) / "card.json"
    card = store.read_card(path.parent)
    readers = READERS_OF_A_TABLE if dataset == models.USER_TABLE else (READER,)
    found: dict[str, Any] = {"code": code_digest(estimator, *readers), "data": sha256(path)}
    found |= {"model": described(estimator), "seed": seed}
    weights = settings.images.pretrained
    if isinstance(weights, str) and "images" in card:
        if not Path(weights).is_file():
            raise UsboostError(f"{weights}, images.pretrained of params.yaml, is missing")
        found["weights"] = sha256(Path(weights))
    scoring = ["tasks.fits.cross_validation" if card.get("folds") else "tasks.fits.scores"]
    if isinstance(estimator, EarlyBoostClassifier):
        found["scored"] = settings.earlyboost.model_dump()
        scoring.append("tasks.fits.early")
    if entry.needs_features:
        found["features"] = features_fingerprint(dataset, seed, settings)
    fingerprint = key_of({**found, "scoring": digest(code_of(scoring))})
    return Cell(dataset, model, seed, fingerprint, settings, entry, task, estimator, found)


def grid(dataset: str, chosen: Sequence[str], seeds: int, settings: Settings) -> list[Cell]:
    """Plan every fit of a dataset by some models with the seeds 0 to `seeds` − 1.

    Raises `UsboostError` if the dataset is not prepared, or a model unknown.
    """
    return [plan(dataset, model, seed, settings) for model in dict.fromkeys(chosen) for seed in range(seeds)]


def of_task(dataset: str, names: Sequence[str], settings: Settings) -> list[str]:
    """Return the models that are for the dataset's task; the others are named on the flow run's page."""
    task = task_of(dataset).name
    if left_out := [name for name in names if task not in settings.model(name).tasks]:
        words = f"{dataset} is a {task}, which these models are not for: {', '.join(left_out)}; left out"
        print(words)
        page.log(words)
    return [name for name in names if name not in left_out]


def features_fingerprint(dataset: str, seed: int, settings: Settings) -> str:
    """Digest everything that decides boosted feature vectors: data, GBM, seed and code."""
    learner, chosen = features.learner(dataset, seed, settings), settings.features
    decided = {
        "code": [code_digest(learner, READER), digest(code_of(["tasks.fits.features"]))],
        "data": sha256(prepared_folder(dataset) / "card.json"),
        "model": described(learner),
        "folds": chosen.folds if chosen.out_of_fold else None,
        "seed": seed,
    }
    return key_of(decided)

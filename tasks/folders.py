"""Where each step's outputs lie in a workspace, the code that decides them, and what is predicted."""

from collections.abc import Iterable
from pathlib import Path

from usboost.boosting.code import PACKAGE, closure
from usboost.datasets import store
from usboost.errors import UsboostError
from usboost.evaluation.task import TASKS, Task

RESULTS = Path("data/results")  # a folder for each dataset, in it one for each model, in it one for each seed
REPORTS = Path("reports")  # of all datasets: tables, pages, figures, and the curves that `dvc plots` draws


def raw_folder(dataset: str) -> Path:
    return Path("data/raw") / dataset


def prepared_folder(dataset: str) -> Path:
    return Path("data/prepared") / dataset


def work_folder(dataset: str) -> Path:
    """Return the place of a preparation that has not ended, and of locks: no output of a stage."""
    return Path("data/work") / dataset


def features_folder(dataset: str, seed: int) -> Path:
    """Return the place of boosted feature vectors and their GBM: no output of a stage."""
    return Path("data/features") / dataset / f"seed-{seed}"


def tuning_folder(dataset: str) -> Path:
    """Return the place of searches: no output of a stage; params.yaml gets what they choose."""
    return Path("data/tuning") / dataset


def task_of(dataset: str) -> Task:
    """Return what is predicted of a prepared dataset. Raises `UsboostError` if it is not prepared."""
    card = prepared_folder(dataset) / "card.json"
    if not card.is_file():
        raise UsboostError(
            f"{card} is missing; run `python -m flows.data {dataset}` or the deployment data/data first"
        )
    return TASKS[store.task_of(store.read_card(card.parent))]


NOT_DECIDING = (
    *("tasks.folders", "tasks.fits.cell", "tasks.fits.models", "tasks.fits.results", "tasks.pages.flow_page"),
    *("tasks.machine", "tasks.settings", "tasks.tracking", "usboost.models.build"),
)
"""Modules that decide no number: what they give to a step is in its fingerprint, or nowhere."""


def code_of(modules: Iterable[str]) -> dict[str, Path]:
    """Return the modules, of `tasks` or the library, that decide what these do, with their source files."""
    return closure(modules, [Path(__file__).parent, PACKAGE], NOT_DECIDING)

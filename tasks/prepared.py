"""What a fit and the report ask of a prepared dataset; nothing here loads what trains."""

from __future__ import annotations

from pathlib import Path

from tasks.folders import prepared_folder
from usboost.datasets import store
from usboost.errors import UsboostError
from usboost.evaluation.task import TASKS, Task


def task_of(dataset: str) -> Task:
    """What is predicted of a prepared dataset. Raises `UsboostError` if it is not prepared."""
    return TASKS[store.task_of(store.read_card(require_prepared(dataset)))]


def require_prepared(dataset: str) -> Path:
    """The folder of a prepared dataset. Raises `UsboostError` if it is not prepared."""
    card = prepared_folder(dataset) / "card.json"
    if not card.is_file():
        raise UsboostError(
            f"{card} is missing; run `python -m flows.data {dataset}` or the deployment data/data first"
        )
    return card.parent

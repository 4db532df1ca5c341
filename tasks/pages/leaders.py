"""The best fit of each dataset, in a line for the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tasks.fits import results
from tasks.fits.identity import task_of
from tasks.folders import prepared_folder
from tasks.settings import Settings
from usboost.evaluation import selection
from usboost.evaluation.names import metric_name, number
from usboost.models.catalogue import catalogue
from usboost.reporting.results import dataset_name

SHOWN = {"classification": ("f1", "log_loss"), "regression": ("rmse", "r2")}


def lines(settings: Settings) -> Iterator[str]:
    """Of each dataset of the run that has results: its best model by the validation rows, and its scores.

    A dataset that is cross-validated has no validation rows; there the folds' mean decides, and is said to.
    """
    for dataset in settings.run.datasets:
        if not (prepared_folder(dataset) / "card.json").is_file():
            continue
        task = task_of(dataset)
        fits = [
            (name, record)
            for name in settings.models_of(dataset)
            for record in results.records(dataset, name)
        ]
        best = selection.best(((each, _chosen_by(each[1])) for each in fits), task.chooses)
        if best is not None:
            name, record = best
            test = record["scores"]["test"]
            scores = ", ".join(f"{metric_name(m)} {number(test[m])}" for m in SHOWN[task.name] if m in test)
            how = "on test rows" if "val" in record["scores"] else "mean of the folds"
            models = len({model for model, _ in fits})
            said = (
                f"best of {models} models is {catalogue.title(name)}" if models > 1 else catalogue.title(name)
            )
            yield f"{dataset_name(dataset):<15} {said}: {scores} ({how})"


def _chosen_by(record: dict[str, Any]) -> dict[str, float]:
    scores: dict[str, dict[str, float]] = record["scores"]
    return scores.get("val", scores["test"])

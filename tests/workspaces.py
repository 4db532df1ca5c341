"""What a step of the pipeline finds: cards of prepared datasets, a store of MLflow's runs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import mlflow

from usboost.datasets.store import FORMAT


def with_cards(folder: Path, *datasets: str) -> Path:
    """The folder, with the cards of prepared datasets that have no columns."""
    for dataset in datasets:
        (place := folder / "data/prepared" / dataset).mkdir(parents=True)
        card = {"format": FORMAT, "profile": "demo", "splits": {}, "views": {}, "encoders": {}}
        (place / "card.json").write_text(json.dumps({**card, "dataset": dataset}))
    return folder


@contextmanager
def mlflow_store(folder: Path) -> Iterator[None]:
    """Runs go to the database of a folder."""
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    try:
        yield
    finally:
        mlflow.set_tracking_uri(before)

"""A model that `usboost fit` saved, in MLflow's registry: what is served, whoever fitted it."""

from __future__ import annotations

from pathlib import Path

import mlflow
from mlflow.tracking import MlflowClient

from tasks import tracking
from tasks.serving.promotion import ALIAS
from tasks.tracking.names import of_score
from usboost.errors import UsboostError
from usboost.models.catalogue import catalogue
from usboost.multimodal.fit import bundle as bundles


def register(folder: Path, name: str) -> str:
    """Log a saved model as an MLflow run, register it and give it the alias; its URI.

    Parameters
    ----------
    folder : that `usboost fit` or `save` wrote.
    name : of the registered model; a new version is added to one that is there.

    Raises
    ------
    UsboostError
        If there is no model in the folder, or MLflow does not take the name.
    """
    if not name or set(name) & set("/:"):
        raise UsboostError(f"{name!r} is no name for a model in MLflow; use letters, digits, - and _")
    card = bundles.load(folder).card
    tags = {"model": card.model, "table": card.table, "title": catalogue.title(card.model), "task": card.task}
    tags |= {"seed": str(card.seed), **({"input.table": f"sha256:{card.sha256}"} if card.sha256 else {})}
    with tracking.tracked_run(f"usboost-{name}", f"{card.table} {card.model}", tags) as run_id:
        for key, value in card.scores.items():
            if value is not None:
                MlflowClient().log_metric(run_id, of_score("val", key), value)
        uri = tracking.log_model(run_id, folder, card, None, name, tags)
    version = mlflow.register_model(uri, name, tags=tags)
    MlflowClient().set_registered_model_alias(name, ALIAS, version.version)
    return f"models:/{name}@{ALIAS}"

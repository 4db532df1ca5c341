"""Which fitted model a dataset's users get: the registry's alias, moved to what is better, or by hand."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import mlflow
from mlflow.entities import Run
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from tasks import tracking
from tasks.folders import prepared_folder, task_of
from tasks.pages import mlflow_pages
from tasks.serving.logged_model import describe_version, log_model
from usboost.datasets import store
from usboost.errors import UsboostError
from usboost.evaluation import ranking
from usboost.evaluation.ranking import check_metric, number
from usboost.fit import bundle as bundles
from usboost.fit.card import Card
from usboost.models import catalogue

ALIAS = "champion"


@dataclass(frozen=True)
class Decision:
    """The outcome of `promote`: the registered model, whether the alias moved, and why in a sentence."""

    name: str
    promoted: bool
    reason: str

    @property
    def uri(self) -> str:
        """Return what `mlflow models serve --model-uri` takes."""
        return f"models:/{self.name}@{ALIAS}"


def registered_name(dataset: str) -> str:
    return f"usboost-{store.read_card(prepared_folder(dataset))['profile']}-{dataset}"


def promote(dataset: str, model: str, metric: str) -> Decision:
    """Register the best fit of a dataset and give it the alias, if it beats the model that has it.

    The best is the finished run with the best validation score, as in the report
    (`usboost.evaluation.ranking`). Candidate and alias holder are compared by their validation scores, too,
    so that the test split, which no choice has seen, says how good the champion is.

    Raises `UsboostError` if the metric is none of the task, or there is no finished run on the current data.

    Parameters
    ----------
    model : only fits of this model are candidates; "" for all
    metric : one of `names.METRICS_OF` the dataset's task, or as scikit-learn names it; "auto": F1, or RMSE of
        a number
    """
    task = task_of(dataset)
    metric = task.chooses if metric == "auto" else check_metric(metric, task.metrics)
    data = mlflow_pages.digest(prepared_folder(dataset))
    fits = _candidates(dataset, model, metric, data)
    scored = [(run, scores_of(mlflow_pages.scores(run.data.metrics), "val")) for run in fits]
    candidate = ranking.best(scored, metric)
    if candidate is None:
        raise UsboostError(
            f"no fit of {dataset} has a {metric} on the validation split; choose another with --metric"
        )
    name, scores = registered_name(dataset), mlflow_pages.scores(candidate.data.metrics)
    holder: ModelVersion | None = None
    with suppress(MlflowException):  # there is no such model, or alias
        holder = MlflowClient().get_model_version_by_alias(name, ALIAS)
    outcome = (
        f"{candidate.info.run_name}: {metric} {number(scores[f'val_{metric}'])} on the validation split, "
        f"{number(scores[f'test_{metric}'])} on the test split"
    )
    tied = {run.data.tags["model"] for run in ranking.tied(scored, metric)}
    card = store.read_card(prepared_folder(dataset))
    notes = (
        ranking.tie_note(len(tied), metric, scores[f"val_{metric}"]),
        ranking.probability_note(scores_of(scores, "val"), scores_of(scores, "test"), card),
    )
    noted = "".join(f". {note.removesuffix('.')}" for note in notes if note)
    if holder is not None and holder.run_id == candidate.info.run_id:
        return Decision(name, False, f"{outcome}; it is the {ALIAS} already{noted}")
    if holder is not None and holder.tags.get("data") == data:
        earlier = scores_of({key: float(holder.tags[key]) for key in holder.tags if key in scores}, "val")
        if metric in earlier:
            against = f"version {holder.version} ({number(earlier[metric])} on the validation split)"
            if ranking.best([("old", earlier), ("new", scores_of(scores, "val"))], metric) == "old":
                return Decision(name, False, f"{outcome}, not better than {against}, which stays the {ALIAS}")
            outcome += f", better than {against}"
    elif holder is not None:
        outcome += f"; version {holder.version} was scored on other data"
    tags = {key: f"{value:.17g}" for key, value in scores.items() if key.startswith(("val_", "test_"))}
    tags |= {
        key: candidate.data.tags[key] for key in ("dataset", "model", "seed") if key in candidate.data.tags
    }
    model_id = candidate.outputs.model_outputs[0].model_id  # type: ignore[union-attr]
    version = mlflow.register_model(f"models:/{model_id}", name, tags={**tags, "data": data})
    MlflowClient().set_registered_model_alias(name, ALIAS, version.version)
    describe_version(version, candidate, dataset, ALIAS, outcome + noted)
    return Decision(name, True, f"{outcome}; version {version.version} is the {ALIAS} now{noted}")


def scores_of(metrics: Mapping[str, float], split: str) -> dict[str, float]:
    """Return the scores of one split by metric, of those that MLflow has as ``val_f1`` and the like."""
    start = f"{split}_"
    return {name.removeprefix(start): value for name, value in metrics.items() if name.startswith(start)}


def _candidates(dataset: str, model: str, metric: str, data: str) -> list[Run]:
    profile = store.read_card(prepared_folder(dataset))["profile"]
    wanted = f"attributes.status = 'FINISHED' and tags.dataset = '{dataset}'"
    wanted += f" and tags.model = '{model}'" if model else ""
    found = mlflow.search_runs(
        experiment_names=[f"usboost-{profile}"], filter_string=wanted, output_format="list"
    )
    usable = [
        run
        for run in found
        if run.data.tags.get("input.prepared") == data
        and run.data.tags.get(tracking.SUPERSEDED) != "true"
        and {f"val_{metric}", f"test_{metric}"} <= set(mlflow_pages.scores(run.data.metrics))
        and run.outputs
        and run.outputs.model_outputs
    ]
    if not usable:
        what = f"{model} on {dataset}" if model else dataset
        raise UsboostError(
            f"MLflow has no finished run of {what} on the current data; "
            f"run `python -m flows.fit {dataset}` first"
        )
    order = catalogue.ordered(run.data.tags["model"] for run in usable)
    # the tables' order, in which the report takes the first of those that are level
    return sorted(usable, key=lambda run: (order.index(run.data.tags["model"]), int(run.data.tags["seed"])))


def register(folder: Path, name: str) -> str:
    """Log a saved model as an MLflow run, register it and give it the alias; its URI.

    Raises `UsboostError` if there is no model in the folder, or MLflow does not take the name.

    Parameters
    ----------
    folder : that `usboost fit` or `save` wrote.
    name : of the registered model; a new version is added to one that is there.
    """
    if not name or set(name) & set("/:"):
        raise UsboostError(f"{name!r} is no name for a model in MLflow; use letters, digits, - and _")
    card = bundles.load(folder).card
    tags = {"model": card.model, "table": card.table, "title": catalogue.title(card.model), "task": card.task}
    tags |= {"seed": str(card.seed), **({"input.table": f"sha256:{card.sha256}"} if card.sha256 else {})}
    with tracking.tracked_run(f"usboost-{name}", f"{card.table} {card.model}", tags) as run_id:
        uri = log_bundle(run_id, folder, card, name, tags)
    version = mlflow.register_model(uri, name, tags=tags)
    MlflowClient().set_registered_model_alias(name, ALIAS, version.version)
    return f"models:/{name}@{ALIAS}"


def log_bundle(run_id: str, folder: Path, card: Card, name: str, tags: Mapping[str, str]) -> str:
    """Log a saved model, and its scores on the validation rows; its URI."""
    for key, value in card.scores.items():
        if value is not None:
            MlflowClient().log_metric(run_id, mlflow_pages.of_score("val", key), value)
    return log_model(run_id, folder, card, None, name, tags)

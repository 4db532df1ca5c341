"""Register fitted models in MLflow, promote the best one, and compare the requests that it gets with its
training rows."""

import tempfile
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
from mlflow import MlflowClient, MlflowException
from mlflow.entities import Run
from mlflow.entities.model_registry import ModelVersion
from mlflow.utils.mlflow_tags import MLFLOW_RUN_NOTE

from tasks import mlflow_log, mlflow_runs
from tasks.folders import prepared_folder, task_of
from usboost.datasets import image_store, store
from usboost.errors import UsboostError
from usboost.evaluation import ranking
from usboost.evaluation.ranking import check_metric, number
from usboost.fit import bundle as bundles
from usboost.fit import drift
from usboost.fit.card import Card
from usboost.models import catalogue
from usboost.table.files import digest

ALIAS = "champion"


def registered_name(dataset: str) -> str:
    return f"usboost-{store.read_card(prepared_folder(dataset))['profile']}-{dataset}"


def champion(dataset: str) -> ModelVersion | None:
    """Return the version of a dataset's registered model that has the alias, if there is one."""
    try:
        return MlflowClient().get_model_version_by_alias(registered_name(dataset), ALIAS)
    except MlflowException as error:
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            return None
        raise


@mlflow_runs.one_sentence()
def promote(dataset: str, model: str, metric: str) -> tuple[bool, str]:
    """Register the best fit of a dataset and give it the alias, if it beats the model that has it.

    Returns whether the alias moved, and why in a sentence.

    The best is the finished run with the best validation score, as in the report
    (`usboost.evaluation.ranking`). Candidate and alias holder are compared by their validation scores, too,
    so that the test split, which no choice has seen, says how good the champion is.

    Raises `UsboostError` if the metric is none of the task, or there is no finished run on the current data.

    Parameters
    ----------
    model : only fits of this model are candidates; "" for all
    metric : of the dataset's task, one of `METRICS_OF`, or as scikit-learn names it; "auto": F1, or RMSE of a
        number
    """
    task = task_of(dataset)
    metric = task.chooses if metric == "auto" else check_metric(metric, task.metrics)
    data = mlflow_runs.digest(prepared_folder(dataset))
    wanted = "attributes.status = 'FINISHED'" + (f" and tags.model = '{model}'" if model else "")
    fits = [
        run
        for run in mlflow_runs.runs_of(dataset, wanted)
        if run.data.tags.get("input.prepared") == data
        and all(metric in scores_of(run, split) for split in ("val", "test"))
        and run.outputs
        and run.outputs.model_outputs
    ]
    if not fits:
        what = f"{model} on {dataset}" if model else dataset
        raise UsboostError(
            f"MLflow has no finished run of {what} on the current data; "
            f"run `python -m flows.fit {dataset}` first"
        )
    order = catalogue.ordered(run.data.tags["model"] for run in fits)
    # the tables' order, in which the report takes the first of those that are level
    fits.sort(key=lambda run: (order.index(run.data.tags["model"]), int(run.data.tags["seed"])))
    validated = [(run, scores_of(run, "val")) for run in fits]
    if (candidate := ranking.best(validated, metric)) is None:
        raise UsboostError(
            f"no fit of {dataset} has a {metric} on the validation split; choose another with --metric"
        )
    name, card = registered_name(dataset), store.read_card(prepared_folder(dataset))
    val, test = scores_of(candidate, "val"), scores_of(candidate, "test")
    outcome = (
        f"{candidate.info.run_name}: {metric} {number(val[metric])} on the validation split, "
        f"{number(test[metric])} on the test split"
    )
    tied = {run.data.tags["model"] for run in ranking.tied(validated, metric)}
    notes = ranking.tie_note(len(tied), metric, val[metric]), ranking.probability_note(val, test, card)
    noted = "".join(f". {note.removesuffix('.')}" for note in notes if note)
    holder = champion(dataset)
    if holder is not None and holder.run_id == candidate.info.run_id:
        return (False, f"{outcome}; it is the {ALIAS} already{noted}")
    if holder is not None and holder.tags.get("data") == data:
        earlier = {key: float(holder.tags[f"val_{key}"]) for key in val if f"val_{key}" in holder.tags}
        if metric in earlier:
            against = f"version {holder.version} ({number(earlier[metric])} on the validation split)"
            if ranking.best([("old", earlier), ("new", val)], metric) == "old":
                return (False, f"{outcome}, not better than {against}, which stays the {ALIAS}")
            outcome += f", better than {against}"
    elif holder is not None:
        outcome += f"; version {holder.version} was scored on other data"
    tags = {key: candidate.data.tags[key] for key in ("dataset", "model", "seed")}
    for split, scores in (("val", val), ("test", test)):
        tags |= {f"{split}_{key}": f"{value:.17g}" for key, value in scores.items()}
    model_id = candidate.outputs.model_outputs[0].model_id  # type: ignore[union-attr]
    version = mlflow.register_model(f"models:/{model_id}", name, tags={**tags, "data": data})
    client = MlflowClient()
    client.set_registered_model_alias(name, ALIAS, version.version)
    serve = f"mlflow models serve --model-uri models:/{name}@{ALIAS} --env-manager local"
    client.update_registered_model(
        name, f"The best fits of the dataset `{dataset}`. `{ALIAS}` is the one to serve: `{serve}`"
    )
    about = candidate.data.tags.get(MLFLOW_RUN_NOTE, "")
    client.update_model_version(name, version.version, f"{outcome}{noted}.\n\n{about}")
    return (True, f"{outcome}; version {version.version} is the {ALIAS} now{noted}")


def scores_of(run: Run, split: str) -> dict[str, float]:
    """Return the final scores of a run on one split by metric."""
    start = f"{split}/"
    return {name.removeprefix(start): v for name, v in run.data.metrics.items() if name.startswith(start)}


_LONGEST = 200  # characters of a model's name: MLflow's databases, and folders named by it, take 256 bytes


def register(folder: Path, name: str) -> str:
    """Log a saved model as an MLflow run, register it, give it the alias, and return its URI.

    Raises `UsboostError` if there is no model in the folder, or MLflow does not take the name.

    Parameters
    ----------
    folder : that `usboost fit` or `save` wrote.
    name : of the registered model; a new version is added to one that is there.
    """
    if not name or set(name) & set("/:"):
        raise UsboostError(f"{name!r} is no name for a model in MLflow; use letters, digits, - and _")
    if len(name) > _LONGEST:
        raise UsboostError(
            f"the name {name[:20] + '…'!r} of a model has {len(name)} characters; give at most {_LONGEST}"
        )
    card = bundles.load(folder).card
    tags = {"model": card.model, "table": card.table, "title": catalogue.title(card.model), "task": card.task}
    tags |= {"seed": str(card.seed), **({"input.table": f"sha256:{card.sha256}"} if card.sha256 else {})}
    with mlflow_runs.tracked_run(f"usboost-{name}", f"{card.table} {card.model}", tags) as run_id:
        uri = log_bundle(run_id, folder, card, name, tags)
    version = mlflow.register_model(uri, name, tags=tags)
    MlflowClient().set_registered_model_alias(name, ALIAS, version.version)
    return f"models:/{name}@{ALIAS}"


def log_bundle(run_id: str, folder: Path, card: Card, name: str, tags: Mapping[str, str]) -> str:
    """Log a saved model, and its scores on the validation rows; return its URI."""
    scores = {mlflow_log.of_score("val", key): each for key, each in card.scores.items() if each is not None}
    mlflow_log.log_metrics(run_id, (), **scores)
    return mlflow_log.log_model(run_id, folder, card, None, name, tags)


@mlflow_runs.one_sentence()
def compare_requests(
    dataset: str, requests: Path, psi: float, share: float
) -> tuple[ModelVersion, str, pd.DataFrame]:
    """Compare a table of requests with the training rows of a dataset's champion, in an MLflow run.

    Returns the version, the run's id, and what `usboost.fit.drift.compare` does.

    Raises `UsboostError` if there is no champion, it was fitted to other data than those prepared here, or
    the table cannot be compared.
    """
    folder = prepared_folder(dataset)
    prepared = store.read_card(folder)
    name, version = registered_name(dataset), champion(dataset)
    if version is None:
        raise UsboostError(f"MLflow has no {name}@{ALIAS}; run `python -m flows.promote {dataset}` first")
    if version.tags.get("data") != mlflow_runs.digest(folder):
        raise UsboostError(
            f"version {version.version} of {name} was fitted to other data than those in {folder}; "
            "bring that back (`dvc checkout` of its commit), or promote a fit of these data"
        )
    with tempfile.TemporaryDirectory() as folder_:
        uri = f"models:/{version.name}/{version.version}/artifacts/bundle/card.json"
        file = mlflow.artifacts.download_artifacts(uri, dst_path=folder_)
        card = Card.model_validate_json(Path(file).read_bytes())
    images = [] if card.images is None else card.images.columns
    seen = ("train",) if card.rows["val"] else ("train", "val")  # a fit to all rows has no validation rows
    frames = [store.read_frame(folder, split) for split in seen]
    train = bundles.raw_rows(card, pd.concat(frames, ignore_index=True))
    about: dict[str, Any] = prepared.get("images") or {}
    columns_of = zip(*(image_store.parts(split, about) for split in seen), strict=True) if about else ()
    without = {  # rows without an image
        image: sum(shard.get("absent", 0) for part in parts for shard in about["splits"][part]["shards"])
        for image, parts in zip(images, columns_of, strict=True)
    }
    tags = mlflow_runs.lineage({"prepared": folder})
    tags |= {"dataset": dataset, "registered_model": name, "version": str(version.version)}
    with mlflow_runs.tracked_run(f"{name}-monitor", requests.name, tags) as run_id:
        columns = drift.compare(card, train, without, requests, psi=psi, share=share)
        MlflowClient().set_tag(run_id, "requests", f"{requests.name} sha256:{digest(requests)}")
        values = {"drifted_columns": float((columns["drift"] != "").sum()), "columns": float(len(columns))}
        for key in ("psi", "ks", "missing", "unseen"):
            named = (mlflow_log.of_score(key, name) for name in columns["column"])
            values |= zip(named, columns[key].astype(float), strict=True)
        mlflow_log.log_metrics(run_id, (), **{key: each for key, each in values.items() if isfinite(each)})
        mlflow_log.log_parameters(run_id, {"psi_limit": psi, "share_limit": share})
        MlflowClient().log_text(run_id, columns.to_csv(index=False), "drift.csv")
    return version, run_id, columns

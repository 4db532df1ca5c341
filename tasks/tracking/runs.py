"""One MLflow run per dataset × model × seed: begun, resumed, ended, its parameters and scores."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import mlflow
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from mlflow.utils.mlflow_tags import MLFLOW_RUN_NOTE

from tasks.pages import flow_page as page
from tasks.tracking import description
from tasks.tracking import tabs as views
from tasks.tracking.patience import away, retry
from usboost.errors import UsboostError
from usboost.files import write_atomically


def experiment_id(name: str, tasks: Collection[str] = ("classification",)) -> str:
    """The experiment of that name, made if need be; a local store keeps artifacts beside its database."""
    experiment = mlflow.get_experiment_by_name(name)
    if experiment:
        views.keep(experiment.experiment_id, experiment.tags, tasks)
        return str(experiment.experiment_id)
    store = mlflow.get_tracking_uri()
    local = Path(store.removeprefix("sqlite:///")).parent if store.startswith("sqlite:///") else None
    made = mlflow.create_experiment(name, (local / "mlartifacts" / name).as_uri() if local else None)
    views.keep(made, {}, tasks)
    return made


class Superseded(UsboostError):
    """Another run has taken this one's place: its results must not count."""


@contextmanager
def tracked_run(
    experiment: str, name: str, tags: Mapping[str, str], kept: Path | None = None
) -> Iterator[str]:
    """An MLflow run: its id; FAILED with the error's sentence when the block raises.

    Parameters
    ----------
    kept : file, optional
        Where the run's id is written; if it already names a run, that is resumed, with the new tags.
    """
    client = MlflowClient()
    run_id = retry("the run", lambda: _resumed(client, kept, tags))
    if run_id is None:
        of = experiment_id(experiment, [tags.get("task", "classification")])
        run = retry("the run", lambda: client.create_run(of, run_name=name, tags=dict(tags)))
        run_id = str(run.info.run_id)
        if kept is not None:
            document = {"run_id": run_id, "tracking_uri": mlflow.get_tracking_uri()}
            write_atomically(kept, json.dumps(document).encode())
    try:
        yield run_id
        retry("the run's end", lambda: client.set_terminated(run_id, status="FINISHED"))
    except BaseException as error:
        with suppress(MlflowException, OSError):  # it may be MLflow that is away
            client.set_tag(run_id, "error", str(error)[:500] or type(error).__name__)
            killed = isinstance(error, KeyboardInterrupt | Superseded)
            client.set_terminated(run_id, status="KILLED" if killed else "FAILED")
        raise


def _resumed(client: MlflowClient, kept: Path | None, tags: Mapping[str, str]) -> str | None:
    """The run that a file names, RUNNING again; None if there is none, or this MLflow does not know it."""
    run_id = kept_run(kept) if kept else None
    if run_id is None:
        return None
    try:
        run = client.get_run(run_id)
    except MlflowException as error:
        if away(error):
            raise
        return None
    if run.info.lifecycle_stage != "active" or run.data.tags.get("superseded") == "true":
        return None
    client.update_run(run_id, status="RUNNING")
    client.log_batch(run_id, tags=[RunTag(key, value) for key, value in tags.items()])
    if "error" in run.data.tags:
        client.delete_tag(run_id, "error")
    return run_id


def kept_run(kept: Path) -> str | None:
    """The id of the run that a file names; None where it names none of this MLflow."""
    with suppress(OSError, ValueError, KeyError):
        document = json.loads(kept.read_text())
        if document["tracking_uri"] == mlflow.get_tracking_uri():
            return str(document["run_id"])
    return None


def supersede_kept(kept: Path) -> None:
    """Mark the run that a file names as one that does not count: its fit is not resumed."""
    if run_id := kept_run(kept):
        with suppress(OSError, MlflowException):
            MlflowClient().set_tag(run_id, "superseded", "true")
            MlflowClient().set_terminated(run_id, status="KILLED")


@contextmanager
def once(run_id: str, tag: str) -> Iterator[bool]:
    """True in the block the first time for this run and tag, if the block then ends well."""
    client, name = MlflowClient(), f"usboost.{tag}"
    first = retry("the run", lambda: name not in client.get_run(run_id).data.tags)
    yield first
    if first:
        retry("the run", lambda: client.set_tag(run_id, name, "true"))


def log_parameters(run_id: str, parameters: Mapping[str, Any]) -> None:
    """All parameters, nested ones by dotted names."""
    params = [Param(description.key_of(name), str(value)[:500]) for name, value in _flat(parameters)]
    retry("the parameters", lambda: MlflowClient().log_batch(run_id, params=params))


def log_estimator(run_id: str, estimator: Any, **more: Any) -> None:
    """An estimator's parameters, those of estimators inside it included."""
    given = {
        k: v
        for k, v in estimator.get_params(deep=False).items()
        if k not in ("callbacks", "checkpoint", "gbm")
    }
    for name, learner in (given.pop("learners", None) or {}).items():
        given[f"learner_{name}"] = learner
    nested = {k: v.get_params(deep=False) if hasattr(v, "get_params") else v for k, v in given.items()}
    log_parameters(run_id, {**more, **nested})


def _flat(parameters: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in parameters.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def log_scores(
    run_id: str,
    scores: Mapping[str, Mapping[str, float]],
    datasets: Mapping[str, tuple[str, str]] | None = None,
    **more: float,
) -> None:
    """Final scores, for the run, its description and the model that it has logged; the fit's numbers.

    Parameters
    ----------
    datasets : each split's dataset in MLflow, by name and digest
    """
    now = int(time.time() * 1000)
    run = retry("the run", lambda: MlflowClient().get_run(run_id))
    model = run.outputs.model_outputs[0].model_id if run.outputs and run.outputs.model_outputs else None
    metrics = []
    scores = dict(
        sorted(scores.items())
    )  # the page lists metrics as they come: those of test before those of val
    for split, found in scores.items():
        name, digest = (datasets or {}).get(split, (None, None))
        of = {"model_id": model, "dataset_name": name, "dataset_digest": digest, "run_id": run_id}
        metrics += [
            Metric(description.of_score(split, metric), float(value), now, 0, **(of if model else {}))
            for metric, value in found.items()
        ]
    metrics += [Metric(name, float(value), now, 0) for name, value in more.items()]
    note = description.with_scores(run.data.tags.get(MLFLOW_RUN_NOTE, ""), page.scores_in_words(scores))
    retry(
        "the scores",
        lambda: MlflowClient().log_batch(run_id, metrics=metrics, tags=[RunTag(MLFLOW_RUN_NOTE, note)]),
    )

"""Links from the page of a Prefect flow run to MLflow, with what a run comes from."""

from __future__ import annotations

from collections.abc import Mapping

import mlflow
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from tasks import page, tracking


def run_address(run_id: str) -> str | None:
    """Where a browser finds an MLflow run; None while the store is a file that no server shows."""
    store = mlflow.get_tracking_uri()
    if not store.startswith("http"):
        return None
    experiment = MlflowClient().get_run(run_id).info.experiment_id
    return f"{store.rstrip('/')}/#/experiments/{experiment}/runs/{run_id}{tracking.TRAINING_VIEW}"


def link_run(run_id: str, what: str, tags: Mapping[str, str]) -> None:
    """Link an MLflow run, and say what it comes from.

    Parameters
    ----------
    what : the run stands for, e.g. ``ci_a/2wl/seed-0``.
    tags : as `tracking.lineage` gives them.
    """
    if not page.inside_a_run():
        return
    sources = [f"DVC stage `{tags['stage']}`"] if "stage" in tags else []
    sources += [
        f"{name.removeprefix('input.')} `{digest}`"
        for name, digest in tags.items()
        if name.startswith("input.")
    ]
    if "git.commit" in tags:
        sources.append(f"commit `{tags['git.commit'][:10]}`" + " and changes" * (tags["git.dirty"] == "true"))
    origin = ": ".join([f"MLflow run of {what}", *filter(None, [", ".join(sources)])])
    try:
        address = run_address(run_id)
    except (MlflowException, OSError):
        return  # MLflow is away; the fit will say so if it stays away
    name = page.key("mlflow", what)
    if address:
        page.show_link(name, address, f"MLflow run of {what}", origin)
    else:
        page.show_text(name, f"MLflow run `{run_id}`; `make ui` shows it", origin)
    page.say(f"MLflow run {address or run_id}")


def link_version(version: ModelVersion, description: str) -> None:
    """Link a version of a registered model, list its scores, and link the MLflow run that it is of."""
    store, name = mlflow.get_tracking_uri(), version.name
    what = f"{name}, version {version.version}"
    if store.startswith("http"):
        address = f"{store.rstrip('/')}/#/models/{name}/versions/{version.version}"
        page.show_link(page.key("model", name), address, what, description)
    else:
        page.show_text(page.key("model", name), f"{what}; `make ui` shows it", description)
    rows = [{"what": key, "value": value} for key, value in sorted(version.tags.items())]
    page.show_table(page.key("model", name, "tags"), rows, what)
    if version.run_id:
        link_run(version.run_id, what, {})

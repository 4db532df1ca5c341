"""Where a browser finds MLflow's and Prefect's pages, and the links to them on a flow run's page."""

from __future__ import annotations

import os

from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from prefect import artifacts

from tasks.pages import flow_page as page

TRAINING_VIEW = "?workflowType=machine_learning"
"""At the end of an address: MLflow's pages for models, instead of those for language models, which it opens
in a browser that has not chosen yet, whatever the experiment's tags say."""

PREFECT_PAGES = "/v2"
"""Prefect has its pages twice: its root leads to those here, an address without this to the older ones."""


def mlflow() -> str:
    """Return the server that shows runs: the one that keeps the store, else that of `make ui`."""
    store = os.environ.get("MLFLOW_TRACKING_URI", "")
    own = f"http://127.0.0.1:{os.environ.get('USBOOST_MLFLOW_PORT', '5000')}"
    return store.rstrip("/") if store.startswith("http") else own


def run_page(experiment: str, run_id: str) -> str:
    """Return the address of a run's page."""
    return f"{mlflow()}/#/experiments/{experiment}/runs/{run_id}{TRAINING_VIEW}"


def prefect(flow_run_id: str) -> str | None:
    """Return the page of a flow run; None without a server that has pages."""
    from prefect.settings import PREFECT_API_URL, PREFECT_UI_URL
    from prefect.utilities.urls import url_for

    pages = PREFECT_UI_URL.value()
    if pages and pages == (PREFECT_API_URL.value() or "").removesuffix("/api"):
        return f"{pages}{PREFECT_PAGES}/runs/flow-run/{flow_run_id}"
    return url_for("flow-run", obj_id=flow_run_id)  # a user's own setting, or Prefect's cloud


def link_run(run_id: str, what: str) -> None:
    """Link an MLflow run, which says what it comes from, on the page of this flow run.

    Parameters
    ----------
    what : the run stands for, e.g. ``ci_a/2wl/seed-0``.
    """
    if not page.inside_a_run():
        return
    try:
        experiment = MlflowClient().get_run(run_id).info.experiment_id
    except (MlflowException, OSError):
        return  # MLflow is away; the fit will say so
    address = run_page(experiment, run_id)
    _show(address, page.key("mlflow", what), f"MLflow run `{run_id}`", f"MLflow run of {what}")
    page.log(f"MLflow run {address}")


def link_version(version: ModelVersion, description: str) -> None:
    """Link a version of a registered model, list its scores, and link the MLflow run that it is of."""
    name, what = version.name, f"{version.name}, version {version.version}"
    address = f"{mlflow()}/#/models/{name}/versions/{version.version}"
    _show(address, page.key("model", name), what, description)
    rows = [{"what": key, "value": value} for key, value in sorted(version.tags.items())]
    page.show_table(page.key("model", name, "tags"), rows, what)
    if version.run_id:
        link_run(version.run_id, what)


def _show(address: str, key: str, text: str, description: str) -> None:
    """Show a link; of a store that is a file with the command whose server it leads to."""
    command = "" if os.environ.get("MLFLOW_TRACKING_URI", "").startswith("http") else ", once `make ui` runs"
    shown = f"[{text}]({address}){command}"
    page.show(artifacts.create_markdown_artifact, shown, key=key, description=description)

"""Where a browser finds MLflow's and Prefect's pages: the one place that knows."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from typing import NamedTuple

TRAINING_VIEW = "?workflowType=machine_learning"
"""At the end of an address: MLflow's pages for models, instead of those for language models, which it opens
in a browser that has not chosen yet, whatever the experiment's tags say."""

PREFECT_PAGES = "/v2"
"""Prefect has its pages twice: its root leads to those here, an address without this to the older ones."""


class MLflow(NamedTuple):
    """A server with the pages of a run.

    Attributes
    ----------
    address : without a slash at the end; None where the port of our own has another store's server.
    up : whether it answers; if it does not, `make ui` starts it there.
    """

    address: str | None
    up: bool

    def run(self, experiment: str, run_id: str) -> str | None:
        """The address of a run's page."""
        return self.address and f"{self.address}/#/experiments/{experiment}/runs/{run_id}{TRAINING_VIEW}"


def mlflow(run_id: str) -> MLflow:
    """The server that shows a run: the one that keeps the store, else the one of `make ui` on loopback."""
    store = os.environ.get("MLFLOW_TRACKING_URI", "")
    if store.startswith("http"):
        return MLflow(store.rstrip("/"), True)
    here = f"http://127.0.0.1:{os.environ.get('USBOOST_MLFLOW_PORT', '5000')}"
    try:
        with urllib.request.urlopen(f"{here}/api/2.0/mlflow/runs/get?run_id={run_id}", timeout=2):
            return MLflow(here, True)
    except urllib.error.HTTPError:  # it does not know the run
        return MLflow(None, False)
    except OSError:
        return MLflow(here, False)


def prefect(flow_run_id: str) -> str | None:
    """The page of a flow run; None without a server that has pages."""
    from prefect.settings import PREFECT_API_URL, PREFECT_UI_URL
    from prefect.utilities.urls import url_for

    pages = PREFECT_UI_URL.value()
    if pages and pages == (PREFECT_API_URL.value() or "").removesuffix("/api"):
        return f"{pages}{PREFECT_PAGES}/runs/flow-run/{flow_run_id}"
    return url_for("flow-run", obj_id=flow_run_id)  # a user's own setting, or Prefect's cloud

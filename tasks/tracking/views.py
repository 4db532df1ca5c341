"""MLflow's pages: their addresses, and the columns and charts that they show first.

What a person saves under "Views" on the page of an experiment is a tag of the experiment; so is this.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

import mlflow
from mlflow.tracking import MlflowClient
from mlflow.utils.mlflow_tags import MLFLOW_RUN_NOTE

TRAINING_VIEW = "?workflowType=machine_learning"
"""At the end of an address: MLflow's pages for models, instead of those for language models."""

VIEW = "usboost"
"""The view of an experiment's runs that ours link to."""

COLUMNS = (
    *("params.`dataset`", "params.`model`", "params.`seed`"),
    *("metrics.`test/f1`", "metrics.`test/accuracy`", "metrics.`val/f1`", "metrics.`val/accuracy`"),
)

OPEN = ("step", "score", "risk", "test")
FOLDED = ("val", "fold", "weak_learner", "seconds", "Model metrics", "System metrics")
"""Sections of charts, from the top; MLflow gives the last two to names without a slash and the machine's."""

_TAG = "mlflow.sharedViewState."


def keep(experiment_id: str, tags: Mapping[str, str]) -> None:
    """Give an experiment the view and a description with links to it, unless it has them."""
    client = MlflowClient()
    if _TAG + VIEW not in tags:
        client.set_experiment_tag(experiment_id, _TAG + VIEW, state("Scores and steps"))
    if MLFLOW_RUN_NOTE not in tags:
        links = f"[scores]({runs_page(experiment_id)}), [curves]({runs_page(experiment_id, charts=True)})"
        client.set_experiment_tag(experiment_id, MLFLOW_RUN_NOTE, f"One run for each fit: {links}.")


def state(title: str, search: str = "") -> str:
    """A saved view as MLflow's pages keep it in a tag.

    Parameters
    ----------
    search : filter of the runs, as MLflow takes it
    """
    sections = [
        {"uuid": f"usboost-{name}", "name": name, "display": name in OPEN, "isReordered": True, "columns": 2}
        for name in (*OPEN, *FOLDED)
    ]
    shown = {
        "searchFilter": search,
        "selectedColumns": COLUMNS,
        "columnOrder": COLUMNS,
        "columnWidths": dict.fromkeys(COLUMNS, 90),
        "compareRunCharts": [],  # the page adds one for each metric
        "compareRunSections": sections,
        "isAccordionReordered": True,
    }
    now = int(time.time() * 1000)
    return json.dumps({"name": title, "createdAt": now, "updatedAt": now, "state": json.dumps(shown)})


def runs_page(experiment_id: str, view: str = VIEW, *, charts: bool = False) -> str:
    """The end of the address of an experiment's runs: in a table, or their curves."""
    shown = "&compareRunsMode=CHART" if charts else ""
    return f"#/experiments/{experiment_id}/runs{TRAINING_VIEW}&viewStateShareKey={view}{shown}"


def first_page(store: str, profile: str) -> str:
    """The end of the address to begin at: the runs of a profile, or the experiments while there are none."""
    found = MlflowClient(store).get_experiment_by_name(f"usboost-{profile}")
    return runs_page(found.experiment_id) if found else f"#/experiments{TRAINING_VIEW}"


def view_address(experiment_id: str, name: str, search: str) -> str | None:
    """Save a view of some of an experiment's runs; where a browser finds their curves.

    None while the store is a file that no server shows.
    """
    server = mlflow.get_tracking_uri()
    if not server.startswith("http"):
        return None
    view = f"{VIEW}-{name}"
    MlflowClient().set_experiment_tag(experiment_id, _TAG + view, state(name, search))
    return f"{server.rstrip('/')}/{runs_page(experiment_id, view, charts=True)}"

"""MLflow's pages: their addresses, and the columns and charts that they show first.

What a person saves under "Views" on the page of an experiment is a tag of the experiment; so is this.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping

import mlflow
from mlflow.tracking import MlflowClient
from mlflow.utils.mlflow_tags import MLFLOW_RUN_NOTE

TRAINING_VIEW = "?workflowType=machine_learning"
"""At the end of an address: MLflow's pages for models, instead of those for language models."""

VIEW = "usboost"
"""The view of an experiment's runs that ours link to."""

VIEWS = {"classification": VIEW, "regression": f"{VIEW}-numbers"}
"""The same by task."""

SCORES = {
    "classification": ("test/f1", "test/accuracy", "val/f1", "val/accuracy"),
    "regression": ("test/rmse", "test/r2", "val/rmse"),
}
"""The columns of scores, by task; before them stand dataset, model and seed."""

OPEN = ("step", "score", "risk", "test")
FOLDED = ("val", "fold", "weak_learner", "seconds", "Model metrics", "System metrics")
"""Sections of charts, from the top; MLflow gives the last two to names without a slash and the machine's."""

_TAG = "mlflow.sharedViewState."


def keep(experiment_id: str, tags: Mapping[str, str], tasks: Collection[str]) -> None:
    """Give an experiment the view and a description with links to it, unless it has them.

    Parameters
    ----------
    tasks : of its runs; each has a view of its own.
    """
    client = MlflowClient()
    for task in tasks:
        if _TAG + VIEWS[task] not in tags:
            shown = state("Scores and steps" + " of numbers" * (task == "regression"), [task])
            client.set_experiment_tag(experiment_id, _TAG + VIEWS[task], shown)
    if MLFLOW_RUN_NOTE not in tags:
        view = VIEWS[next(iter(tasks))]
        pages = runs_page(experiment_id, view), runs_page(experiment_id, view, charts=True)
        links = f"[scores]({pages[0]}), [curves]({pages[1]})"
        client.set_experiment_tag(experiment_id, MLFLOW_RUN_NOTE, f"One run for each fit: {links}.")


def state(title: str, tasks: Collection[str], search: str = "") -> str:
    """A saved view as MLflow's pages keep it in a tag.

    Parameters
    ----------
    tasks : those whose scores are shown
    search : filter of the runs, as MLflow takes it
    """
    sections = [
        {"uuid": f"usboost-{name}", "name": name, "display": name in OPEN, "isReordered": True, "columns": 2}
        for name in (*OPEN, *FOLDED)
    ]
    columns = [f"params.`{name}`" for name in ("dataset", "model", "seed")]
    columns += [f"metrics.`{name}`" for task, names in SCORES.items() if task in tasks for name in names]
    shown = {
        "searchFilter": search,
        "selectedColumns": columns,
        "columnOrder": columns,
        "columnWidths": dict.fromkeys(columns, 90),
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
    if not found:
        return f"#/experiments{TRAINING_VIEW}"
    made = [view for view in VIEWS.values() if _TAG + view in found.tags]
    return runs_page(found.experiment_id, *made[:1])


def view_address(experiment_id: str, name: str, search: str, tasks: Collection[str]) -> str | None:
    """Save a view of some of an experiment's runs; where a browser finds their curves.

    None while the store is a file that no server shows.
    """
    server = mlflow.get_tracking_uri()
    if not server.startswith("http"):
        return None
    view = f"{VIEW}-{name}"
    MlflowClient().set_experiment_tag(experiment_id, _TAG + view, state(name, tasks, search))
    return f"{server.rstrip('/')}/{runs_page(experiment_id, view, charts=True)}"

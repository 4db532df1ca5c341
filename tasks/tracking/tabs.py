"""MLflow's pages: their addresses, and the columns and charts that they show first.

What a user saves under "Views" on the page of an experiment is a tag of the experiment; so is this.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping

from mlflow.tracking import MlflowClient
from mlflow.utils.mlflow_tags import MLFLOW_RUN_NOTE

from tasks.pages.addresses import TRAINING_VIEW

VIEW = "usboost"
"""The view of an experiment's runs that ours link to."""

VIEWS = {"classification": VIEW, "regression": f"{VIEW}-numbers"}
"""The same by task."""

CURVES = "curves"
"""The tag of a run that has ``first`` if its curves are to be seen first, those of 2WL and 2WL2O; and the end
of the views' names that show curves: MLflow draws those of the first ten runs."""

BOOSTED = "tags.kind = 'boosting' and attributes.status = 'FINISHED'"
"""The runs that have steps, as MLflow's search takes it."""

SCORES = {
    "classification": ("test/f1", "test/log_loss", "test/accuracy", "val/f1", "val/log_loss"),
    "regression": ("test/rmse", "test/r2", "val/rmse"),
}
"""The columns of scores, by task; before them stand dataset, model and seed."""

OPEN = ("step", "score", "risk", "test")
FOLDED = ("val", "fold", "weak_learner", "seconds", "ranks", "Model metrics", "System metrics")
"""Sections of charts, from the top; MLflow gives the last two to names without a slash and the machine's."""

KIND = ("mlflow.experimentKind", "custom_model_development")
"""The tag that says that an experiment is one of models. MLflow 3.17 goes by what a browser has chosen."""

_TAG = "mlflow.sharedViewState."
_NOTE = "One run for each fit: "


def keep(experiment_id: str, tags: Mapping[str, str], tasks: Collection[str]) -> None:
    """Give an experiment its kind, the views and a description with links to them; a user's own stay.

    Parameters
    ----------
    tasks : of its runs; each has views of its own.
    """
    wanted = dict([KIND])
    for task in tasks:
        of = " of numbers" * (task == "regression")
        wanted[_TAG + VIEWS[task]] = state(f"Scores and steps{of}", task)
        wanted[f"{_TAG}{VIEWS[task]}-{CURVES}"] = state(f"Curves{of}", task, curves=True)
    view = VIEWS[next(iter(tasks))]
    pages = runs_page(experiment_id, view), runs_page(experiment_id, f"{view}-{CURVES}", charts=True)
    if tags.get(MLFLOW_RUN_NOTE, _NOTE).startswith(_NOTE) and pages[1] not in tags.get(MLFLOW_RUN_NOTE, ""):
        tags = {name: value for name, value in tags.items() if name != MLFLOW_RUN_NOTE}
    # these words are read on MLflow's pages for language models, which it opens first
    choose = "Choose **Model training** at the top left, once, and MLflow opens these."
    wanted[MLFLOW_RUN_NOTE] = f"{_NOTE}[scores]({pages[0]}), [curves]({pages[1]}). {choose}"
    for name in wanted.keys() - tags.keys():
        MlflowClient().set_experiment_tag(experiment_id, name, wanted[name])


def state(title: str, task: str, *, curves: bool = False) -> str:
    """A saved view as MLflow's pages keep it in a tag.

    Parameters
    ----------
    task : whose scores are shown
    curves : of the runs that have steps, 2WL and 2WL2O first; else all, the newest first
    """
    sections = [
        {"uuid": f"usboost-{name}", "name": name, "display": name in OPEN, "isReordered": True, "columns": 2}
        for name in (*OPEN, *FOLDED)
    ]
    columns = [f"params.`{name}`" for name in ("dataset", "model", "seed")]
    columns += [f"metrics.`{name}`" for name in SCORES[task]]
    shown = {
        "searchFilter": BOOSTED if curves else "",
        **({"orderByKey": f"tags.`{CURVES}`", "orderByAsc": True} if curves else {}),
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

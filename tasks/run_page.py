"""What MLflow tells of a fit: where it comes from, what made it, where it is reported."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tasks import tracking
from tasks.features import features_folder
from tasks.folders import experiment_folder, prepared_folder, results_folder
from tasks.identity import Planned
from usboost.models.colours import own_colour

MLFLOW_RUN_COLOR = "mlflow.runColor"
"""The tag in which MLflow's pages keep a run's colour; its Python part has no name for it."""


def tags(planned: Planned, profile: str, more: Mapping[str, str]) -> dict[str, str]:
    """The tags of a fit's run: what it is, its origin, its description.

    Parameters
    ----------
    profile : of the prepared dataset
    more : further tags; ``experiment`` among them names the experiment that the fit is a cell of
    """
    dataset, model, entry = planned.dataset, planned.model, planned.entry
    inputs = {"prepared": prepared_folder(dataset)}
    if entry.needs_features:
        inputs["features"] = features_folder(dataset)
    given = tracking.lineage(inputs)
    given |= {"dataset": dataset, "model": model, "seed": str(planned.seed), "profile": profile}
    given |= {"title": entry.title, "kind": entry.kind, "task": planned.task.name, **more}
    given |= {tracking.CURVES: "first" if "order" in entry.figures else "others"}
    given |= {MLFLOW_RUN_COLOR: colour} if (colour := own_colour(model)) else {}
    about = f"**{entry.title}**, {entry.about}, fitted to `{dataset}` with seed {planned.seed}."
    experiment = more.get("experiment")
    places = {"report": Path("reports/index.html"), "results": results_folder(dataset, model)}
    if experiment:
        folder = experiment_folder(experiment)
        places = {"report": folder / "comparison.md", "results": folder / dataset / model}
    return given | tracking.described(about, given, inputs, command(planned, experiment), **places)


def command(planned: Planned, experiment: str | None) -> list[str]:
    """What makes a fit again: the DVC stage that runs, else the flow, of an experiment or alone."""
    if stage := os.environ.get("DVC_STAGE"):
        return ["dvc", "repro", "--single-item", stage]
    seeds = ["--seeds", str(planned.seed + 1)]
    if experiment:
        cell = ["--dataset", planned.dataset, "--model", planned.model]
        return ["python", "-m", "flows.experiment", "--name", experiment, *cell, *seeds]
    return ["python", "-m", "flows.train", planned.dataset, planned.model, *seeds]

"""What MLflow tells of a fit: where it comes from, what made it, where it is reported."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tasks import tracking
from tasks.fits.identity import Planned
from tasks.folders import features_folder, prepared_folder, results_folder
from usboost.models.catalogue.colours import model_colour

MLFLOW_RUN_COLOR = "mlflow.runColor"
"""The tag in which MLflow's pages keep a run's colour; its Python part has no name for it."""


def tags(planned: Planned, profile: str, more: Mapping[str, str]) -> dict[str, str]:
    """The tags of a fit's run: what it is, its origin, its description.

    Parameters
    ----------
    profile : of the prepared dataset
    more : further tags
    """
    dataset, model, entry = planned.dataset, planned.model, planned.entry
    inputs = {"prepared": prepared_folder(dataset)}
    if entry.needs_features:
        inputs["features"] = features_folder(dataset, planned.seed)
    given = tracking.lineage(inputs)
    given |= {"dataset": dataset, "model": model, "seed": str(planned.seed), "profile": profile}
    given |= {"title": entry.title, "kind": entry.kind, "task": planned.task.name, **more}
    given |= {tracking.CURVES: "first" if "order" in entry.figures else "others"}
    given |= {MLFLOW_RUN_COLOR: colour} if (colour := model_colour(model)) else {}
    about = f"**{entry.title}**, {entry.about}, fitted to `{dataset}` with seed {planned.seed}."
    places = {"report": Path("reports/index.html"), "results": results_folder(dataset, model)}
    command = ["python", "-m", "flows.fit", dataset, "--model", model, "--seeds", str(planned.seed + 1)]
    return given | tracking.described(about, given, inputs, command, **places)

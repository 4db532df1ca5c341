"""Links from the page of a Prefect flow run to MLflow; the tags of a fit's run: what it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from tasks import tracking
from tasks.fits.identity import Planned
from tasks.folders import features_folder, prepared_folder, results_folder
from tasks.pages import addresses
from tasks.pages import flow_page as page
from usboost.models.catalogue import model_colour

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


def link_run(run_id: str, what: str, tags: Mapping[str, str]) -> None:
    """Link an MLflow run, and say what it comes from.

    Parameters
    ----------
    what : the run stands for, e.g. ``ci_a/2wl/seed-0``.
    tags : as `tasks.tracking.lineage` gives them.
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
        experiment = MlflowClient().get_run(run_id).info.experiment_id
    except (MlflowException, OSError):
        return  # MLflow is away; the fit will say so if it stays away
    server = addresses.mlflow(run_id)
    address = server.run(experiment, run_id)
    _show(
        server, address, page.key("mlflow", what), f"MLflow run of {what}", f"MLflow run `{run_id}`", origin
    )
    page.say(f"MLflow run {address or run_id}")


def link_version(version: ModelVersion, description: str) -> None:
    """Link a version of a registered model, list its scores, and link the MLflow run that it is of."""
    name, server = version.name, addresses.mlflow(version.run_id or "")
    what = f"{name}, version {version.version}"
    address = server.address and f"{server.address}/#/models/{name}/versions/{version.version}"
    _show(server, address, page.key("model", name), what, what, description)
    rows = [{"what": key, "value": value} for key, value in sorted(version.tags.items())]
    page.show_table(page.key("model", name, "tags"), rows, what)
    if version.run_id:
        link_run(version.run_id, what, {})


def _show(
    server: addresses.MLflow, address: str | None, key: str, link: str, text: str, description: str
) -> None:
    """A link, or while no server shows its page a text that says which will."""
    if address and server.up:
        page.show_link(key, address, link, description)
    else:
        shows = f"shows it [here]({address})" if address else "shows it"
        page.show_text(key, f"{text}; `make ui` {shows}", description)

"""The page of a Prefect flow run: log lines, links, tables, and how far a fit is; addresses of pages.

A server that does not answer costs these and nothing else: no fit waits for it, or fails.
"""

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import Any

import httpx
from prefect import artifacts
from prefect.context import FlowRunContext, TaskRunContext
from prefect.events import emit_event
from prefect.logging.handlers import APILogHandler
from prefect.settings import PREFECT_API_URL, PREFECT_UI_URL
from prefect.utilities.urls import url_for

from usboost.boosting.callbacks import Callback
from usboost.boosting.rounds import Round
from usboost.evaluation.ranking import metric_name

SECONDS = 10.0  # between two lines on how far a fit is
WAIT_SECONDS = 5.0  # at most, until something is shown
NO_SERVER = (httpx.HTTPError, RuntimeError)  # or the flow run is over and its client closed

_log = logging.getLogger("usboost.page")
_log.propagate = False  # the terminal has its own lines
_log.setLevel(logging.INFO)
_log.addHandler(APILogHandler())


TRAINING_VIEW = "?workflowType=machine_learning"
"""At the end of an address: MLflow's pages for models, instead of those for language models, which it opens
in a browser that has not chosen yet, whatever the experiment's tags say."""

PREFECT_PAGES = "/v2"  # to these its root leads, an address without it to older ones


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
    pages = PREFECT_UI_URL.value()
    if pages and pages == str(PREFECT_API_URL.value()).removesuffix("/api"):
        return f"{pages}{PREFECT_PAGES}/runs/flow-run/{flow_run_id}"
    return url_for("flow-run", obj_id=flow_run_id)  # a user's own setting, or Prefect's cloud


def inside_a_run() -> bool:
    """Return whether there is a flow run whose page could show something."""
    return bool(FlowRunContext.get() or TaskRunContext.get())


def log(text: str) -> None:
    """Log a line on the page of this flow run, and of its task run."""
    if inside_a_run():
        _log.info(text)


def key(*parts: object) -> str:
    """Make an artifact's key as Prefect allows it: lower case, digits and single dashes."""
    return re.sub("[^a-z0-9]+", "-", "-".join(map(str, parts)).lower()).strip("-")


def show(create: Callable[..., object], *given: object, **more: object) -> None:
    """Create an artifact, if this is a flow run; a server that does not answer is asked in the background."""

    def work() -> None:
        with suppress(*NO_SERVER):
            create(*given, **more)

    if inside_a_run():
        thread = threading.Thread(target=copy_context().run, args=(work,), daemon=True)
        thread.start()
        thread.join(WAIT_SECONDS)


def emit(event: str, dataset: str, payload: Mapping[str, Any]) -> None:
    """Emit an event of a dataset, which automations can wait for."""
    emit_event(event, {"prefect.resource.id": f"usboost.dataset.{dataset}"}, payload=dict(payload))


def show_table(name: str, rows: Sequence[Mapping[str, Any]], description: str) -> None:
    """Show a table; its first row has all columns."""
    show(artifacts.create_table_artifact, [dict(row) for row in rows], key=name, description=description)


def show_scores(name: str, records: Iterable[Mapping[str, Any]], description: str) -> None:
    """Show the scores of records (`tasks.folders`), a row for each split."""
    rows: list[dict[str, Any]] = []
    for record in records:
        took = {"best round": record.get("best_round", "–"), "rounds": record.get("rounds", "–")}
        took["fit, s"] = round(record["fit_seconds"], 1)
        for split, values in record["scores"].items():
            scores = {metric_name(metric): round(value, 4) for metric, value in values.items()}
            rows.append({"model": record["model"], "seed": record["seed"], "split": split, **scores, **took})
    show_table(name, rows, description)


def scores_in_words(scores: Mapping[str, Mapping[str, float]]) -> str:
    """Write the scores of each split in a line."""
    return "; ".join(
        f"{split}: " + ", ".join(f"{metric_name(metric)} {value:.4f}" for metric, value in values.items())
        for split, values in scores.items()
    )


def link_run(run_id: str, what: str) -> None:
    """Link an MLflow run, which says what it comes from, on the page of this flow run.

    Parameters
    ----------
    what : the run stands for, e.g. ``ci_a/2wl/seed-0``.
    """
    from mlflow import MlflowClient, MlflowException  # here, as it takes seconds to import

    if inside_a_run():
        with suppress(MlflowException, OSError):  # MLflow is away; the fit will say so
            address = run_page(MlflowClient().get_run(run_id).info.experiment_id, run_id)
            _show(address, key("mlflow", what), f"MLflow run `{run_id}`", f"MLflow run of {what}")
            log(f"MLflow run {address}")


def link_version(version: Any, description: str) -> None:
    """Link an MLflow `ModelVersion`, list its scores, and link the MLflow run that it is of."""
    name, what = version.name, f"{version.name}, version {version.version}"
    address = f"{mlflow()}/#/models/{name}/versions/{version.version}"
    _show(address, key("model", name), what, description)
    rows = [{"what": key, "value": value} for key, value in sorted(version.tags.items())]
    show_table(key("model", name, "tags"), rows, what)
    if version.run_id:
        link_run(version.run_id, what)


def _show(address: str, key: str, text: str, description: str) -> None:
    """Show a link; of a store that is a file with the command whose server it leads to."""
    command = "" if os.environ.get("MLFLOW_TRACKING_URI", "").startswith("http") else ", once `make ui` runs"
    shown = f"[{text}]({address}){command}"
    show(artifacts.create_markdown_artifact, shown, key=key, description=description)


class ShowProgress(Callback):
    """Logs how far a fit is, every `SECONDS` at most; Prefect sends the lines in the background.

    Parameters
    ----------
    what : is fitted, e.g. ``ci_a 2wl seed 0``.
    """

    def __init__(self, what: str) -> None:
        self.what = what

    def on_fit_begin(self, fit: Any) -> None:
        self._total, self._next = int(fit.n_rounds), 0.0

    def on_round(self, round_: Round) -> bool:
        if (now := time.monotonic()) >= self._next:
            self._next = now + SECONDS
            shown = {"risk": "risk_train", "validation F1": "f1_val", "validation RMSE": "rmse_val"}
            values = [f", {n} {round_.metrics[k]:.4f}" for n, k in shown.items() if k in round_.metrics]
            log(f"{self.what}: round {round_.index} of at most {self._total}{''.join(values)}")
        return False

"""The report's one step."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.settings import PREFECT_API_URL

from usboost.reporting.html import write_report
from usboost.reporting.origins import Key, Origin, Run
from usboost.reporting.results import read_cell

RESULTS = Path("data/results")


@task(cache_policy=NO_CACHE)
def write(datasets: list[str], models: list[str], cells: list[tuple[str, str]], out: Path) -> Path:
    """Write results.csv, the pages and figures to `out`."""
    wanted = [*((dataset, model) for dataset in datasets for model in models), *cells]
    write_report(
        RESULTS,
        Path("data/prepared"),
        out,
        datasets=datasets,
        models=models,
        cells=cells,
        origins=origins(wanted),
    )
    return out


def origins(cells: Iterable[tuple[str, str]]) -> dict[Key, Origin]:
    """What made the scores of each fit of these (dataset, model) cells, as the fit itself has recorded it."""
    mlflow, prefect = servers()
    found: dict[Key, Origin] = {}
    for dataset, model in dict.fromkeys(cells):
        cell = read_cell(RESULTS, dataset, model)
        for fit in cell.seeds if cell else []:
            if fit.made:
                found[dataset, model, fit.seed] = _origin(fit.made, mlflow, prefect)
    return found


def servers() -> tuple[str, str]:
    """Where a browser finds MLflow and Prefect.

    These are the servers in use; where the store is a file, those that `make ui` and `make services` start.
    """
    store = os.environ.get("MLFLOW_TRACKING_URI", "")
    if store.startswith("http"):
        return store.rstrip("/"), (PREFECT_API_URL.value() or "").removesuffix("/api")
    mlflow, prefect = (
        f"http://127.0.0.1:{os.environ.get(name, default)}"
        for name, default in (("USBOOST_MLFLOW_PORT", "5000"), ("USBOOST_PREFECT_PORT", "4200"))
    )
    # that of the flow which writes the report: its port lasts
    return mlflow, (PREFECT_API_URL.value() or prefect).removesuffix("/api")


def _origin(made: dict[str, Any], mlflow: str, prefect: str) -> Origin:
    experiment, run = made["mlflow_experiment"], made["mlflow_run"]
    # the part after the question mark: MLflow's pages for models, instead of those for language models
    page = f"{mlflow}/#/experiments/{experiment}/runs/{run}?workflowType=machine_learning"
    runs = [Run("MLflow", run, page)]
    if flow_run := made.get("prefect_flow_run"):
        runs.append(Run("Prefect", flow_run, f"{prefect}/runs/flow-run/{flow_run}" if prefect else None))
    return Origin(made.get("stage"), made.get("inputs") or {}, tuple(runs))

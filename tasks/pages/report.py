"""The report's one step."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.pages import addresses
from usboost.reporting.html import write_report
from usboost.reporting.page import Key, Origin, Run
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
    made: dict[Key, dict[str, Any]] = {}
    for dataset, model in dict.fromkeys(cells):
        cell = read_cell(RESULTS, dataset, model)
        made |= {(dataset, model, fit.seed): fit.made for fit in (cell.seeds if cell else []) if fit.made}
    if not made:
        return {}
    server = addresses.mlflow(next(iter(made.values()))["mlflow_run"])  # a store has the runs of all of them
    return {key: _origin(each, server) for key, each in made.items()}


def _origin(made: dict[str, Any], server: addresses.MLflow) -> Origin:
    run = made["mlflow_run"]
    runs = [Run("MLflow", run, server.run(made["mlflow_experiment"], run))]
    if flow_run := made.get("prefect_flow_run"):
        # the server is that of the flow which writes the report: its port lasts
        runs.append(Run("Prefect", flow_run, addresses.prefect(flow_run)))
    return Origin(made.get("stage"), made.get("inputs") or {}, tuple(runs))

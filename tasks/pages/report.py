"""Write the report: the one step of its flow."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks.pages import addresses
from usboost.report.blocks import Key, Origin, RunLink
from usboost.report.pages import write_pages
from usboost.report.results import read_cell

RESULTS = Path("data/results")


@task(cache_policy=NO_CACHE)
def write(datasets: list[str], models: list[str], cells: list[tuple[str, str]], out: Path) -> Path:
    """Write results.csv, the pages and figures to `out`."""
    wanted = [*((dataset, model) for dataset in datasets for model in models), *cells]
    write_pages(
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
    """Return what made the scores of each fit of these (dataset, model) cells, as the fit has recorded it."""
    found: dict[Key, Origin] = {}
    server: addresses.MLflow | None = None
    for dataset, model in dict.fromkeys(cells):
        cell = read_cell(RESULTS, dataset, model)
        for fit in cell.seeds if cell else []:
            if not (made := fit.made):
                continue
            run = made["mlflow_run"]
            server = server or addresses.mlflow(run)  # a store has the runs of all of them
            runs = [RunLink("MLflow", run, server.run(made["mlflow_experiment"], run))]
            if flow_run := made.get("prefect_flow_run"):
                # the server is that of the flow which writes the report: its port lasts
                runs.append(RunLink("Prefect", flow_run, addresses.prefect(flow_run)))
            key = dataset, model, fit.seed
            found[key] = Origin(made.get("stage"), made.get("inputs") or {}, tuple(runs))
    return found

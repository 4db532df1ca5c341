"""Write reports/results.csv, reports/index.html and the figures from all results."""

from pathlib import Path
from typing import Any

import pandas as pd

from flows.flow import command, flow
from flows.local import runtime
from tasks import flow_page as page
from tasks import folders
from tasks import settings as params
from tasks.folders import REPORTS, RESULTS, prepared_folder
from usboost.report.blocks import Key, Origin, RunLink
from usboost.report.pages import write_pages


@flow(name="report", flow_run_name="report")
def report() -> Path:
    """Gather all results of this run into reports/."""
    settings = params.load()
    datasets, models = settings.run.datasets, settings.run.models
    # a dataset with models of its own is none of the papers' tables
    main = [dataset for dataset in datasets if set(models) <= set(settings.models_of(dataset))]
    fits = [(dataset, model) for dataset in datasets for model in settings.models_of(dataset)]
    cells = [(dataset, model) for dataset, model in fits if dataset not in main or model not in models]
    prepared = prepared_folder("")
    write_pages(RESULTS, prepared, REPORTS, datasets=main, models=models, cells=cells, origins=origins(fits))
    folders.write_curves(REPORTS / "curves", fits, settings)
    page.log(f"written {(REPORTS / 'index.html').resolve()}")
    scores = pd.read_csv(REPORTS / "results.csv").query("split == 'test'")
    table = scores.pivot_table("value", ["dataset", "model"], "metric", aggfunc="mean", sort=False)
    rows: Any = table.round(4).reset_index().to_dict("records")
    page.show_table("report", rows, "Test scores, the mean over the seeds")
    return runtime.finished(REPORTS)


def origins(cells: list[tuple[str, str]]) -> dict[Key, Origin]:
    """Return what made the scores of each fit of these (dataset, model) cells, as its record has it."""
    made = {}
    for record in (record for cell in cells for record in folders.records(*cell)):
        each, key = record["made"], (record["dataset"], record["model"], record["seed"])
        run = each["mlflow_run"]
        runs = [RunLink("MLflow", run, page.run_page(each["mlflow_experiment"], run))]
        if flow_run := each.get("prefect_flow_run"):
            # the server is that of the flow which writes the report: its port lasts
            runs.append(RunLink("Prefect", flow_run, page.prefect(flow_run)))
        made[key] = Origin(each.get("stage"), each.get("inputs") or {}, tuple(runs))
    return made


app = command(__name__, report)

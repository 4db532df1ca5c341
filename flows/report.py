"""Write reports/results.csv, reports/index.html and the figures from all results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flows.local import runtime

runtime.configure()

import pandas as pd  # noqa: E402
import typer  # noqa: E402

from flows.flow import flow  # noqa: E402
from tasks import settings as params  # noqa: E402
from tasks.fits import results  # noqa: E402
from tasks.folders import REPORTS  # noqa: E402
from tasks.pages import flow_page as page  # noqa: E402
from tasks.pages.report import write  # noqa: E402


@flow(name="report", flow_run_name="report")
def report() -> Path:
    """Gather all results of this run into reports/."""
    settings = params.load()
    datasets, models = settings.run.datasets, settings.run.models
    # a dataset with models of its own is none of the papers' tables
    main = [dataset for dataset in datasets if set(models) <= set(settings.models_of(dataset))]
    cells = [
        (dataset, model)
        for dataset in datasets
        for model in settings.models_of(dataset)
        if dataset not in main or model not in models
    ]
    folder = write(main, models, cells, REPORTS)
    fits = [(dataset, model) for dataset in datasets for model in settings.models_of(dataset)]
    results.write_curves(folder / "curves", fits, settings)
    page.say(f"written {(folder / 'index.html').resolve()}")
    page.show_table("report", test_scores(folder / "results.csv"), "Test scores, the mean over the seeds")
    return runtime.finished(folder)


def test_scores(path: Path) -> list[dict[str, Any]]:
    """A row for each dataset and model of results.csv, a column for each score."""
    frame = pd.read_csv(path).query("split == 'test'")
    cells = ["dataset", "model"]
    table = frame.pivot_table("value", cells, "metric", aggfunc="mean", sort=False).round(4).reset_index()
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def main() -> None:
    """Write reports/: results.csv, index.html and figures."""
    runtime.run(report)


if __name__ == "__main__":
    typer.run(main)

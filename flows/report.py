"""Write reports/results.csv, reports/index.html and the figures from all results."""

from __future__ import annotations

from pathlib import Path

from flows.local import runtime

runtime.configure()

import typer  # noqa: E402
from prefect import flow  # noqa: E402

from tasks import settings as params  # noqa: E402
from tasks.report import write  # noqa: E402


@flow(name="report")
def report() -> Path:
    """Gather all results of this run into reports/."""
    settings = params.load()
    cells = [(cell.dataset, cell.model) for cell in settings.run.further.values()]
    return runtime.finished(write(settings.run.datasets, settings.model_names, cells, Path("reports")))


def main() -> None:
    """Write reports/: results.csv, index.html and figures."""
    runtime.run(report)


if __name__ == "__main__":
    typer.run(main)

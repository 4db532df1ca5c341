"""The report's one step."""

from __future__ import annotations

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from usboost.reporting.html import write_report


@task(cache_policy=NO_CACHE)
def write(datasets: list[str], models: list[str], cells: list[tuple[str, str]], out: Path) -> Path:
    """Write results.csv, index.html and figures to `out`."""
    write_report(
        Path("data/results"), Path("data/prepared"), out, datasets=datasets, models=models, cells=cells
    )
    return out

"""Obtain the raw files of a dataset: from USBOOST_DATA, else by download; generated in the demo profile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from flows.local import runtime

runtime.configure()

import typer  # noqa: E402
from prefect import flow  # noqa: E402
from pydantic import Field  # noqa: E402

from tasks import settings as params  # noqa: E402
from tasks.data import obtain_raw  # noqa: E402


@flow(name="fetch", flow_run_name="fetch-{dataset}", log_prints=False)
def fetch(dataset: Annotated[str, Field(description="dataset to fetch, e.g. ci_a")]) -> Path:
    """Put a dataset's raw files into data/raw/<dataset>."""
    cache = runtime.home() / "downloads"
    return runtime.finished(obtain_raw(dataset, params.load(), Path("data/raw") / dataset, cache))


def main(dataset: Annotated[str, typer.Argument(help="dataset to fetch, e.g. ci_a")]) -> None:
    """Put a dataset's raw files into data/raw/<dataset>.

    The demo profile generates them. The paper profile takes them from the folder that USBOOST_DATA
    names (one sub-folder per source), else downloads them.
    """
    runtime.run(lambda: fetch(dataset))


if __name__ == "__main__":
    typer.run(main)

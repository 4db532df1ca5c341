"""Make a dataset's prepared form from its raw files: splits as Parquet, and a card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from flows.local import runtime

runtime.configure()

import typer  # noqa: E402
from prefect import flow  # noqa: E402

from tasks import settings as params  # noqa: E402
from tasks.data import prepare_dataset  # noqa: E402


@flow(name="prepare", flow_run_name="prepare-{dataset}")
def prepare(dataset: str) -> dict[str, int]:
    """Make data/prepared/<dataset> from data/raw/<dataset>; rows per split.

    Args:
        dataset: dataset to prepare, e.g. ci_a
    """
    card = prepare_dataset(
        dataset,
        params.load(),
        Path("data/raw") / dataset,
        Path("data/prepared") / dataset,
        Path("data/work") / dataset,
    )
    return runtime.finished({split: entry["rows"] for split, entry in card["splits"].items()})


def main(dataset: Annotated[str, typer.Argument(help="dataset to prepare, e.g. ci_a")]) -> None:
    """Make data/prepared/<dataset> from data/raw/<dataset>."""
    runtime.run(lambda: prepare(dataset))


if __name__ == "__main__":
    typer.run(main)

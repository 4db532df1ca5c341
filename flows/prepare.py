"""Make a dataset's prepared form from its raw files: splits as Parquet, and a card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from flows.local import runtime

runtime.configure()

import typer  # noqa: E402

from flows.flow import Dataset, flow  # noqa: E402
from tasks import page  # noqa: E402
from tasks import settings as params  # noqa: E402
from tasks.data import prepare_dataset  # noqa: E402


@flow(name="prepare", flow_run_name="prepare-{dataset}")
def prepare(dataset: Dataset) -> dict[str, int]:
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
    rows = {split: entry["rows"] for split, entry in card["splits"].items()}
    listed = ", ".join(f"{count:,} {split}" for split, count in rows.items())
    asked = f"{len(card['classes'])} classes" if card["classes"] else "a number to predict"
    page.say(f"{dataset}: {listed} rows; {len(card['columns'])} columns, {asked}")
    table = [
        {"split": split, "rows": entry["rows"], **(entry.get("classes") or entry["label"])}
        for split, entry in card["splits"].items()
    ]
    page.show_table(page.key("prepared", dataset), table, f"Rows of {dataset}, and their labels")
    return runtime.finished(rows)


def main(dataset: Annotated[str, typer.Argument(help="dataset to prepare, e.g. ci_a")]) -> None:
    """Make data/prepared/<dataset> from data/raw/<dataset>."""
    runtime.run(lambda: prepare(dataset))


if __name__ == "__main__":
    typer.run(main)

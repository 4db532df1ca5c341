"""Obtain the raw files of a dataset: from USBOOST_DATA, else by download; generated in the demo profile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from flows.local import runtime

runtime.configure()

import typer  # noqa: E402

from flows.flow import Dataset, flow  # noqa: E402
from tasks import page  # noqa: E402
from tasks import settings as params  # noqa: E402
from tasks.data import obtain_raw  # noqa: E402

LISTED = 100


@flow(name="fetch", flow_run_name="fetch-{dataset}", log_prints=False)
def fetch(dataset: Dataset) -> Path:
    """Put a dataset's raw files into data/raw/<dataset>.

    Args:
        dataset: dataset to fetch, e.g. ci_a
    """
    cache = runtime.home() / "downloads"
    folder = obtain_raw(dataset, params.load(), Path("data/raw") / dataset, cache)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    sizes = {str(path.relative_to(folder)): path.stat().st_size for path in files}
    page.say(f"{dataset}: files {len(sizes):,}, bytes {sum(sizes.values()):,}")
    rows = [{"file": name, "bytes": size} for name, size in list(sizes.items())[:LISTED]]
    page.show_table(page.key("raw", dataset), rows, f"Raw files of {dataset}, {LISTED} at most")
    return runtime.finished(folder)


def main(dataset: Annotated[str, typer.Argument(help="dataset to fetch, e.g. ci_a")]) -> None:
    """Put a dataset's raw files into data/raw/<dataset>.

    The demo profile generates them. The paper profile takes them from the folder that USBOOST_DATA
    names (one sub-folder per source), else downloads them.
    """
    runtime.run(lambda: fetch(dataset))


if __name__ == "__main__":
    typer.run(main)

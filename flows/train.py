"""Fit one model on one dataset over the seeds, an MLflow run each; write its scores and traces."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

from flows.local import runtime

runtime.configure()

import typer  # noqa: E402
from pydantic import Field  # noqa: E402

from flows.flow import Dataset, flow  # noqa: E402
from tasks import page  # noqa: E402
from tasks import settings as params  # noqa: E402
from tasks.folders import results_folder  # noqa: E402
from tasks.identity import require_inputs  # noqa: E402
from tasks.training import fit_seed, write_results  # noqa: E402


@flow(name="train", flow_run_name="train-{dataset}-{model}")
def train(dataset: Dataset, model: str, seeds: Annotated[int, Field(ge=0)] = 0) -> Path:
    """Fit and score a model; data/results/<dataset>/<model>.

    Args:
        dataset: prepared dataset, e.g. ci_a
        model: a model of params.yaml, e.g. 2wl
        seeds: number of seeds; 0: as in params.yaml
    """
    settings = params.load()
    chosen = list(range(seeds or settings.sizes.seeds))
    require_inputs(dataset, settings.model(model), chosen)
    folder = results_folder(dataset, model)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{model}.", suffix=".tmp", dir=folder.parent) as partial:
        records = [fit_seed(dataset, model, seed, settings, Path(partial)) for seed in chosen]
        page.show_scores(page.key("scores", dataset, model), records, f"Scores of {model} on {dataset}")
        return runtime.finished(write_results(dataset, model, chosen, settings, Path(partial), folder))


def main(
    dataset: Annotated[str, typer.Argument(help="prepared dataset, e.g. ci_a")],
    model: Annotated[str, typer.Argument(help="a model of params.yaml, e.g. 2wl")],
    seeds: Annotated[int, typer.Option(min=0, help="number of seeds; 0: as in params.yaml")] = 0,
) -> None:
    """Fit one model on one dataset over the seeds; data/results/<dataset>/<model>."""
    runtime.run(lambda: train(dataset, model, seeds))


if __name__ == "__main__":
    typer.run(main)

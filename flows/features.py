"""Fit the GBM on S and write boosted feature vectors, for every seed; score the GBM alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from flows.local import runtime

runtime.configure()

import typer  # noqa: E402
from pydantic import Field  # noqa: E402

from flows.flow import Dataset, flow  # noqa: E402
from tasks import page  # noqa: E402
from tasks import settings as params  # noqa: E402
from tasks.features import features_folder, fit_features  # noqa: E402
from usboost.files import replacing  # noqa: E402


@flow(name="features", flow_run_name="features-{dataset}")
def features(dataset: Dataset, seeds: Annotated[int, Field(ge=0)] = 0) -> Path:
    """Write data/features/<dataset>/seed-<n>: the GBM, its features per split, its scores.

    Args:
        dataset: prepared dataset, e.g. ci_a
        seeds: number of seeds; 0: as in params.yaml
    """
    settings = params.load()
    with replacing(features_folder(dataset)) as fresh:
        for seed in range(seeds or settings.sizes.seeds):
            fit_features(dataset, seed, settings, Path("data/prepared") / dataset, fresh / f"seed-{seed}")
    scores = {}
    for folder in sorted(features_folder(dataset).iterdir()):
        scores[folder.name] = json.loads((folder / "scores.json").read_text())
        page.say(f"{folder.name}, the GBM alone: {page.scores_in_words(scores[folder.name])}")
    rows = [
        {"seed": seed, "split": split, **values}
        for seed, splits in scores.items()
        for split, values in splits.items()
    ]
    page.show_table(page.key("gbm", dataset), rows, f"The GBM on {dataset} whose features these are")
    return runtime.finished(features_folder(dataset))


def main(
    dataset: Annotated[str, typer.Argument(help="prepared dataset, e.g. ci_a")],
    seeds: Annotated[int, typer.Option(min=0, help="number of seeds; 0: as in params.yaml")] = 0,
) -> None:
    """Write data/features/<dataset>: a GBM per seed and its boosted feature vectors."""
    runtime.run(lambda: features(dataset, seeds))


if __name__ == "__main__":
    typer.run(main)

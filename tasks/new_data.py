"""New raw data: the stages that read them, run again by DVC, so that dvc.lock knows them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from tasks import page
from tasks.settings import Settings
from usboost.errors import UsboostError


def refresh(datasets: Sequence[str], settings: Settings) -> None:
    """Read the raw data again, and prepare the datasets, and their features, that have changed.

    A stage that fetches has no dependency that a new file would change; it is forced, and the stages after
    it run if it made something else.

    Raises
    ------
    UsboostError
        If a dataset has no stage of dvc.yaml, or a stage fails.
    """
    ours = [dataset for dataset in datasets if dataset in settings.run.datasets]
    further = [dataset for dataset in datasets if dataset in settings.run.further_datasets]
    if unknown := [dataset for dataset in datasets if dataset not in {*ours, *further}]:
        raise UsboostError(
            f"params.yaml has {unknown[0]!r} neither in run.datasets nor in run.further_datasets, so that no "
            "stage reads it; add it there"
        )
    first = [*(f"fetch@{dataset}" for dataset in ours), *(f"further_data@{dataset}" for dataset in further)]
    _repro("--force", "--single-item", *first)
    if ours:
        _repro(*(f"{stage}@{dataset}" for dataset in ours for stage in ("prepare", "features")))


def _repro(*words: str) -> None:
    done = subprocess.run([sys.executable, "-m", "dvc", "repro", *words], capture_output=True, text=True)
    for line in done.stdout.splitlines():
        if line.startswith("Running stage"):
            page.say(line)
    if done.returncode:
        said = [line for line in f"{done.stdout}\n{done.stderr}".splitlines() if line.strip()]
        errors = [line.removeprefix("error: ") for line in said if line.startswith("error: ")]
        raise UsboostError(f"`dvc repro {' '.join(words)}`: {[*errors, *said[-1:], 'it failed'][0]}")

"""Where each step's outputs lie in a workspace."""

from __future__ import annotations

from pathlib import Path

REPORTS = Path("reports")
"""Of all datasets: tables, pages, figures, and the curves that `dvc plots` draws."""


def raw_folder(dataset: str) -> Path:
    return Path("data/raw") / dataset


def prepared_folder(dataset: str) -> Path:
    return Path("data/prepared") / dataset


def work_folder(dataset: str) -> Path:
    """Of a preparation that has not ended, and of locks: no output of a stage."""
    return Path("data/work") / dataset


def features_folder(dataset: str, seed: int) -> Path:
    """Of boosted feature vectors and the GBM whose they are: no output of a stage."""
    return Path("data/features") / dataset / f"seed-{seed}"


def results_folder(dataset: str, model: str = "") -> Path:
    """What a dataset's fits leave for the report, a folder for each model."""
    return Path("data/results") / dataset / model


def metrics_file(dataset: str) -> Path:
    """What `dvc metrics` compares."""
    return Path("data/metrics") / f"{dataset}.json"


def checkpoints_folder(dataset: str, model: str, seed: int) -> Path:
    """Of a fit that has not ended: no output of a stage, so DVC leaves it alone."""
    return Path("data/checkpoints") / dataset / model / f"seed-{seed}"


def tuning_folder(dataset: str) -> Path:
    """Of the searches for settings: no output of a stage; what they chose reaches one through params.yaml."""
    return Path("data/tuning") / dataset

"""Where each step's outputs lie in a workspace."""

from __future__ import annotations

from pathlib import Path

CURVES = Path("data/curves")
"""What `dvc metrics` and `dvc plots` show."""


def prepared_folder(dataset: str) -> Path:
    return Path("data/prepared") / dataset


def results_folder(dataset: str, model: str) -> Path:
    return Path("data/results") / dataset / model


def experiment_folder(name: str) -> Path:
    return Path("data/experiments") / name


def tuning_folder(dataset: str) -> Path:
    """Of the searches for settings: no output of a stage; what they chose reaches one through params.yaml."""
    return Path("data/tuning") / dataset


def checkpoints_folder(dataset: str, model: str) -> Path:
    """Of fits that have not ended: no output of a stage, so DVC leaves it alone."""
    return Path("data/checkpoints") / dataset / model

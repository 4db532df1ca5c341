"""What DVC compares from run to run: a fit's scores and the curves of its rounds, means over the seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from usboost.files import write_atomically

METRICS = ("f1", "log_loss")
STEPS = ("epsilon", "delta")
SCORES = ("f1_val", "risk_train", "risk_val")


def write(
    folder: Path, cell: str, records: Sequence[Mapping[str, Any]], trace: pd.DataFrame, steps: bool
) -> None:
    """Write ``metrics/<cell>.json`` and ``rounds/<cell>.csv`` of a fit, ``steps/<cell>.csv`` if it has steps.

    Parameters
    ----------
    cell : ``<dataset>/<model>``
    records : of each seed, with ``scores`` by split
    trace : the rounds of all seeds
    """
    files = {
        f"metrics/{cell}.json": json.dumps(metrics(records), indent=1) + "\n",
        f"rounds/{cell}.csv": curve(trace, SCORES),
    }
    if steps:
        files[f"steps/{cell}.csv"] = curve(trace, STEPS)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / name, text.encode())


def metrics(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """`METRICS` of each split, where a fit has them."""
    found: dict[str, dict[str, float]] = {}
    for split in records[0]["scores"]:
        scores = pd.DataFrame([record["scores"][split] for record in records])
        found[split] = {name: float(scores[name].mean()) for name in METRICS if name in scores}
    return found


def curve(trace: pd.DataFrame, columns: Sequence[str]) -> str:
    """A row per round as CSV; a column that the fit does not have is empty."""
    frame = trace.reindex(columns=["round", *columns]).groupby("round").mean()
    return frame.to_csv(float_format="%.6g", lineterminator="\n")

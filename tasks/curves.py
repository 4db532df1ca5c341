"""What DVC compares from run to run: a fit's scores and the curves of its rounds, means over the seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from usboost.files import write_atomically

METRICS = ("f1", "log_loss", "rmse", "r2")
COLUMNS = {"rounds": ("f1_val", "rmse_val", "risk_train", "risk_val"), "steps": ("epsilon", "delta")}
OF_KIND = {"two_branch": ("rounds",), "bfv_network": ("rounds",), "boosting": ("rounds", "steps")}
"""The curves of each kind of model; those of other kinds have no score of each round."""


def write(
    folder: Path, cell: str, kind: str, records: Sequence[Mapping[str, Any]], trace: pd.DataFrame
) -> None:
    """Write ``metrics/<cell>.json`` of a fit, and its curves, ``rounds/<cell>.csv`` for one.

    Parameters
    ----------
    cell : ``<dataset>/<model>``
    kind : of the model, in `usboost.models.entry.KINDS`
    records : of each seed, with ``scores`` by split
    trace : the rounds of all seeds
    """
    files = {f"metrics/{cell}.json": json.dumps(metrics(records), indent=1) + "\n"}
    files |= {f"{name}/{cell}.csv": curve(trace, COLUMNS[name]) for name in OF_KIND.get(kind, ())}
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

"""What made the numbers of a report: the runs and the stage behind each fit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Key = tuple[str, str, int]
"""Dataset, model and seed of a fit."""


@dataclass(frozen=True)
class Run:
    """A run's record on a server: whose it is, its id, and its page where that is known."""

    of: str
    id: str
    address: str | None = None


@dataclass(frozen=True)
class Origin:
    """What made a fit's scores.

    Attributes
    ----------
    stage : of dvc.yaml; None of a fit outside DVC.
    inputs : the digests of what the fit read, by name.
    runs : its records, of MLflow and Prefect say.
    """

    stage: str | None
    inputs: Mapping[str, str] = field(default_factory=dict)
    runs: tuple[Run, ...] = ()


def origin_rows(origins: Mapping[Key, Origin]) -> list[dict[str, Any]]:
    """The rows of the page's table; an address that is not of a web server is left out."""
    return [
        {
            "dataset": dataset,
            "model": model,
            "seed": seed,
            "stage": origin.stage,
            "inputs": [
                {"name": name, "short": f"{digest[:12]}…" if len(digest) > 13 else digest, "digest": digest}
                for name, digest in origin.inputs.items()
            ],
            "runs": [
                {
                    "of": run.of,
                    "short": run.id[:8],
                    "id": run.id,
                    "address": run.address if re.match(r"https?://", run.address or "") else None,
                }
                for run in origin.runs
            ],
        }
        for (dataset, model, seed), origin in origins.items()
    ]

"""What the reports' pages have in common: templates, filters, how numbers are printed, origins."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from usboost.evaluation.metrics import confusion
from usboost.models.catalogue import catalogue
from usboost.reporting.results import dataset_name

DEMO = "demo data"


def environment() -> Environment:
    """The templates, with the filters ``data_uri``, ``dataset``, ``model`` and ``listed``."""
    made = Environment(
        loader=PackageLoader("usboost.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["data_uri"] = data_uri
    made.filters["dataset"] = dataset_name
    made.filters["model"] = catalogue.title
    made.filters["listed"] = listed
    return made


def listed(names: Iterable[str]) -> str:
    """Names in a sentence: "a, b and c"."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def data_uri(svg: str) -> str:
    """A figure as an address that holds it."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def noise(card: Mapping[str, Any]) -> float | None:
    """The share of labels that were switched at random, if the card gives one."""
    entry = card.get("noise")
    rate = entry.get("rate") if isinstance(entry, Mapping) else None
    return rate if isinstance(rate, float) else None


def signed(value: float | None) -> str:
    if value is None or not np.isfinite(value):
        return "–"
    text = f"{value:+.2f}".replace("-", "−")
    return "0.00" if text[1:] == "0.00" else text


def sign(value: float) -> str:
    return {"+": "up", "−": "down"}.get(signed(value)[0], "") if np.isfinite(value) else ""


def spread(value: float, digits: int) -> str:
    return f"± {value:.{digits}f}" if np.isfinite(value) else ""


def short(value: float) -> str:
    """A score: three digits after the point, fewer where it has a unit and is large."""
    size = abs(value)
    shown = f"{value:.3f}" if size < 100 else f"{value:,.0f}" if size >= 10_000 else f"{value:,.1f}"
    return shown.replace("-", "−")


def signed_score(value: float) -> str:
    """A difference of scores with its sign."""
    if not np.isfinite(value):
        return "–"
    return short(value) if value < 0 else f"+{short(value)}"


def confusion_rows(labels: np.ndarray, predicted: np.ndarray, classes: Sequence[str]) -> list[dict[str, Any]]:
    """A row for each true class: its name, code and cells, each a count and the share of that class.

    Parameters
    ----------
    labels, predicted : codes, int64 of shape (n,).
    """
    counts = confusion(labels, predicted, len(classes))
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return [
        {
            "name": name,
            "code": code,
            "cells": [
                {"count": int(count), "share": f"{share:.4f}", "percent": f"{share:.1%}"}
                for count, share in zip(counts[code], shares[code], strict=True)
            ],
        }
        for code, name in enumerate(classes)
    ]


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

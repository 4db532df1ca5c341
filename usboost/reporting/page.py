"""What the reports' pages have in common: templates, filters, how numbers are printed, origins."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined

from usboost.errors import UsboostError
from usboost.evaluation.metrics import confusion
from usboost.evaluation.statistics import LEVEL
from usboost.models import catalogue
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
    """A row for each true class: its name, and by predicted class a count and its share of the true class.

    Parameters
    ----------
    labels, predicted : codes, int64 of shape (n,).
    """
    counts = confusion(labels, predicted, len(classes))
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return [
        {
            "name": name,
            "cells": {
                predicted: {"count": int(count), "share": f"{share:.4f}", "percent": f"{share:.1%}"}
                for predicted, count, share in zip(classes, counts[code], shares[code], strict=True)
            },
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


def common(
    cards: Mapping[str, Mapping[str, Any]],
    datasets: Sequence[str],
    origins: Mapping[Key, Origin] | None,
    **more: Any,
) -> dict[str, Any]:
    """What the templates of all pages know: data cards, origins, and more by name, empty where it is None."""
    made = origin_rows(origins or {})
    return {
        "datasets": datasets,
        "cards": {d: shown_card(cards[d]) if cards.get(d) else None for d in datasets},
        "noisy": any(noise(card) for card in cards.values()),
        "level": f"{LEVEL:.0%}",
        "origins": made,
        "traced": {(row["dataset"], row["model"]) for row in made},
        **{name: value or {} for name, value in more.items()},
    }


_FIRST = ("profile", "seed", "splits", "rows", "class_counts", "columns", "elimination")
_HIDDEN = ("dataset", "format", "encoders")
_ROWS = 300  # of one table of a data card
_DIGEST = re.compile(r"(sha256:)?[0-9a-f]{32,}")


def read_card(path: Path) -> dict[str, Any] | None:
    """The card in a file; None if there is none. Raises `UsboostError` if it is no JSON object."""
    if not path.is_file():
        return None
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsboostError(f"{path} is not JSON; prepare the dataset again") from error
    if not isinstance(card, dict):
        raise UsboostError(f"{path} is not a data card; prepare the dataset again")
    return card


def shown_card(card: Mapping[str, Any]) -> dict[str, Any]:
    """A data card as facts, (label, cell), and blocks, each a table; any keys are shown."""
    if isinstance(card.get("images"), Mapping):  # its shards and their digests are for machines
        card = {**card, "images": {k: v for k, v in card["images"].items() if k != "splits"}}
    hidden = {*_HIDDEN, *(["views"] if "columns" in card else [])}
    if not card.get("classes"):  # a number is predicted
        hidden.add("classes")
    keys = [k for k in _FIRST if k in card] + [k for k in card if k not in {*_FIRST, *hidden}]
    facts, blocks = [], []
    for key in keys:
        records = _records(_with_shares(key, card[key]))
        if records is None:
            facts.append((_label(key), _cell(card[key], key)))
            continue
        head = list(dict.fromkeys(name for record in records for name in record))
        views = pd.Series([str(r.get("view") or "unused") for r in records]).value_counts(sort=False)
        blocks.append(
            {
                "title": "Backward elimination" if key == "elimination" else _label(key),
                "lead": [(view, int(n)) for view, n in views.items()] if "view" in head else [],
                "columns": {name: _label(name) for name in head},
                "rows": [{name: _cell(r.get(name), name) for name in head} for r in records[:_ROWS]],
                "more": max(0, len(records) - _ROWS),
            }
        )
    return {"facts": facts, "blocks": blocks}


def _records(value: Any) -> list[dict[str, Any]] | None:
    """The rows of a table; None for a value that fits into one line."""
    if isinstance(value, Mapping) and value and all(isinstance(v, Mapping) for v in value.values()):
        return [{"": name, **_flat(entry)} for name, entry in value.items()]
    if isinstance(value, Mapping) and value and all(_DIGEST.fullmatch(str(v)) for v in value.values()):
        return [{"file": name, "digest": digest} for name, digest in value.items()]
    if isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
        return [_flat(entry) for entry in value]
    return None


def _flat(entry: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in entry.items():
        value = _with_shares(key, value)
        flat |= {f"{key}: {k}": v for k, v in value.items()} if isinstance(value, Mapping) else {key: value}
    return flat


def _with_shares(key: str, value: Any) -> Any:
    """Counts of classes with their shares; anything else as it is."""
    if key not in ("classes", "class_counts") or not isinstance(value, Mapping):
        return value
    if not all(isinstance(n, int) for n in value.values()):
        return {name: _with_shares(key, counts) for name, counts in value.items()}
    total = sum(value.values()) or 1
    return {name: f"{n:,} ({n / total:.1%})" for name, n in value.items()}


def _label(key: str) -> str:
    """A key of ours as words; a name that comes from the data stays as it is."""
    return key.replace("_", " ").capitalize() if re.fullmatch(r"[a-z_]+", key) else key


def _cell(value: Any, key: str = "") -> dict[str, Any]:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is None:
        text = "–"
    elif isinstance(value, bool):
        text = "yes" if value else "no"
    elif isinstance(value, int):
        text = str(value) if "seed" in key else f"{value:,}"
    elif isinstance(value, float):
        text = f"{value:.6g}"
    elif isinstance(value, Mapping):
        text = " · ".join(f"{name}: {_cell(v, str(name))['text']}" for name, v in value.items())
    elif isinstance(value, list):
        text = ", ".join(_cell(v, key)["text"] for v in value[:40])
        text += f" and {len(value) - 40} more" if len(value) > 40 else ""
    else:
        text = str(value)
    digest = bool(_DIGEST.fullmatch(text))
    return {"text": f"{text[:14]}…" if digest else text, "full": text, "number": number, "digest": digest}

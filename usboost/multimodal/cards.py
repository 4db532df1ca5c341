"""What a bundle says of a model that was fitted to a table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from usboost.datasets.custom import text_file
from usboost.datasets.custom.encoding import Encoding
from usboost.datasets.custom.own import OwnTable
from usboost.datasets.custom.written import plain_form
from usboost.multimodal.bundle import Card
from usboost.multimodal.table_rows import weights_of


def card_of(
    table: OwnTable,
    encoding: Encoding,
    *,
    model: str,
    rows: tuple[int, int],
    scores: Mapping[str, float],
    seed: int,
    **answers: Any,
) -> Card:
    """What a bundle says of a model that was fitted to a table.

    Parameters
    ----------
    encoding : of the table's columns.
    model : its name; rows : (training, validation); scores : of the latter; seed : of the fit.
    answers : further fields of the card: temperature, threshold, margin, prior, history.
    """
    others = (table.roles.group, table.roles.time, table.roles.weight, table.roles.split)
    card = {
        "model": model,
        "task": table.task,
        "classes": table.classes,
        "label": table.roles.label,
        "label_kind": table.label_kind if table.classes else "float",
        **answers,
        "columns": table.kinds,
        "dropped": [*table.roles.dropped, *table.left_out, *filter(None, others)],
        "weight": table.roles.weight or "",
        "images": _pictures(table),
        "imputation": encoding.imputation,
        "dates": {name: each.to_dict() for name, each in encoding.dates.items()},
        "texts_sha256": text_file.digest_of(encoding.texts),
        "formats": {name: plain_form(form) for name, form in table.formats.items()},
        "missing": list(table.roles.missing),
        "encoders": {view: encoder.to_dict() for view, encoder in encoding.encoders.items()},
        "rows": {"train": rows[0], "val": rows[1]},
        "scores": {key: value if math.isfinite(value) else None for key, value in scores.items()},
        "seed": seed,
        "table": getattr(getattr(table.file, "path", None), "name", str(table.file)),
        "sha256": table.file.digest(),
    }
    return Card.model_validate(card)


def prior_of(table: OwnTable, train: np.ndarray) -> list[float]:
    """The shares of the classes among some rows, or the rows' mean."""
    labels, weights = table.labels[train], weights_of(table, train)
    if not table.classes:
        return [float(np.average(labels, weights=weights))]
    counts = np.bincount(labels, weights, minlength=len(table.classes))
    found: list[float] = (counts / counts.sum()).tolist()
    return found


def _pictures(table: OwnTable) -> dict[str, Any] | None:
    form = table.form
    if form is None:
        return None
    return {
        "columns": list(form.columns),
        "size": [form.size, form.size],
        "channels": form.channels,
        "aspect": form.aspect,
        "pooled": form.pooled,
    }

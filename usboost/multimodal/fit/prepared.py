"""A model fitted to a prepared dataset as a bundle, and prepared rows as a bundle takes them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from usboost.datasets import image_store, store
from usboost.datasets.store import LABEL, task_of
from usboost.multimodal.fit.bundle import Bundle
from usboost.multimodal.fit.card import Card
from usboost.table.prepared import as_file

IMAGE = "image"
"""The column of images of rows that come from no table with one."""


def bundle_of(
    model: Any,
    prepared: Mapping[str, Any],
    *,
    name: str,
    seed: int,
    scores: Mapping[str, float],
    margin: Sequence[float] | None = None,
) -> Bundle:
    """A fitted model with what a prepared dataset's card says of its columns; no number may be missing.

    A user's own table is no such dataset: a fit to it makes the bundle, see `table_fit.TableFit`.

    Parameters
    ----------
    model : fitted to the split ``train``.
    prepared : the card, see `usboost.datasets.store.describe`.
    name, seed : of the model.
    scores : of the split ``val``.
    margin : of a predicted number, see `usboost.evaluation.intervals.margin_of`.
    """
    names = dict.fromkeys(each for view in prepared["views"].values() for each in view)
    kinds = {
        each: "number" if prepared["columns"][each]["kind"] == "continuous" else "category" for each in names
    }
    sources, about = prepared["sources"], prepared.get("images")
    card = {
        "model": name,
        "task": task_of(prepared),
        "classes": prepared["classes"],
        "label": LABEL,
        "margin": None if margin is None else list(margin),
        "prior": _prior(prepared),
        **({} if prepared["classes"] else {"label_kind": "float"}),
        "columns": kinds,
        "dropped": [],
        "images": {**about, "columns": [IMAGE]} if about else None,
        "imputation": {
            each: {"value": None, "indicator": False} for each, kind in kinds.items() if kind == "number"
        },
        "encoders": prepared["encoders"],
        "rows": {split: prepared["splits"][split]["rows"] for split in ("train", "val")},
        "scores": {key: value if math.isfinite(value) else None for key, value in scores.items()},
        "seed": seed,
        "table": next(iter(sources)) if len(sources) == 1 else prepared["dataset"],
        "sha256": next(iter(sources.values())) if len(sources) == 1 else "",
    }
    return Bundle(model, Card.model_validate(card))


def raw_rows(card: Card, frame: pd.DataFrame, *images: Sequence[bytes | None]) -> pd.DataFrame:
    """Rows of a prepared frame as a bundle takes them.

    Parameters
    ----------
    frame : rows of a prepared split.
    images : their images' files, None where a row has none; one sequence for each column of images.

    Returns
    -------
    float64 numbers, strings or None, dates as ISO 8601, and the images' bytes: what `Bundle.predict` takes.
    """
    found: dict[str, pd.Series] = {}
    for name, kind in card.columns.items():
        if kind == "number":
            found[name] = frame[name].astype(np.float64)
            continue
        column = (
            frame[name].map(pd.Timestamp.isoformat, na_action="ignore") if kind == "date" else frame[name]
        )
        column = column.astype(object)
        found[name] = column.where(column.notna(), None)
    for column, files in zip(card.images.columns if card.images else [], images):
        found[column] = pd.Series(list(files), index=frame.index, dtype=object)
    return pd.DataFrame(found)


def example_of(card: Card, folder: Path) -> pd.DataFrame:
    """Two validation rows of a prepared dataset, as a client sends them."""
    rows = store.read_frame(folder, "val").head(2)
    about: dict[str, Any] = store.read_card(folder).get("images", {})
    found = []
    for part in image_store.parts("val", about) if about else []:
        shard = about["splits"][part]["shards"][0]["file"]
        images = pq.read_table(folder / image_store.FOLDER / part / shard, columns=["image"])["image"]
        found.append([as_file(each, about) for each in images.slice(0, len(rows)).to_pylist()])
    return raw_rows(card, rows, *found)


def _prior(prepared: Mapping[str, Any]) -> list[float]:
    """Of the training rows, the shares of the classes or the mean; none where the card does not say."""
    train = prepared["splits"]["train"]
    if "label" in train:
        return [float(train["label"]["mean"])]
    counts = [train.get("classes", {}).get(name, 0) for name in prepared["classes"]]
    return [count / sum(counts) for count in counts] if sum(counts) else []

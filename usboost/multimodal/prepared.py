"""A model fitted to a prepared dataset as a bundle, which reads rows of the table before its preparation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from usboost.datasets.custom import text_file
from usboost.datasets.custom.columns import Kind
from usboost.datasets.custom.dates import DateParts
from usboost.datasets.custom.encoding import SUFFIX, added
from usboost.datasets.prepared.store import LABEL, task_of
from usboost.errors import UsboostError
from usboost.multimodal.bundle import Bundle
from usboost.multimodal.card import Card

IMAGE = "image"
"""The column of pictures of rows that come from no table with one."""


def bundle_of(
    model: Any,
    prepared: Mapping[str, Any],
    *,
    name: str,
    seed: int,
    scores: Mapping[str, float],
    margin: Sequence[float] | None = None,
    folder: Path | None = None,
) -> Bundle:
    """A fitted model with what a prepared dataset's card says of its columns.

    A person's own table keeps its names, medians and indicator columns; in the papers' datasets, which have
    no gaps, no number may be missing.

    Parameters
    ----------
    model : fitted to the split ``train``.
    prepared : the card, see `usboost.datasets.prepared.store.describe`.
    name, seed : of the model.
    scores : of the split ``val``; margin : of a predicted number, see `fit.margin_of`.
    folder : of the prepared dataset; needed where it has columns of text.

    Raises
    ------
    UsboostError
        If what was learnt of the columns of text is not there.
    """
    imputation = prepared.get("imputation", {})
    dates = prepared.get("dates", {})
    about_texts = prepared.get("texts") or {"columns": [], "sha256": ""}
    if about_texts["columns"] and folder is None:
        raise UsboostError("the dataset has columns of text; name the folder that it is prepared in")
    texts = text_file.read(folder or Path(), about_texts["columns"], about_texts["sha256"])
    date_of = {part: name for name, each in dates.items() for part in DateParts(**each).names(name)}
    text_of = {part: name for name, each in texts.items() for part in each.names(name)}
    names = [each for view in prepared["views"].values() for each in view]
    kinds = {
        date_of.get(each) or text_of.get(each, each): "date"
        if each in date_of
        else "text"
        if each in text_of
        else _kind(prepared["columns"][each]["kind"])
        for each in dict.fromkeys(names)
        if each not in added(imputation)
    }
    roles, sources, about = prepared.get("roles", {}), prepared["sources"], prepared.get("images")
    if about:
        # an earlier card names one column
        columns = about.get("columns") or [about.get("column", IMAGE)]
        about = {**about, "columns": columns, "pooled": len(columns) > 1}
    named = [*roles.get("dropped", []), *filter(None, [roles.get("split")])]
    card = {
        "model": name,
        "task": task_of(prepared),
        "classes": prepared["classes"],
        "label": roles.get("label", LABEL),
        "margin": None if margin is None else list(margin),
        "prior": _prior(prepared),
        **({} if prepared["classes"] else {"label_kind": "float"}),
        "columns": kinds,
        "dropped": named,
        "images": about,
        "imputation": {
            each: imputation.get(each, {"value": None, "indicator": False})
            for each in [*(name for name, kind in kinds.items() if kind == "number"), *date_of, *text_of]
        },
        "dates": dates,
        "texts_sha256": about_texts["sha256"],
        "formats": prepared.get("formats", {}),
        "missing": prepared.get("missing", []),
        "encoders": prepared["encoders"],
        "rows": {split: prepared["splits"][split]["rows"] for split in ("train", "val")},
        "scores": {key: value if math.isfinite(value) else None for key, value in scores.items()},
        "seed": seed,
        "table": next(iter(sources)) if len(sources) == 1 else prepared["dataset"],
        "sha256": next(iter(sources.values())) if len(sources) == 1 else "",
    }
    return Bundle(model, Card.model_validate(card), texts)


def raw_rows(card: Card, frame: pd.DataFrame, *pictures: Sequence[bytes | None]) -> pd.DataFrame:
    """Rows of a prepared frame as they were before: missing values where the indicator columns mark them.

    Parameters
    ----------
    frame : rows of a prepared split.
    pictures : their pictures' files, None where a row has none; one sequence for each column of pictures.

    Returns
    -------
    float64 numbers, strings or None, dates as ISO 8601, and the pictures' bytes: what `Bundle.predict` takes.
    """
    found: dict[str, pd.Series] = {}
    for name, kind in card.columns.items():
        if kind in ("category", "text"):
            column = frame[name].astype(object)
            found[name] = column.where(column.notna(), None)
            continue
        if kind == "date":
            found[name] = _dates(name, card, frame)
            continue
        found[name] = frame[name].astype(np.float64)
        if card.imputation[name].indicator:
            found[name] = found[name].mask(frame[f"{name}{SUFFIX}"] == 1)
    for column, files in zip(card.images.columns if card.images else [], pictures):
        found[column] = pd.Series(list(files), index=frame.index, dtype=object)
    return pd.DataFrame(found)


def _prior(prepared: Mapping[str, Any]) -> list[float]:
    """Of the training rows, the shares of the classes or the mean; none where the card does not say."""
    train = prepared["splits"]["train"]
    if "label" in train:
        return [float(train["label"]["mean"])]
    counts = [train.get("classes", {}).get(name, 0) for name in prepared["classes"]]
    return [count / sum(counts) for count in counts] if sum(counts) else []


def _kind(prepared: str) -> Kind:
    return "number" if prepared == "continuous" else "category"


def _dates(name: str, card: Card, frame: pd.DataFrame) -> pd.Series:
    """Dates to the minute, by the days since the reference."""
    parts = card.dates[name].rule
    days = frame[f"{name}_days"] if "days" in parts.parts else pd.Series(0.0, frame.index)
    found = pd.Timestamp(parts.reference) + pd.to_timedelta(days.astype(np.float64), unit="D")
    texts = found.dt.round("min").dt.strftime("%Y-%m-%dT%H:%M").astype(object)
    first = parts.names(name)[0]
    if card.imputation[first].indicator:
        texts = texts.mask(frame[f"{first}{SUFFIX}"] == 1, None)
    return texts

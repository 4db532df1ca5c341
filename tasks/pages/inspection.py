"""Inspection of a fitted model: written beside its record, and so logged to its MLflow run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tasks.folders import prepared_folder
from usboost.data.images import EncodedImages, Images
from usboost.data.views import Views
from usboost.datasets import store
from usboost.models.estimator import ViewsEstimator
from usboost.models.inspection.inspect import informative_columns
from usboost.models.methods import bfv_network
from usboost.models.methods.bfv_network import BFV
from usboost.report.inspection import COLUMNS, FOLDER, as_shown, inspect, write
from usboost.table.prepared import ROW

ROWS, IMAGES = 2000, 400  # samples on which views are shuffled


def write_inspection(
    estimator: ViewsEstimator,
    dataset: str,
    validation: tuple[Views, np.ndarray],
    predicted: np.ndarray,
    out: Path,
) -> None:
    """Inspect a model on the validation split; writes ``<out>/inspection``.

    Parameters
    ----------
    predicted : the model's probabilities for the validation split, (n, M), or numbers, (n,)
    """
    views, y = validation
    folder = prepared_folder(dataset)
    card = store.read_card(folder)
    with_images = card.get("images", {}).get("view")
    found = inspect(
        estimator,
        _read(estimator, views),
        y,
        [str(name) for name in card["classes"]],
        label=str(card.get("roles", {}).get("label", "the label")),
        predicted=predicted,
        # the same every time
        sample=np.sort(np.random.default_rng(0).permutation(len(y))[: IMAGES if with_images else ROWS]),
    )
    shown: Any = views[with_images] if with_images else None
    images: dict[int, bytes] = {}
    for row in found.tables["worst"]["row"].tolist() if isinstance(shown, Images | EncodedImages) else ():
        if picture := shown.picture(row):
            images[row] = as_shown(picture)
    write(found, out / FOLDER, _informative(store.read_frame(folder, "val"), card), images)


def _read(estimator: ViewsEstimator, views: Views) -> Views:
    """Return the views without the table that BFVs stand for, which the model then does not read."""
    kinds = bfv_network.BoostedFeatureNetworkClassifier, bfv_network.BoostedFeatureNetworkRegressor
    if not (isinstance(estimator, kinds) and BFV in views.names):
        return views
    return Views({name: views[name] for name in views.names if name != estimator.structured})


def _informative(frame: pd.DataFrame, card: Mapping[str, Any]) -> pd.DataFrame:
    """Return the columns to show of a sample; first, if known, its class before a label was switched."""
    y = frame[store.LABEL].to_numpy()
    raw = frame.drop(columns=[store.LABEL, store.CLEAN, ROW], errors="ignore")
    out = raw[informative_columns(raw, y, COLUMNS)]
    if store.CLEAN in frame:
        names = np.asarray([str(name) for name in card["classes"]], dtype=object)
        out.insert(0, store.CLEAN, names[frame[store.CLEAN].to_numpy()])
    return out.astype(object).where(out.notna(), "–")

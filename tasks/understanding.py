"""What helps to understand a fitted model: beside its results, and on its MLflow run."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from mlflow.tracking import MlflowClient
from PIL import Image

from tasks import tracking
from tasks.folders import prepared_folder
from usboost.base import ViewsClassifier
from usboost.datasets import store
from usboost.images import EncodedImages, Images
from usboost.reporting import understanding
from usboost.views import Views

FOLDER = "understanding"
ROWS, PICTURES = 2000, 400  # samples looked at: permuting a view asks the model again and again
SIDE = 128


def keep(
    estimator: ViewsClassifier, dataset: str, validation: tuple[Views, np.ndarray], run_id: str, out: Path
) -> None:
    """Look at a fitted model on validation samples; writes ``<out>/understanding`` and MLflow artifacts."""
    views, y = validation
    folder = prepared_folder(dataset)
    card = store.read_card(folder)
    pictured = card.get("images", {}).get("view")
    most = PICTURES if pictured else ROWS
    chosen = np.arange(len(y))
    if len(y) > most:
        chosen = np.sort(np.random.default_rng(0).permutation(len(y))[:most])
    found = understanding.understand(estimator, views[chosen], y[chosen], [str(c) for c in card["classes"]])
    frame = store.read_frame(folder, "val").iloc[chosen].drop(columns=store.LABEL, errors="ignore")
    pictures: dict[int, bytes] = {}
    if isinstance(shown := views[pictured] if pictured else None, (Images, EncodedImages)):
        pictures = _pictures(shown[chosen], found.worst["row"].tolist())
    understanding.write(found, out / FOLDER, _plain(frame), pictures)
    with tracking.once(run_id, "understood") as first:
        if first:
            tracking.patiently(
                "what helps to understand the model",
                lambda: MlflowClient().log_artifacts(run_id, str(out / FOLDER), FOLDER),
            )


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Values as a person reads them; missing ones as a dash."""
    return frame.astype(object).where(frame.notna(), "–")


def _pictures(view: Images | EncodedImages, rows: Sequence[int]) -> dict[int, bytes]:
    """PNG files of some samples of a view of pictures, enlarged without blurring."""
    out = {}
    for row in rows:
        pixels = view.decode(row)[0]
        image = Image.fromarray(pixels[0] if pixels.shape[0] == 1 else pixels.transpose(1, 2, 0))
        scale = max(1, SIDE // max(image.size))
        shown = image.resize((image.width * scale, image.height * scale), Image.Resampling.NEAREST)
        if max(shown.size) > SIDE:
            shown.thumbnail((SIDE, SIDE))
        encoded = io.BytesIO()
        shown.save(encoded, "PNG", optimize=True)
        out[row] = encoded.getvalue()
    return out

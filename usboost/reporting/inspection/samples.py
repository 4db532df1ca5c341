"""Sample images of each class of a prepared dataset (the paper's Figure 2), or of small to large labels."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from usboost.datasets.prepared.store import CLEAN, LABEL, task_of
from usboost.evaluation.names import number

PER_CLASS = 6
LARGEST_SIDE = 4096
SIDE = 128  # pixels shown; smaller images are enlarged without blurring


def sample_images(folder: Path, card: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """For each class, its name and up to `PER_CLASS` training images as PNG data URIs.

    Where a number is predicted, for each third of the training rows by it, and where that lies. The class is
    that before any label was switched, where the dataset keeps it. Empty where the dataset has no images,
    or they cannot be read.
    """
    if "images" not in card:
        return []
    try:
        shard = Path(card["images"]["splits"]["train"]["shards"][0]["file"]).name
        images = pq.read_table(folder / "images" / "train" / shard, columns=["image"])["image"]
        names = pq.read_schema(folder / "train.parquet").names
        column = CLEAN if CLEAN in names else LABEL
        labels = pq.read_table(folder / "train.parquet", columns=[column])[column].to_numpy()[: len(images)]
        there = images.is_valid().to_numpy()
    except (OSError, KeyError, IndexError, TypeError, ValueError, pa.ArrowException):
        return []
    out, names = [], card["classes"]
    if task_of(card) == "regression":
        labels, names = _thirds(labels)
    for code, name in enumerate(names):
        rows = [int(row) for row in ((labels == code) & there).nonzero()[0][:PER_CLASS]]
        try:
            out.append((str(name), [_data_uri(images[row].as_py()) for row in rows]))
        except Exception:  # a damaged image can make Pillow's decoders raise nearly anything
            return []
    return out


def _thirds(labels: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Which third each of some numbers is in, and where the thirds lie."""
    ends = np.quantile(labels, [0, 1 / 3, 2 / 3, 1])
    codes = np.searchsorted(ends[1:3], labels)
    return codes, [f"{number(low)} to {number(high)}" for low, high in pairwise(ends)]


def _data_uri(encoded: bytes) -> str:
    with Image.open(io.BytesIO(encoded), formats=("PNG", "JPEG")) as opened:
        if max(opened.size) > LARGEST_SIDE:
            raise ValueError("a sample image is larger than prepared ones are")
        image = opened.convert("RGB" if opened.mode == "RGB" else "L")
    scale = max(1, SIDE // max(image.size))
    shown = image.resize((image.width * scale, image.height * scale), Image.Resampling.NEAREST)
    if max(shown.size) > SIDE:
        shown.thumbnail((SIDE, SIDE))
    out = io.BytesIO()
    shown.save(out, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()

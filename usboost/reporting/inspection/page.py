"""A fitted model's inspection, computed after the fit and kept in files, sample images; for the report."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from usboost.data.views import Views
from usboost.datasets.store import CLEAN, LABEL, task_of
from usboost.errors import UsboostError
from usboost.evaluation.metrics import confusion
from usboost.evaluation.names import number
from usboost.evaluation.task import TASKS
from usboost.models.estimator import ViewsEstimator
from usboost.models.inspection.inspect import calibration, view_contributions, view_importance, worst_samples
from usboost.reporting.figures import to_svg
from usboost.reporting.inspection.figures import drawn_rows
from usboost.reporting.inspection.inspected import TITLES, Inspection, NumberInspection
from usboost.table.prepared import as_file

FOLDER = "inspection"
"""Beside a cell's scores."""

FILE = "inspection.json"
_DIGITS = "%.9g"  # an error is the difference of two numbers
_KINDS = {"view": str, "metric": str, "round": int, "count": int, "row": int}
COLUMNS = 8  # of a sample
SHUFFLES = 5  # of each view
WORST = 12
_MOST_VIEWS = 4  # a sequence has a view a frame
_LARGEST = 4_000_000  # bytes of an image or a table that a page takes


def inspect(
    model: ViewsEstimator,
    X: Views,
    y: np.ndarray,
    classes: Sequence[str],
    *,
    label: str = "the label",
    predicted: np.ndarray | None = None,
    sample: np.ndarray | None = None,
    n_repeats: int = SHUFFLES,
) -> Inspection | NumberInspection:
    """Inspect a fitted model on n samples.

    Parameters
    ----------
    y : int array of shape (n,), codes as a classifier was fitted to; or floats
    classes : their names; none where a number is predicted
    label : the name of that number
    predicted : the model's probabilities for the samples, (n, M), or numbers, (n,), if known; else they are
        computed
    sample : positions of the samples on which views are shuffled and learners measured, which takes
        further predictions; all by default
    n_repeats : shuffles per view
    """
    from usboost.models.methods.weak_learners import BoostedWeakLearners

    if predicted is None:
        predicted = TASKS["classification" if classes else "regression"].predict(model, X)
    some, labels = (X, y) if sample is None else (X[sample], y[sample])
    several = 1 < len(X.names) <= _MOST_VIEWS
    of_views = (
        view_contributions(model, some) if isinstance(model, BoostedWeakLearners) else pd.DataFrame(),
        view_importance(model, some, labels, n_repeats) if several else pd.DataFrame(),
    )
    if classes:
        counts = confusion(y, predicted.argmax(axis=1), len(classes))
        bins, worst = calibration(y, predicted), worst_samples(y, predicted, WORST)
        return Inspection(*of_views, list(classes), counts, bins, worst)
    frame = pd.DataFrame({"row": np.arange(len(y)), "true": y, "predicted": predicted})
    largest = np.argsort(-np.abs(predicted - y), kind="stable")[:WORST]
    shown = frame.iloc[drawn_rows(len(y))].reset_index(drop=True)
    return NumberInspection(*of_views, label, shown, frame.iloc[largest].reset_index(drop=True))


def write(
    found: Inspection | NumberInspection,
    folder: Path,
    rows: pd.DataFrame | None = None,
    images: Mapping[int, bytes] | None = None,
) -> None:
    """Write tables as CSV, figures as SVG, the worst samples' images, and `FILE` for the report.

    Parameters
    ----------
    rows : raw values of the samples, for those that are shown; a page shows the first columns
    images : PNG files by the samples' positions
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in found.tables:
        getattr(found, name).to_csv(folder / f"{name}.csv", index=False, float_format=_DIGITS)
    if isinstance(found, Inspection):
        names = pd.Index(found.classes, name="true")
        pd.DataFrame(found.confusion, names, found.classes).to_csv(folder / "confusion.csv")
    for name, draw in found.figures.items():
        (folder / f"{name}.svg").write_text(to_svg(draw()))
    shown = []
    for place, row in enumerate(found.worst.itertuples()):
        about: dict[str, Any] = {"values": {}, "image": None}
        if rows is not None:
            values = rows.iloc[int(row.row)]
            about["values"] = {str(name): _text(value) for name, value in values.items()}
        if images and int(row.row) in images:
            about["image"] = f"worst-{place:02d}.png"
            (folder / about["image"]).write_bytes(images[int(row.row)])
        shown.append(about)
    document = {**found.document, "shown": shown}
    (folder / FILE).write_text(json.dumps(document, indent=1) + "\n")


def _text(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def read(folder: Path) -> dict[str, Any] | None:
    """What the page shows: figures as SVG and the worst samples; None if nothing was kept.

    Raises `UsboostError` if a file there is damaged.
    """
    if not (folder / FILE).is_file():
        return None
    try:
        document = json.loads(_bytes(folder / FILE))
        found = _kept(document, folder)
        worst = [
            {
                **found.said(row),
                "values": [(str(k), str(v)) for k, v in about["values"].items()][:8],
                "image": _data_uri(folder / Path(about["image"]).name) if about["image"] else None,
            }
            for row, about in zip(found.worst.itertuples(), document["shown"], strict=True)
        ]
        figures = {name: _bytes(folder / f"{name}.svg").decode() for name in found.figures}
    except UsboostError:
        raise
    except Exception as error:  # a damaged table can make pandas and matplotlib raise nearly anything
        raise UsboostError(f"{folder} is damaged ({type(error).__name__}); train this model again") from error
    return {"figures": [(TITLES[name], svg) for name, svg in figures.items()], "worst": worst}


def _kept(document: Mapping[str, Any], folder: Path) -> Inspection | NumberInspection:
    numbers = document.get("task") == "regression"
    kind = NumberInspection if numbers else Inspection
    tables = {name: _table(folder / f"{name}.csv", columns) for name, columns in kind.tables.items()}
    if numbers:
        return NumberInspection(label=str(document["label"]), **tables)
    classes = [str(name) for name in document["classes"]]
    counts = _table(folder / "confusion.csv").iloc[:, 1:].astype(np.int64).to_numpy()
    if counts.shape != (len(classes), len(classes)):
        raise ValueError("confusion.csv is not of these classes")
    return Inspection(classes=classes, confusion=counts, **tables)


def _table(path: Path, columns: Sequence[str] = ()) -> pd.DataFrame:
    """A table with at least these columns, or an empty one."""
    text = _bytes(path).decode()
    if not text.strip():
        return pd.DataFrame()
    return pd.read_csv(io.StringIO(text)).astype({name: _KINDS.get(name, float) for name in columns})


def _bytes(path: Path) -> bytes:
    if path.stat().st_size > _LARGEST:
        raise UsboostError(f"{path} is larger than anything the training flow writes; train this model again")
    return path.read_bytes()


def _data_uri(path: Path) -> str:
    return "data:image/png;base64," + base64.b64encode(_bytes(path)).decode()


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
            out.append((str(name), [_png_uri(as_file(images[row].as_py(), card["images"])) for row in rows]))
        except Exception:  # a damaged image can make Pillow's decoders raise nearly anything
            return []
    return out


def _thirds(labels: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Which third each of some numbers is in, and where the thirds lie."""
    ends = np.quantile(labels, [0, 1 / 3, 2 / 3, 1])
    codes = np.searchsorted(ends[1:3], labels)
    return codes, [f"{number(low)} to {number(high)}" for low, high in pairwise(ends)]


def _png_uri(encoded: bytes | None) -> str:
    with Image.open(io.BytesIO(encoded or b""), formats=("PNG", "JPEG")) as opened:
        if max(opened.size) > LARGEST_SIDE:
            raise ValueError("a sample image is larger than prepared ones are")
        image = opened.convert("RGB" if opened.mode == "RGB" else "L")
    return "data:image/png;base64," + base64.b64encode(as_shown(image)).decode()


def as_shown(image: Image.Image) -> bytes:
    """A PNG file of an image, enlarged without blurring, or made smaller."""
    scale = max(1, SIDE // max(image.size))
    shown = image.resize((image.width * scale, image.height * scale), Image.Resampling.NEAREST)
    if max(shown.size) > SIDE:
        shown.thumbnail((SIDE, SIDE))
    out = io.BytesIO()
    shown.save(out, "PNG", optimize=True)
    return out.getvalue()

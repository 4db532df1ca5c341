"""Inspect a fitted model and keep that in files for the report; sample images of a prepared dataset."""

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.figure import Figure
from PIL import Image

from usboost.data.views import Views
from usboost.datasets.store import CLEAN, LABEL, task_of
from usboost.errors import UsboostError
from usboost.evaluation.metrics import confusion
from usboost.evaluation.ranking import number
from usboost.evaluation.task import TASKS
from usboost.models.estimator import ViewsEstimator
from usboost.models.inspection import inspect as measured
from usboost.report import model_figures as figures
from usboost.report.figures import data_uri, to_svg
from usboost.table.prepared import as_file

FOLDER = "inspection"  # in a cell's folder of results

FILE = "inspection.json"
_DIGITS = "%.9g"  # an error is the difference of two numbers
COLUMNS = 8  # of a sample
SHUFFLES = 5  # of each view
WORST = 12
_MOST_VIEWS = 4  # a sequence has a view a frame
_LARGEST = 4_000_000  # bytes of an image or a figure that a page takes


@dataclass(frozen=True)
class Inspection:
    """One fitted model on one set of samples."""

    classes: list[str]  # none where a number is predicted, which is called `label`
    label: str
    # contributions and importance of the views, empty where there is one alone; calibration and worst as
    # `usboost.models.inspection.inspect` gives them; of a number predicted, the true and the predicted ones
    # of the samples, or of as many as a figure shows, and worst
    tables: dict[str, pd.DataFrame]
    confusion: np.ndarray  # counts (M, M), a row a true class; of a number (0, 0)

    @property
    def figures(self) -> dict[str, tuple[str, Callable[[str], Figure]]]:
        """Return by name the title of each figure, and the function that draws it."""
        drawn: dict[str, tuple[str, Callable[[str], Figure]]] = {}
        own = self.tables
        if not own["contributions"].empty:
            draw = partial(figures.contributions, own["contributions"])
            drawn["contributions"] = "Contribution of each view", draw
        if not own["importance"].empty:
            draw = partial(figures.importance, own["importance"])
            drawn["importance"] = "Permutation importance of each view", draw
        if not self.classes:
            true, predicted = (own["predicted"][name].to_numpy() for name in ("true", "predicted"))
            scatter, rest = figures.predicted_against_true, figures.residuals
            drawn["predicted"] = "Predicted against true", lambda _: scatter(true, predicted, self.label)
            drawn["residuals"] = "Residuals", lambda _: rest(true, predicted, (), self.label)
            return drawn
        error = measured.expected_calibration_error(own["calibration"])
        draw = partial(figures.calibration, own["calibration"])
        drawn["calibration"] = f"Calibration (expected error {error:.3f})", draw
        if len(self.classes) <= figures.MOST_CLASSES:
            drawn["confusion"] = "Confusion matrix", partial(figures.confusion, self.confusion, self.classes)
        return drawn

    def texts(self, row: Any) -> dict[str, str]:
        """Write a row of the worst."""
        if self.classes:
            true, predicted = self.classes[int(row.true)], self.classes[int(row.predicted)]
            p_true, p_predicted = f"{row.p_true:.3f}", f"{row.p_predicted:.3f}"
        else:
            true, predicted, error = number(row.true), number(row.predicted), row.predicted - row.true
            p_true, p_predicted = "", ("+" if error >= 0 else "−") + number(abs(error))
        return {"true": true, "predicted": predicted, "p_true": p_true, "p_predicted": p_predicted}


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
) -> Inspection:
    """Inspect a fitted model on n samples.

    Their labels y are codes as a classifier was fitted to, of `classes`, or numbers, called `label`;
    `predicted` are the model's probabilities (n, M) or numbers (n,), by default computed. Views are shuffled,
    each `n_repeats` times, and learners measured on the positions `sample`, by default all.
    """
    from usboost.models.methods.weak_learners import BoostedWeakLearners

    if predicted is None:
        predicted = TASKS["classification" if classes else "regression"].predict(model, X)
    some, labels = (X, y) if sample is None else (X[sample], y[sample])
    several = 1 < len(X.names) <= _MOST_VIEWS
    boosted = isinstance(model, BoostedWeakLearners)
    tables = {
        "contributions": measured.view_contributions(model, some) if boosted else pd.DataFrame(),
        "importance": measured.view_importance(model, some, labels, n_repeats) if several else pd.DataFrame(),
    }
    if classes:
        counts = confusion(y, predicted.argmax(axis=1), len(classes))
        tables["calibration"] = measured.calibration(y, predicted)
        tables["worst"] = measured.worst_samples(y, predicted, WORST)
        return Inspection(list(classes), label, tables, counts)
    frame = pd.DataFrame({"row": np.arange(len(y)), "true": y, "predicted": predicted})
    largest = np.argsort(-np.abs(predicted - y), kind="stable")[:WORST]
    tables["predicted"] = frame.iloc[figures.drawn_rows(len(y))].reset_index(drop=True)
    tables["worst"] = frame.iloc[largest].reset_index(drop=True)
    return Inspection([], label, tables, np.zeros((0, 0), dtype=np.int64))


def write(
    inspection: Inspection,
    folder: Path,
    rows: pd.DataFrame | None = None,
    images: Mapping[int, bytes] | None = None,
) -> None:
    """Write tables as CSV, figures as SVG, the worst samples' images, and `FILE` with what a page says.

    A page shows the first columns of `rows`, the raw values of the samples. `images`: PNG files by position.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in inspection.tables.items():
        table.to_csv(folder / f"{name}.csv", index=False, float_format=_DIGITS)
    if inspection.classes:
        names = pd.Index(inspection.classes, name="true")
        pd.DataFrame(inspection.confusion, names, inspection.classes).to_csv(folder / "confusion.csv")
    drawn: dict[str, str] = {}
    for name, (title, draw) in inspection.figures.items():
        (folder / f"{name}.svg").write_text(to_svg(draw(title)), encoding="utf-8")
        drawn[name] = title.partition(" (")[0]
    worst = []
    for place, row in enumerate(inspection.tables["worst"].itertuples()):
        about: dict[str, Any] = {**inspection.texts(row), "values": {}, "image": None}
        if rows is not None:
            values = rows.iloc[int(row.row), :COLUMNS]
            texts = (f"{value:g}" if isinstance(value, float) else str(value) for value in values)
            texts = (text if len(text) <= 60 else f"{text[:59]}…" for text in texts)
            about["values"] = dict(zip(map(str, values.index), texts, strict=True))
        if images and int(row.row) in images:
            about["image"] = f"worst-{place:02d}.png"
            (folder / about["image"]).write_bytes(images[int(row.row)])
        worst.append(about)
    (folder / FILE).write_text(json.dumps({"figures": drawn, "worst": worst}, indent=1) + "\n")


def read(folder: Path) -> dict[str, Any] | None:
    """Read what a page shows: figures as SVG and the worst samples; None if nothing was stored.

    Raises `UsboostError` if a file there is damaged.
    """
    if not (folder / FILE).is_file():
        return None
    try:
        document = json.loads(_bytes(folder / FILE))
        figures = document["figures"].items()
        drawn = [(str(title), _bytes(folder / f"{Path(name).name}.svg").decode()) for name, title in figures]
        worst = [
            {
                **{key: str(about[key]) for key in ("true", "predicted", "p_true", "p_predicted")},
                "values": [(name, str(text)) for name, text in about["values"].items()],
                "image": about["image"] and data_uri(_bytes(folder / Path(about["image"]).name), "png"),
            }
            for about in document["worst"]
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsboostError(f"{folder} is damaged ({type(error).__name__}); train this model again") from error
    return {"figures": drawn, "worst": worst}


def _bytes(path: Path) -> bytes:
    if path.stat().st_size > _LARGEST:
        raise UsboostError(f"{path} is larger than anything the training flow writes; train this model again")
    return path.read_bytes()


PER_CLASS = 6
LARGEST_SIDE = 4096
SIDE = 128  # pixels shown; smaller images are enlarged without blurring


def sample_images(folder: Path, card: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Return for each class its name and up to `PER_CLASS` training images as PNG data URIs.

    Where a number is predicted, for each third of the training rows by it, and where that lies. The class is
    that before any was switched, where the dataset keeps it. Empty without images that can be read.
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
        ends = np.quantile(labels, [0, 1 / 3, 2 / 3, 1])
        labels = np.searchsorted(ends[1:3], labels)
        names = [f"{number(low)} to {number(high)}" for low, high in pairwise(ends)]
    for code, name in enumerate(names):
        rows = [int(row) for row in ((labels == code) & there).nonzero()[0][:PER_CLASS]]
        try:
            out.append((str(name), [_png_uri(as_file(images[row].as_py(), card["images"])) for row in rows]))
        except Exception:  # a damaged image can make Pillow's decoders raise nearly anything
            return []
    return out


def _png_uri(encoded: bytes | None) -> str:
    with Image.open(io.BytesIO(encoded or b""), formats=("PNG", "JPEG")) as opened:
        if max(opened.size) > LARGEST_SIDE:
            raise ValueError("a sample image is larger than prepared ones are")
        image = opened.convert("RGB" if opened.mode == "RGB" else "L")
    return data_uri(as_shown(image), "png")


def as_shown(image: Image.Image) -> bytes:
    """Return a PNG file of an image, enlarged without blurring, or made smaller."""
    scale = max(1, SIDE // max(image.size))
    shown = image.resize((image.width * scale, image.height * scale), Image.Resampling.NEAREST)
    if max(shown.size) > SIDE:
        shown.thumbnail((SIDE, SIDE))
    out = io.BytesIO()
    shown.save(out, "PNG", optimize=True)
    return out.getvalue()

"""A bundle as a folder that answers without usboost: `FILES`."""

import hashlib
import json
import re
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from usboost.data.value import missing_of
from usboost.datasets.image_files import FORMATS
from usboost.errors import UsboostError
from usboost.evaluation.intervals import UNKNOWN
from usboost.evaluation.metrics import SMALLEST
from usboost.export import spelling
from usboost.export.images import image_input
from usboost.files import replacing
from usboost.files.onnx_graph import OPSETS, Graph, ImageNodes, ViewNodes, added
from usboost.fit.bundle import Bundle
from usboost.learners.networks.backbones import Backbone, licence_of
from usboost.models.persistence import digests
from usboost.table.columns.column import MARKS, MISSING
from usboost.table.columns.encoding import NOTHING
from usboost.table.columns.formats import DateFormat

FILES = ("card.json", "index.html", "model.onnx", "predict.py")
KIND = "usboost model in ONNX"
NUMBERS = ["prediction", "low", "high"]


def export(bundle: Bundle, folder: Path, source: Path | None = None) -> int:
    """Write the folder, whole or not at all; an earlier export of that name is replaced.

    Returns the bytes of the model. Raises `UsboostError` if a part of the model has no ONNX form, a column is
    of texts, onnx is not installed, or something other than an export is there. `folder` gets `FILES`;
    `source` is the folder that the model was read from, whose digest the card says.
    """
    folder = Path(folder)
    if folder.exists() and not (folder.is_dir() and {each.name for each in folder.iterdir()} == set(FILES)):
        raise UsboostError(f"{folder} exists and is not, or not only, an export; name another folder (`out`)")
    about = describe(bundle, source)
    columns = {name: each["kind"] for name, each in about["columns"].items()}
    model = graph_of(bundle).model({"columns": json.dumps(columns), "model": about["model"], "kind": KIND})
    data = model.SerializeToString()
    text = json.dumps({**about, "bytes": len(data)}, indent=1, ensure_ascii=False, allow_nan=False)
    with replacing(folder) as fresh:
        (fresh / "model.onnx").write_bytes(data)
        (fresh / "card.json").write_text(text + "\n", encoding="utf-8")
        for name in ("predict.py", "index.html"):
            shutil.copyfile(Path(__file__).with_name(name), fresh / name)
    return len(data)


def graph_of(bundle: Bundle) -> Graph:
    """Return the graph from raw values to answers.

    Inputs are named as the columns: float64 (n,) numbers, and dates as seconds since 1970 in UTC, NaN where
    missing; str (n,) categories, "" where missing; uint8 (n, height, width, 3) images, of height 0 where
    missing. Outputs are float64: ``probabilities`` (n, M), or ``prediction``, ``low``, ``high``, (n,) each;
    one that is called as a column has "(answer)" behind its name.
    """
    card, graph = bundle.card, Graph()
    columns = {}
    for name, kind in card.columns.items():
        value = graph.input(name, str if kind in ("category", "text") else np.float64, [])
        if kind == "number":  # none where it is too large for float32, or stands for a missing one
            value = value.cast(np.float32).IsInf().Where(np.nan, value)
            for missing in missing_of(bundle.reader.missing).floats:
                value = value.Equal(missing).Where(np.nan, value)
        columns[name] = value
    images = dict[str, ImageNodes]()
    if (form := bundle.reader.images) is not None:
        images = {view: image_input(graph, form, name) for view, name in zip(form.names, form.columns)}
        if not columns:
            columns[NOTHING] = images[form.names[0]].absent.cast(np.float64) * 0.0
    views: dict[str, ViewNodes] = {**bundle.encoding.to_onnx(columns), **images}
    output = added(bundle.model, "a model", views)
    if card.classes:
        if card.temperature != 1.0:
            output = (output.Max(SMALLEST).Log() / card.temperature).Softmax(axis=1)
        graph.output("probabilities", output, [len(card.classes)])
        return graph
    floor = -np.inf if card.floor is None else card.floor
    output = output.Squeeze([1]).Max(floor)
    answers, (at, *added_to) = [output], np.transpose(card.margin or UNKNOWN)
    for values in added_to:  # as np.interp does, by how far along each piece of the line a prediction is
        pieces = zip(at, at[1:], np.diff(values) / np.diff(at))
        steps = ((output - a).Max(0.0).Min(b - a) * slope for a, b, slope in pieces)
        answers.append(sum(steps, output + values[0]).Max(floor))
    for name, value in zip(NUMBERS, answers):
        graph.output(name, value)
    return graph


def describe(bundle: Bundle, source: Path | None) -> dict[str, Any]:
    """Return what ``card.json`` says: columns, kinds and spellings, answers, and where the model is from."""
    card, images, columns = bundle.card, bundle.reader.images, dict[str, dict[str, Any]]()
    encoders = bundle.encoding.encoders.values()
    categories = {each.name: each.values for encoder in encoders for each in encoder.categorical}
    missing = missing_of(bundle.reader.missing)
    gone = [[f"^{re.escape(each)}$", ""] for each in sorted(missing.texts)]
    for name, kind in card.columns.items():
        form: Any = bundle.reader.formats.get(name)
        if not name:
            raise UsboostError("a column has no name, which ONNX's inputs need; name it, and fit again")
        columns[name] = {"kind": kind}
        if kind == "category":
            values = [value for value in categories[name] if value is not None]
            columns[name] |= {"values": values, "rewrite": spelling.of_categories(values, missing.texts)}
        elif kind == "number":
            required = bundle.encoding.imputation[name]["value"] is None
            columns[name] |= {"required": required, "divide_by": 100 if form and form.unit == "%" else 1}
            columns[name]["rewrite"] = [*gone, *spelling.of_numbers(form)]
        elif kind == "date":
            columns[name] |= spelling.of_dates(form or DateFormat())
            columns[name]["rewrite"][:0] = gone
    if images is not None:
        about = {"kind": "image", "size": images.size, "formats": FORMATS}
        columns |= dict.fromkeys(images.columns, about)
    # the backbones inside the model, and the licences of their published weights where known
    fits = [fit for fits in getattr(bundle.model, "fits_", {}).values() for fit in fits]
    inner = [part for each in (bundle.model, *fits) for part in each.get_params(deep=True).values()]
    backbones = {part.name: licence_of(part) for part in inner if isinstance(part, Backbone)}
    files = source and digests(source)
    return {
        "kind": KIND,
        "usboost": version("usboost"),
        "model": card.model,
        "sha256": hashlib.sha256(json.dumps(files).encode()).hexdigest() if files else "",
        "opset": OPSETS[""],
        "task": card.task,
        "label": card.label,
        "classes": card.labels or (card.classes if card.label_kind == "bytes" else bundle.labels.tolist()),
        "threshold": card.threshold,
        "answers": ["label", *(f"p_{name}" for name in card.classes)] if card.classes else NUMBERS,
        "columns": columns,
        "missing": [*MISSING, *MARKS, *missing.texts],
        "rows_at_once": 1000 if images is None else 1,
        "backbones": [{"name": name, "licence": licence} for name, licence in backbones.items()],
    }

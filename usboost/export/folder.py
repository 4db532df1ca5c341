"""A bundle as a folder that answers without usboost: `FILES`."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from usboost.data.nodes import ViewNodes
from usboost.data.value import missing_of
from usboost.datasets.sources import sha256
from usboost.errors import UsboostError
from usboost.evaluation.metrics import SMALLEST
from usboost.export.images import image_input
from usboost.files import replacing
from usboost.files.onnx_graph import OPSETS, Graph
from usboost.fit.bundle import Bundle
from usboost.learners.networks.backbones import Backbone, licence_of
from usboost.table.columns.formats import DateFormat, NumberFormat

FILES = ("card.json", "index.html", "model.onnx", "predict.py")
KIND = "usboost model in ONNX"


def export(bundle: Bundle, folder: Path, source: str = "") -> int:
    """Write the folder, whole or not at all; an earlier export of that name is replaced.

    Returns the bytes of the model. Raises `UsboostError` if a part of the model has no ONNX form, a column is
    of texts, onnx is not installed, or something other than an export is there.

    Parameters
    ----------
    bundle : the model.
    folder : gets `FILES`.
    source : the digest of the files that the model was read from.
    """
    folder = Path(folder)
    if folder.exists() and not _is_export(folder):
        raise UsboostError(f"{folder} exists and is not, or not only, an export; name another folder (`out`)")
    about = describe(bundle, source)
    columns = {name: each["kind"] for name, each in about["columns"].items()}
    model = graph_of(bundle).model({"columns": json.dumps(columns), "model": about["model"], "kind": KIND})
    data = model.SerializeToString()
    with replacing(folder) as fresh:
        (fresh / "model.onnx").write_bytes(data)
        text = json.dumps({**about, "bytes": len(data)}, indent=1, ensure_ascii=False, allow_nan=False)
        (fresh / "card.json").write_text(text + "\n", encoding="utf-8")
        for name in ("predict.py", "index.html"):
            shutil.copyfile(Path(__file__).with_name(name), fresh / name)
    return len(data)


def _is_export(folder: Path) -> bool:
    try:
        card = json.loads((folder / "card.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    alone = {each.name for each in folder.iterdir()} <= set(FILES)
    return alone and isinstance(card, Mapping) and card.get("kind") == KIND


def graph_of(bundle: Bundle) -> Graph:
    """Return the graph from raw values to answers.

    Inputs are named as the columns: float64 (n,) numbers, and dates as seconds since 1970 in UTC, NaN where
    missing; str (n,) categories, "" where missing; uint8 (n, height, width, 3) images, of height 0 where
    missing. Outputs are float64: ``probabilities`` (n, M), or ``prediction``, ``low``, ``high``, (n,) each.
    """
    card, graph = bundle.card, Graph()
    columns = {}
    for name, kind in card.columns.items():
        value = graph.input(name, str if kind in ("category", "text") else np.float64, [])
        columns[name] = _known_number(graph, value, bundle.reader.missing) if kind == "number" else value
    views: dict[str, ViewNodes] = {}
    if (form := bundle.reader.images) is not None:
        for view, column in zip(form.names, form.columns, strict=True):
            views[view] = image_input(graph, form, column)
    views |= bundle.encoding.to_onnx(graph, columns)
    if not hasattr(bundle.model, "to_onnx"):
        raise UsboostError(f"a {type(bundle.model).__name__} has no ONNX form; choose another model")
    found = bundle.model.to_onnx(views)
    if card.classes:
        if card.temperature != 1.0:
            logs = graph.Log(graph.Max(found, SMALLEST))
            found = graph.softmax(graph.Div(logs, card.temperature))
        graph.output("probabilities", found, [len(card.classes)])
        return graph
    found = graph.Squeeze(found, [1])
    low, high = card.margin or (np.nan, np.nan)

    def above(value: str) -> str:
        return value if card.floor is None else graph.Max(value, card.floor)

    found = above(found)
    graph.output("prediction", found)
    graph.output("low", above(graph.Add(found, low)))
    graph.output("high", graph.Add(found, high))
    return graph


def _known_number(graph: Graph, value: str, missing: tuple[str, ...]) -> str:
    """Return numbers with NaN where one is too large for float32, or stands for a missing one."""
    none = np.nan
    infinite = graph.IsInf(graph.cast(value, np.float32))
    value = graph.Where(infinite, none, value)
    for each in missing_of(missing).floats:
        equal = graph.Equal(value, each)
        value = graph.Where(equal, none, value)
    return value


def describe(bundle: Bundle, source: str) -> dict[str, Any]:
    """Return what ``card.json`` says: columns, kinds and spellings, answers, and where the model is from."""
    card, categories = bundle.card, dict[str, list[str]]()
    for encoder in bundle.encoding.encoders.values():
        categories |= {each.name: [v for v in each.values if v is not None] for each in encoder.categorical}
    columns: dict[str, dict[str, Any]] = {}
    for name, kind in card.columns.items():
        form = bundle.reader.formats.get(name)
        columns[name] = {"kind": kind}
        if kind == "category":
            columns[name]["values"] = categories[name]
        elif kind == "number":
            columns[name] |= _written_numbers(form if isinstance(form, NumberFormat) else None)
            columns[name]["required"] = bundle.encoding.imputation[name]["value"] is None
        elif kind == "date":
            written = form if isinstance(form, DateFormat) else DateFormat()
            columns[name] |= {"forms": _written_dates(written), "zone": written.zone}
    images = bundle.reader.images
    for name in images.columns if images else ():
        columns[name] = {"kind": "image", "size": images.size}  # type: ignore[union-attr]
    numbers = ["prediction", "low", "high"]
    return {
        "kind": KIND,
        "format": 1,
        "usboost": version("usboost"),
        "model": card.model,
        "sha256": source,
        "opset": OPSETS[""],
        "task": card.task,
        "label": card.label,
        "classes": (card.labels or bundle.labels.tolist()) if card.classes else [],
        "threshold": card.threshold,
        "answers": ["label", *(f"p_{name}" for name in card.classes)] if card.classes else numbers,
        "columns": columns,
        "images": 0 if images is None else len(images.columns),
        "backbones": backbones_of(bundle.model),
    }


def _written_numbers(form: NumberFormat | None) -> dict[str, Any]:
    """Return by which patterns a number becomes one that Python reads, and what it is divided by."""
    if form is None:
        return {"rewrite": [], "divide_by": 1}
    whole = rf"(?:[1-9]\d{{0,2}}(?:{re.escape(form.thousands)}\d{{3}})+|\d+)"
    mark, unit = re.escape(form.decimal), re.escape(form.unit)
    body = rf"(?:{whole}(?:{mark}\d*)?|{mark}\d+)(?:[eE][+-]?\d+)?"
    rewrite = [
        ["[\u00a0\u202f\u2009]", " "],
        ["\u2212", "-"],
        ["[\u2019\u02bc]", "'"],
        # another unit, or marks at other places, is no number
        [rf"^(?!(?:{unit})? ?[+-]? ?(?:{unit})? ?{body} ?(?:{unit})?$).*$", "none"],
        *([[f"^([+-]? ?){unit} ?| ?{unit}$", "\\1"]] if form.unit else []),
        [f"[ {re.escape(form.thousands)}]", ""],
        [mark, "."],
    ]
    return {"rewrite": rewrite, "divide_by": 100 if form.unit == "%" else 1}


def _written_dates(form: DateFormat) -> list[str]:
    """Return the forms in which a day may be written, its parts joined by "-"."""
    parts = {"y": "%Y", "m": "%m", "d": "%d"}
    own = "-".join(parts[each] for each in form.order)
    forms = ["%Y-%m-%d", own, "%Y", "%Y-%m", "%d-%b-%Y", "%d-%B-%Y", "%Y-%b-%d"]
    if form.short_years:
        forms.append(own.replace("%Y", "%y"))
    return list(dict.fromkeys(forms))


def backbones_of(model: Any) -> list[dict[str, str]]:
    """Return the backbones inside a model, and the licences of their published weights where known."""
    found: dict[str, dict[str, str]] = {}
    fits = [fit for fits in getattr(model, "fits_", {}).values() for fit in fits]
    for part in (part for each in (model, *fits) for part in each.get_params(deep=True).values()):
        if isinstance(part, Backbone):
            found[part.name] = {"name": part.name, "licence": licence_of(part)}
    return list(found.values())


def digest_of_folder(folder: Path) -> str:
    """Return the SHA-256 of the names and digests of all files below a folder."""
    state = hashlib.sha256()
    for file in sorted(each for each in Path(folder).rglob("*") if each.is_file()):
        state.update(f"{file.relative_to(folder).as_posix()} {sha256(file)}\n".encode())
    return state.hexdigest()

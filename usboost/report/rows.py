"""Rows of a model's report: those predicted worst, with images as they are read; three worth a look."""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from markupsafe import Markup
from PIL import Image

from usboost.data.images import Images
from usboost.data.progress import Progress
from usboost.evaluation.ranking import number, number_of_label
from usboost.fit.bundle import Bundle
from usboost.fit.predict import Scored
from usboost.learners.networks.backbones import Backbone
from usboost.models.inspection.attribution import SHARE, Occlusion, left_out, occlusions
from usboost.models.inspection.inspect import worst_samples
from usboost.report import model_figures
from usboost.report.blocks import html
from usboost.report.figures import data_uri
from usboost.table.images import ImageReader

SIDE = 256  # pixels of the longer side of an image of the table; a larger one is scaled to it
WORST = 12  # rows shown of those predicted worst

_VALUES = 8  # columns shown of a row that is predicted worst

_ASPECTS = {
    "crop": "the largest square in its centre",
    "pad": "all of it on a grey square",
    "stretch": "all of it, stretched to a square",
}


@dataclass(frozen=True)
class Maps:
    """Occlusion maps: whether they are `drawn`, and `progress`, called with (images predicted, in all)."""

    drawn: bool = False
    progress: Progress | None = None


def images_of(
    bundle: Bundle, scored: Scored, rows: Sequence[int], maps: Maps
) -> dict[int, list[dict[str, Any]]]:
    """Return the images of some rows, one for each column of images; empty for a model without any.

    By row, for each column: its name and the path, original and original_size as the table has it, read and
    read_size as the model reads it, heat and change of maps; images as data URIs, sizes "width × height".
    """
    if (form := bundle.reader.images) is None:
        return {}
    occluded = occlusions(bundle.model, scored.views, rows, progress=maps.progress) if maps.drawn else {}
    out: dict[int, list[dict[str, Any]]] = {row: [] for row in rows}
    for reader, view in zip(form.readers(scored.file), form.names, strict=True):
        for row in sorted(out):  # in rising order, which a Parquet file gives in one pass
            out[row].append(_shown(reader, scored.views[view], scored, row, occluded.get((row, view))))
    return out


def images_note(bundle: Bundle, scored: Scored, maps: Maps) -> Markup | str:
    """Return a note on how all images are read and maps are drawn; empty for a model without images."""
    if (form := bundle.reader.images) is None:
        return ""
    backbone = getattr(bundle.model, "backbone", None)
    network, network_side = "", 0
    if isinstance(backbone, Backbone):
        side = backbone.spec(scored.views[form.names[0]])["size"] or form.size
        network, network_side = backbone.name, 0 if side == form.size else side
    unused = left_out(bundle.model)
    return html(
        "images_note",
        form=form,
        aspect=_ASPECTS[form.aspect],
        network=network,
        network_side=network_side,
        left_out=[c for c, view in zip(form.columns, form.names, strict=True) if view in unused],
        maps=maps,
        share=SHARE,
        heat=model_figures,
    )


def _shown(
    reader: ImageReader, images: Images, scored: Scored, row: int, occlusion: Occlusion | None
) -> dict[str, Any]:
    cell = scored.frame[reader.column].iloc[row] if reader.needs_cells else None
    shown = {"column": reader.column, "path": cell if isinstance(cell, str) else None, "read": None}
    if (plain := images.picture(row)) is None:
        return shown
    cells = pa.chunked_array([[cell]]) if reader.needs_cells else None
    original = reader.thumbnail(int(scored.rows[row]), cells, SIDE)
    if original is None:  # it went away since it was scored
        return shown
    small, (width, height) = original
    shown |= {
        "original": image_uri(small, is_photo=small.size != (width, height)),
        "original_size": f"{width:,} × {height:,}",
        "read": image_uri(plain, is_photo=plain.width > SIDE),
        "read_size": f"{plain.width:,} × {plain.height:,}",
        "heat": None,
    }
    if occlusion is not None:
        mean = occlusion.heat()
        ends = (f"{value + 0.0:+.3f}".replace("-", "−") for value in (-mean.max(), -mean.min()))
        heat = model_figures.overlay(images.decode(slice(row, row + 1))[0], mean)
        shown["heat"] = image_uri(heat, is_photo=plain.width > SIDE)
        shown["change"] = " to ".join(ends)
    return shown


def image_uri(image: Image.Image, *, is_photo: bool) -> str:
    """Return an image within a page: PNG keeps each pixel, a JPEG of one with many is far smaller."""
    kind, encoded = "jpeg" if is_photo else "png", io.BytesIO()
    image.save(encoded, kind.upper(), **({"quality": 85} if is_photo else {}))
    return data_uri(encoded.getvalue(), kind)


def worst(bundle: Bundle, scored: Scored, maps: Maps | None = None) -> list[dict[str, Any]]:
    """Return wrong rows whose true class got the lowest probability, or those of the largest error."""
    if bundle.card.classes:
        answers = bundle.codes(scored.predicted)
        rows = worst_samples(scored.labels, scored.predicted, WORST, answers)["row"].tolist()
    else:
        errors = np.abs(scored.predicted - scored.labels)
        rows = [int(row) for row in np.argsort(-errors, kind="stable")[:WORST] if errors[row]]
    texts = {row: answer(bundle, scored, row) for row in rows}
    images = images_of(bundle, scored, rows, maps or Maps())
    columns = list(bundle.card.columns)[:_VALUES]
    return [
        {
            "number": int(scored.rows[row]) + 1,
            **texts[row],
            "images": images.get(row, []),
            "columns": [(name, value_of(scored.frame[name].iloc[row])) for name in columns],
        }
        for row in rows
    ]


def worst_block(bundle: Bundle, scored: Scored, maps: Maps) -> Markup | str:
    """Return the block of `worst`; empty where there are none."""
    if not (rows := worst(bundle, scored, maps)):
        return ""
    note = images_note(bundle, scored, maps)
    return html("worst", rows=rows, classes=bundle.card.classes, note=note, wide=maps.drawn)


def answer(bundle: Bundle, scored: Scored, row: int) -> dict[str, str]:
    """Return the texts of what was predicted for a row, and what is true; of numbers with the error."""
    predicted, label = scored.predicted[row], scored.labels[row]
    if not bundle.card.classes:
        error = predicted - label
        return {
            "predicted": number(predicted),
            "p_predicted": ("+" if error >= 0 else "−") + number(abs(error)),
            "truth": number_of_label(label),
            "p_truth": "",
            "colour": "",
        }
    code, names = int(bundle.codes(predicted[None])[0]), bundle.card.classes
    return {
        "predicted": names[code],
        "p_predicted": f"{predicted[code]:.3f}",
        "truth": names[label],
        "p_truth": f"{predicted[label]:.3f}",
        "colour": "true" if code == label else "predicted",
    }


def value_of(value: Any) -> str:
    """Return a value of the table, short: of a number that is given in more digits, also as text, six."""
    if value is None or value != value:
        return "missing"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    if re.fullmatch(r"-?[0-9]+\.[0-9]{5,}(e-?[0-9]+)?", text):
        text = f"{float(text):g}"
    return text if len(text) <= 80 else f"{text[:79]}…"


def three_rows(bundle: Bundle, scored: Scored) -> list[tuple[str, int]]:
    """Return the kind, in words, and the position of rows that are worth a look; each row once.

    Of classes: the most certain one that is right, the most certain one that is wrong, and the least certain.
    Of numbers: those of the least and the largest error, and of the largest prediction.
    """
    labels, predicted = scored.labels, scored.predicted
    if not bundle.card.classes:
        errors = np.abs(predicted - labels)
        places = (errors.argmin(), errors.argmax(), predicted.argmax())
        kinds = dict(zip(("least error", "largest error", "largest prediction"), map(int, places)))
    else:
        answers = bundle.codes(predicted)
        sure, kinds = predicted[np.arange(len(labels)), answers], dict[str, int]()
        for name, rows in (("right", answers == labels), ("wrong", answers != labels)):
            if rows.any():
                kinds[name] = int(np.flatnonzero(rows)[sure[rows].argmax()])
        top = np.sort(predicted, axis=1)
        kinds["uncertain"] = int((top[:, -1] - top[:, -2]).argmin())
    first: dict[int, str] = {}
    for name, row in kinds.items():
        first.setdefault(row, name)
    return [(name, row) for row, name in first.items()]

"""Rows explained by their parts, for people: bars of columns next to the images with their squares."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from usboost.data.progress import Progress
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.evaluation.ranking import joined_names, number
from usboost.files import write_atomically
from usboost.fit import explain
from usboost.fit.bundle import Bundle
from usboost.fit.predict import Scored
from usboost.models import catalogue
from usboost.models.inspection.attribution import check_explainable, unlikeness
from usboost.report import blocks, model_figures
from usboost.report.blocks import Section, html
from usboost.report.rows import SIDE, Maps, answer, image_uri, images_note, three_rows, value_of
from usboost.table.source import TableFile, require

COLUMNS, ROWS, NEAREST = 8, 12, 3
"""Columns shown of a row that is explained, rows of a page, and rows of another table next to each."""

_WRITTEN = 1 / 3  # of the largest square: those that are larger have their numbers


def explained_block(bundle: Bundle, scored: Scored, *, with_note: bool) -> Markup | str:
    """Return the block of `three_rows` explained; empty for a model that cannot be, or for very few rows."""
    try:
        check_explainable(bundle.model, bundle.card.model)
    except UsboostError:
        return ""
    if len(scored) < explain.FEWEST:
        return ""
    chosen = three_rows(bundle, scored)
    rows = np.array([row for _, row in chosen])
    views = scored.views[rows]
    parts = explain.explain_parts(bundle, views, explain.reference_of(scored.views), scored.predicted[rows])
    shown = []
    for k, (kind, row) in enumerate(chosen):
        about = {"kind": kind, "number": int(scored.rows[row]) + 1, **answer(bundle, scored, row)}
        shown.append({**about, **_shares(bundle, views, parts, k, scored.frame.iloc[row])})
    note = images_note(bundle, scored, Maps()) if with_note else ""
    return _block(bundle, shown, min(explain.AGAINST, len(scored)), note)


def write_page(
    bundle: Bundle,
    table: Path,
    out: Path,
    *,
    against: Path | None = None,
    strict: bool = False,
    images_root: Path | None = None,
    progress: Progress | None = None,
) -> int:
    """Write a page that explains the first `ROWS` rows of a table; return how many they are.

    `against` is the table whose first rows these are compared with, by default the same; where it is named,
    its `NEAREST` other rows are shown next to each row. `progress` is called with (rows done, rows). The rest
    is as of `usboost.fit.predict.predict`, which says what is refused; so is what is no ``.html`` file.
    """
    blocks.check_out(out)
    check_explainable(bundle.model, bundle.card.model)
    file = TableFile.open(table, images_root)
    require(file, bundle.reader.needed)
    own = next(iter(bundle.reader.read(file, batch=ROWS, strict=strict)), None)
    if own is None:
        raise UsboostError(f"{table} has no rows")
    others = file if against is None else TableFile.open(against, images_root)
    label = [bundle.card.label] if bundle.card.label in others.names else []
    compared = explain.read_rows(bundle, others, more=label)
    predicted, raw = bundle.predicted(own.views), own.raw.to_pandas()
    reference = explain.reference_of(compared.views)
    parts = explain.explain_parts(bundle, own.views, reference, predicted, progress)
    answers, classes = bundle.answers(predicted), bundle.card.classes
    with_sets = classes and bundle.card.least is not None
    sets = bundle.sets(predicted) if with_sets else np.zeros((len(raw), 0), dtype=bool)
    near = np.zeros((len(raw), 0), dtype=np.int64)
    if against is not None:
        weights = [*parts.columns.values(), sum(each.sum(axis=(1, 2)) for each in parts.squares.values())]
        weights = np.abs(np.column_stack(np.broadcast_arrays(*weights)))
        far = unlikeness(bundle.model, own.views, compared.views, explain.owners_of(bundle), weights)
        if against.resolve() == table.resolve():  # a row is not like another one because it is that
            np.fill_diagonal(far, np.inf)
        near = np.argsort(far, axis=1, kind="stable")[:, :NEAREST]
    labels = compared.raw[bundle.card.label].to_pylist() if label else []
    shown = []
    for k in range(len(raw)):
        predicted_text = str(answers.iloc[k, 0]) if classes else number(predicted[k])
        likely = f"{predicted[k].max():.3f}" if classes and bundle.card.threshold is None else ""
        about = {"number": own.first + k + 1, "predicted": predicted_text, "p_predicted": likely}
        in_set = [classes[each] for each in np.flatnonzero(sets[k])]
        about |= {"truth": predicted_text, "set": in_set and joined_names(in_set)}
        alike = [
            {
                "number": int(row) + 1,
                "label": value_of(labels[row]) if label else "",
                "images": [_read(compared.views, view, int(row)) for view in _views_of(bundle).values()],
            }
            for row in near[k]
        ]
        shown.append({**about, **_shares(bundle, own.views, parts, k, raw.iloc[k]), "near": alike})
    body = _block(bundle, shown, len(reference), "")
    title = f"Why {catalogue.title(bundle.card.model)} answers so: {bundle.card.label}"
    named = table.name if others is file else str(others)
    intro = html("explained_intro", n=len(raw), table=table.name, compared=named)
    made = html("model_made_from", card=bundle.card, table=table.name)
    write_atomically(out, blocks.page(title, intro, [Section("rows", "Rows", body)], made).encode())
    return len(raw)


def _block(bundle: Bundle, rows: list[dict[str, Any]], against: int, note: Markup | str) -> Markup:
    rows = [{**dict.fromkeys(("kind", "p_truth", "colour", "set", "near"), ""), **row} for row in rows]
    given = {"classes": bundle.card.classes, "note": note, "against": against, "grid": explain.GRID}
    floor = bundle.card.floor
    given["floor"] = "" if floor is None else f", before its floor of {floor:g}"
    given |= {"pictures": any(row["images"] for row in rows), "near": any(row["near"] for row in rows)}
    return html("explained", rows=rows, adds=model_figures.RISES, takes=model_figures.FALLS, **given)


def _views_of(bundle: Bundle) -> dict[str, str]:
    """Return the view of each column of images."""
    form = bundle.reader.images
    return {} if form is None else dict(zip(form.columns, form.names, strict=True))


def _shares(
    bundle: Bundle, views: Views, parts: explain.Shares, k: int, values: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the bars of a row, the largest first, its images with their squares, its mean and margin.

    `k`: the row's position in `views` and `parts`; `values`: as the table has them.
    """
    totals = [each[k].sum() for each in parts.squares.values()]
    digits = explain.digits_of([*(each[k] for each in parts.columns.values()), *totals])

    def write(value: float, sign: str = "") -> str:
        return f"{value:{sign}.{digits}f}".replace("-", "−")

    shares = [(name, value_of(values[name]), float(each[k])) for name, each in parts.columns.items()]
    pictures = []
    for name, squares in parts.squares.items():
        view, own = _views_of(bundle)[name], squares[k]
        read = _read(views, view, k)
        shares.append((name, "its squares" if read else "no image", float(own.sum())))
        if read:
            pixels = views[view].decode(slice(k, k + 1))[0]
            sides = (np.diff(explain.cuts_of(length)) for length in pixels.shape[1:])
            at = [np.repeat(np.arange(explain.GRID), side) for side in sides]
            heat = model_figures.overlay(pixels, -own[np.ix_(*at)])  # what falls when covered adds
            least = _WRITTEN * np.abs(own).max()
            cells = [write(each, "+") if each and abs(each) >= least else "" for each in own.ravel()]
            overlay = image_uri(heat, is_photo=heat.width > SIDE)
            pictures.append({"name": name, "read": read, "heat": overlay, "cells": cells})
    shares.sort(key=lambda share: -abs(share[2]))
    rest = shares[COLUMNS + len(parts.squares) :]
    shares = shares[: COLUMNS + len(parts.squares)]
    total = sum(value for *_, value in (*shares, *rest))
    if rest:
        shares.append((f"{len(rest):,} others", "", sum(value for *_, value in rest)))
    largest = max((abs(value) for *_, value in shares), default=0.0) or 1.0
    bars = [
        {
            "name": name,
            "value": text,
            "adds": write(value, "+"),
            "sign": "adds" if value >= 0 else "takes",
            "width": f"{100 * abs(value) / largest:.1f}",
        }
        for name, text, value in shares
    ]
    mean = float(parts.mean[k])
    return {"columns": bars, "images": pictures, "mean": write(mean), "margin": write(mean + total)}


def _read(views: Views, view: str, row: int) -> str:
    """Return the image of a row as it is read, as a data URI; empty without one."""
    plain = views[view].picture(row)
    return "" if plain is None else image_uri(plain, is_photo=plain.width > SIDE)

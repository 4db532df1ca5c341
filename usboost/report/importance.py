"""Measure which columns and images matter to a saved model: permutation importance and split gain."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from usboost.data.views import Views
from usboost.datasets.sampling import stratified_sample
from usboost.evaluation.calibration import clip_lower, tempered
from usboost.evaluation.ranking import number
from usboost.fit.bundle import Bundle
from usboost.fit.explain import encoded_names
from usboost.fit.predict import Scored
from usboost.learners.base import view_names
from usboost.models.inspection.inspect import ColumnGroup, permutation_importance, predictor
from usboost.report.blocks import html
from usboost.report.model_figures import worsening

COLUMNS = 20  # columns that are shuffled, and those whose gain is shown
LEAST = 0.0005  # the share of gain that is shown at least; a smaller one would be printed as 0.0 %

WITHOUT_IMAGES, EMBEDDED, TRAINED = (2000, 5), (500, 3), (100, 2)
"""Rows and shuffles of each column: predicted from columns, from cached embeddings, by a trained network."""

_METRICS = {"classification": ("accuracy", "log_loss"), "regression": ("rmse", "r2")}


def effort(bundle: Bundle) -> tuple[int, int]:
    """Return the rows and the shuffles of each column that a model's predictions allow in reasonable time."""
    if bundle.reader.images is None:
        return WITHOUT_IMAGES
    backbone = getattr(bundle.model, "backbone", None)
    return TRAINED if backbone is not None and not backbone.is_frozen else EMBEDDED


def sample(scored: Scored, bundle: Bundle) -> np.ndarray:
    """Return positions of the rows on which columns are shuffled and learners measured."""
    most = effort(bundle)[0]
    if bundle.card.classes:
        return np.asarray(stratified_sample(scored.labels, most, 0))
    n = len(scored)
    return np.sort(np.random.default_rng(0).choice(n, min(n, most), replace=False))


def permutation(bundle: Bundle, views: Views, labels: np.ndarray) -> dict[str, Any]:
    """Return the permutation importance of images, of all columns together, and of single ones.

    Returns ``columns``, the scores, and their changes in words; ``rows``, each a name, its cells by score, a
    change and its spread, and ``size``, of the change of the last score, 0 where none changes, what matters
    most first among the columns; ``left_out``, columns that were not shuffled; ``n`` rows and ``repeats``.
    """
    # the columns of the views that a column of the table becomes
    encoded = {name: frozenset(bundle.encoding.names) & {*of} for name, of in encoded_names(bundle).items()}
    gained = _gains(bundle)
    size = {name: sum(gained.get(each, 0.0) for each in of) for name, of in encoded.items()}
    most = COLUMNS if any(gained.values()) else 10 * COLUMNS  # without trees nothing says which matter
    largest = sorted(encoded, key=lambda name: -size[name])[:most]
    encoded = {name: of for name, of in encoded.items() if name in largest}
    encoders, form = bundle.card.encoders, bundle.reader.images
    whole: list[ColumnGroup] = []
    if form is not None:
        shown = [", ".join(form.columns)] if len(form.names) == 1 else form.columns
        pairs = zip(form.names, shown, strict=True)
        whole = [ColumnGroup(f"images ({names})", (view,)) for view, names in pairs]
        if len(bundle.card.columns) > 1:
            whole.append(ColumnGroup(f"all {len(bundle.card.columns)} columns", tuple(encoders)))
    single = [ColumnGroup(name, columns=dict.fromkeys(encoders, of)) for name, of in encoded.items()]
    repeats, metrics = effort(bundle)[1], _METRICS[bundle.card.task]

    def score(predicted: np.ndarray) -> dict[str, float]:
        if bundle.card.classes:
            return bundle.task.score(labels, tempered(predicted, bundle.card.temperature))
        return bundle.task.score(labels, clip_lower(predicted, bundle.card.floor))

    changes = permutation_importance(
        predictor(bundle.model, views, lambda seen: bundle.task.predict(bundle.model, seen)),
        score,
        [*whole, *single],
        metrics,
        len(labels),
        n_repeats=repeats,
        seed=0,
    )
    m = len(metrics)  # by place, as a column may have any name
    rows: list[dict[str, Any]] = []
    for k, group in enumerate([*whole, *single]):
        part = changes.iloc[k * m : (k + 1) * m].set_index("metric")
        cells = {}
        for key, mean, spread in zip(metrics, part["mean"], part["std"], strict=True):
            known = np.isfinite(mean)  # R² of equal labels is not
            shown = ("−" if mean < 0 else "+") + number(abs(mean)), f"± {number(spread)}"
            cells[key] = shown if known else ("–", "")
        nothing = all(not text.strip("+−–± 0.") for cell in cells.values() for text in cell)
        size_of = 0.0 if nothing else float(part["mean"].dropna().iloc[-1])
        rows.append({"name": group.name, "cells": cells, "size": size_of})
    columns = sorted(rows[len(whole) :], key=lambda row: -row["size"])
    return {
        "columns": {key: worsening(key) for key in metrics},
        "rows": [*rows[: len(whole)], *columns],
        "left_out": len(bundle.card.columns) - len(encoded),
        "n": len(labels),
        "repeats": repeats,
    }


def permutation_block(bundle: Bundle, views: Views, labels: np.ndarray) -> Markup:
    """Return the block of `permutation`: columns that change no score are named only."""
    result = permutation(bundle, views, labels)
    rows = [row for row in result["rows"] if row["size"]]
    nothing = [row["name"] for row in result["rows"] if not row["size"]]
    named = {"label": "Permutation importance", "stub": "shuffled"}
    shown = html("table", columns=result["columns"], rows=rows, **named) if rows else ""
    return html("permutation", **result | {"table": shown, "nothing": nothing})


def _gains(bundle: Bundle) -> dict[str, float]:
    """Return each encoded column's share of the trees' split gains, images as one; empty without trees."""
    try:
        shares = zip(bundle.model.feature_names_, bundle.model.feature_importances_, strict=True)
    except AttributeError:
        return {}
    known, gains = set(bundle.encoding.names), dict[str, float]()
    for name, share in shares:
        plain = str(name) if name in known else str(name).split("__", 1)[-1]
        shown = plain if plain in known else "images (embeddings)"
        gains[shown] = gains.get(shown, 0.0) + float(share)
    return gains


def gain_block(bundle: Bundle, *, start: bool) -> Markup | str:
    """Return the shares of split gain, those of a text together, largest first; empty without trees.

    `start`: whether boosting started from a linear model.
    """
    texts = {each: f"{name} (text)" for name, text in bundle.texts.items() for each in text.names(name)}
    gains: dict[str, float] = {}
    for name, share in _gains(bundle).items():
        shown = texts.get(name, name)
        gains[shown] = gains.get(shown, 0.0) + share
    if not any(gains.values()):
        return ""
    ranked = sorted(gains.items(), key=lambda item: -item[1])
    rows = [(name, share) for name, share in ranked[:COLUMNS] if share >= LEAST]
    rest = [name for name, share in ranked if share < LEAST]
    return html("gain", rows=rows, rest=rest, least=LEAST, start=start)


def learner_titles(bundle: Bundle, model: Any) -> dict[str, str]:
    """Return each learner's kind and reading, "trees (table and images)" say, and those of the start."""
    images = {} if (form := bundle.reader.images) is None else form.names
    shown = {each: " ".join(["images", *each.split(":", 1)[1:]]) for each in images}

    def what(views: Sequence[str]) -> str:
        return " and ".join(dict.fromkeys(shown.get(view, "table") for view in views))

    plurals = {"network": "networks", "tree": "trees"}
    titles = {
        name: f"{plurals.get(learner.kind, learner.kind)} ({what(view_names(name, learner))})"
        for name, learner in model._learners().items()
    }
    if model.start_ is not None:
        start = "logistic regression" if bundle.card.classes else "ridge regression"
        titles["start"] = f"start: {start} ({what(model.start_.views)})"
    return titles

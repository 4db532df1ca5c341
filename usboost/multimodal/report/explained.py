"""Three rows of a report explained: one that is right, one that is wrong, one that is uncertain."""

from __future__ import annotations

from typing import Any

import numpy as np

from usboost.data.progress import Progress
from usboost.errors import UsboostError
from usboost.evaluation.names import number, number_of_label
from usboost.models.inspection.shapley import check_explainable
from usboost.multimodal.fit.bundle import Bundle
from usboost.multimodal.predict.explain import FEWEST, Explanations, explain, reference_of
from usboost.multimodal.predict.predict import Scored
from usboost.multimodal.report.images import images_of, value_of

MOST = 8
"""Columns shown of a row."""


def explained(
    bundle: Bundle, scored: Scored, occlusion_maps: bool = False, looking: Progress | None = None
) -> list[dict[str, Any]]:
    """What the page shows of each row; nothing of a model that cannot be explained, or of very few rows."""
    try:
        check_explainable(bundle.model, bundle.card.model)
    except UsboostError:
        return []
    if len(scored) < FEWEST:
        return []
    chosen = three_rows(bundle, scored)
    rows = np.array([row for _, row in chosen])
    found = explain(bundle, scored.views[rows], reference_of(scored.views), scored.predicted[rows])
    shown = (lambda value: f"{value:.2f}".replace("-", "−")) if bundle.card.classes else number
    images = images_of(bundle, scored, rows.tolist(), occlusion_maps=occlusion_maps, progress=looking)
    return [
        {
            "kind": kind,
            "number": int(scored.rows[row]) + 1,
            "images": images.get(row, []),
            **_answer(bundle, scored, row),
            "mean": shown(found.mean[k]),
            "margin": shown(found.mean[k] + found.values[k].sum()),
            "columns": [
                {
                    "name": name,
                    "value": value_of(scored.frame[name].iloc[row]) if name in bundle.card.columns else "",
                    "adds": ("+" if value >= 0 else "−") + shown(abs(value)),
                    "sign": "adds" if value >= 0 else "takes",
                    "width": f"{100 * abs(value) / (np.abs(found.values).max() or 1.0):.1f}",
                }
                for name, value in _with_others(found, k)
            ],
        }
        for k, (kind, row) in enumerate(chosen)
    ]


def _with_others(found: Explanations, k: int) -> list[tuple[str, float]]:
    """The columns to show of a row, and all others as one."""
    largest, others = found.largest(k, MOST), len(found.names) - MOST
    if others <= 0:
        return largest
    rest = float(found.values[k].sum()) - sum(value for _, value in largest)
    return [*largest, (f"{others:,} others", rest)]


def three_rows(bundle: Bundle, scored: Scored) -> list[tuple[str, int]]:
    """What is special of a row, in words, and its position; each row once.

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


def _answer(bundle: Bundle, scored: Scored, row: int) -> dict[str, str]:
    """What was predicted, and what is true."""
    predicted, label = scored.predicted[row], scored.labels[row]
    if not bundle.card.classes:
        shown, truth = number(predicted), number_of_label(label)
        return {"predicted": shown, "p_predicted": "", "truth": truth, "p_truth": "", "colour": ""}
    answer, names = int(bundle.codes(predicted[None])[0]), bundle.card.classes
    return {
        "predicted": names[answer],
        "p_predicted": f"{predicted[answer]:.3f}",
        "truth": names[label],
        "p_truth": f"{predicted[label]:.3f}",
        "colour": "true" if answer == label else "predicted",
    }

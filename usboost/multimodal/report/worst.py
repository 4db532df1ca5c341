"""The rows of a report that are predicted worst, with their images and values."""

from __future__ import annotations

from typing import Any

import numpy as np

from usboost.data.progress import Progress
from usboost.evaluation.names import number
from usboost.models.inspection.inspect import worst_samples
from usboost.multimodal.fit.bundle import Bundle
from usboost.multimodal.predict.scored import Scored
from usboost.multimodal.report.images import images_of

WORST = 12
"""Rows shown."""

_VALUES = 8  # columns shown of each


def worst(
    bundle: Bundle, scored: Scored, occlusion_maps: bool = False, looking: Progress | None = None
) -> list[dict[str, Any]]:
    """Misclassified rows whose true class got the lowest probability, or those of the largest error."""
    found = _classes(bundle, scored) if bundle.card.classes else _numbers(bundle, scored)
    images = images_of(
        bundle, scored, [row for row, _ in found], occlusion_maps=occlusion_maps, progress=looking
    )
    shown = list(bundle.card.columns)[:_VALUES]
    return [
        {
            "number": int(scored.rows[row]) + 1,
            **said,
            "images": images.get(row, []),
            "columns": [(name, value_of(scored.frame[name].iloc[row])) for name in shown],
        }
        for row, said in found
    ]


def _classes(bundle: Bundle, scored: Scored) -> list[tuple[int, dict[str, str]]]:
    answers, names = bundle.codes(scored.predicted), bundle.card.classes
    found = worst_samples(scored.labels, scored.predicted, WORST, answers)
    return [
        (
            int(each.row),
            {
                "truth": names[each.true],
                "p_truth": f"{each.p_true:.3f}",
                "predicted": names[each.predicted],
                "p_predicted": f"{each.p_predicted:.3f}",
            },
        )
        for each in found.itertuples()
    ]


def _numbers(bundle: Bundle, scored: Scored) -> list[tuple[int, dict[str, str]]]:
    errors = scored.predicted - scored.labels
    rows = np.argsort(-np.abs(errors), kind="stable")[:WORST]
    sign = {True: "+", False: "−"}
    return [
        (
            int(row),
            {
                "truth": number(scored.labels[row]),
                "p_truth": "",
                "predicted": number(scored.predicted[row]),
                "p_predicted": sign[bool(errors[row] >= 0)] + number(abs(errors[row])),
            },
        )
        for row in rows
        if errors[row]
    ]


def value_of(value: Any) -> str:
    """A value of the table, short."""
    text = f"{value:g}" if isinstance(value, float) else "" if value is None else str(value)
    return text if len(text) <= 80 else f"{text[:79]}…"

"""The scores of a report, beside those of the prior."""

from __future__ import annotations

import numpy as np

from usboost.evaluation.intervals import Interval, answer_intervals
from usboost.evaluation.metrics import confusion, per_class, score_answers
from usboost.evaluation.names import metric_name, number
from usboost.multimodal.fit.bundle import Bundle
from usboost.multimodal.predict.scored import Scored


def tiles(bundle: Bundle, scored: Scored) -> list[dict[str, str]]:
    """Name, value, ends of the interval, and the prior's value, of each score of the task.

    Of two classes also the area under precision and recall, the balanced accuracy and, where the card has a
    threshold, what the answers at it are worth.
    """
    before = prior(bundle, scored)
    found, simple = bundle.task.intervals(scored.labels, scored.predicted), _simple(bundle, scored, before)
    if len(bundle.card.classes) == 2:
        answers = bundle.codes(scored.predicted)
        found |= answer_intervals(scored.labels, answers, scored.predicted[:, 1])
        if bundle.card.threshold is None:
            del found["answer_f1"], found["answer_accuracy"]
    return [_tile(key, each, simple[key]) for key, each in found.items()]


def prior(bundle: Bundle, scored: Scored) -> np.ndarray:
    """What the prior predicts for the rows: float64 (n, M), or (n,).

    Of the training rows as the card has it, else of these rows.
    """
    n, classes = len(scored), bundle.card.classes
    given = np.array(bundle.card.prior)
    if not classes:
        return np.full(n, given[0] if len(given) else scored.labels.mean())
    if not len(given):
        given = np.bincount(scored.labels, minlength=len(classes)) / n
    return np.tile(given, (n, 1))


def _simple(bundle: Bundle, scored: Scored, before: np.ndarray) -> dict[str, float]:
    found = bundle.task.score(scored.labels, before)
    if len(bundle.card.classes) == 2:
        found |= score_answers(scored.labels, bundle.codes(before), before[:, 1])
    return found


def _tile(key: str, interval: Interval, simple: float) -> dict[str, str]:
    value, low, high = (_shown(each) for each in interval)
    return {"name": metric_name(key), "value": value, "low": low, "high": high, "prior": _shown(simple)}


def _shown(value: float) -> str:
    return number(value) if np.isfinite(value) else "–"


def classes_of(bundle: Bundle, scored: Scored) -> list[dict[str, str]]:
    """Precision, recall, F1 and rows of each class, of the answers; "–" where there is nothing to count."""
    answers = bundle.codes(scored.predicted)
    found = per_class(confusion(scored.labels, answers, len(bundle.card.classes)))

    def percent(value: float) -> str:
        return f"{value:.1%}" if np.isfinite(value) else "–"

    return [
        {
            "name": name,
            "precision": percent(found["precision"][k]),
            "recall": percent(found["recall"][k]),
            "f1": f"{found['f1'][k]:.4f}",
            "support": f"{found['support'][k]:,}",
        }
        for k, name in enumerate(bundle.card.classes)
    ]

"""A fitted model's scores and inspection on labelled rows, as one self-contained page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binomtest

from usboost.data.progress import Progress
from usboost.errors import UsboostError, option
from usboost.evaluation.intervals import Interval, answer_intervals
from usboost.evaluation.metrics import confusion, per_class, score_answers
from usboost.evaluation.names import METRICS_OF, f1_of, metric_name, number, number_of_label
from usboost.evaluation.slices import FEW, Slice, score_slices, table_of
from usboost.files import write_atomically
from usboost.models import catalogue
from usboost.models.inspection.inspect import calibration, expected_calibration_error
from usboost.models.inspection.occlusion import SHARE
from usboost.multimodal.fit.bundle import Bundle
from usboost.multimodal.predict.explain import AGAINST
from usboost.multimodal.predict.predict import Scored, score_table
from usboost.multimodal.report import importance, members
from usboost.multimodal.report.explained import explained
from usboost.multimodal.report.images import about, worst
from usboost.reporting.inspection import figures
from usboost.reporting.inspection.figures import as_uri, of_numbers
from usboost.reporting.page import confusion_rows, environment
from usboost.table.columns.slices import read_slices
from usboost.table.notes import notes_of_rows
from usboost.table.source import TableFile, require


def write_report(
    bundle: Bundle,
    table: Path,
    out: Path,
    *,
    label: str | None = None,
    strict: bool = False,
    images_root: Path | None = None,
    occlusion_maps: bool = False,
    by_column: str | None = None,
    progress: Progress | None = None,
    looking: Progress | None = None,
) -> Scored:
    """Score a model on labelled rows and write the page.

    Parameters
    ----------
    label : column of the true answers; by default that of the training table.
    out : an ``.html`` file; appears when it is complete.
    strict : refuse values and images that cannot be read, instead of counting them as missing.
    images_root : see `usboost.table.source.TableFile`.
    occlusion_maps : show what covering each part of the images of the worst rows does, which takes some
        fifty predictions an image.
    by_column : a column of the table, read by the model or not, by whose groups the rows are scored, too; see
        `usboost.table.columns.slices`.
    progress : called with (rows done, rows).
    looking : called with (covered images predicted, in all).

    Returns
    -------
    The rows that were scored.

    Raises
    ------
    UsboostError
        As `score_table`; if the page cannot be written there; if there is no column `by_column`; or if where
        a model looks is asked of one that reads no images or predicts a number.
    """
    table, out = Path(table), Path(out)
    if out.suffix.lower() not in (".html", ".htm") or out.is_dir():
        raise UsboostError(f"{out} must be an .html file")
    if occlusion_maps:
        _check_maps(bundle)
    label = label or bundle.card.label
    if by_column is not None:
        require(TableFile.open(table), [by_column])
    scored = score_table(bundle, table, label, strict=strict, images_root=images_root, progress=progress)
    if by_column is not None:
        scored = replace(scored, slices=slices(bundle, scored, by_column))
    page = render(
        bundle,
        scored,
        table,
        label,
        occlusion_maps=occlusion_maps,
        by_column=by_column,
        looking=looking,
    )
    write_atomically(out, page.encode())
    return scored


def _check_maps(bundle: Bundle) -> None:
    """Refuse to say where a model looks that reads no images or predicts a number."""
    if bundle.reader.images is None:
        raise UsboostError(
            f"the model reads no images, so it looks nowhere; leave out {option('occlusion_maps')}"
        )
    if not bundle.card.classes:
        raise UsboostError(
            "where a model looks is the change of a class's probability, but this one predicts a number; "
            f"leave out {option('occlusion_maps')}"
        )


def render(
    bundle: Bundle,
    scored: Scored,
    table: Path,
    label: str,
    *,
    occlusion_maps: bool = False,
    by_column: str | None = None,
    looking: Progress | None = None,
) -> str:
    """The page: HTML that loads nothing from the network and runs no script; as `write_report`."""
    card = bundle.card
    rows = importance.sample(scored, bundle)
    views = scored.views[rows]
    best_round = getattr(bundle.model, "best_round_", 0)
    same, scores, held = scored.file.digest() == card.sha256, tiles(bundle, scored), held_out(bundle)
    return (
        environment()
        .get_template("user.html.j2")
        .render(
            title=f"Predicting {label} with {catalogue.title(card.model)}",
            card=card.model_dump(),
            what=catalogue.about(card.model),
            n=len(scored),
            table=table.name,
            same=same,
            tiles=scores,
            held=held,
            prior_known=bool(card.prior),
            label=label,
            weight=card.weight,
            without=_missing(scored, label),
            classes=card.classes,
            of=_of_classes(bundle, scored) if card.classes else _of_numbers(bundle, scored, label),
            curve=as_uri(figures.learning_curve(card.history, best_round)) if card.history else None,
            best_round=best_round,
            permutation=importance.permutation(bundle, views, scored.labels[rows]),
            contributions=importance.contributions(bundle, views),
            start=getattr(bundle.model, "start_", None) is not None,
            gains=importance.gains(bundle),
            worst=worst(bundle, scored, occlusion_maps, looking),
            explained=explained(bundle, scored, occlusion_maps, looking),
            against=min(AGAINST, len(scored)),
            images=about(bundle, scored),
            by_column=by_column,
            few_rows=FEW,
            slices=table_of(scored.slices) if scored.slices else None,
            occlusion_maps=occlusion_maps,
            share=SHARE,
            heat=figures,
            members=members.cells(bundle.model),
            members_heads=members.heads(bool(card.classes)),
            members_notes=members.notes(bundle.model),
        )
    )


def slices(bundle: Bundle, scored: Scored, by_column: str) -> list[Slice]:
    """The scores of the rows by the groups of a column."""
    found = read_slices(
        scored.file,
        by_column,
        scored.rows,
        missing=bundle.reader.missing,
        kind=bundle.card.columns.get(by_column),
        form=bundle.reader.formats.get(by_column),
    )
    return score_slices(bundle.task, scored.labels, scored.predicted, found.names, found.codes)


def held_out(bundle: Bundle) -> dict[str, str]:
    """The scores of the rows that the model was not fitted to before its final refit, by name."""
    card = bundle.card
    return {
        metric_name(name): number(value)
        for name in METRICS_OF[card.task]
        if (value := card.scores.get(name)) is not None
    }


def _missing(scored: Scored, label: str) -> list[str]:
    """What rows lack, in words."""
    found = [f"{scored.unlabelled:,} rows have no {label} and are not scored"] if scored.unlabelled else []
    for column, missing in scored.without.items():
        if missing:
            found.append(f"{missing:,} of {len(scored):,} rows have no image in {column}")
    return [*found, *notes_of_rows(scored.tally)]


def _of_classes(bundle: Bundle, scored: Scored) -> dict[str, Any]:
    """What the page shows of predicted classes alone."""
    classes, threshold = bundle.card.classes, bundle.card.threshold
    bins = calibration(scored.labels, scored.predicted)
    counts = np.bincount(scored.labels, minlength=len(classes))
    return {
        "f1": f1_of(classes),
        "counts": list(zip(classes, counts.tolist(), strict=True)),
        "threshold": None if threshold is None else f"{threshold:.4g}",
        "confusion": confusion_rows(scored.labels, bundle.codes(scored.predicted), classes),
        "per_class": classes_of(bundle, scored),
        "calibration": as_uri(figures.calibration(bins, "Reliability diagram")),
        "sets": _coverage(bundle, scored),
        "calibration_error": f"{expected_calibration_error(bins):.3f}",
    }


def _coverage(bundle: Bundle, scored: Scored) -> dict[str, str] | None:
    """How many rows' sets hold their class, and how large sets are; None of a model without sets."""
    if bundle.card.least is None:
        return None
    sets, n = bundle.sets(scored.predicted), len(scored)
    held = int(sets[np.arange(n), scored.labels].sum())
    low, high = binomtest(held, n).proportion_ci(0.95, method="wilson")
    sizes = sets.sum(axis=1)
    return {
        "least": f"{bundle.card.least:.3g}",
        "share": f"{held / n:.1%}",
        "low": f"{low:.1%}",
        "high": f"{high:.1%}",
        "size": f"{sizes.mean():.2f}",
        "one": f"{(sizes == 1).mean():.1%}",
    }


def _of_numbers(bundle: Bundle, scored: Scored, label: str) -> dict[str, Any]:
    """What the page shows of a predicted number alone."""
    low, middle, high = map(number_of_label, np.quantile(scored.labels, [0, 0.5, 1]))
    margin = None if bundle.card.margin is None else (bundle.card.margin[0], bundle.card.margin[1])
    return {
        "range": f"{low} to {high}, median {middle}",
        **of_numbers(scored.labels, scored.predicted, margin, label),
    }


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

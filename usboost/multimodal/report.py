"""A fitted model's scores and inspection on labelled rows, as one self-contained page."""

from __future__ import annotations

import base64
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure

from usboost.data.progress import Progress
from usboost.data.views import Views
from usboost.datasets.files.sampling import stratified_sample
from usboost.errors import UsboostError
from usboost.evaluation.intervals import intervals
from usboost.evaluation.names import METRICS, f1_of, metric_name
from usboost.files import write_atomically
from usboost.learners.base import view_names
from usboost.models import zoo
from usboost.models.inspection import (
    IMPORTANCE_METRICS,
    calibration,
    expected_calibration_error,
    view_contributions,
    view_importance,
    worst_samples,
)
from usboost.models.occlusion import SHARE
from usboost.models.two_weak_learner import TwoWeakLearnerClassifier
from usboost.multimodal.bundle import Bundle
from usboost.multimodal.pictured import about, pictures_of
from usboost.multimodal.scored import Scored, score_table
from usboost.reporting import heat
from usboost.reporting import inspection_figures as drawn
from usboost.reporting.confusion import confusion_rows
from usboost.reporting.figures import to_svg

WORST = 12
"""Badly classified rows shown."""

_VALUES = 8  # columns shown of each

SAMPLE = 2000
"""Rows on which views are shuffled and learners measured."""

COLUMNS = 20
"""Columns whose importance is shown."""


def write_report(
    bundle: Bundle,
    table: Path,
    out: Path,
    *,
    label: str | None = None,
    skip_unreadable: bool = False,
    images_root: Path | None = None,
    where_it_looks: bool = False,
    progress: Progress | None = None,
    looking: Progress | None = None,
) -> Scored:
    """Score a model on labelled rows and write the page.

    Parameters
    ----------
    label : column of the classes; by default that of the training table.
    out : an ``.html`` file; appears when it is complete.
    skip_unreadable : count pictures that cannot be read as missing, instead of refusing them.
    images_root : see `usboost.datasets.custom.source.TableFile`.
    where_it_looks : show what covering each part of the pictures of the worst rows does, which takes some
        fifty predictions a picture.
    progress : called with (rows done, rows).
    looking : called with (covered pictures predicted, in all).

    Returns
    -------
    The rows that were scored.

    Raises
    ------
    UsboostError
        As `score_table`; if the page cannot be written there; or if where a model looks is asked of one
        that reads no pictures.
    """
    table, out = Path(table), Path(out)
    if out.suffix.lower() not in (".html", ".htm") or out.is_dir():
        raise UsboostError(f"{out} must be an .html file")
    if where_it_looks and bundle.reader.pictures is None:
        raise UsboostError("the model reads no pictures, so it looks nowhere; leave out --where-it-looks")
    label = label or bundle.card.label
    scored = score_table(
        bundle, table, label, skip_unreadable=skip_unreadable, images_root=images_root, progress=progress
    )
    page = render(bundle, scored, table, label, where_it_looks=where_it_looks, looking=looking)
    write_atomically(out, page.encode())
    return scored


def render(
    bundle: Bundle,
    scored: Scored,
    table: Path,
    label: str,
    *,
    where_it_looks: bool = False,
    looking: Progress | None = None,
) -> str:
    """The page: HTML that loads nothing from the network and runs no script; as `write_report`."""
    card = bundle.card
    environment = Environment(
        loader=PackageLoader("usboost.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    rows = stratified_sample(scored.labels, SAMPLE, 0)
    sample = scored.views[rows]
    bins = calibration(scored.labels, scored.probabilities)
    counts = np.bincount(scored.labels, minlength=len(card.classes))
    return environment.get_template("own.html.j2").render(
        title=f"Predicting {label} with {zoo.title(card.model)}",
        card=card.model_dump(),
        what=zoo.about(card.model),
        n=len(scored),
        table=table.name,
        same=scored.file.digest() == card.sha256,
        scores=_scores(scored),
        f1=f1_of(card.classes),
        majority=f"{counts.max() / len(scored):.1%}",
        label=label,
        counts=list(zip(card.classes, counts.tolist(), strict=True)),
        without=[
            f"{missing:,} of {len(scored):,} rows have no picture in {column}"
            for column, missing in scored.without.items()
            if missing
        ],
        classes=card.classes,
        confusion=confusion_rows(scored.labels, scored.probabilities, card.classes),
        calibration=_drawn(drawn.calibration(bins, "Reliability diagram")),
        calibration_error=f"{expected_calibration_error(bins):.3f}",
        contributions=_contributions(bundle, sample),
        start=getattr(bundle.model, "start_", None) is not None,
        views=_views(bundle, sample, scored.labels[rows]),
        view_metrics=list(map(metric_name, IMPORTANCE_METRICS)),
        columns=_columns(bundle),
        worst=_worst(bundle, scored, where_it_looks, looking),
        pictures=about(bundle, scored),
        where_it_looks=where_it_looks,
        share=SHARE,
        heat=heat,
    )


def _scores(scored: Scored) -> list[dict[str, str]]:
    found = intervals(scored.labels, scored.probabilities)
    return [
        {
            "name": metric_name(key),
            **{k: _number(v) for k, v in zip(("value", "low", "high"), found[key], strict=True)},
        }
        for key in METRICS
    ]


def _contributions(bundle: Bundle, views: Views) -> str | None:
    """The figure of each learner's contribution, for a boosted model with several."""
    if not isinstance(bundle.model, TwoWeakLearnerClassifier):
        return None
    frame = view_contributions(bundle.model, views)
    if frame["view"].nunique() < 2:
        return None
    learners, form = bundle.model._learners(), bundle.reader.pictures
    pictures = () if form is None else form.names
    titles = {name: learner_title(name, learner, pictures) for name, learner in learners.items()}
    if bundle.model.start_ is not None:
        titles["start"] = f"start: logistic regression ({_what(bundle.model.start_.views, pictures)})"
    named = frame.assign(view=frame["view"].map(titles))
    return _drawn(drawn.contributions(named, "Contribution of each learner"))


def learner_title(name: str, learner: Any, pictures: Collection[str]) -> str:
    """What a learner is and what it reads, such as "trees (table and pictures)".

    Parameters
    ----------
    pictures : the views that are pictures.
    """
    return f"{_PLURALS.get(learner.kind, learner.kind)} ({_what(view_names(name, learner), pictures)})"


def _what(views: Sequence[str], pictures: Collection[str]) -> str:
    parts = {each: " ".join(["pictures", *each.split(":", 1)[1:]]) for each in pictures}
    return " and ".join(dict.fromkeys(parts.get(view, "table") for view in views))


_PLURALS = {"network": "networks", "tree": "trees"}


def _drawn(figure: Figure) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(to_svg(figure).encode()).decode()


def _views(bundle: Bundle, views: Views, labels: np.ndarray) -> list[dict[str, Any]]:
    """Permutation importance of the pictures and of all columns together; empty without pictures."""
    form = bundle.reader.pictures
    if form is None:
        return []
    found = view_importance(bundle.model, views, labels)
    shown = [", ".join(form.columns)] if len(form.names) == 1 else form.columns
    names = {view: f"pictures ({columns})" for view, columns in zip(form.names, shown, strict=True)}
    names["S"] = f"{len(bundle.card.columns)} columns"
    return [
        {
            "name": names[str(view)],
            "losses": [
                (_signed(part.loc[metric, "mean"]), f"± {part.loc[metric, 'std']:.4f}")
                for metric in IMPORTANCE_METRICS
            ],
        }
        for view, part in found.set_index("metric").groupby("view", sort=False)
    ]


def _columns(bundle: Bundle) -> list[dict[str, Any]]:
    """Each column's share of the trees' split gains, largest first; empty without trees."""
    try:
        shares = zip(bundle.model.feature_names_, bundle.model.feature_importances_, strict=True)
    except AttributeError:
        return []
    known, found = set(bundle.encoding.names), dict[str, float]()
    texts = {each: f"{name} (text)" for name, text in bundle.texts.items() for each in text.names(name)}
    for name, share in shares:
        shown = texts.get(name, str(name)) if name in known else "pictures (embeddings)"
        found[shown] = found.get(shown, 0.0) + float(share)
    ranked = sorted(found.items(), key=lambda item: -item[1])[:COLUMNS]
    largest = max((share for _, share in ranked), default=0.0) or 1.0
    return [
        {"name": name, "share": f"{share:.1%}", "width": f"{100 * share / largest:.1f}"}
        for name, share in ranked
    ]


def _worst(
    bundle: Bundle, scored: Scored, where_it_looks: bool, looking: Progress | None
) -> list[dict[str, Any]]:
    """The rows that `worst_samples` finds, with their pictures and values."""
    found = worst_samples(scored.labels, scored.probabilities, WORST)
    pictures = pictures_of(
        bundle,
        scored,
        found["row"].tolist(),
        where_it_looks=where_it_looks,
        progress=looking,
    )
    classes, shown = bundle.card.classes, list(bundle.card.columns)[:_VALUES]
    return [
        {
            "number": each.row + 1,
            "truth": classes[each.true],
            "p_truth": f"{each.p_true:.3f}",
            "predicted": classes[each.predicted],
            "p_predicted": f"{each.p_predicted:.3f}",
            "pictures": pictures.get(each.row, []),
            "columns": [(name, _value(scored.frame[name].iloc[each.row])) for name in shown],
        }
        for each in found.itertuples()
    ]


def _signed(value: float) -> str:
    return f"{value:+.4f}".replace("-", "−")


def _number(value: float) -> str:
    return f"{value:.4f}" if np.isfinite(value) else "–"


def _value(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else "" if value is None else str(value)
    return text if len(text) <= 80 else f"{text[:79]}…"

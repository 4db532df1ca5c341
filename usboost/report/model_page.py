"""Write a fitted model's scores and inspection on labelled rows as one self-contained page."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from usboost.data.progress import Progress
from usboost.errors import UsboostError
from usboost.evaluation.intervals import answer_intervals, intervals, wilson
from usboost.evaluation.metrics import confusion, per_class, score_answers
from usboost.evaluation.ranking import METRICS_OF, f1_of, metric_name, number, number_of_label
from usboost.evaluation.task import FEW, score_slices, table_of
from usboost.files import write_atomically
from usboost.fit.bundle import Bundle
from usboost.fit.predict import Scored, score_table
from usboost.models import catalogue
from usboost.models.inspection.inspect import view_contributions
from usboost.models.methods.average import Average
from usboost.models.methods.weak_learners import BoostedWeakLearners
from usboost.report import blocks, importance, members, model_figures
from usboost.report.blocks import Section, html
from usboost.report.explained import explained_block
from usboost.report.figures import data_uri, to_svg
from usboost.report.rows import Maps, worst_block
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
    """Score a model on labelled rows, write the page, and return the rows that were scored.

    Raises UsboostError as `score_table`; if the page cannot be written there; if there is no column
    `by_column`; or if where a model looks is asked of one that reads no images or predicts a number.

    Parameters
    ----------
    label : column of the true answers; by default that of the training table.
    out : an ``.html`` file; appears when it is complete.
    strict : refuse values and images that cannot be read, instead of counting them as missing.
    images_root : see `usboost.table.source.TableFile`.
    occlusion_maps : show what covering each part of the images of the worst rows does, which takes some fifty
        predictions an image.
    by_column : a column of the table, read by the model or not, by whose groups the rows are scored, too; see
        `usboost.table.columns.slices`.
    progress, looking : called with (rows done, rows), and with (covered images predicted, in all).
    """
    table, out = Path(table), Path(out)
    blocks.check_out(out)
    if occlusion_maps and bundle.reader.images is None:
        raise UsboostError("the model reads no images, so it looks nowhere; leave out `occlusion_maps`")
    if occlusion_maps and not bundle.card.classes:
        raise UsboostError(
            "where a model looks is the change of a class's probability, but this one predicts a number; "
            "leave out `occlusion_maps`"
        )
    label = label or bundle.card.label
    if by_column is not None:
        require(TableFile.open(table), [by_column])
    scored = score_table(bundle, table, label, strict=strict, images_root=images_root, progress=progress)
    if by_column is not None:
        form, kind = bundle.reader.formats.get(by_column), bundle.card.columns.get(by_column)
        missing = bundle.reader.missing
        groups = read_slices(scored.file, by_column, scored.rows, missing=missing, kind=kind, form=form)
        slices = score_slices(scored.labels, scored.predicted, groups.names, groups.codes)
        scored = replace(scored, slices=slices)
    maps = Maps(occlusion_maps, looking)
    write_atomically(out, render(bundle, scored, table, label, maps, by_column).encode())
    return scored


def render(
    bundle: Bundle, scored: Scored, table: Path, label: str, maps: Maps, by_column: str | None = None
) -> str:
    """Return the page: HTML that loads nothing from the network and runs no script; as `write_report`."""
    card, history = bundle.card, pd.DataFrame(bundle.card.history)
    rows = importance.sample(scored, bundle)
    views = scored.views[rows]
    scores = {metric_name(name): card.scores.get(name) for name in METRICS_OF[card.task]}
    own = label == card.label  # else these are true answers of another column
    val = {name: number(value) for name, value in scores.items() if own and value is not None}
    threshold = None if card.threshold is None else f"{card.threshold:.4g}"
    lacks = [f"{scored.unlabelled:,} rows have no {label} and are not scored"] if scored.unlabelled else []
    lacks += [f"{n:,} of {len(scored):,} rows have no image in {c}" for c, n in scored.without.items() if n]
    if card.classes:
        counts = np.bincount(scored.labels, minlength=len(card.classes))
        answers = [f"{name} {count:,}" for name, count in zip(card.classes, counts, strict=True)]
    else:
        low, middle, high = map(number_of_label, np.quantile(scored.labels, [0, 0.5, 1]))
        answers = [f"{low} to {high}", f"median {middle}"]
    given = {"card": card, "label": label, "classes": card.classes, "val": val, "threshold": threshold}
    intro = html(
        "model_intro",
        **given,
        what=catalogue.about(card.model),
        n=len(scored),
        table=table.name,
        same=scored.file.digest() == card.sha256,
        tiles=tiles(bundle, scored),
        f1=f1_of(card.classes) if card.classes else "",
        answers=answers,
        lacks=[*lacks, *notes_of_rows(scored.tally)],
        ensemble=bool(getattr(bundle.model, "members_", {})),
    )
    sections = _of_classes(bundle, scored, threshold) if card.classes else []
    if not card.classes:
        predicted, rest = blocks.predictions(scored.labels, scored.predicted, card.margin, label, card.floor)
        sections.append(Section("predicted", "Predicted against true", predicted, "Predicted and true"))
        sections.append(Section("residuals", "Residuals", rest, "Residuals"))
    if scored.slices:
        name = f"Scores by {by_column}"
        shown = html("table", label=name, stub=by_column, **table_of(scored.slices))
        sections.append(Section("slices", name, shown + html("slices", few=FEW, threshold=threshold), name))
    rmse = None if card.floor is not None else card.scores.get("rmse")
    heads, listed = members.members_table(bundle.model, rmse)
    if listed:
        shown = html("members", members=listed, heads=heads, notes=members.notes(bundle.model))
        sections.append(Section("members", "Members", shown, "Members"))
    boosted = bundle.model.boosted() if isinstance(bundle.model, Average) else {"": bundle.model}
    start = any(getattr(each, "start_", None) is not None for each in boosted.values())
    curves, learners = dict[str, tuple[int, str]](), []
    for name, each in boosted.items():
        frame = view_contributions(each, views) if isinstance(each, BoostedWeakLearners) else pd.DataFrame()
        if len(frame) and frame["view"].nunique() > 1:
            named = frame.assign(view=frame["view"].map(importance.learner_titles(bundle, each)))
            title = "Contribution of each learner" + (f" of {name}" if name else "")
            learners.append(data_uri(to_svg(model_figures.contributions(named, title))))
        best = getattr(each, "best_round_", 0)
        measured = history[history["member"] == name] if "member" in history else history
        if len(measured):
            curves[name] = best, data_uri(to_svg(model_figures.learning_curve(measured, best)))
    rounds = html("learning", curves=curves, contributions=learners, start=start)
    shuffled = importance.permutation_block(bundle, views, scored.labels[rows])
    mistakes = worst_block(bundle, scored, maps)
    single = explained_block(bundle, scored, with_note=not mistakes)
    kind = "Misclassified rows of the highest loss" if card.classes else "Rows of the largest error"
    sections += [
        Section("importance", "Permutation importance", shuffled, "Permutation importance"),
        Section("gain", "Split gain", importance.gain_block(bundle, start=start), "Split gain"),
        Section("rounds", "Learning curve", rounds, "Learning curve"),
        Section("worst", kind, mistakes, "Worst rows"),
        Section("explained", "Single rows explained", single, "Single rows"),
    ]
    title = f"Predicting {label} with {catalogue.title(card.model)}"
    return blocks.page(title, intro, sections, html("model_made_from", card=card, table=table.name))


def _of_classes(bundle: Bundle, scored: Scored, threshold: str | None) -> list[Section]:
    """Return the sections of predicted classes alone."""
    classes, n = bundle.card.classes, len(scored)
    answers = bundle.codes(scored.predicted)
    counts = per_class(confusion(scored.labels, answers, len(classes)))
    shown = blocks.confusion(scored.labels, answers, classes)
    by_class = {key: values.tolist() for key, values in counts.items()}
    shown += html("classes", classes=classes, counts=by_class, threshold=threshold)
    reliability = blocks.calibration(scored.labels, scored.predicted, classes)
    sections = [
        Section("confusion", "Confusion matrix", shown, "Confusion matrix"),
        Section("calibration", "Calibration", reliability, "Calibration"),
    ]
    if bundle.card.least is not None:
        sets = bundle.sets(scored.predicted)
        covered, sizes = float(sets[np.arange(n), scored.labels].mean()), sets.sum(axis=1)
        shares = {"covered": covered, "ends": wilson(covered, n), "one": float((sizes == 1).mean())}
        body = html("sets", least=bundle.card.least, size=float(sizes.mean()), **shares)
        sections.append(Section("sets", "Sets of classes", body, "Sets of classes"))
    return sections


def tiles(bundle: Bundle, scored: Scored) -> list[dict[str, str]]:
    """Return name, value, ends of the interval, and the prior's value, of each score of the task.

    Of two classes also the area under precision and recall, the balanced accuracy and, where the card has a
    threshold, the scores of the answers at it.
    """
    before, two = prior(bundle, scored), len(bundle.card.classes) == 2
    scores, simple = intervals(scored.labels, scored.predicted), bundle.task.score(scored.labels, before)
    if two:
        scores |= answer_intervals(scored.labels, bundle.codes(scored.predicted), scored.predicted[:, 1])
        simple |= score_answers(scored.labels, bundle.codes(before), before[:, 1])
        if bundle.card.threshold is None:
            del scores["answer_f1"], scores["answer_accuracy"]
    out = []
    for key, ends in scores.items():
        value, low, high, before_it = (number(x) if np.isfinite(x) else "–" for x in (*ends, simple[key]))
        span = f"{low} to {high}" if ends[1] < ends[2] else ""
        out.append({"name": metric_name(key), "value": value, "span": span, "prior": before_it})
    return out


def prior(bundle: Bundle, scored: Scored) -> np.ndarray:
    """Return the prior's predictions for the rows: float64 (n, M), or (n,).

    Of the training rows as the card has it, else of these rows.
    """
    n, classes = len(scored), bundle.card.classes
    given = np.array(bundle.card.prior)
    if not classes:
        return np.full(n, given[0] if len(given) else scored.labels.mean())
    if not len(given):
        given = np.bincount(scored.labels, minlength=len(classes)) / n
    return np.tile(given, (n, 1))

"""The page about a user's data: what predicts best, by how much, and what it was made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from usboost.datasets.store import task_of
from usboost.evaluation import selection
from usboost.evaluation.names import f1_of, metric_name, number
from usboost.evaluation.statistics import LEVEL
from usboost.evaluation.task import TASKS
from usboost.models import catalogue
from usboost.reporting.inspection.figures import of_numbers
from usboost.reporting.page import (
    DEMO,
    Key,
    Origin,
    common,
    confusion_rows,
    environment,
    short,
    signed_score,
)
from usboost.reporting.results import read_cell, tied
from usboost.reporting.standing import Interval, Standing, read_rows, standings


def render(
    frame: pd.DataFrame,
    results: Path,
    dataset: str,
    *,
    card: Mapping[str, Any],
    absent: Sequence[str] = (),
    drawings: Mapping[str, Mapping[str, str]] | None = None,
    images: Sequence[tuple[str, list[str]]] = (),
    inspections: Mapping[str, Any] | None = None,
    origins: Mapping[Key, Origin] | None = None,
    other_page: str | None = None,
) -> str:
    """The page: HTML that loads nothing from the network and runs no script.

    Parameters
    ----------
    frame : what `results.collect` returns.
    results : folder with the test rows of each fit.
    card : of the dataset.
    absent : models without scores.
    drawings, images, inspections, origins : as in `paper_page.render`, of this dataset.
    other_page : the file of the report on the paper's datasets, if there is one.
    """
    task = TASKS[task_of(card)]
    metric = task.chooses  # as in `promote` when nothing else is asked for
    shown = [metric, *(each for each in task.metrics if each != metric)]
    found = standings(frame, results, dataset, metric, task)
    best = found[0] if found else None
    rows = read_rows(results, dataset, best.model, best.seed) if best else None
    roles, classes = card.get("roles", {}), list(map(str, card.get("classes", [])))
    label, profile = str(roles.get("label", "the label")), str(card.get("profile", ""))
    demo = profile == "demo"
    return (
        environment()
        .get_template("user_data.html.j2")
        .render(
            title=f"Your data: predicting {label}" + (f": {DEMO}" if demo else ""),
            demo=demo,
            dataset=dataset,
            label=label,
            profile=profile,
            table=next(iter(card.get("sources", {})), "your table"),
            registered=f"usboost-{profile}-{dataset}",
            metric=metric_name(metric),
            numbers=task.name == "regression",
            f1=f1_of(classes) if len(classes) > 1 else "that of the label",
            chooses=metric,
            heads={name: metric_name(name) for name in shown},
            absent=absent,
            read=_read(card),
            classes=classes,
            other_page=other_page,
            alone=_alone(found, shown) if "images" in card else None,
            constant=_constant(*task.constant(rows[0]), bool(classes)) if rows is not None else None,
            n_test=0 if rows is None else len(rows[0]),
            n=0 if rows is None else len(rows[0]),
            confusion=confusion_rows(rows[0], rows[1].argmax(axis=1), classes) if rows and classes else [],
            of=of_numbers(*rows, _margin(results, dataset, best), label)
            if rows and best and not classes
            else None,
            **_of_models(frame, dataset, found, shown, card),
            **common(
                {dataset: card},
                [dataset],
                origins,
                drawings=drawings,
                images={dataset: images} if images else {},
                inspections={dataset: inspections} if inspections else {},
            ),
        )
    )


def _of_models(
    frame: pd.DataFrame,
    dataset: str,
    found: Sequence[Standing],
    shown: Sequence[str],
    card: Mapping[str, Any],
) -> dict[str, Any]:
    """What the page says of the models: the chosen one, those that are level with it, and doubts."""
    best, prior, tie, warning = found[0] if found else None, selection.prior_log_loss(card, "test"), "", ""
    if best is not None:
        tie = selection.tie_note(len(tied(frame, dataset, shown[0])), shown[0], best.val[shown[0]])
        test = {name: value for name, (value, *_) in best.test.items()}
        warning = selection.probability_note(best.val, test, card)
    worse = [
        each.model
        for each in found
        if prior and "log_loss" in each.test and selection.worse_than_prior(each.test["log_loss"][0], prior)
    ]
    return {
        "best": _shown(best, shown) if best else None,
        "whose": f"{catalogue.title(best.model)} on the test rows." if best else "",
        "tie": tie,
        "warning": warning,
        "prior": prior and number(prior),
        "worse": worse,
        "standings": [_shown(each, shown) for each in found],
        "no_auc": "auc" in shown
        and bool(found)
        and all(np.isnan(each.test.get("auc", (np.nan,))[0]) for each in found),
        "tested": any(each.p_holm is not None for each in found),
        "level_with": [each.model for each in found if each.within_noise],
        "behind": [each.model for each in found if _clear(each) > 0],
        "ahead": [each.model for each in found if _clear(each) < 0],
    }


def _constant(what: str, metric: str, value: float, classes: bool) -> tuple[str, str, str]:
    """What one answer for all rows is worth, as a tile shows it."""
    if classes:
        return "The largest class has", f"{value:.0%}".replace("%", "\u00a0%"), "of the test rows"
    return f"Always {what}", _number(value), metric_name(metric)


def _clear(each: Standing) -> float:
    """The chosen model's lead where it is more than noise, else 0."""
    return 0.0 if each.difference is None or each.within_noise else each.difference[0]


def _margin(results: Path, dataset: str, best: Standing) -> tuple[float, float] | None:
    cell = read_cell(results, dataset, best.model)
    return next((fit.margin for fit in cell.seeds if fit.seed == best.seed), None) if cell else None


def _shown(each: Standing, shown: Sequence[str]) -> dict[str, Any]:
    return {
        "model": each.model,
        "about": catalogue.about(each.model),
        "seed": each.seed,
        "val": _number(each.val.get(shown[0])),
        "test": {name: _interval(each.test.get(name)) for name in shown},
        "rounds": "–" if np.isnan(each.rounds) else f"{each.rounds:,.0f}",
        "seconds": "–" if np.isnan(each.seconds) else f"{each.seconds:,.1f}",
        "difference": _interval(each.difference, signed_score) if each.difference else None,
        "p": _p(each.p_holm),
        "noise": each.within_noise,
    }


def _interval(found: Interval | None, written: Any = None) -> dict[str, str]:
    write = written or _number
    value, low, high = found or (np.nan, np.nan, np.nan)
    span = "" if np.isnan(low) else f"{write(low)} to {write(high)}"
    return {"value": write(value), "span": span}


def _number(value: float | None) -> str:
    return "–" if value is None or not np.isfinite(value) else short(value)


def _p(p: float | None) -> str:
    if p is None:
        return ""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def _alone(found: Sequence[Standing], shown: Sequence[str]) -> dict[str, Any] | None:
    """The best model of the columns alone, by which a user sees whether images help, and that verdict.

    Whether they help is one question, asked of one difference, so its p-value is not adjusted for the others.
    """
    each = next((each for each in found[1:] if each.model in catalogue.WITHOUT_IMAGES), None)
    if each is None or each.difference is None or each.p is None:
        return None
    verdict = "Images: no difference beyond noise"
    if each.p < LEVEL:
        verdict = "Images help" if each.difference[0] > 0 else "Images do harm"
    return {**_shown(each, shown), "p": _p(each.p), "verdict": verdict, "beyond_noise": each.p < LEVEL}


def _read(card: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the models read, in words."""
    splits = {name: entry.get("rows", 0) for name, entry in card.get("splits", {}).items()}
    facts = [
        ("Rows", ", ".join(f"{rows:,} {_SPLITS.get(name, name)}" for name, rows in splits.items())),
        ("Split", str(card.get("split", "–"))),
        *([("Classes", ", ".join(map(str, card["classes"])))] if card.get("classes") else []),
    ]
    columns = {name: entry for name, entry in card.get("columns", {}).items() if entry.get("view")}
    for kind, words in _KINDS:
        named = [str(name) for name, entry in columns.items() if entry.get("kind") == kind]
        if named:
            facts.append((words, ", ".join(named[:_COLUMNS]) + _more(len(named) - _COLUMNS)))
    if images := card.get("images"):
        size = images.get("size")
        at = f", at {size[0]} × {size[1]} pixels" if isinstance(size, list) and len(size) == 2 else ""
        facts.append(("Images", ", ".join(map(str, images.get("columns", ["image"]))) + at))
        if without := {part: n for part, n in images.get("without", {}).items() if n}:
            facts.append(("Without an image", ", ".join(f"{n:,} {part}" for part, n in without.items())))
    if dropped := [*card.get("roles", {}).get("dropped", []), *card.get("left_out", {})]:
        facts.append(("Not read", ", ".join(map(str, dropped))))
    return facts


_SPLITS = {"train": "training", "val": "validation", "test": "test"}
_KINDS = (("number", "Numbers"), ("category", "Categories"), ("date", "Dates"), ("text", "Texts"))
_COLUMNS = 40


def _more(n: int) -> str:
    return f" and {n} more" if n > 0 else ""

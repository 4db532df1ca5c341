"""The page about the papers' datasets: the layout of Table 3, beside what is printed; the other papers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from usboost.evaluation import selection
from usboost.evaluation.names import metric_name, number
from usboost.models import catalogue
from usboost.reporting.figures import place, to_svg
from usboost.reporting.page import (
    DEMO,
    Key,
    Origin,
    common,
    environment,
    sign,
    signed,
    spread,
)
from usboost.reporting.paper_summary import improvement, metric_of, same_in_both, verdicts
from usboost.reporting.results import DATASET_ABOUT, chosen, dataset_name, read_cell, read_trace, table3

HALVES = ("bfv_dnn", "1wl_s", "1wl_u", "2wl", "2wl2o")
"""The paper's Table 4: one-learner against two-learner models."""


def render(
    frame: pd.DataFrame,
    *,
    datasets: Sequence[str],
    models: Sequence[str],
    profiles: set[str],
    results: Path | None = None,
    absent: Sequence[tuple[str, str]] = (),
    cards: Mapping[str, Mapping[str, Any]] | None = None,
    drawings: Mapping[str, Mapping[str, str]] | None = None,
    images: Mapping[str, list[tuple[str, list[str]]]] | None = None,
    inspections: Mapping[str, Mapping[str, Any]] | None = None,
    others: OtherPapers | None = None,
    origins: Mapping[Key, Origin] | None = None,
    other_page: str | None = None,
) -> str:
    """The page: HTML that loads nothing from the network and runs no script.

    Parameters
    ----------
    frame : what `collect` returns.
    datasets, models : the columns and rows of the tables.
    profiles : the profiles behind the frame's cells; with "demo" among them (or in a card) the title
        says so and no published number is printed.
    results : folder with the test rows of each fit, on which differences are tested.
    absent : (dataset, model) cells without scores.
    cards : data cards by dataset.
    drawings : {figure: {dataset: SVG}}, figures named as in `figures.draw`.
    others : the cells of the other two papers.
    inspections : by dataset and model, what `inspection.read` returns.
    images : by dataset, each class's name and sample images as data URIs.
    origins : by (dataset, model, seed), what made a fit's scores.
    other_page : the file of the report on a user's data, if there is one.
    """
    cards = cards or {}
    with_images = [d for d in dict.fromkeys(datasets) if "images" in cards.get(d, {})]
    demo = is_demo(profiles, cards)
    datasets = list(dict.fromkeys(datasets))
    rows = catalogue.ordered([*models, *frame["model"]])
    found = verdicts(frame, datasets, cards, results)
    # long, but flat: the names that the template knows, one after the other
    return (
        environment()
        .get_template("paper.html.j2")
        .render(
            title=f"The paper: {DEMO}" if demo else "The paper",
            demo=demo,
            profiles=sorted(profiles),
            models=rows,
            baseline=catalogue.BASELINE,
            caveats={m: entry.caveat for m in rows if (entry := catalogue.CATALOGUE.get(m)) and entry.caveat},
            seeds=sorted(int(seed) for seed in frame["seed"].unique()),
            verdicts=found,
            tested=any(one["significant"] is not None for each in found for one in each["references"]),
            legend={m: about for m in rows if (about := _about(m))},
            same=same_in_both(frame, "ci_a", "ci_b"),
            about={d: DATASET_ABOUT[d] for d in datasets if d in DATASET_ABOUT},
            metrics={d: metric_name(metric_of(d)) for d in datasets},
            test=_table(frame, datasets, rows, "test", published=not demo),
            validation=_table(frame, datasets, rows, "val", published=False),
            details={
                d: _details(part, cards.get(d, {}))
                for d in datasets
                if not (part := frame[frame["dataset"] == d]).empty
            },
            absent=absent,
            others=others,
            halves=_table(frame, with_images, [m for m in HALVES if m in rows], "test", published=not demo),
            with_images=with_images,
            half_models=[m for m in HALVES if m in rows],
            other_page=other_page,
            numbers=False,
            **common(cards, datasets, origins, drawings=drawings, images=images, inspections=inspections),
        )
    )


def _about(model: str) -> str:
    """What a model is, in a few words; empty where the catalogue does not know it."""
    whole = catalogue.model_with_part(model)
    return (
        f"the GBM of {whole.title} without the network"
        if whole
        else catalogue.CATALOGUE[model].about
        if model in catalogue.CATALOGUE
        else ""
    )


def is_demo(used: set[str], cards: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether any cell or data card is of the demo profile, so that the paper's numbers must not show."""
    return "demo" in used or any(card.get("profile") == "demo" for card in cards.values())


def _table(
    frame: pd.DataFrame, datasets: Sequence[str], models: Sequence[str], split: str, *, published: bool
) -> dict[str, Any]:
    """Table 3's layout: a row per model, a cell per dataset (None where it has no score).

    The best is the model whose fit has the best validation score, whatever split is shown.
    """
    cells: dict[tuple[str, str], dict[str, Any]] = {}
    for dataset in datasets:
        summary = table3(frame[frame["dataset"] == dataset], split, metric_of(dataset))
        summary = summary[(summary["value_seeds"] > 0) & summary["model"].isin(models)]
        for row in summary.itertuples():
            cells[dataset, row.model] = {
                "model": row.model,
                "value": f"{row.value_mean:.4f}",
                "spread": spread(row.value_std, 4),
                "seeds": int(row.value_seeds),
                "gain": signed(row.improvement_mean),
                "gain_spread": spread(row.improvement_std, 2),
                "gain_seeds": int(row.improvement_seeds),
                "sign": "" if row.model == catalogue.BASELINE else sign(row.improvement_mean),
                "best": False,
            }
        fit = chosen(frame[frame["model"].isin(models)], dataset, metric_of(dataset))
        if fit and (dataset, fit[0]) in cells:
            cells[dataset, fit[0]]["best"] = True
    numbers = {key: improvement(*key) for key in ((d, m) for d in datasets for m in models)}
    counts = [cell["seeds"] for cell in cells.values()]
    return {
        "cells": cells,
        "seeds": max(set(counts), key=counts.count) if counts else 0,
        "paper": {key: signed(value) for key, value in numbers.items()} if published else {},
    }


def _details(frame: pd.DataFrame, card: Mapping[str, Any]) -> dict[str, Any]:
    """One dataset's test split: per model, every metric and the cost, in named columns.

    With them come the models whose log-loss is above the prior's.
    """
    prior, worse = selection.prior_log_loss(card, "test"), list[str]()
    classes = card.get("classes")
    metrics = list(frame.loc[frame["split"] == "test", "metric"].unique())
    columns = {metric: metric_name(metric) for metric in metrics}
    if "f1_tuned" in columns:  # of two classes only
        columns |= {"f1": "F1 at threshold 0.5", "f1_tuned": "F1 at tuned threshold"}
    elif isinstance(classes, list) and len(classes) > 2 and "f1" in columns:
        columns["f1"] = "macro F1"
    cells: dict[str, dict[str, tuple[str, str]]] = {model: {} for model in frame["model"].unique()}
    for metric in metrics:
        for row in table3(frame, "test", metric).itertuples():
            if row.value_seeds:
                cells[row.model][metric] = (number(row.value_mean), spread(row.value_std, 4))
                if metric == "log_loss" and prior and selection.worse_than_prior(row.value_mean, prior):
                    worse.append(row.model)
    fits = frame.drop_duplicates(["model", "seed"]).groupby("model", sort=False)
    for key, digits in (("rounds", 0), ("fit_seconds", 1)):
        for model, mean in fits[key].mean().dropna().items():
            cells[str(model)][key] = (f"{mean:,.{digits}f}", "")
    return {
        "prior": prior and number(prior),
        "worse": worse,
        "columns": columns | {"rounds": "rounds", "fit_seconds": "fit, s"},
        "rows": [{"name": catalogue.title(model), "cells": found} for model, found in cells.items()],
    }


METRICS = ("accuracy", "f1", "early_accuracy", "earliness", "harmonic_mean")


@dataclass(frozen=True)
class OtherPapers:
    """What the page shows: named columns, a row per cell, and figures as (title, SVG)."""

    columns: dict[str, str]
    rows: list[dict[str, Any]]
    drawings: list[tuple[str, str]]


def other_papers(results: Path, cells: Sequence[tuple[str, str]]) -> OtherPapers:
    """Tables and figures of cells that do not run on every dataset: (dataset, model) pairs."""
    rows, drawings = [], []
    for dataset, model in cells:
        cell = read_cell(results, dataset, model)
        if cell is None:
            continue
        scores = pd.DataFrame([fit.scores["test"] for fit in cell.seeds], dtype=float)
        title = f"{catalogue.title(model)} on {dataset_name(dataset)}"
        shown = {
            name: _summary(scores[name]) for name in METRICS if name in scores and scores[name].notna().any()
        }
        rows.append({"name": title, "cells": {**shown, "seeds": (str(len(cell.seeds)), "")}})
        trace = read_trace(results, dataset, model)
        if trace is not None and "accuracy_test" in trace:
            drawings.append((f"Accuracy over time: {title}", to_svg(_over_time(trace, title))))
    return OtherPapers({**{name: metric_name(name) for name in METRICS}, "seeds": "seeds"}, rows, drawings)


def _summary(values: pd.Series) -> tuple[str, str]:
    return number(values.mean()), spread(values.std(), 4)


def _over_time(trace: pd.DataFrame, title: str) -> Figure:
    """Accuracy after each frame, on the three splits, mean over seeds."""
    figure = Figure(figsize=(5.2, 3.4))
    place(figure)
    axes = figure.subplots()
    names = {"accuracy_train": "training", "accuracy_val": "validation", "accuracy_test": "test"}
    for (column, label), colour in zip(names.items(), ("#9aa3ad", "#d98a3d", "#0b5c9e"), strict=True):
        if column in trace and np.isfinite(trace[column]).any():
            curve = trace.groupby("round")[column].mean()
            axes.plot(curve.index, curve.to_numpy(), marker="o", markersize=3, label=label, color=colour)
    axes.set(title=title, xlabel="frames seen, t", ylabel="accuracy", ylim=(0, 1))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    return figure

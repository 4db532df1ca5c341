"""The page about the papers' datasets: the layout of Table 3 with the numbers it prints; the other papers.

The published numbers are those of Tables 3 and 4 of US (Treviño Gavito, Klabjan, Utke): relative improvements
over the paper's own baseline in %, of the mean of 5 runs for BFV+DNN, of a single run for every boosting
model. Table 4 repeats four rows of Table 3 and adds the two single-learner models; Table 5 of its appendix is
those two rows again. The text's "Table 5 summarizes the results" means Table 3.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure

from usboost.evaluation import ranking
from usboost.evaluation.ranking import metric_name, number
from usboost.evaluation.statistics import LEVEL
from usboost.models import catalogue
from usboost.report import blocks
from usboost.report import results as records
from usboost.report.blocks import DEMO, ReportData, Section, html, signed
from usboost.report.figures import place, to_svg

DATASETS = ("ci_a", "ci_b", "ct", "mi", "rw")

_TABLE_3: dict[str, tuple[float, ...]] = {
    "bfv_dnn": (1.87, 4.70, 0.08, 0.34, 0.11),
    "2wl": (3.50, 0.14, -0.37, -0.09, -0.60),
    "2wl_fix": (0.68, -2.10, -0.36, -3.45, -2.37),
    "2wl2o": (3.97, 0.25, 0.10, 0.13, 0.41),
    "2wl2o_fix": (-7.87, -19.85, -0.23, -0.14, -5.37),
}
_TABLE_4: dict[str, tuple[float, ...]] = {"1wl_s": (-7.04, -8.17, -9.21), "1wl_u": (-0.48, -0.16, -1.93)}

# {model: {dataset: relative improvement in %}}
IMPROVEMENT: dict[str, dict[str, float]] = {
    **{model: dict(zip(DATASETS, row, strict=True)) for model, row in _TABLE_3.items()},
    **{model: dict(zip(DATASETS[2:], row, strict=True)) for model, row in _TABLE_4.items()},
}


def improvement(dataset: str, model: str) -> float | None:
    """Return the published relative improvement in %, or None where the paper prints none."""
    return IMPROVEMENT.get(model, {}).get(dataset)


def metric_of(dataset: str) -> str:
    """Return the metric that the paper scores a dataset with: accuracy for RW, else F1 (not said which)."""
    return "accuracy" if dataset == "rw" else "f1"


RIVALS = (catalogue.BASELINE, "lgbm")
"""The models that every dataset's best is compared with and tested against."""

REFERENCES = (*RIVALS, catalogue.PRIOR)
"""With them the one whose score is shown only: that a model differs from the prior is no news."""

HALVES = ("bfv_dnn", "1wl_s", "1wl_u", "2wl", "2wl2o")
"""The paper's Table 4: one-learner against two-learner models."""


def render(data: ReportData) -> str:
    """Return the page: HTML that loads nothing from the network and runs no script.

    With "demo" among the profiles of cells (or in a card) the title says so; no published number is printed.
    """
    frame, datasets, cards = data.frame, list(dict.fromkeys(data.datasets)), data.cards
    used = records.profiles(data.results, datasets, data.models)
    demo, models = is_demo(used, cards), catalogue.ordered([*data.models, *frame["model"]])
    verdicts = [each for d in datasets if (each := _verdict(frame, d, cards.get(d, {}), data.results))]
    absent = records.missing(data.results, datasets, data.models)
    traced = {key[:2] for key in data.origins}

    def scores(split: str, label: str, among: Sequence[str] = models, of: Sequence[str] = datasets) -> Markup:
        shown = _table(frame, of, among, split, published=not demo and split == "test")
        metrics = {d: metric_of(d) for d in of}
        given = {"label": label, "metrics": metrics, "models": among, "small": split == "val"}
        return html("paper_scores", baseline=catalogue.BASELINE, table=shown, traced=traced, **given)

    given = {"models": models, "datasets": datasets, "demo": demo, "level": LEVEL}
    seeds = sorted(int(seed) for seed in frame["seed"].unique())
    about = {m: catalogue.CATALOGUE[m].about if m in catalogue.CATALOGUE else "" for m in models}
    for model in models:
        if whole := catalogue.model_with_part(model):
            about[model] = f"the GBM of {whole.title} without the network"
    legend = {d: records.DATASET_ABOUT.get(d, "") for d in datasets}, about
    intro = html("paper_intro", **given, verdicts=verdicts, profiles=sorted(used), seeds=seeds, legend=legend)
    same: list[str] = []  # the models all of whose scores are the same on both
    wide = frame.pivot_table("value", ["model", "seed", "split", "metric"], "dataset", sort=False)
    if {"ci_a", "ci_b"} <= set(wide.columns):
        equal = (wide["ci_a"] == wide["ci_b"]).groupby(level="model", sort=False).all()
        same = [str(model) for model in equal.index[equal]]
    notes = html("paper_notes", entries=catalogue.CATALOGUE, **given, same=same)
    tested = html("paper_lead") + scores("test", "Results on the test split") + notes
    with_images = [d for d in datasets if "images" in cards.get(d, {})]
    halves = [model for model in HALVES if model in models]
    half = ""
    if with_images and len(halves) > 1:
        half = html("paper_halves") + scores("test", "One learner against two", halves, with_images)
    validation = html("paper_validation") + scores("val", "Results on the validation split")
    details = _details(frame, datasets, cards)
    others = _other_papers(data.results, data.cells)
    missed, shared = html("missing", absent=absent) if absent else "", data.sections()
    sections = [
        Section("results", "Results on the test split", tested, "Results"),
        Section("halves", "One learner against two", half),
        Section("missing", "Missing cells", missed, "Missing cells"),
        Section("validation", "Validation split", validation, "Validation"),
        Section("details", "All metrics and cost", details, "All metrics and cost"),
        *(shared[name] for name in ("figures", "models")),
        Section("others", "Boosted neural networks and early classification", others),
        *(shared[name] for name in ("data", "made")),
    ]
    tabs = Markup('<a href="{}">Your data</a><b>The paper</b>').format(data.other_page)
    title = f"The paper: {DEMO}" if demo else "The paper"
    return blocks.page(title, intro, sections, html("made_from", rows=False), tabs if data.other_page else "")


def is_demo(used: set[str], cards: Mapping[str, Mapping[str, Any]]) -> bool:
    """Tell whether a cell or data card is of the demo profile: then the paper's numbers must not show."""
    return "demo" in used or any(card.get("profile") == "demo" for card in cards.values())


def _verdict(
    frame: pd.DataFrame, dataset: str, card: Mapping[str, Any], results: Path
) -> dict[str, Any] | None:
    """Return a dataset's best model by validation, the references' scores, ties and warnings."""
    metric = metric_of(dataset)
    if (fit := records.chosen(frame, dataset, metric)) is None:
        return None
    part = frame[frame["dataset"] == dataset]
    of_fit = part[(part["model"] == fit[0]) & (part["seed"] == fit[1])]
    by_split = {split: of.set_index("metric")["value"].to_dict() for split, of in of_fit.groupby("split")}
    val, test = by_split["val"], by_split.get("test", {})
    tested = part[(part["split"] == "test") & (part["metric"] == metric)]
    means = tested.groupby("model")["value"].mean().dropna()
    others = {
        model: best[1]
        for model in REFERENCES
        if model != fit[0] and (best := records.chosen(part[part["model"] == model], dataset, metric))
    }
    tried = [fit, *((model, seed) for model, seed in others.items() if model in RIVALS)]
    rows = {each: records.read_rows(results, dataset, *each) for each in tried}
    p = {model: lead["p_holm"] for (model, _), lead in records.leads_of(rows, fit, metric).items()}
    return {
        "dataset": dataset,
        "model": fit[0],
        "metric": metric_name(metric),
        "val": number(val[metric]),
        "test": number(means[fit[0]]) if fit[0] in means else "–",
        "references": [
            {
                "model": model,
                "value": number(means[model]) if model in means else "–",
                "significant": None if model not in p else p[model] < LEVEL,
            }
            for model in others
        ],
        "tie": ranking.tie_note(len(records.tied(frame, dataset, metric)), metric, val[metric]),
        "warning": ranking.probability_note(val, test, card),
    }


def _table(
    frame: pd.DataFrame, datasets: Sequence[str], models: Sequence[str], split: str, *, published: bool
) -> dict[str, Any]:
    """Return the cells of Table 3's layout by dataset and model; best is the one selected on validation."""
    cells: dict[tuple[str, str], dict[str, Any]] = {}
    for dataset in datasets:
        summary = records.table3(frame[frame["dataset"] == dataset], split, metric_of(dataset))
        summary = summary[(summary["value_seeds"] > 0) & summary["model"].isin(models)]
        best = records.chosen(frame, dataset, metric_of(dataset))
        for row in summary.itertuples():
            cells[dataset, row.model] = {
                "value": f"{row.value_mean:.4f}",
                "spread": _spread(row.value_std, 4),
                "seeds": int(row.value_seeds),
                "gain": signed(row.improvement_mean),
                "gain_spread": _spread(row.improvement_std, 2),
                "gain_seeds": int(row.improvement_seeds),
                "sign": "" if row.model == catalogue.BASELINE else signed(row.improvement_mean)[0],
                "best": (row.model,) == (best or ())[:1],
            }
    numbers = {key: improvement(*key) for key in ((d, m) for d in datasets for m in models)}
    counts = [cell["seeds"] for cell in cells.values()]
    return {
        "cells": cells,
        "seeds": max(set(counts), key=counts.count) if counts else 0,
        "paper": {key: signed(value) for key, value in numbers.items()} if published else {},
    }


def _spread(value: float, digits: int) -> str:
    return f"± {value:.{digits}f}" if np.isfinite(value) else ""


def _details(frame: pd.DataFrame, datasets: Sequence[str], cards: Mapping[str, Mapping[str, Any]]) -> Markup:
    """Return for each dataset a table of every metric and the cost, and the models behind the prior."""
    tables = Markup()
    for dataset in datasets:
        part, card = frame[frame["dataset"] == dataset], cards.get(dataset, {})
        if part.empty:
            continue
        prior, worse = ranking.prior_log_loss(card, "test"), records.behind_prior(part, card)
        metrics = list(part.loc[part["split"] == "test", "metric"].unique())
        columns = {metric: metric_name(metric) for metric in metrics}
        classes = card.get("classes")
        if "f1_tuned" in columns:  # of two classes only
            columns |= {"f1": "F1 at threshold 0.5", "f1_tuned": "F1 at tuned threshold"}
        elif isinstance(classes, list) and len(classes) > 2 and "f1" in columns:
            columns["f1"] = "macro F1"
        cells: dict[str, dict[str, tuple[str, str]]] = {model: {} for model in part["model"].unique()}
        for metric in metrics:
            for row in records.table3(part, "test", metric).itertuples():
                if row.value_seeds:
                    mark = "†" * (metric == "log_loss" and row.model in worse)
                    cells[row.model][metric] = (number(row.value_mean) + mark, _spread(row.value_std, 4))
        fits = part.drop_duplicates(["model", "seed"]).groupby("model", sort=False)
        for row in fits[["best_round", "rounds", "fit_seconds"]].mean().itertuples():
            if not pd.isna(row.rounds):
                best = "–" if pd.isna(row.best_round) else f"{row.best_round:,.0f}"
                cells[str(row.Index)]["best_round"] = (best, f"of {row.rounds:,.0f}")
            if not pd.isna(row.fit_seconds):
                cells[str(row.Index)]["fit_seconds"] = (f"{row.fit_seconds:,.1f}", "")
        columns |= {"best_round": "best round", "fit_seconds": "fit, s"}
        rows = [{"name": catalogue.title(model), "cells": own} for model, own in cells.items()]
        name = records.dataset_name(dataset)
        shown = html("table", label=f"All metrics and cost, {name}", stub="Model", columns=columns, rows=rows)
        tables += html("paper_details", name=name, table=shown, worse=worse, prior=prior and number(prior))
    return html("paper_details_lead", seeds=frame["seed"].nunique()) + tables


METRICS = ("accuracy", "f1", "early_accuracy", "earliness", "harmonic_mean")


def _other_papers(results: Path, cells: Sequence[tuple[str, str]]) -> Markup | str:
    """Return the table and figures of cells that do not run on every dataset."""
    rows, drawings = [], []
    for dataset, model in cells:
        if not (cell := records.read_cell(results, dataset, model)):
            continue
        scores = pd.DataFrame([fit.scores["test"] for fit in cell], dtype=float)
        title = f"{catalogue.title(model)} on {records.dataset_name(dataset)}"
        shown = {
            name: (number(scores[name].mean()), _spread(scores[name].std(), 4))
            for name in METRICS
            if name in scores and scores[name].notna().any()
        }
        rows.append({"name": title, "cells": {**shown, "seeds": (str(len(cell)), "")}})
        trace = records.read_trace(results, dataset, model)
        if trace is not None and "accuracy_test" in trace:
            drawings.append((f"Accuracy over time: {title}", to_svg(_over_time(trace, title))))
    if not rows:
        return ""
    columns = {**{name: metric_name(name) for name in METRICS}, "seeds": "seeds"}
    table = html("table", label="The other two papers", stub="Model", columns=columns, rows=rows)
    return html("other_papers", table=table, drawings=drawings)


def _over_time(trace: pd.DataFrame, title: str) -> Figure:
    """Draw the accuracy after each frame, on the three splits, mean over seeds."""
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

"""The report's part on the other two papers: boosted neural networks, and early classification."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from usboost.evaluation.names import metric_name, number
from usboost.models.catalogue import catalogue
from usboost.reporting.figures import place, to_svg
from usboost.reporting.page import spread
from usboost.reporting.results import dataset_name, read_cell, read_trace

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

"""The figures of docs/results/papers.md, and how the study's models and scores are named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd

from benchmarks.study.cells import kept_at
from benchmarks.study.plan import TITLES, VARIANTS, cells
from benchmarks.study.rows import NAMES
from usboost.models.catalogue import catalogue
from usboost.reporting.results import dataset_name

OURS, EXTERNAL = "#1f5f8b", "#b2561a"
ROUNDS_SHOWN = {
    "2wl": "#1f5f8b",
    "2wl_shrunk": "#3f9b6c",
    "2wl2o": "#8a5aa8",
    "2wl_fix": "#b2561a",
    "2wl2o_fix": "#777777",
}
METRICS = {metric: NAMES[metric] for metric in ("f1", "f1_tuned", "log_loss", "auc")}


def named(model: str) -> str:
    """Return the model's name in a table."""
    return TITLES.get(model) or catalogue.title(model)


def is_external(model: str) -> bool:
    """Tell whether it is another's method, or like one."""
    return catalogue.find(VARIANTS.get(model, {}).get("like", model)).external


def figure(parts: Mapping[str, pd.DataFrame], path: Path, score: str) -> None:
    """Draw a score and the log-loss of every model, a row of panels a dataset, a dot a seed."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    fig, axes = plt.subplots(
        len(parts), 2, figsize=(10, 4.6 * len(parts)), squeeze=False, sharey="row", layout="constrained"
    )
    for row, (dataset, frame) in zip(axes, parts.items()):
        own = frame[frame["stop"] == "log_loss"]
        order = own.groupby("model")[score].mean().sort_values().index
        for ax, metric in zip(row, (score, "log_loss")):
            # a log-loss far beyond the others' would leave them no room: an arrow at the edge
            edge = np.inf if metric == score else own[metric].quantile(0.9) * 1.05
            for height, model in enumerate(order):
                values = own[own["model"] == model][metric]
                style = {"color": EXTERNAL if is_external(model) else OURS}
                near, far = values[values <= edge], values[values > edge]
                ax.plot(near, np.full(len(near), height), "o", alpha=0.45, markersize=5, **style)
                ax.plot(far.clip(upper=edge), np.full(len(far), height), ">", alpha=0.45, **style)
                if values.mean() <= edge:
                    ax.plot([values.mean()] * 2, [height - 0.3, height + 0.3], linewidth=2, **style)
            ax.set_yticks(range(len(order)), [named(model) for model in order])
            ax.grid(axis="x", alpha=0.3)
            ax.spines[["top", "right"]].set_visible(False)
            better = "lower" if metric == "log_loss" else "higher"
            ax.set_xlabel(f"{METRICS[metric]}, test rows ({better} is better)")
        row[0].set_title(f"{dataset_name(dataset)}: a dot is a seed, a bar the mean", loc="left")
    fig.savefig(path, dpi=110)
    plt.close(fig)


def rounds_figure(place: Path, path: Path) -> None:
    """Draw validation risk and F1 over the rounds of CI-A's models on the exponential loss, a line a seed."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    fig, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    for model, colour in ROUNDS_SHOWN.items():
        wanted = [
            cell for cell in cells() if (cell.part, cell.dataset, cell.model) == (place.name, "ci_a", model)
        ]
        paths = [kept_at(place, "ci_a", model, cell.seed) for cell in wanted]
        for k, file in enumerate(file for file in paths if file.is_file()):
            trace = pd.read_parquet(file.with_suffix(".parquet"))
            for ax, column in zip(axes, ("risk_val", "f1_val")):
                label = named(model) if k == 0 else None
                round_ = 1 + np.arange(len(trace))
                ax.plot(round_, trace[column], color=colour, linewidth=1.1, alpha=0.8, label=label)
    axes[0].set_ylim(1.2, 1.6)
    axes[1].set_ylim(0.3, 0.62)
    for ax, name in zip(axes, ("Risk on validation", "F1 at ½ on validation")):
        ax.set(xlabel="round", xscale="log")
        ax.set_title(name, loc="left")
        ax.grid(alpha=0.3)
        ax.spines[["top", "right"]].set_visible(False)
        ax.xaxis.set_major_formatter("{x:.0f}")
    fig.legend(*axes[1].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    fig.savefig(path, dpi=110)
    plt.close(fig)

"""`make results`: the models on the real census, several seeds each; docs/results.md and its figure.

``USBOOST_DATA=... python -m benchmarks.results run FOLDER`` makes a workspace and fits every cell as an
experiment (what is there already is skipped); ``python -m benchmarks.results write FOLDER`` rewrites the
tables between the marks of docs/results.md from what the folder holds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from scipy import stats

from benchmarks.bench import between_marks
from flows import workspace
from usboost.reporting import paper
from usboost.reporting.results import dataset_name, model_name, table_order

PAGE = Path("docs/results.md")
FIGURE = Path("docs/results.png")
SEEDS = 3

# What differs from params.yaml's `paper` profile: exact steps instead of 30 evaluations of a surrogate,
# early stopping, the baseline tuned on CI-A's validation half (docs/results.md says among what).
CHANGES: dict[str, Any] = {
    "boosting.patience": 60,
    "profiles.paper.boosting.step": "newton",
    "networks.patience": 6,
    "profiles.paper.networks.epochs": 40,
    "profiles.paper.networks.optimizer": "rmsprop",
    "profiles.paper.networks.learning_rate": 0.001,
    "profiles.paper.networks.batch_size": 512,
    "profiles.paper.features.trees": 500,
    "table1.ci_a.dnn1": [100, 50],
    "table1.ci_a.dnn2": [100, 50],
    "table1.ci_a.dnn3": [25],
    "table1.ci_a.fusion": "concat",
}
ROUNDS = 500

# name, datasets, models: each an experiment of its own, the most telling first
PLAN: list[tuple[str, list[str], list[str]]] = [
    ("main", ["ci_a"], ["lgbm_s", "lgbm", "baseline", "2wl", "2wl_logistic", "2wl_newton"]),
    ("crossed", ["ci_a"], ["crossed", "3wl"]),
    ("main-b", ["ci_b"], ["lgbm_s", "lgbm", "baseline", "2wl", "2wl_logistic", "crossed", "3wl"]),
    ("ablations", ["ci_a"], ["2wl_shrunk", "2wl_held_out", "2wl_tree_first", "2wl_warm"]),
    ("rest", ["ci_a"], ["bfv_dnn", "1wl_s", "1wl_u", "2wl2o", "2wl_fix", "2wl2o_fix"]),
    ("rest", ["ci_b"], ["bfv_dnn"]),
]
METRICS = {"f1": "F1 at ½", "f1_tuned": "F1 tuned", "log_loss": "log-loss", "auc": "AUC"}


def run(folder: Path) -> None:
    """Fit every cell of the plan that is not there yet."""
    datasets = sorted({dataset for _, chosen, _ in PLAN for dataset in chosen})
    workspace.make(folder, profile="paper", datasets=datasets, rounds=ROUNDS, seeds=SEEDS, changes=CHANGES)
    environment = os.environ | {"PYTHONPATH": str(workspace.ROOT)}
    subprocess.run(["dvc", "repro", "fetch", "prepare"], cwd=folder, check=True, env=environment)
    for name, chosen, models in PLAN:
        if "bfv_dnn" in models:
            for dataset in chosen:
                words = [sys.executable, "-m", "flows.features", dataset]
                subprocess.run(words, cwd=folder, check=True, env=environment)
        words = [f"--dataset={dataset}" for dataset in chosen] + [f"--model={model}" for model in models]
        words += ["--runner=processes", f"--workers={os.cpu_count()}", f"--name={name}"]
        subprocess.run(
            [sys.executable, "-m", "flows.experiment", *words], cwd=folder, check=True, env=environment
        )


def read(folder: Path) -> pd.DataFrame:
    """Every cell that is there: dataset, model, seed, the test scores, rounds, seconds and MLflow run."""

    def rows() -> Iterator[dict[str, Any]]:
        for file in sorted(folder.glob("data/experiments/*/*/*/seed-*/record.json")):
            record = json.loads(file.read_text())
            kept = {key: record[key] for key in ("dataset", "model", "seed", "best_round", "fit_seconds")}
            run_id = record["mlflow_run_id"]
            yield {**kept, **record["scores"]["test"], "experiment": file.parts[-5], "mlflow_run": run_id}
            if "gbm" in record:
                yield {**kept, **record["gbm"]["test"], "model": "gbm", "mlflow_run": run_id}

    return pd.DataFrame(rows())


def interval(values: Sequence[float] | pd.Series) -> tuple[float, float]:
    """Mean, and half the 95 % interval of Student's t; NaN for one value."""
    found = np.asarray(values, dtype=float)
    if len(found) < 2:
        return float(found.mean()), float("nan")
    spread = stats.t.ppf(0.975, len(found) - 1) * found.std(ddof=1) / np.sqrt(len(found))
    return float(found.mean()), float(spread)


def printed(values: Sequence[float] | pd.Series, digits: int = 4, sign: bool = False) -> str:
    """``mean ± half interval``."""
    found = np.asarray(values, dtype=float)
    found = found[np.isfinite(found)]
    if not len(found):
        return "–"
    mean, half = interval(found)
    text = f"{mean:{'+' if sign else ''}.{digits}f}"
    return text if np.isnan(half) else f"{text} ± {half:.{digits}f}"


def paired(frame: pd.DataFrame, model: str, against: str, metric: str) -> pd.Series:
    """What a model has more than another, seed by seed."""
    values = frame.pivot_table(index="seed", columns="model", values=metric)
    if model not in values or against not in values:
        return pd.Series(dtype=float)
    return (values[model] - values[against]).dropna()


def scores(frame: pd.DataFrame, dataset: str) -> str:
    """A dataset's table in Markdown."""
    own = frame[frame["dataset"] == dataset]
    heads = ["model", "seeds", *METRICS.values(), "% of F1 over baseline", "paper's", "best round", "fit, s"]
    lines = ["| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads))]
    base = own[own["model"] == "baseline"].set_index("seed")["f1"]
    for model in table_order(own["model"]):
        cell = own[own["model"] == model]
        gain = 100 * paired(own, model, "baseline", "f1") / base
        published = paper.improvement(dataset, model)
        row = [model_name(model), str(len(cell)), *(printed(cell[metric]) for metric in METRICS)]
        row += ["0" if model == "baseline" else printed(gain, 2, sign=True)]
        row += ["–" if published is None else f"{published:+.2f}"]
        alone = model == "gbm"
        row += ["–" if alone else f"{cell['best_round'].mean():.0f}"]
        row += ["–" if alone else f"{cell['fit_seconds'].mean():.0f}"]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def differences(frame: pd.DataFrame, dataset: str, pairs: Sequence[tuple[str, str]]) -> str:
    """Paired differences of models, with intervals over the seeds; bold where 0 is outside."""
    own = frame[frame["dataset"] == dataset]
    heads = ["", *METRICS.values()]
    lines = ["| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads))]
    for model, against in pairs:
        row = [f"{model_name(model)} − {model_name(against)}"]
        for metric in METRICS:
            found = paired(own, model, against, metric)
            mean, half = interval(found) if len(found) else (float("nan"), float("nan"))
            text = printed(found, sign=True)
            row.append(f"**{text}**" if abs(mean) > half else text)
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


PAIRS = {
    "ci_a": [
        ("2wl", "1wl_s"),
        ("2wl", "1wl_u"),
        ("2wl2o", "2wl"),
        ("2wl_fix", "2wl"),
        ("2wl2o_fix", "2wl2o"),
        ("bfv_dnn", "gbm"),
        ("2wl_shrunk", "2wl"),
        ("2wl_held_out", "2wl"),
        ("2wl_tree_first", "2wl"),
        ("2wl_warm", "2wl"),
        ("2wl_newton", "2wl2o"),
        ("2wl_newton", "2wl_shrunk"),
        ("2wl_logistic", "2wl_newton"),
        ("3wl", "2wl_shrunk"),
        ("2wl_logistic", "lgbm"),
        ("crossed", "lgbm"),
    ],
    "ci_b": [
        ("bfv_dnn", "gbm"),
        ("2wl_logistic", "2wl"),
        ("3wl", "2wl"),
        ("2wl_logistic", "lgbm"),
        ("crossed", "lgbm"),
    ],
}


def figure(frame: pd.DataFrame, path: Path) -> None:
    """Tuned F1 and log-loss of every model, a dot a seed."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    datasets = [name for name in ("ci_a", "ci_b") if (frame["dataset"] == name).any()]
    shown = ("f1_tuned", "log_loss")
    fig, axes = plt.subplots(
        len(datasets), 2, figsize=(10, 4.2 * len(datasets)), squeeze=False, layout="constrained"
    )
    for row, dataset in zip(axes, datasets):
        own = frame[(frame["dataset"] == dataset) & (frame["model"] != "gbm")]
        order = own.groupby("model")["f1_tuned"].mean().sort_values().index
        for ax, metric in zip(row, shown):
            for height, model in enumerate(order):
                values = own[own["model"] == model][metric]
                outsider = model.startswith("lgbm") or model == "baseline"
                colour = "#b2561a" if outsider else "#1f5f8b"
                ax.plot(values, np.full(len(values), height), "o", color=colour, alpha=0.45, markersize=5)
                ax.plot([values.mean()] * 2, [height - 0.3, height + 0.3], color=colour, linewidth=2)
            ax.set_yticks(range(len(order)), [model_name(model) for model in order])
            ax.grid(axis="x", alpha=0.3)
            ax.spines[["top", "right"]].set_visible(False)
            better = "lower" if metric == "log_loss" else "higher"
            ax.set_xlabel(f"{METRICS[metric]} on the test half ({better} is better)")
            if metric == "log_loss":
                top = own["log_loss"].quantile(0.9) * 1.05
                ax.set_xlim(right=min(own["log_loss"].max() * 1.02, max(top, 0.14)))
        row[0].set_title(f"{dataset_name(dataset)}: a dot is a seed, a bar the mean", loc="left")
    fig.savefig(path, dpi=110)
    plt.close(fig)


def runs(frame: pd.DataFrame) -> str:
    """Where every number comes from: the MLflow runs."""
    lines = ["| experiment | dataset | model | MLflow runs, seed by seed |", "| --- | --- | --- | --- |"]
    own = frame[frame["model"] != "gbm"].sort_values("seed")
    for (experiment, dataset, model), cell in own.groupby(["experiment", "dataset", "model"], sort=False):
        ids = " ".join(f"`{run[:8]}`" for run in cell["mlflow_run"])
        lines.append(f"| {experiment} | {dataset_name(str(dataset))} | {model_name(str(model))} | {ids} |")
    return "\n".join(lines) + "\n"


def write(folder: Path) -> None:
    """Rewrite the tables and the figure of docs/results.md."""
    frame = read(folder)
    text = PAGE.read_text()
    for dataset in [name for name in PAIRS if (frame["dataset"] == name).any()]:
        text = between_marks(text, f"{dataset} scores", scores(frame, dataset))
        text = between_marks(text, f"{dataset} differences", differences(frame, dataset, PAIRS[dataset]))
    PAGE.write_text(between_marks(text, "runs", runs(frame)))
    figure(frame, FIGURE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["run", "write"])
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    {"run": run, "write": write}[given.what](given.folder)


if __name__ == "__main__":
    main()

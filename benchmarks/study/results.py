"""`make results`: the papers' models on real data, several seeds each; docs/results/papers*.md.

``USBOOST_DATA=... python -m benchmarks.study.results run FOLDER`` makes a workspace for each part of the
plan and fits every cell (what is there already is skipped); ``--part`` names one part alone.
``predict`` keeps what the models of the plan's HEADLINES say of the test rows (`results_rows`), and
``python -m benchmarks.study.results write FOLDER`` rewrites the tables between the marks of these pages.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd

from benchmarks.speed.bench import between_marks
from benchmarks.study import rows as results_rows
from benchmarks.study.plan import EMBEDDING_SEED, HEADLINES, PAIRS, PLAN, TITLES, VARIANTS, cells
from benchmarks.study.rows import interval
from flows.local import runtime, workspace
from tasks import settings
from tasks.fits import models
from usboost.datasets.prepared import store
from usboost.learners.networks.images.pretrained import save_backbone
from usboost.models.catalogue import catalogue
from usboost.reporting import paper_summary as paper
from usboost.reporting.results import dataset_name

PAGE = Path("docs/results/papers.md")
CELLS = {
    "docs/results/papers-census.md": ("ci_a", "ci_b"),
    "docs/results/papers-images.md": ("ct", "mi"),
}
"""The page of each dataset's cells."""
FIGURES = {
    "docs/figures/papers-census.png": (("ci_a", "ci_b"), "f1_tuned"),
    "docs/figures/papers-images.png": (("ct", "mi"), "f1"),
}
ROUNDS_FIGURE = Path("docs/figures/papers-rounds.png")
RUNS = Path("benchmarks/study/papers_runs.csv")
"""The MLflow runs behind the pages, with their first eight characters."""
OURS, EXTERNAL = "#1f5f8b", "#b2561a"
ROUNDS_SHOWN = {
    "2wl": "#1f5f8b",
    "2wl_shrunk": "#3f9b6c",
    "2wl_held_out": "#8a5aa8",
    "2wl_fix": "#b2561a",
    "2wl2o_fix": "#777777",
}
METRICS = {metric: results_rows.NAMES[metric] for metric in ("f1", "f1_tuned", "log_loss", "auc")}


def run(folder: Path, only: str | None = None) -> None:
    """Fit every cell of the plan that is not there yet."""
    for name, part in PLAN.items():
        if only not in (None, name):
            continue
        place = folder / name
        most = max(fits.seeds for fits in part.fits)
        workspace.make(
            place,
            profile="paper",
            datasets=part.datasets,
            rounds=part.rounds,
            seeds=most,
            changes={
                **part.changes,
                "models": VARIANTS,
                "fits.runner": "processes",
                "fits.workers": os.cpu_count(),
            },
        )
        environment = os.environ | {"PYTHONPATH": str(workspace.ROOT)}

        def do(*words: str, place: Path = place, environment: Any = environment) -> None:
            subprocess.run(words, cwd=place, check=True, env=environment)

        do("dvc", "repro", "data")
        if part.embeds is not None and not (place / "backbone.safetensors").is_file():
            embedding_weights(folder / part.embeds, part.datasets[0], place / "backbone.safetensors")
        for fits in part.fits:
            words = [*(f"--model={model}" for model in fits.models), f"--seeds={fits.seeds}"]
            for dataset in fits.datasets:
                do(sys.executable, "-m", "flows.fit", dataset, *words)


def embedding_weights(place: Path, dataset: str, out: Path) -> None:
    """Train a baseline on the training split, with a seed of its own, and keep its small CNN."""
    chosen = settings.load(place / "params.yaml")
    splits = [store.read(place / "data/prepared" / dataset, split) for split in ("train", "val")]
    baseline = models.build(catalogue.BASELINE, dataset, chosen, EMBEDDING_SEED)
    baseline.fit(*splits[0], validation=splits[1])
    save_backbone(baseline.network_.weights, out)


def predict(folder: Path, only: str | None = None) -> None:
    """Keep what the models of the headlines say of the test rows."""
    runtime.configure()
    wanted = {(dataset, model) for dataset, pairs in HEADLINES.items() for pair in pairs for model in pair}
    for cell in cells():
        if (cell.dataset, cell.model + cell.suffix) in wanted and only in (None, cell.part):
            results_rows.keep(folder, cell)


def read(folder: Path) -> pd.DataFrame:
    """Every cell of the plan that is there: its test scores, rounds, seconds and MLflow run."""

    def rows() -> Iterator[dict[str, Any]]:
        for cell in cells():
            if (record := results_rows.record_of(folder, cell)) is None:
                continue
            kept = {key: record[key] for key in ("seed", "best_round", "fit_seconds")}
            kept |= {"dataset": cell.dataset, "experiment": cell.experiment}
            kept |= {"mlflow_run": record["made"]["mlflow_run"]}
            yield {**kept, "model": cell.model + cell.suffix, **record["scores"]["test"]}
            if cell.model not in VARIANTS and (part := catalogue.find(cell.model).part) and record.get("gbm"):
                yield {**kept, "model": part[0], **record["gbm"]["test"]}

    return pd.DataFrame(rows())


def named(model: str) -> str:
    """The model's name in a table."""
    plain, _, more = model.partition("@")
    title = TITLES.get(plain) or catalogue.title(plain)
    return f"{title} (embeddings)" if more else title


def is_part(model: str) -> bool:
    """Whether a row of the tables is a part of a model, scored beside it."""
    return catalogue.model_with_part(model) is not None


def ordered(models: Sequence[str]) -> list[str]:
    """The table's order, what stands on embeddings last."""
    plain = catalogue.ordered([model for model in models if "@" not in model])
    other = catalogue.ordered([model.partition("@")[0] for model in models if "@" in model])
    return [*plain, *(f"{model}@embedded" for model in other)]


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
    base = own[own["model"] == catalogue.BASELINE].set_index("seed")["f1"]
    for model in ordered(list(own["model"].unique())):
        cell = own[own["model"] == model]
        gain = 100 * paired(own, model, catalogue.BASELINE, "f1") / base
        published = paper.improvement(dataset, model)
        row = [named(model), str(len(cell)), *(printed(cell[metric]) for metric in METRICS)]
        row += ["0" if model == catalogue.BASELINE else printed(gain, 2, sign=True)]
        row += ["–" if published is None else f"{published:+.2f}"]
        alone = is_part(model)  # it has no rounds and seconds of its own
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
        row = [f"{named(model)} − {named(against)}"]
        for metric in METRICS:
            found = paired(own, model, against, metric)
            mean, half = interval(found) if len(found) else (float("nan"), float("nan"))
            text = printed(found, sign=True)
            row.append(f"**{text}**" if abs(mean) > half else text)
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def rows(folder: Path) -> str:
    """The headlines' differences with their intervals over the seeds and over the test rows."""
    heads = ["", *results_rows.SHOWN.values()]
    lines = ["| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads))]
    for dataset, pairs in HEADLINES.items():
        fits = {
            model: {
                cell.seed: found
                for cell in cells()
                if (cell.dataset, cell.model + cell.suffix) == (dataset, model)
                and (found := results_rows.read(folder, cell)) is not None
            }
            for pair in pairs
            for model in pair
        }
        drawn = {model: results_rows.draws(list(of.values())) for model, of in fits.items() if of}
        for one, other in pairs:
            if seeds := sorted(fits[one].keys() & fits[other].keys()):
                two = ([fits[model][seed] for seed in seeds] for model in (one, other))
                found = results_rows.row(*two, drawn[one], drawn[other])
                name = f"{dataset_name(dataset)}: {named(one)} − {named(other)}"
                lines.append("| " + " | ".join([name, *found]) + " |")
    return "\n".join(lines) + "\n"


def figure(frame: pd.DataFrame, path: Path, datasets: Sequence[str], score: str) -> None:
    """A score and the log-loss of every model on some datasets, a dot a seed."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    fig, axes = plt.subplots(
        len(datasets),
        2,
        figsize=(10, 4.6 * len(datasets)),
        squeeze=False,
        sharey="row",
        layout="constrained",
    )
    for row, dataset in zip(axes, datasets):
        own = frame[(frame["dataset"] == dataset) & ~frame["model"].map(is_part)]
        order = own.groupby("model")[score].mean().sort_values().index
        for ax, metric in zip(row, (score, "log_loss")):
            # a log-loss far beyond the others' would leave them no room: an arrow at the edge
            edge = np.inf if metric == score else own[metric].quantile(0.9) * 1.05
            for height, model in enumerate(order):
                values = own[own["model"] == model][metric]
                plain = model.partition("@")[0]
                external = plain not in VARIANTS and catalogue.find(plain).external
                style = {"color": EXTERNAL if external else OURS}
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


def rounds_figure(folder: Path, path: Path) -> None:
    """Validation risk and F1 over the rounds of CI-A's models on the exponential loss, a line a seed."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    fig, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    for model, colour in ROUNDS_SHOWN.items():
        wanted = [cell for cell in cells() if (cell.dataset, cell.model) == ("ci_a", model)]
        wanted = [cell for cell in wanted if results_rows.record_of(folder, cell) is not None]
        for k, cell in enumerate(wanted):
            trace = pd.read_parquet(folder / cell.results / "trace.parquet").query("seed == @cell.seed")
            for ax, column in zip(axes, ("risk_val", "f1_val")):
                label = named(model) if k == 0 else None
                ax.plot(trace["round"], trace[column], color=colour, linewidth=1.1, alpha=0.8, label=label)
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


def runs(frame: pd.DataFrame) -> pd.DataFrame:
    """Where every number comes from: the MLflow runs of each cell, seed by seed."""
    own = frame[~frame["model"].map(is_part)].sort_values("seed")
    own = own.assign(runs=own["mlflow_run"].str[:8], dataset=own["dataset"].map(dataset_name))
    cells = own.groupby(["experiment", "dataset", "model"], sort=False)["runs"].agg(" ".join).reset_index()
    return cells.assign(model=cells["model"].map(named))


def write(folder: Path) -> None:
    """Rewrite the tables and the figures of the pages, and the list of runs."""
    frame = read(folder)
    for path, datasets in CELLS.items():
        text = Path(path).read_text()
        for dataset in [name for name in datasets if (frame["dataset"] == name).any()]:
            text = between_marks(text, f"{dataset} scores", scores(frame, dataset))
            text = between_marks(text, f"{dataset} differences", differences(frame, dataset, PAIRS[dataset]))
        Path(path).write_text(text)
    PAGE.write_text(between_marks(PAGE.read_text(), "rows", rows(folder)))
    runs(frame).to_csv(RUNS, index=False)
    for path, (datasets, score) in FIGURES.items():
        if there := [dataset for dataset in datasets if (frame["dataset"] == dataset).any()]:
            figure(frame, Path(path), there, score)
    rounds_figure(folder, ROUNDS_FIGURE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["run", "predict", "write"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", choices=list(PLAN), help="run or predict this part alone")
    given = parser.parse_args()
    if given.what == "run":
        run(given.folder.resolve(), given.part)
    elif given.what == "predict":
        predict(given.folder.resolve(), given.part)
    else:
        write(given.folder)


if __name__ == "__main__":
    main()

"""What docs/results/settings.md says of what a lower loss costs: log-loss and seconds of settings.

``python -m benchmarks.study.front OUT products 1000 3 [FILE]``: draws of rows to fit to, 15 % of them to stop
on, and others, which score; none is a test row of `benchmarks.study.equals`. FILE holds a JSON object a line,
settings by path and maybe a "model"; without it, those below. What OUT, a file, has is not fitted again.
``python -m benchmarks.study.front OUT`` shows the table and draws the figure beside OUT. Minutes on a core.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from benchmarks.study.equals import SPLIT, Case, built, divided
from benchmarks.study.small import UNSEEN, UNSEEN_ALONE, WITH_IMAGES, larger
from usboost.datasets.user.read_table import read_table
from usboost.datasets.user.table_spec import TableSpec
from usboost.datasets.user.user_table import UserTable
from usboost.models.catalogue.catalogue import model_colour, ordered
from usboost.models.settings import with_settings

ACROSS = 3  # panels of the figure
MEASURE, NOTHING = "lgbm", "prior"
ENTRIES = (NOTHING, "logistic", "linear_trees", "2wl_ridge", "2wl_logistic", "forest", MEASURE, "crossed")
HIDDEN, BATCHES = "learners__U__hidden", "learners__U__batches_per_round"
SETTINGS: tuple[Mapping[str, Any], ...] = (
    *({"model": name} for name in ENTRIES),
    {"model": "crossed", "shrinkage": 0.05},
    {"model": "crossed", "shrinkage": 0.2},
    {"model": "crossed", HIDDEN: (100, 50)},
    {"model": "crossed", "shrinkage": 0.05, HIDDEN: (100, 50), BATCHES: (100, 400)},
    {"model": "linear_trees", "shrinkage": 0.05},
    {"model": "linear_trees", "shrinkage": 0.3},
    {"model": "2wl_logistic", "shrinkage": 0.1},
    {"model": "lgbm", "learning_rate": 0.1},
    {"model": "lgbm", "learning_rate": 0.025},
)


def tables(name: str, rows: int, draws: int) -> Iterator[tuple[int, UserTable]]:
    """Each draw of the rows that "Equal trials" fit to and choose on."""
    frame, label = larger(name)
    if name in WITH_IMAGES:
        frame = divided(frame, label, None)
        frame = frame[frame[SPLIT] != "test"].drop(columns=SPLIT)
    for seed in range(draws):
        drawn = frame.sample(frac=1.0, random_state=seed, ignore_index=True)
        drawn = drawn[: rows + (UNSEEN if name in WITH_IMAGES else UNSEEN_ALONE)]
        part = pd.Series("test", drawn.index)
        part[:rows] = "train"
        part[: round(0.15 * rows)] = "val"
        counts = drawn.loc[part == "train", label].value_counts()
        drawn = drawn.assign(**{SPLIT: part})[drawn[label].isin(counts.index[counts >= 2])]
        image = ("image",) if name in WITH_IMAGES else ()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "drawn.parquet"
            drawn.to_parquet(path)
            yield seed, read_table(path, TableSpec(label=label, image=image, split=SPLIT, size=160))


def measured(case: Case, asked: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Of one fit with frozen embeddings: log-loss, CPU seconds, and milliseconds a row to predict."""
    settings = dict(asked)
    name = settings.pop("model")
    model = with_settings(built((name,), case.table)[name](seed), settings, name)
    ((_, (scores, _)),) = case.single(model, refit=False)
    return {"log_loss": scores["log_loss"], "seconds": case.cpu, "ms_a_row": scores["milliseconds_a_row"]}


def shown(asked: Mapping[str, Any]) -> str:
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in asked.items()}
    own = ", ".join(f"{key.split('__')[-1]} {value}" for key, value in given.items() if key != "model")
    return f"{asked['model']}, {own}" if own else asked["model"]


def kept(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def run(out: Path, name: str, rows: int, draws: int, chosen: tuple[Mapping[str, Any], ...]) -> None:
    there = {(row["table"], row["rows"], row["seed"], row["settings"]) for row in kept(out)}
    for seed, table in tables(name, rows, draws):
        case = Case(table)
        if table.images:  # so that no model pays for the images
            measured(case, {"model": "logistic"}, seed)
        for asked in chosen:
            key = {"table": name, "rows": rows, "seed": seed, "settings": shown(asked)}
            if tuple(key.values()) not in there:
                row = {**key, "model": asked["model"], **measured(case, asked, seed)}
                with out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(row, flush=True)


def summary(out: Path) -> pd.DataFrame:
    """Means over the draws that `lgbm` was fitted to; "error" is that of the gap to it in the same draws."""
    draws, keys = ["table", "rows", "seed"], ["table", "rows", "settings"]
    found = pd.DataFrame(kept(out))
    others = found[found["settings"] == MEASURE].set_index(draws)["log_loss"].rename("other")
    found = found.join(others, on=draws, how="inner").eval("gap = log_loss - other")
    groups = found.groupby([*keys, "model"])
    means = groups[["log_loss", "seconds", "ms_a_row", "gap"]].mean()
    return means.assign(error=groups["gap"].sem()).reset_index("model")


def draw(found: pd.DataFrame, path: Path) -> None:
    """Log-loss against seconds, a panel for each table; the line joins what nothing quicker beats."""
    found = found[found["model"] != NOTHING]
    panels = list(found.groupby(["table", "rows"]))
    figure, axes = plt.subplots(
        -(-len(panels) // ACROSS), ACROSS, figsize=(11, 3.4 * -(-len(panels) // ACROSS)), squeeze=False
    )
    for axis in axes.flat[len(panels) :]:
        axis.axis("off")
    for axis, ((table, rows), rest) in zip(axes.flat, panels):
        rest = rest.sort_values("seconds")
        front = rest[rest["log_loss"] <= rest["log_loss"].cummin()]
        axis.plot(front["seconds"], front["log_loss"], color="#b0b6bf", zorder=1)
        for model, points in rest.groupby("model"):
            own = points.index.get_level_values("settings") == model
            colour = model_colour(str(model))
            axis.scatter(points["seconds"], points["log_loss"], s=18, color=colour, alpha=0.6)
            axis.scatter(points["seconds"][own], points["log_loss"][own], s=70, color=colour)
        axis.set(xscale="log", title=f"{table}, {rows:,} rows", xlabel="CPU seconds to fit")
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.xaxis.set_minor_formatter(NullFormatter())
    for axis in axes[:, 0]:
        axis.set_ylabel("log-loss")
    marks = [
        Line2D([], [], marker="o", linestyle="", color=model_colour(each), label=each)
        for each in ordered(found["model"])
    ]
    figure.tight_layout()
    figure.legend(handles=marks, loc="upper center", bbox_to_anchor=(0.5, 1.06), ncols=8, frameon=False)
    figure.savefig(path, dpi=110, bbox_inches="tight")


if __name__ == "__main__":
    out = Path(sys.argv[1])
    if len(sys.argv) > 2:
        asked = SETTINGS
        if len(sys.argv) > 5:
            asked = tuple(json.loads(line) for line in Path(sys.argv[5]).read_text().splitlines())
        run(out, sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), asked)
    table = summary(out)
    print(table.drop(columns="model").round(4).to_markdown())
    draw(table, out.with_suffix(".png"))

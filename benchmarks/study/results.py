"""`make results`: the papers' models on real data, several seeds each; docs/results/papers.md.

``USBOOST_DATA=... python -m benchmarks.study.results run FOLDER`` makes a workspace for each part of the
plan and fits every cell; what is there already is skipped. ``--part``, ``--dataset``, ``--model`` and
``--seed`` name fewer, down to one cell. ``python -m benchmarks.study.results write FOLDER`` takes the scores
into the repository, with those of fits that the folder lacks; ``write`` without a folder makes the page's
tables and figures of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd

from benchmarks.pages import between_marks, number, run_or_write, table_of
from benchmarks.study import cells as fitting
from benchmarks.study import rows as results_rows
from benchmarks.study.plan import CHANGES, GRID, HEADLINES, ONCE, PLAN, TITLES, VARIANTS, Cell, cells, on_grid
from benchmarks.study.rows import interval
from flows.local import runtime
from usboost.errors import UsboostError
from usboost.models import catalogue
from usboost.report import paper
from usboost.report.results import dataset_name

PAGE = Path("docs/results/papers.md")
FIGURES = Path("docs/figures")
SCORES, LUCK = Path("benchmarks/study/papers/cells.csv"), Path("benchmarks/study/papers/rows.csv")
"""Every fit's scores, and the headlines' differences with their intervals."""
MINUTES = Path("benchmarks/study/papers/minutes.csv")
"""Rounds of one seed, of the datasets fitted since they are kept."""
DATASETS = ("ci_a", "ci_b", "ct", "mi")
CLAIMED = ("bfv_dnn", "2wl", "2wl_fix", "2wl2o", "2wl2o_fix", "1wl_s", "1wl_u")
"""The rows of the paper's Tables 3 and 4."""
VARIATION = {"ci_a": 0.005, "ci_b": 0.005, "ct": 0.0001, "mi": 0.0001}
"""The paper's limits of BFV+DNN's coefficient of variation."""
CUT = "†"
_DRAWN = {
    "2wl": "#1f5f8b",
    "2wl_fix": "#b2561a",
    "2wl2o": "#8a5aa8",
    "2wl2o_fix": "#c994c7",
    "1wl_s": "#777777",
    "1wl_u": "#3f9b6c",
    "baseline": "#222222",
    "bfv_dnn": "#cc8a00",
}
_CELL = ["part", "dataset", "model", "seed"]


def named(model: str) -> str:
    """Return the model's name in a table."""
    return TITLES.get(model) or catalogue.title(model)


def is_external(model: str) -> bool:
    """Tell whether it is another's method, or like one."""
    return catalogue.find(VARIANTS.get(model, {}).get("like", model)).external


def run(folder: Path, **wanted: Any) -> None:
    """Fit the cells of the plan that are not there yet: of the part, dataset, model and seed that are wanted.

    Where one is None, of all. Raises `UsboostError` if the plan has no such cell.
    """
    chosen = [c for c in cells() if all(one in (None, getattr(c, key)) for key, one in wanted.items())]
    if not chosen:
        names = {key: sorted({str(getattr(cell, key)) for cell in cells()}) for key in wanted}
        wrong = {key: one for key, one in wanted.items() if one is not None}
        known = "; ".join(f"{key}: {', '.join(names[key])}" for key in wrong)
        raise UsboostError(f"the plan has no cell of {wrong}; it has {known}")
    runtime.configure()
    for part in dict.fromkeys(cell.part for cell in chosen):
        fitting.make(folder, part)
    for cell in chosen:
        fitting.fit(folder, cell)
        print(*vars(cell).values(), flush=True)


def collect(folder: Path, kept: pd.DataFrame, parts: Sequence[str]) -> pd.DataFrame:
    """Return the scores of the parts' fits, in the plan's order: the folder's, and those kept of others."""
    planned = {tuple(vars(cell).values()): k for k, cell in enumerate(cells())}
    new = pd.DataFrame(row for part in parts for row in fitting.rows_of(folder / part))
    merged = pd.concat([kept, new]).drop_duplicates([*_CELL, "stop"], keep="last")
    place = [planned.get(key) for key in merged[_CELL].itertuples(index=False, name=None)]
    merged = merged.assign(place=place).dropna(subset="place").sort_values("place", kind="stable")
    return merged.drop(columns="place")


def shown(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the fits of each dataset that there are, but those of the grid."""
    own = {each: frame[(frame["dataset"] == each) & (frame["part"] != "grid")] for each in DATASETS}
    return {dataset: fits for dataset, fits in own.items() if len(fits)}


def printed(values: Sequence[float] | pd.Series, digits: int = 4, sign: str = "") -> str:
    """Return ``mean ± half interval``, the mean alone of one value, or a dash of none."""
    finite = np.asarray(values, dtype=float)
    finite = finite[np.isfinite(finite)]
    if not len(finite):
        return "–"
    mean, half = interval(finite)
    return number(mean, digits, sign) + ("" if np.isnan(half) else f" ± {number(half, digits)}")


def paired(frame: pd.DataFrame, model: str, against: str, metric: str) -> pd.Series:
    """Return differences of two models, seed by seed; a model that draws nothing has one fit for all."""
    values = frame.pivot_table(index="seed", columns="model", values=metric)
    if model not in values or against not in values:
        return pd.Series(dtype=float)
    for name in {model, against} & set(ONCE):
        if values[name].count() == 1:
            values[name] = values[name].max()
    return (values[model] - values[against]).dropna()


def gain(frame: pd.DataFrame, model: str, base: str) -> str:
    """Return by how many % a model's F1 is above another's, each seed against the same seed."""
    of_base = frame[frame["model"] == base].set_index("seed")["f1"]
    if base in ONCE and of_base.count() == 1:
        of_base = of_base.iloc[0]
    return printed(100 * paired(frame, model, base, "f1") / of_base, 1, sign="+")


def published(dataset: str, model: str, base: str) -> str:
    """Return the paper's % of a model over another in brackets, from its percentages over the baseline."""
    ours = paper.improvement(dataset, model)
    theirs = 0.0 if base == catalogue.BASELINE else paper.improvement(dataset, base)
    if ours is None or theirs is None:
        return ""
    digits = 2 if base == catalogue.BASELINE else 1
    return f" ({number(100 * ((100 + ours) / (100 + theirs) - 1), digits, '+')})"


def claims(frame: pd.DataFrame) -> str:
    """Return the paper's Tables 3 and 4 with ours, and what single changes do; F1, stopped by F1."""
    parts = {dataset: own[own["stop"] == "f1"] for dataset, own in shown(frame).items()}
    lines = []
    for model, base in [*((model, catalogue.BASELINE) for model in CLAIMED), *CHANGES]:
        name = named(model) if base == catalogue.BASELINE else f"{named(model)} over {named(base)}"
        texts = [gain(own, model, base) + published(dataset, model, base) for dataset, own in parts.items()]
        lines.append([name, *texts])
    varied = ["variation of BFV+DNN"]
    for dataset, own in parts.items():
        f1 = own.loc[own["model"] == CLAIMED[0], "f1"]
        limit = f"{VARIATION[dataset]:g}".replace("0.", ".") if VARIATION[dataset] > 1e-4 else ".0001"
        varied.append(f"{number(f1.std() / f1.mean(), 4)} (< {limit})")
    return table_of(["F1, % over (published)", *map(dataset_name, parts)], [*lines, varied])


def scores(frame: pd.DataFrame) -> str:
    """Return log-loss, F1 and seconds of every model, stopped by log-loss.

    F1 is at the threshold that validation chose, of three classes at none; seconds are of a core, for a seed.
    """
    parts = {dataset: own[own["stop"] == "log_loss"] for dataset, own in shown(frame).items()}
    models = list(dict.fromkeys(model for own in parts.values() for model in own["model"]))
    names = [named(model) for model in sorted(catalogue.ordered(models), key=is_external)]
    heads = ["", *(text for d in parts for text in (f"{dataset_name(d)}: log-loss", "F1", "s"))]
    table = {name: [name] for name in dict.fromkeys(names)}
    for own in parts.values():
        by_name = dict(list(own.groupby(own["model"].map(named))))
        for name, line in table.items():
            if name not in by_name:
                line += ["", "", ""]
                continue
            of = by_name[name]
            cut = (of["best_round"] >= 0.98 * of["rounds"]).all() and of["rounds"].min() >= 10
            metric = "f1" if of["f1_tuned"].isna().all() else "f1_tuned"
            line += [printed(of["log_loss"], 4) + (CUT if cut else ""), printed(of[metric], 3)]
            spent = of["cpu_seconds"].fillna(of["fit_seconds"])
            line.append(number(spent.iloc[0], 0))  # of one seed: others may be of another processor
    return table_of(heads, table.values())


def grid(frame: pd.DataFrame) -> str:
    """Return log-loss and F1 of BFV+DNN by trees and depth of its GBM, each stopped by the score it shows."""
    own = frame[frame["part"] == "grid"].set_index(["model", "stop"])
    sizes, depths = zip(*GRID)
    lines = []
    for trees in dict.fromkeys(sizes):
        texts = [
            f"{number(own.loc[(name, 'log_loss'), 'log_loss'], 4)}, {number(own.loc[(name, 'f1'), 'f1'], 3)}"
            if (name, "f1") in own.index
            else ""
            for name in (on_grid(trees, depth) for depth in dict.fromkeys(depths))
        ]
        lines.append([f"{trees:,} trees", *texts])
    return table_of(["log-loss, F1", *(f"depth {depth}" for depth in dict.fromkeys(depths))], lines)


def luck(folder: Path, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the headlines' differences with their intervals over the seeds and over the test rows.

    Those of the fits in the folder, where it has predictions of every seed that is scored.
    """
    lines = []
    for (part, dataset), own in frame[frame["stop"] == "log_loss"].groupby(["part", "dataset"], sort=False):
        fits: dict[str, dict[int, results_rows.Predicted]] = {}
        for model in dict.fromkeys(name for pair in HEADLINES for name in pair):
            seeds = sorted(own.loc[own["model"] == model, "seed"])
            read = {s: fitting.predicted(folder, Cell(part, dataset, model, s)) for s in seeds}
            if read and all(read.values()):
                # one fit of a model that draws nothing stands for each seed of another
                fits[model] = dict.fromkeys(range(10), read[seeds[0]]) if model in ONCE else read
        drawn = {
            model: results_rows.draws(list({id(fit): fit for fit in of.values()}.values()))
            for model, of in fits.items()
        }
        for one, other in HEADLINES:
            if seeds := sorted(fits.get(one, {}).keys() & fits.get(other, {}).keys()):
                ours, theirs = ([fits[model][seed] for seed in seeds] for model in (one, other))
                texts = results_rows.row(ours, theirs, drawn[one], drawn[other])
                names = {"part": part, "dataset": dataset, "model": one, "against": other}
                lines.append(names | dict(zip(results_rows.SHOWN, texts)))
    return pd.DataFrame(lines)


def rows(found: pd.DataFrame, frame: pd.DataFrame) -> str:
    """Return the table of log-loss of what `luck` found, of the parts that are shown."""
    parts = {dataset: own["part"].iloc[0] for dataset, own in shown(frame).items()}
    by = found.set_index(["part", "dataset", "model", "against"])["log_loss"].to_dict()
    lines = []
    for one, other in HEADLINES:
        texts = [by.get((part, dataset, one, other), "–") for dataset, part in parts.items()]
        texts = [text.replace("0.", ".").replace("-", "−").replace("± nan", "± –") for text in texts]
        lines.append([f"{named(one)} − {named(other)}", *texts])
    return table_of(["log-loss", *map(dataset_name, parts)], lines)


def minutes(folder: Path, frame: pd.DataFrame) -> pd.DataFrame:
    """Return minutes of a core and F1 on the validation rows after each round of one seed."""
    traces = []
    for dataset, own in shown(frame).items():
        for model in _DRAWN:
            file = fitting.kept_at(folder / own["part"].iloc[0], dataset, model, 0).with_suffix(".parquet")
            if file.is_file():
                trace = pd.read_parquet(file)
                of = {"dataset": dataset, "model": model, "minutes": trace["cpu_seconds"] / 60}
                traces.append(pd.DataFrame(of | {"f1_val": trace["f1_val"]}))
    return pd.concat(traces, ignore_index=True) if traces else pd.DataFrame(columns=["dataset"])


def minutes_figure(dataset: str, traces: pd.DataFrame) -> None:
    """Draw F1 on the validation rows against minutes of a core: the paper's figures 3 to 5."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    fig, ax = plt.subplots(figsize=(9, 4.2), layout="constrained")
    for model, colour in _DRAWN.items():
        own = traces[traces["model"] == model]
        ax.plot(own["minutes"], own["f1_val"], color=colour, lw=1.1, label=named(model))
    ax.set(xlabel="minutes of a core", ylabel="F1 on validation rows", xscale="log")
    ax.set_title(dataset_name(dataset), loc="left")
    ax.grid(alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)
    ax.xaxis.set_major_formatter("{x:g}")
    fig.legend(loc="outside right center", frameon=False)
    fig.savefig(FIGURES / f"papers-minutes-{dataset}.png", dpi=110)
    plt.close(fig)


def with_tables(text: str, frame: pd.DataFrame, found: pd.DataFrame) -> str:
    """Return the page's text with the tables of the scores."""
    text = between_marks(text, "claims", claims(frame))
    text = between_marks(text, "scores", scores(frame))
    text = between_marks(text, "grid", grid(frame))
    return between_marks(text, "rows", rows(found, frame))


def write(folder: Path | None) -> None:
    """Take the folder's scores into the repository; make the page's tables of those that are there."""
    if folder is not None:
        frame = collect(folder, pd.read_csv(SCORES), list(PLAN))
        frame.to_csv(SCORES, index=False, float_format="%.6g")
        found = pd.concat([pd.read_csv(LUCK, keep_default_na=False), luck(folder, frame)])
        found = found.drop_duplicates(["part", "dataset", "model", "against"], keep="last")
        found.sort_values(["part", "dataset"], kind="stable").to_csv(LUCK, index=False)
        new = minutes(folder, frame)
        traces = pd.read_csv(MINUTES) if MINUTES.exists() else new[:0]
        traces = pd.concat([traces[~traces["dataset"].isin(new["dataset"])], new])
        traces.to_csv(MINUTES, index=False, float_format="%.5g")
        for dataset, own in traces.groupby("dataset"):
            minutes_figure(str(dataset), own)
    frame = pd.read_csv(SCORES)
    PAGE.write_text(with_tables(PAGE.read_text(), frame, pd.read_csv(LUCK, keep_default_na=False)))


if __name__ == "__main__":
    options = {"part": {"choices": list(PLAN)}, "dataset": {"choices": DATASETS}, "model": {}}
    run_or_write(__doc__, run, write, **options, seed={"type": int})

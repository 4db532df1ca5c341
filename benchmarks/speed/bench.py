"""`make bench`: everything side by side, as ratios; reports/benchmarks.json and docs/performance.md.

Run it from the repository's root, with USBOOST_DATA naming the folder of the real census files:
``USBOOST_DATA=... python -m benchmarks.speed.bench [--rows N] [--section NAME ...]``. Sections run one after
the other, each in a separate process; things that are compared run in the same one.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import matplotlib
from rich.console import Console
from rich.table import Table

from benchmarks.pages import between_marks

CONSOLE = Console(width=120)
SIZES, CLASSES = (25_000, 50_000, 100_000, None), (2, 3, 7)

Row = tuple[str, str, str, str, str]


def measure(section: str, **settings: Any) -> Any:
    """One section in a separate process."""
    call = {"section": section, **{k: v for k, v in settings.items() if v is not None}}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.speed.bench", "--one", json.dumps(call)],
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def all_sections(wanted: list[str], rows: int | None, folder: Path, quick: bool) -> dict[str, Any]:
    small: dict[str, dict[str, int]] = {
        "search": {"n_rounds": 2},
        "gbm": {"n_trees": 5},
        "predict": {"n_rounds": 40, "n_rows": 500},
        "quality": {"n_rounds": 2, "n_seeds": 2},
        "trimming": {"n_rounds": 4},
        "scaling": {"n_rounds": 4},
        "embedding": {"n_images": 32, "side": 64},
    }
    out: dict[str, Any] = {}
    for name in wanted:
        CONSOLE.print(f"measuring {name} …")
        start, settings = time.perf_counter(), small.get(name, {}) if quick else {}
        if name == "scaling":
            cells = [(size, m) for m in CLASSES for size in SIZES if not (quick and size)]
            out[name] = [
                measure(name, folder=str(folder), rows=size or rows, n_classes=m, **settings)
                for size, m in cells
            ]
        else:
            out[name] = measure(name, folder=str(folder), rows=rows, **settings)
        CONSOLE.print(f"  {time.perf_counter() - start:.0f} s")
    return out


def table_of(figures: dict[str, Any]) -> list[Row]:
    """What, ours, against, ratio, the bar: a row for each comparison that was measured."""
    rows: list[Row] = []

    def add(what: str, ours: float, name: str, theirs: float, bar: str) -> None:
        rows.append((what, _time(ours), f"{name} {_time(theirs)}", f"{theirs / ours:.1f}×", bar))

    if found := figures.get("rounds"):
        for model in ("2wl", "2wl2o"):
            for name, spent in found[model].items():
                if name.startswith("literal"):
                    bar = "12×" if "one-hot" in name else ""
                    add(f"{model.upper()} round", found[model]["fast"]["total"], name, spent["total"], bar)
    if found := figures.get("search"):
        add("ε/δ search", found["exact"], "gp_minimize, 30 evaluations", found["gp_minimize"], "20×")
    if found := figures.get("tree"):
        for coding in ("one-hot", "ordinal"):
            theirs = found[f"scikit-learn, S {coding}"]
            for ours in [name for name in found if name.startswith("fast")]:
                bar = "50×" if coding == "one-hot" else ""
                add(f"tree ({ours[6:]})", found[ours], f"scikit-learn, S {coding}", theirs, bar)
    if found := figures.get("gbm"):
        add(
            f"GBM fit + BFV, {found['trees']} trees",
            found["fast fit"] + found["fast BFV"],
            "scikit-learn GBM, loop over estimators_",
            found["scikit-learn fit"] + found["scikit-learn BFV"],
            "20×",
        )
        name = "LightGBM pred_leaf and look-up"
        add("BFV alone", found["fast BFV"], name, found[name], "1×")
        add("BFV alone", found["fast BFV"], "loop over estimators_", found["scikit-learn BFV"], "")
    if found := figures.get("predict"):
        what = f"predict_proba, {found['rounds']} rounds, {found['rows']:,} rows"
        add(what, found["together"], "literal learners one by one", found["literal one by one"], "5×")
        add(what, found["together"], "our learners one by one", found["ours one by one"], "")
    if found := figures.get("embedding"):
        what = f"embedding {found['images']} images of {found['side']} pixels"
        ours, theirs = (found["images"] / found[name]["rate"] for name in ("ours", "plain"))
        add(what, ours, "plain loop, batches of 32", theirs, "")
        add(f"{what} again", found["images"] / found["again"]["rate"], "for the first time", ours, "")
    return rows


def _time(spent: float) -> str:
    return f"{spent:.2f} s" if spent >= 1 else f"{1000 * spent:.1f} ms"


def markdown(figures: dict[str, Any], machine: str) -> str:
    """The figures as docs/performance.md shows them."""
    lines = [machine, "", "| what | ours | against | ratio | bar |", "|---|---|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in table_of(figures)]
    if found := figures.get("search"):
        lines += [
            "",
            f"Exact search: a risk no higher than `gp_minimize`'s in {found['risk_no_higher']} of "
            f"{found['rounds']} rounds; lower by {found['median_gain']:.2g} in the median, "
            f"{found['largest_gain']:.2g} at most.",
        ]
    if found := figures.get("rounds"):
        lines += ["", "| part of a round, ms | " + " | ".join(("2WL", "2WL2O")) + " |", "|---|---|---|"]
        parts = [part for part in found["2wl"]["fast"] if part != "total"]
        for part in [*parts, "total"]:
            spent = [1000 * found[model]["fast"].get(part, 0.0) for model in ("2wl", "2wl2o")]
            lines.append(f"| {part} | " + " | ".join(f"{value:.1f}" for value in spent) + " |")
        lines += ["", "The tree (`fit_S`, `predict_S`) grows while the network trains."]
    if found := figures.get("memory"):
        lines += ["", f"Peak memory of a fit, its tables included: {found['peak'] / 1e6:.0f} MB; "]
        lines[-1] += "; ".join(
            f"{found['peak'] / found[name]:.2f} × the {name} ({found[name] / 1e6:.0f} MB)"
            for name in ("matrices, both one-hot", "matrices, S ordinal")
        )
        lines[-1] += "."
    if found := figures.get("quality"):
        for name in ("fast", "literal"):
            values = ", ".join(f"{value:.4f}" for value in found[name])
            lines += ["", f"Validation F1 after {found['rounds']} rounds, {name}, seed by seed: {values}."]
    if found := figures.get("trimming"):
        lines += ["", f"Weight trimming, 2WL-Newton, shrinkage 0.3, {found['rounds']} rounds:", ""]
        lines += ["| share left out | ms a round | training risk | validation risk | validation F1 |"]
        lines += ["|---|---|---|---|---|"]
        for trim, run in found.items():
            if trim != "rounds":
                scores = " | ".join(f"{run[key]:.4f}" for key in ("risk_train", "risk_val", "f1_val"))
                lines.append(f"| {trim} | {1000 * run['round']:.0f} | {scores} |")
    if found := figures.get("embedding"):
        ours, plain = found["ours"], found["plain"]
        lines += [
            "",
            f"Embedding: {ours['rate']:.0f} images of {found['side']} pixels a second on "
            f"{found['threads']} threads ({ours['cpu']:.0f} in a second of CPU time) "
            f"against {plain['rate']:.0f} ({plain['cpu']:.0f}); outputs differ by "
            f"{found['difference']:.1g} of the largest.",
        ]
    if found := figures.get("scaling"):
        lines += [
            "",
            "| classes | rows | ms a round | µs a row | peak MB | bytes a row |",
            "|---|---|---|---|---|---|",
        ]
        for run in found:
            per = [1e3 * run["round"], 1e6 * run["round"] / run["rows"], run["peak"] / 1e6]
            lines.append(
                f"| {run['classes']} | {run['rows']:,} | {per[0]:.0f} | {per[1]:.2f} | {per[2]:.0f} | "
                f"{run['peak'] / run['rows']:.0f} |"
            )
        lines += ["", "![seconds and memory of a round against rows](performance-scaling.png)"]
    return "\n".join(lines) + "\n"


def draw_scaling(runs: list[dict[str, float]], path: Path) -> None:
    """Seconds a round and peak memory against rows, a line for each number of classes."""
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for axis, key, scale, label in (
        (axes[0], "round", 1e3, "ms a round"),
        (axes[1], "peak", 1e-6, "peak memory of a fit, MB"),
    ):
        for classes in sorted({run["classes"] for run in runs}):
            mine = [run for run in runs if run["classes"] == classes]
            rows = [run["rows"] / 1000 for run in mine]
            axis.plot(rows, [run[key] * scale for run in mine], marker="o", label=f"{classes:.0f} classes")
        axis.set(xlabel="thousand rows", ylabel=label, ylim=(0, None), xlim=(0, None))
        axis.grid(alpha=0.3)
    axes[0].legend(frameon=False)
    figure.savefig(path, dpi=130)


def machine() -> str:
    import lightgbm
    import sklearn
    import torch

    return (
        f"Measured {time.strftime('%Y-%m-%d')} on {os.cpu_count()} cores ({platform.machine()}), "
        f"Python {platform.python_version()}, torch {torch.__version__.split('+')[0]}, LightGBM "
        f"{lightgbm.__version__}, scikit-learn {sklearn.__version__}."
    )


def show(figures: dict[str, Any]) -> None:
    table = Table("what", "ours", "against", "ratio", "bar", title="medians of several runs")
    for row in table_of(figures):
        table.add_row(*row)
    CONSOLE.print(table)


def main() -> None:
    from benchmarks.speed.sections import SECTIONS

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, help="at most this many training rows")
    parser.add_argument("--section", action="append", choices=list(SECTIONS), help="only these")
    parser.add_argument("--data", type=Path, default=Path(".usboost/bench"), help="folder of prepared rows")
    parser.add_argument("--report", type=Path, default=Path("reports/benchmarks.json"))
    parser.add_argument("--page", type=Path, default=Path("docs/performance.md"))
    parser.add_argument("--quick", action="store_true", help="small counts: does it run at all?")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        call = json.loads(arguments.one)
        section, folder = SECTIONS[call.pop("section")], Path(call.pop("folder"))
        print(json.dumps(section(folder, call.pop("rows", None), **call)))
        return
    from benchmarks.speed.census import prepared

    prepared(arguments.data)
    known = json.loads(arguments.report.read_text()) if arguments.report.exists() else {}
    figures = known | all_sections(
        arguments.section or list(SECTIONS), arguments.rows, arguments.data, arguments.quick
    )
    figures["machine"] = machine() + ("" if os.environ.get("USBOOST_DATA") else " Generated rows.")
    arguments.report.parent.mkdir(parents=True, exist_ok=True)
    arguments.report.write_text(json.dumps(figures, indent=1) + "\n")
    if arguments.page.exists():
        text = markdown(figures, figures["machine"])
        arguments.page.write_text(between_marks(arguments.page.read_text(), "figures", text))
        if "scaling" in figures:
            draw_scaling(figures["scaling"], arguments.page.parent / "performance-scaling.png")
    show(figures)


if __name__ == "__main__":
    main()

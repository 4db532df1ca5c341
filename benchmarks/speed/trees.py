"""CPU time of one round's trees on three and on seven classes: a tree a class, one for all, the older way.

The engines grow by turns in one process, with one thread, on Covertype's real rows where USBOOST_DATA holds
them, else on generated ones; process time, so that other work on the machine counts for little. From the
repository's root: ``USBOOST_DATA=... python -m benchmarks.speed.trees [--repeats R] [--rows N ...]``; the
table goes between the marks ``trees`` of docs/performance.md.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console

from benchmarks.speed.bench import between_marks, machine
from usboost.data.encoding import TableEncoder
from usboost.data.table import Table
from usboost.datasets.covertype import raw as covertype
from usboost.datasets.files.sampling import stratified_sample
from usboost.learners.base import Target
from usboost.learners.trees.learner import TreeLearner
from usboost.losses.base import simplex_codewords
from usboost.losses.codeword import CodewordExponential

CLASSES, ROWS, BEFORE = (3, 7), (10_000, 60_000), 5
SHAPES: dict[str, dict[str, Any]] = {
    "depth 3": {"max_depth": 3},
    "depth 6": {"max_depth": 6},
    "31 leaves": {"max_depth": 12, "max_leaves": 31},
}
DEFAULT, OLD = "a tree a class", "a tree a coordinate"
ENGINES = {
    DEFAULT: "lightgbm",
    "one tree": "histogram",
    OLD: "lightgbm",  # of an orthonormal basis: M − 1 of them, what there was before
    "scikit-learn": "sklearn",
}

Seconds = dict[str, list[float]]


@cache
def _cells() -> tuple[pd.DataFrame, np.ndarray]:
    """Covertype's columns, its indicators folded to two categories, and raw labels 1 to 7."""
    with tempfile.TemporaryDirectory() as made:
        if real := os.environ.get("USBOOST_DATA"):
            path = Path(real) / covertype.SOURCE / f"{covertype.FILE}.gz"
        else:
            path = covertype.write_demo(made, 2 * max(ROWS), seed=0)
        frame, labels = covertype.read(path)
    return covertype.fold_onehot(frame), labels


def sample(n_classes: int, rows: int) -> tuple[Table, np.ndarray]:
    """Rows with the classes' shares: of CT's three classes, the largest ones, or of all seven."""
    frame, labels = _cells()
    if n_classes == 3:
        frame, codes, _ = covertype.three_largest(frame, labels)
    else:
        codes = np.searchsorted(np.unique(labels), labels)
    chosen = stratified_sample(codes, rows, 0)
    frame = frame.iloc[chosen].reset_index(drop=True)
    return TableEncoder.fit(frame, list(frame)).transform(frame), codes[chosen]


def cpu_seconds(n_classes: int, rows: int, shape: str, repeats: int) -> Seconds:
    """CPU seconds of every engine to grow a round's trees and to apply them to the rows grown on.

    They are fitted to what the default engine's first rounds have left.
    """
    table, y = sample(n_classes, rows)
    loss, f = CodewordExponential.unit(n_classes), np.zeros((rows, n_classes))
    start = TreeLearner(**SHAPES[shape])
    prepared = start.prepare(table)
    trainer = start.trainer(prepared, n_classes)
    for _ in range(BEFORE):
        f += trainer.fit(Target(loss.w(f, y)), seed=0).predict(prepared)
    w = loss.w(f, y)
    works = {}
    for name, engine in ENGINES.items():
        target = Target(w @ simplex_codewords(n_classes) if name == OLD else w)
        learner = TreeLearner(**SHAPES[shape], engine=engine)
        works[name] = _work(learner, table, target)
        works[name]()  # bins the columns
    spent: Seconds = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            begun = time.process_time()
            work()
            spent[name].append(time.process_time() - begun)
    return spent


def _work(learner: TreeLearner, table: Table, target: Target) -> Callable[[], np.ndarray]:
    prepared = learner.prepare(table)
    trainer = learner.trainer(prepared, target.values.shape[1])
    return lambda: trainer.fit(target, seed=0).predict(prepared)


def line(n_classes: int, rows: int, shape: str, spent: Seconds) -> str:
    """A row of the table: the default's milliseconds, the others' times it; median, lowest to highest."""
    base = np.array(spent[DEFAULT])
    ratios = [spread(np.array(times) / base, 2, "×") for name, times in spent.items() if name != DEFAULT]
    return f"| {' | '.join([str(n_classes), f'{rows:,}', shape, spread(1000 * base, 0), *ratios])} |"


def spread(values: np.ndarray, digits: int, unit: str = "") -> str:
    low, middle, high = (f"{value:.{digits}f}" for value in np.quantile(values, [0, 0.5, 1]))
    return f"{middle}{unit} ({low}–{high})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15, help="turns of every engine (default: 15)")
    parser.add_argument("--rows", type=int, nargs="+", default=list(ROWS), help="default: 10000 60000")
    parser.add_argument("--page", type=Path, default=Path("docs/performance.md"))
    options = parser.parse_args()
    heads = ["classes", "rows", "tree", f"{DEFAULT}, ms", *list(ENGINES)[1:]]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    console = Console(width=150)
    for n_classes, rows, shape in product(CLASSES, options.rows, SHAPES):
        spent = cpu_seconds(n_classes, rows, shape, options.repeats)
        lines.append(line(n_classes, rows, shape, spent))
        console.print(lines[-1])
    generated = "" if os.environ.get("USBOOST_DATA") else " Generated rows."
    text = f"{machine()}{generated} {options.repeats} turns.\n\n" + "\n".join(lines) + "\n"
    if options.page.exists():
        options.page.write_text(between_marks(options.page.read_text(), "trees", text))


if __name__ == "__main__":
    main()

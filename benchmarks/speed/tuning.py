"""The search for settings: one process against two, and with pruning against without.

``python -m benchmarks.speed.tuning [ROWS]`` prints seconds and the best log-loss; the trials are the same for
any number of processes, so the ratio is one of time alone. A process takes seconds to begin: of few rows, one
process is the faster.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from usboost.datasets.user.read_table import read_table
from usboost.datasets.user.table_spec import TableSpec
from usboost.datasets.user.user_table import UserTable
from usboost.multimodal.fit.fit import by_name
from usboost.multimodal.tune import tune
from usboost.tuning.search import Plan

ROWS, TRIALS, ROUNDS = 40_000, 12, 100
MODELS = ("lgbm", "crossed")
"""One of a single thread, and one whose fits already run a network and a tree side by side."""


def table(folder: Path, rows: int) -> UserTable:
    """Numbers that interact, a category, and a label that depends on them."""
    rng = np.random.default_rng(0)
    x, letter = rng.normal(size=(rows, 12)), rng.choice(list("abcdefgh"), rows)
    score = x[:, 0] * x[:, 1] + x[:, 2] + (letter == "a") + rng.normal(size=rows)
    frame = pd.DataFrame(x, columns=[f"x{k}" for k in range(12)]).assign(letter=letter)
    path = folder / "table.parquet"
    frame.assign(label=np.where(score > 0, "yes", "no")).to_parquet(path)
    return read_table(path, TableSpec(label="label"))


def measured(own: UserTable, folder: Path, name: str, **changes: object) -> float:
    """Seconds of a search, whose best scores are printed."""
    models = by_name([name], images=None, rounds=ROUNDS, task=own.task)
    started = time.perf_counter()
    found = tune(own, models, out=folder, plan=Plan(TRIALS, **changes))  # type: ignore[arg-type]
    seconds = time.perf_counter() - started
    one = found.models[name]
    fits = sum(trial.seconds for trial in one.trials)
    assert one.first is not None and one.best is not None
    print(
        f"{name}, {changes or 'one process'}: {seconds:.1f} s, of which fits {fits:.1f}; "
        f"log-loss {one.first.score:.4f} → {one.best.score:.4f}; load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    return seconds


def main(rows: int = ROWS) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        own = table(folder, rows)
        for name in MODELS:
            one = measured(own, folder / "one", name)
            two = measured(own, folder / "two", name, jobs=2)
            whole = measured(own, folder / "whole", name, prune=False)
            print(f"{name}: two processes {one / two:.2f} times as fast, pruning {whole / one:.2f} times")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

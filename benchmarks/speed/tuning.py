"""The search for settings: one process against two, and with pruning against without.

``python -m benchmarks.speed.tuning`` prints seconds and the best log-loss; the trials are the same for any
number of processes, so the ratio is one of time alone.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from usboost.datasets.custom.own import OwnTable
from usboost.datasets.custom.table import read_own
from usboost.multimodal.models import by_name
from usboost.multimodal.tune import tune
from usboost.tuning.search import Plan

ROWS, TRIALS, ROUNDS = 4000, 12, 60
MODELS = ("crossed", "lgbm")


def table(folder: Path) -> OwnTable:
    """Numbers that interact, a category, and a label that depends on them."""
    rng = np.random.default_rng(0)
    x, letter = rng.normal(size=(ROWS, 12)), rng.choice(list("abcdefgh"), ROWS)
    score = x[:, 0] * x[:, 1] + x[:, 2] + (letter == "a") + rng.normal(size=ROWS)
    frame = pd.DataFrame(x, columns=[f"x{k}" for k in range(12)]).assign(letter=letter)
    path = folder / "table.parquet"
    frame.assign(label=np.where(score > 0, "yes", "no")).to_parquet(path)
    return read_own(path, label="label")


def measured(own: OwnTable, folder: Path, **changes: object) -> float:
    """Seconds of a search, whose best scores are printed."""
    models = by_name(MODELS, pictures=None, rounds=ROUNDS, task=own.task)
    started = time.perf_counter()
    found = tune(own, models, out=folder, plan=Plan(TRIALS, **changes))  # type: ignore[arg-type]
    seconds = time.perf_counter() - started
    best = ", ".join(
        f"{name} {each.first.score:.4f} → {each.best.score:.4f}"
        for name, each in found.models.items()
        if each.first is not None and each.best is not None
    )
    fits = sum(trial.seconds for each in found.models.values() for trial in each.trials)
    print(
        f"{changes or 'one process'}: {seconds:.1f} s, of which fits {fits:.1f}; log-loss {best}", flush=True
    )
    return seconds


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        own = table(folder)
        one = measured(own, folder / "one")
        two = measured(own, folder / "two", jobs=2)
        print(f"two processes: {one / two:.2f} times as fast")
        whole = measured(own, folder / "whole", prune=False)
        print(f"pruning: {whole / one:.2f} times as fast")


if __name__ == "__main__":
    main()

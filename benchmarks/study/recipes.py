"""What docs/results/tuned-images.md says of how images are tuned: the log-loss of models that read them.

``python -m benchmarks.study.recipes OUT lesions 1000 2``: draws of rows as in `benchmarks.study.front`; what
OUT, a file, has is not made again. ``python -m benchmarks.study.recipes OUT`` shows the table. Minutes a row
on a core: images are tuned anew for every recipe.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd

from benchmarks.study.equals import Case, built
from benchmarks.study.front import kept, tables
from usboost.learners.networks.images import finetuning
from usboost.models.tuned_images import images_tuned

READERS = ("logistic", "linear_trees")
FROZEN = "frozen"
RECIPES: dict[str, Mapping[str, Any]] = {
    FROZEN: {},
    "as it is": {},
    "1 block": {"BLOCKS": 1},
    "3 blocks": {"BLOCKS": 3},
    "2 epochs": {"EPOCHS": 2},
    "8 epochs": {"EPOCHS": 8},
    "half the rate": {"RATE": 1e-3},
    "twice the rate": {"RATE": 4e-3},
    "blocks at the head's rate": {"SHARE": 1.0, "RATE": 5e-4},
    "no smoothing": {"SMOOTHING": 0.0},
    "more dropout": {"DROPOUT": 0.5},
}
"""`finetuning`'s constants that differ."""


def measured(case: Case, recipe: str, seed: int) -> list[dict[str, Any]]:
    """Scores of each reader; "seconds" of the first hold the tuning."""
    rows, changed = [], RECIPES[recipe] or {"BLOCKS": finetuning.BLOCKS}
    with mock.patch.multiple(finetuning, **changed):
        for name in READERS:
            finetune = "none" if recipe == FROZEN else "last"
            model = built((name,), case.table, finetune)[name](seed)
            began = time.process_time()
            ((_, (scores, _)),) = case.single(model, refit=False)
            tuned = images_tuned(model)
            seconds = time.process_time() - began
            rows.append({"reader": name, **scores, "seconds": seconds, "tuned": tuned})
    return rows


def run(out: Path, name: str, rows: int, draws: int, recipes: tuple[str, ...]) -> None:
    there = {(row["table"], row["rows"], row["seed"], row["recipe"]) for row in kept(out)}
    for seed, table in tables(name, rows, draws):
        case = Case(table)
        for recipe in recipes:
            key = {"table": name, "rows": rows, "seed": seed, "recipe": recipe}
            if tuple(key.values()) not in there:
                for row in measured(case, recipe, seed):
                    with out.open("a") as file:
                        file.write(json.dumps(key | row) + "\n")
                    print(key | row, flush=True)


def summary(out: Path) -> pd.DataFrame:
    """Means over the draws, and the share of tunings that were taken."""
    found = pd.DataFrame(kept(out))
    columns = ["log_loss", "accuracy", "auc", "tuned", "seconds"]
    return found.groupby(["table", "rows", "reader", "recipe"], sort=False)[columns].mean()


if __name__ == "__main__":
    out = Path(sys.argv[1])
    if len(sys.argv) > 2:
        run(out, sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), tuple(sys.argv[5:]) or tuple(RECIPES))
    print(summary(out).round(4).to_markdown())

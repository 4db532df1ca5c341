"""What docs/results/tuned-images.md says of images that say nothing, and of few rows.

``python -m benchmarks.study.shuffled_images OUT lesions 300 3``: draws as in `benchmarks.study.front`,
each with its own images and with images shuffled among the rows; log-loss of models that read them as they
are, of the same with images tuned on the label, and of models of the columns alone. What OUT, a file, has is
not made again; ``python -m benchmarks.study.shuffled_images OUT`` shows the table. Minutes a draw on a core.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.study.equals import Case, built
from benchmarks.study.front import kept, tables
from usboost.datasets.user.user_table import UserTable
from usboost.models.tuned_images import images_tuned

READERS = {"linear_trees": "linear_trees_s", "logistic": "logistic_s", "lgbm": "lgbm_s"}
"""Models of columns and images, and each one's counterpart of the columns alone."""
READ = ("columns", "frozen", "tuned")


def shuffled(table: UserTable, seed: int) -> UserTable:
    """The table with every image at another row, drawn at random."""
    order = np.random.default_rng(seed).permutation(len(table))
    return replace(table, images={view: images[order] for view, images in table.images.items()})


def measured(case: Case, seed: int) -> Iterator[dict[str, Any]]:
    """Log-loss of each model by what it reads, and its gain over the columns with its standard error."""
    for name, alone in READERS.items():
        columns = np.zeros(0)
        for read in READ:
            of, finetune = (
                (alone, "none") if read == "columns" else (name, "last" if read == "tuned" else "none")
            )
            model = built((of,), case.table, finetune)[of](seed)
            ((_, (scores, losses)),) = case.single(model, refit=False)
            columns = losses if read == "columns" else columns
            gains = columns - losses
            yield {
                "model": name,
                "read": read,
                "log_loss": scores["log_loss"],
                "gain": float(gains.mean()),
                "error": float(gains.std() / np.sqrt(len(gains))),
                "tuned": float(images_tuned(model)) if read == "tuned" else float("nan"),
            }


def run(out: Path, name: str, rows: int, draws: int) -> None:
    there = {(row["table"], row["rows"], row["seed"], row["images"]) for row in kept(out)}
    for seed, table in tables(name, rows, draws):
        for images, read in (("own", table), ("shuffled", shuffled(table, seed))):
            key = {"table": name, "rows": rows, "seed": seed, "images": images}
            if tuple(key.values()) not in there:
                found = [key | row for row in measured(Case(read), seed)]
                with out.open("a") as file:
                    file.write("".join(json.dumps(row) + "\n" for row in found))
                print(pd.DataFrame(found).to_string(), flush=True)


def summary(out: Path) -> pd.DataFrame:
    """Means over the draws."""
    keys = ["table", "rows", "images", "model", "read"]
    return pd.DataFrame(kept(out)).groupby(keys, sort=False)[["log_loss", "gain", "error", "tuned"]].mean()


if __name__ == "__main__":
    out = Path(sys.argv[1])
    if len(sys.argv) > 2:
        run(out, sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    print(summary(out).round(4).to_markdown())

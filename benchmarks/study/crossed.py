"""What docs/results.md says of the settings of `crossed` on tables with images.

``python -m benchmarks.study.crossed products 1000 3 [FILE]``: draws of rows to fit to, 15 % of them to stop
on, and all others, which score; none is a test row of `benchmarks.study.equals`. FILE holds a JSON object a
line, settings by path and maybe another "model"; without it, those below. Minutes on a core.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.study.equals import SPLIT, Case, built, divided
from benchmarks.study.members import summary
from benchmarks.study.small import larger
from usboost.datasets.user.read_table import read_table
from usboost.datasets.user.table_spec import TableSpec
from usboost.datasets.user.user_table import UserTable
from usboost.models.settings import with_settings

LEAVES, HIDDEN, RATE = "learners__S__max_leaves", "learners__U__hidden", "learners__U__learning_rate"
SETTINGS: tuple[Mapping[str, Any], ...] = (
    {LEAVES: 64},
    {LEAVES: 16},
    {LEAVES: 8},
    {LEAVES: 4},
    {LEAVES: 8, "shrinkage": 0.1},
    {LEAVES: 8, "shrinkage": 0.2},
    {LEAVES: 8, HIDDEN: (32,)},
    {LEAVES: 8, RATE: 0.001},
    {LEAVES: 8, HIDDEN: (256, 64), RATE: 0.0003},
    {LEAVES: 8, "learners__S__components": 128},
    {"model": "linear_trees"},
)


def tables(name: str, rows: int, draws: int) -> Iterator[tuple[int, UserTable]]:
    """Each draw of the rows that "Equal trials" fit to and choose on."""
    frame, label = larger(name)
    frame = divided(frame, label, None)
    frame = frame[frame[SPLIT] != "test"].drop(columns=SPLIT)
    for seed in range(draws):
        drawn = frame.sample(frac=1.0, random_state=seed, ignore_index=True)
        part = pd.Series("test", drawn.index)
        part[:rows] = "train"
        part[: round(0.15 * rows)] = "val"
        counts = drawn.loc[part == "train", label].value_counts()
        drawn = drawn.assign(**{SPLIT: part})[drawn[label].isin(counts.index[counts >= 2])]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "drawn.parquet"
            drawn.to_parquet(path)
            yield seed, read_table(path, TableSpec(label=label, image="image", split=SPLIT, size=160))


def losses(case: Case, asked: Mapping[str, Any], seed: int) -> Iterator[tuple[str, float]]:
    """Log-loss of the first fit, "first", and of the one to all rows, "all"."""
    settings = dict(asked)
    model = settings.pop("model", "crossed")
    made = with_settings(built((model,), case.table)[model](seed), settings, model)
    for fits, (scores, _) in case.single(made, refit=True):
        print(seed, asked, fits, scores, flush=True)
        yield fits or "first", scores["log_loss"]


def shown(asked: Mapping[str, Any]) -> str:
    return ", ".join(f"{key.split('__')[-1]} {value}" for key, value in asked.items())


if __name__ == "__main__":
    chosen = SETTINGS
    if len(sys.argv) > 4:
        chosen = tuple(json.loads(line) for line in Path(sys.argv[4]).read_text().splitlines())
    rows = [
        {"seed": seed, "settings": shown(each), "fits": fits, "log_loss": loss}
        for seed, table in tables(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
        for each in chosen
        for fits, loss in losses(Case(table), each, seed)
    ]
    for fits, group in pd.DataFrame(rows).groupby("fits", sort=False):
        by_settings = group.pivot(index="seed", columns="settings", values="log_loss")
        print(f"{fits}\n{summary(by_settings[[shown(each) for each in chosen]])}", flush=True)

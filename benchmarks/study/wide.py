"""docs/results/small-and-wide.md, tables with many columns for their rows, and classes easily told.

``python -m benchmarks.study.wide [DRAWS]``: made tables without images and scikit-learn's, nothing tuned;
log-loss of rows that no fit has seen, mean and standard deviation over draws of the rows. Minutes on a core.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_wine

from benchmarks.study.equal_tables import number
from benchmarks.study.equals import SPLIT, Case
from usboost.datasets.user.read_table import read_table
from usboost.datasets.user.reading.source import FrameRows
from usboost.datasets.user.table_spec import TableSpec
from usboost.multimodal.fit.fit import build

UNSEEN = 500
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "`crossed`": ("crossed", {}),
    "`crossed`, steps on all rows": ("crossed", {"step_fraction": 0.0}),
    "`crossed`, steps on others": ("crossed", {"step_fraction": 0.2}),
    **{f"`{name}`": (name, {}) for name in ("linear_trees", "lgbm", "forest", "logistic", "prior")},
}


def interaction(rng: np.random.Generator, rows: int, columns: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Four columns that count, of which two in an interaction."""
    x = rng.normal(size=(rows, columns))
    score = x[:, 0] + x[:, 1] - x[:, 2] * (x[:, 3] > 0) + 0.3 * rng.normal(size=rows)
    return pd.DataFrame(x).rename(columns=str), (score > 0).astype(int)


def board(rng: np.random.Generator, rows: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Fields of a chessboard of four by four."""
    x = rng.uniform(0, 4, (rows, 2))
    return pd.DataFrame(x, columns=["a", "b"]), np.floor(x).sum(axis=1).astype(int) % 2


def bundled(load: Any, rng: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray]:
    frame, y = load(return_X_y=True, as_frame=True)
    order = rng.permutation(len(y))
    return frame.iloc[order].reset_index(drop=True), y.to_numpy()[order]


Draw = Callable[[np.random.Generator], tuple[pd.DataFrame, np.ndarray]]
TABLES: dict[str, tuple[int, Draw]] = {
    "400 × 300": (400, lambda rng: interaction(rng, 400 + UNSEEN, 300)),
    "400 × 100": (400, lambda rng: interaction(rng, 400 + UNSEEN, 100)),
    "400 × 30": (400, lambda rng: interaction(rng, 400 + UNSEEN, 30)),
    "chessboard, 1,000 × 2": (1000, lambda rng: board(rng, 1000 + UNSEEN)),
    "wine, 117": (117, lambda rng: bundled(load_wine, rng)),
    "breast cancer, 375": (375, lambda rng: bundled(load_breast_cancer, rng)),
}
"""By name, the rows to learn from, of which 15 % stop the fit, and what draws them and others."""


def losses(rows: int, frame: pd.DataFrame, y: np.ndarray, seed: int) -> dict[str, float]:
    """Log-loss of each model on the rows after the first."""
    part = np.array(["test"] * len(y), dtype=object)
    part[:rows] = "train"
    part[: round(0.15 * rows)] = "val"
    own = read_table(FrameRows(frame.assign(label=y, **{SPLIT: part})), TableSpec(label="label", split=SPLIT))
    found = {}
    for title, (name, settings) in MODELS.items():
        model = build(name, images=None, seed=seed, settings=settings)
        ((_, (scores, _)),) = Case(own).single(model, refit=False)
        found[title] = scores["log_loss"]
    return found


if __name__ == "__main__":
    draws, columns = int(sys.argv[1]) if len(sys.argv) > 1 else 5, {}
    for table, (rows, drawn) in TABLES.items():
        found = pd.DataFrame(
            losses(rows, *drawn(np.random.default_rng((seed, rows))), seed) for seed in range(draws)
        )
        columns[table] = [
            f"{number(found[each].mean(), 3)} ± {number(found[each].std(), 3)}" for each in found
        ]
        print(table, found.round(4).to_string(), flush=True)
    print(pd.DataFrame(columns, index=list(MODELS)).to_markdown(), flush=True)

"""A small table with images, as a user might have it: machine parts photographed on white."""

from pathlib import Path

import numpy as np
import pandas as pd

from usboost.datasets import shapes
from usboost.errors import UsboostError
from usboost.evaluation.folds import stream

TABLE = "table.csv"
LABEL, IMAGE, SPLIT = "batch", "image", "split"
SPEC = {"label": LABEL, "task": None, "image": IMAGE, "split": SPLIT}
"""The fields of its `TableSpec`."""

CLASSES = ("mixed", "wedges", "plates")

_SIDE = 48


def write_demo(folder: Path, *, rows_train: int, rows_test: int, seed: int, split: bool = True) -> None:
    """Write ``table.csv`` and a folder ``images`` of PNG files; equal arguments write equal bytes.

    The table has the columns ``weight`` and ``hardness`` (numbers, some missing), ``colour`` and ``line``
    (categories, some missing), ``image`` (path), ``split`` and ``batch``, the label: which of three kinds of
    shapes the image shows. Val and test have `rows_test` rows each. `split`: whether the table says which.
    Raises UsboostError if either number is under 3.
    """
    if min(rows_train, rows_test) < 3:
        raise UsboostError(f"rows_train {rows_train} and rows_test {rows_test} must be 3 or more")
    rng = np.random.default_rng(stream(seed, 0))
    parts = np.repeat(["train", "val", "test"], [rows_train, rows_test, rows_test])
    n = len(parts)
    # Every split holds all classes.
    k = np.arange(n) % 3
    weight = rng.normal(np.array([50, 46, 55])[k], 9)
    # wedges are soft or hard, the others between: no linear model sees that
    hardness = np.exp(rng.normal(1.0 + np.where(k == 1, rng.choice([-0.9, 0.9], n), 0.0), 0.3))
    colour = np.where(
        rng.random(n) < 0.25, np.array(["grey", "red", "blue"])[k], rng.choice(["grey", "red"], n)
    )
    paths = [f"images/{row:05d}.png" for row in range(n)]

    folder = Path(folder)
    (folder / "images").mkdir(parents=True, exist_ok=True)
    for row, path in enumerate(paths):
        drawn = shapes.draw(int(k[row]), shapes.image_rng(stream(seed, 1), row), _SIDE)
        (folder / path).write_bytes(shapes.encode(drawn))
    table = pd.DataFrame(
        {
            IMAGE: paths,
            "weight": np.where(rng.random(n) < 0.05, np.nan, weight.round(1)),
            "hardness": hardness.round(3),
            "colour": np.where(rng.random(n) < 0.05, "", colour),
            "line": rng.choice(["A", "B", "C"], n),
            SPLIT: parts,
            LABEL: np.array(CLASSES)[k],
        }
    )
    table = table if split else table.drop(columns=SPLIT)
    table.to_csv(folder / TABLE, index=False, lineterminator="\n")

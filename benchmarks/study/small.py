"""What docs/results/small-and-wide.md says of small tables: nothing tuned, the same rows for every model.

``python -m benchmarks.study.small``: scikit-learn's bundled tables, five folds of each. With a name and a
number of rows, ``python -m benchmarks.study.small products 300 3``: so many draws of rows of a larger table
to fit to, and other rows to score, 2,000 of a table with images, 20,000 of one without (``census``,
``covertype``). ``python -m benchmarks.study.small fits diabetes 8``: as `usboost fit` does it, to so many
draws of three quarters of a bundled table. A few minutes each on one core.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine

from usboost.datasets.census import prepare as census
from usboost.datasets.covertype import raw as covertype
from usboost.datasets.user.read_table import read_table
from usboost.datasets.user.reading.source import FrameRows
from usboost.datasets.user.table_spec import TableSpec
from usboost.datasets.user.user_table import UserTable
from usboost.evaluation.metrics import row_losses
from usboost.multimodal.compare import results
from usboost.multimodal.compare.compare import compare
from usboost.multimodal.fit.fit import ImageOptions, build, fit

TABLES = {"breast_cancer": load_breast_cancer, "wine": load_wine, "diabetes": load_diabetes}
DATA = Path(__file__).parents[3] / "shared/data"
WITH_IMAGES = {
    "products": ("fashion_products/products.parquet", "gender", ["id"]),
    "lesions": ("ham10000_lesions/lesions.parquet", "dx", ["lesion_id", "image_id"]),
}
MODELS = ("best", "good", "linear_trees", "2wl_ridge", "lgbm", "forest", "prior")
LINEAR = {"classification": "logistic", "regression": "ridge"}
UNSEEN, UNSEEN_ALONE = 2000, 20_000
"""Rows that models of a table with and without images are scored on."""
ALONE = ("linear_trees", "crossed", "2wl_ridge", "lgbm", "forest", "prior")
"""Models of larger tables without images."""


def models_of(table: UserTable, names: tuple[str, ...] = MODELS) -> dict[str, Callable[[int], Any]]:
    """By name, each to be built with a seed."""
    images = ImageOptions() if table.images else False
    views = tuple(table.images) or ("U",)

    def of(name: str) -> Callable[[int], Any]:
        return lambda seed: build(name, images=images, image_views=views, seed=seed, task=table.task)

    return {name: of(name) for name in (*names, LINEAR[table.task])}


def bundled(name: str) -> None:
    """Five folds of a table of scikit-learn's."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.parquet"
        TABLES[name](as_frame=True).frame.to_parquet(path)
        table = read_table(path, TableSpec(label="target"))
    by = "log_loss" if table.classes else "rmse"
    compared = compare(table, models_of(table, (*MODELS, "crossed")), by=by)
    print(results.markdown(compared, name), flush=True)


def larger(name: str) -> tuple[pd.DataFrame, str]:
    """A table and its label; of the census the rows of CI-A's training split."""
    if name in WITH_IMAGES:
        file, label, drop = WITH_IMAGES[name]
        return pd.read_parquet(DATA / file).drop(columns=drop), label
    if name == "covertype":
        frame, types = covertype.read(DATA / "covertype/covtype.data.gz")
        return frame.assign(label=[f"type {each}" for each in types]), "label"
    made = census.prepare(
        *(DATA / census.SOURCE / file.name for file in census.FILES), split="ci_a", seed=0, profile="paper"
    )
    return made.splits["train"], "label"


def drawn(frame: pd.DataFrame, label: str, rows: int, unseen: int, seed: int) -> pd.DataFrame:
    """So many rows to learn from, 15 % of them to stop on, and others, as the column ``part`` says.

    Of classes that fewer than two rows of the larger part have, no row is drawn.
    """
    frame = frame.sample(rows + unseen, random_state=seed, ignore_index=True)
    part = np.array(["test"] * len(frame), dtype=object)
    part[:rows] = "train"
    part[: round(0.15 * rows)] = "val"
    counts = frame.loc[part == "train", label].value_counts()
    return frame.assign(part=part)[frame[label].isin(counts.index[counts >= 2])]


def tables(name: str, rows: int, seeds: range, least: int = 0) -> Iterator[tuple[int, UserTable]]:
    """Each seed's draw of a larger table; without classes that have at most so many rows to learn from."""
    images, (frame, label) = name in WITH_IMAGES, larger(name)
    for seed in seeds:
        found = drawn(frame, label, rows, UNSEEN if images else UNSEEN_ALONE, seed)
        counts = found.loc[found["part"] != "test", label].value_counts()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "drawn.parquet"
            found[found[label].isin(counts.index[counts > least])].to_parquet(path)
            yield (
                seed,
                read_table(path, TableSpec(label=label, image=["image"] if images else [], split="part")),
            )


def draws_of(name: str, rows: int, draws: int) -> None:
    """Mean log-losses and seconds over the draws, and how far each is from the default, with its spread."""
    names, found = MODELS if name in WITH_IMAGES else ALONE, []
    for seed, table in tables(name, rows, range(draws)):
        scores = compare(table, models_of(table, names), by="log_loss", seed=seed).scores
        found.append(scores.set_index("model")[["accuracy", "log_loss", "seconds"]])
        print(f"{name} {rows} draw {seed}\n{found[-1].round(4)}", flush=True)
    mean = sum(found) / len(found)
    gaps = pd.concat([each["log_loss"] - each.loc["linear_trees", "log_loss"] for each in found], axis=1)
    spread = gaps.std(axis=1, ddof=1) if draws > 1 else np.nan
    print(mean.assign(behind=gaps.mean(axis=1), spread=spread).round(4).to_markdown(), flush=True)


def fits_of(name: str, draws: int) -> None:
    """Losses of the other quarter by fits to all other rows, and how far each is from the default's."""
    frame, found = TABLES[name](as_frame=True).frame, {}
    for seed in range(draws):
        unseen = np.random.default_rng(seed).random(len(frame)) < 0.25
        weighted = frame.assign(counts=np.where(unseen, 0.0, 1.0))
        table = read_table(FrameRows(weighted), TableSpec(label="target", weight="counts"))
        rows = np.flatnonzero(unseen)
        for model in ("linear_trees", LINEAR[table.task], "forest"):
            predicted = fit(table, model, seed=seed).bundle.predicted_of(table, rows)
            found[model, seed] = float(row_losses(table.labels[rows], predicted).mean())
    losses = pd.Series(found).unstack()
    gaps = losses - losses.loc["linear_trees"]
    error = gaps.std(axis=1, ddof=1) / np.sqrt(draws)
    told = {"loss": losses.mean(axis=1), "behind": gaps.mean(axis=1), "error": error}
    print(f"{name}\n{pd.DataFrame(told).round(4).to_markdown()}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["fits"]:
        fits_of(sys.argv[2], int(sys.argv[3]))
    elif len(sys.argv) > 3:
        draws_of(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    else:
        for each in sys.argv[1:] or TABLES:
            bundled(each)

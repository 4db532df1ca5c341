"""A fit of trees on shards beside LightGBM in one process: CPU seconds, and F1 on other rows.

``USBOOST_DATA=... python -m benchmarks.speed.sharded [--rows N] [--rounds R] [--seeds S]``: the census (CI-A)
and Covertype with seven classes, real where USBOOST_DATA holds them, else generated. Each seed draws rows to
fit to, and as many others to score. All run in one process with one thread, by turns; process time, so that
other work on the machine counts for little. Minutes; the table is in docs/performance.md.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.speed import census, trees
from usboost import LightGBMBaseline, TreeLearner, TwoWeakLearnerClassifier, Views, fit_sharded
from usboost.evaluation.metrics import f1

LEAVES, SHRINKAGE = 31, 0.1
SHARDS = (2, 8)


def grown(rounds: int, views: Views, seed: int) -> TwoWeakLearnerClassifier:
    """2WL-Newton's targets and cross-entropy on trees alone, which read all views."""
    tree = TreeLearner(max_depth=12, max_leaves=LEAVES, reads=tuple(views.names))
    settings: dict[str, Any] = {"target": "newton", "loss": "cross_entropy", "shrinkage": SHRINKAGE}
    settings |= {"n_rounds": rounds, "validation_fraction": 0.0, "patience": None, "random_state": seed}
    return TwoWeakLearnerClassifier({"S": tree}, **settings)


def lightgbm(rounds: int, views: Views, y: np.ndarray, seed: int) -> Any:
    settings: dict[str, Any] = {"n_trees": rounds, "num_leaves": LEAVES, "learning_rate": SHRINKAGE}
    settings |= {"validation_fraction": 0.0, "random_state": seed}
    return LightGBMBaseline(views=tuple(views.names), **settings).fit(views, y)


def ordinary(rounds: int, views: Views, y: np.ndarray, seed: int) -> Any:
    return grown(rounds, views, seed).fit(views, y)


def sharded(shards: int, rounds: int, views: Views, y: np.ndarray, seed: int) -> Any:
    def rows(shard: int) -> dict[str, Any]:
        return {"X": views[shard::shards], "y": y[shard::shards]}

    return fit_sharded(grown(rounds, views, seed), rows, shards)


WAYS: dict[str, Callable[[int, Views, np.ndarray, int], Any]] = {
    "LightGBM": lightgbm,
    "ordinary fit": ordinary,
    **{f"{shards} shards": partial(sharded, shards) for shards in SHARDS},
}


def tables(rows: int, folder: Path) -> Iterator[tuple[str, Views, np.ndarray]]:
    """Name, views and labels of both, at least twice as many rows as are fitted to."""
    yield "census", *census.split(folder, "train")
    table, y = trees.sample(7, 3 * rows)
    yield "cover, 7 classes", Views(S=table), y


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name, views, y in tables(options.rows, Path(folder)):
            for seed in range(options.seeds):
                order = np.random.default_rng(seed).permutation(len(y))
                seen, other = order[: options.rows], order[options.rows : 2 * options.rows]
                for way, fit in WAYS.items():
                    start = time.process_time()
                    model = fit(options.rounds, views[seen], y[seen], seed)
                    seconds = time.process_time() - start
                    score = f1(y[other], model.predict(views[other]), len(np.unique(y)))
                    found.append({"table": name, "way": way, "CPU seconds": seconds, "F1": score})
                    print(name, seed, way, round(seconds, 1), round(score, 4), flush=True)
    frame = pd.DataFrame(found).groupby(["table", "way"], sort=False)
    print(frame.agg(["median", "min", "max"]).round(3).to_markdown())


if __name__ == "__main__":
    main()

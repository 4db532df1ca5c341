"""Digests of every round of fits on eight shards in 1, 2, 4 and 8 processes, on real rows; they are equal.

``USBOOST_DATA=… python -m benchmarks.robustness.digests [--rows N] [--rounds N]``, from the root of the
repository, prints a line for each model: whether they are, and the last round's risk on held-out rows beside
that of an ordinary fit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed import census
from usboost import BoostedNetworkClassifier, NetworkLearner, Table, Views, fit_sharded
from usboost.boosting.callbacks import Callback
from usboost.boosting.rounds import Round, digest_of
from usboost.datasets.files.sampling import stratified_parts
from usboost.multimodal.fit.fit import build

SHARDS = 8
NETWORKS, NUMBERS = "bnn", "regression"
MODELS = ("2wl", "2wl2o", "2wl_newton", "2wl_logistic", "crossed", "linear_trees", NETWORKS, NUMBERS)
HELD_OUT, BATCH = 0.2, 1024


class Watch(Callback):
    """The digests of a fit's rounds in one, and the last risk on held-out rows."""

    def __init__(self) -> None:
        self.digest, self.risk, self.rounds = hashlib.sha256(), float("nan"), 0

    def on_round(self, round_: Round) -> bool:
        self.digest.update(digest_of(round_).encode())
        self.risk, self.rounds = round_.metrics["risk_val"], round_.index
        return False


def data(folder: Path, rows: int) -> tuple[Table, np.ndarray]:
    """Rows of the census drawn by class, all columns in one table."""
    views, y = census.split(folder, "train")
    chosen, _ = stratified_parts(y, (rows / len(y), 1 - rows / len(y)), 0)
    table = views["U"].beside(views["S"])
    return table[chosen], y[chosen]


def found(folder: Path, rows: int, rounds: int, shared: bool) -> Iterator[dict[str, Any]]:
    """What each model's fit gave, on shards or in the ordinary way."""
    table, y = data(folder, rows)
    train, held = stratified_parts(y, (1 - HELD_OUT, HELD_OUT), 0)
    for name in MODELS:
        x, target, task = table, y, "classification"
        if name == NUMBERS:  # of the first number by the other columns
            target, task = table.numeric[:, 0].astype(np.float64), "regression"
            x = replace(table, numeric=table.numeric[:, 1:], names=table.names[1:])
        if name == NETWORKS:
            model: Any = BoostedNetworkClassifier(
                learner=NetworkLearner((50,), device="cpu"), n_rounds=rounds
            )
        else:
            known = "2wl_newton" if task == "regression" else name
            model = build(known, images=None, rounds=rounds, task=task)
        sizes = [path for path in model.get_params(deep=True) if path.endswith("batch_size")]
        model.set_params(**dict.fromkeys(sizes, BATCH), callbacks=[watch := Watch()], patience=None)

        views = Views(x=x) if name == NETWORKS else Views(U=x, S=x)

        def of(rows: np.ndarray, views: Views = views, y: np.ndarray = target) -> tuple[Views, np.ndarray]:
            return views[rows], y[rows]

        def shard(number: int) -> dict[str, Any]:
            X, y = of(np.array_split(train, SHARDS)[number])
            return {"X": X, "y": y, "validation": of(np.array_split(held, SHARDS)[number])}

        if shared:
            fit_sharded(model, shard, SHARDS)
        else:
            model.fit(*of(train), validation=of(held))
        yield {"model": name, "digest": watch.digest.hexdigest(), "risk": watch.risk, "rounds": watch.rounds}


def child(folder: Path, rows: int, rounds: int) -> None:
    """One process, of ``SIZE`` that share the shards; of size 0 it fits in the ordinary way."""
    size = int(os.environ["SIZE"])
    if size:
        import torch.distributed as dist

        meet = f"file://{os.environ['MEET']}"
        dist.init_process_group("gloo", init_method=meet, rank=int(os.environ["RANK"]), world_size=size)
    for line in found(folder, rows, rounds, shared=size > 0):
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def fits(size: int, folder: Path, words: list[str]) -> list[dict[str, Any]]:
    """What the fits in so many processes gave; all of them the same."""
    given = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "SIZE": str(size)}
    command = [sys.executable, "-m", "benchmarks.robustness.digests", *words, "--child"]
    started = [
        subprocess.Popen(
            command, env={**given, "RANK": str(k), "MEET": str(folder / str(size))}, stdout=subprocess.PIPE
        )
        for k in range(max(size, 1))
    ]
    said = [each.communicate()[0] for each in started]
    assert len(set(said)) == 1 and not any(each.returncode for each in started)
    sys.stderr.write(f"{size} processes:\n{said[0].decode()}")
    return [json.loads(line) for line in said[0].splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path(".usboost/bench"), help="folder of prepared rows")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        return child(given.data, given.rows, given.rounds)
    census.prepared(given.data)
    words = ["--data", str(given.data), "--rows", str(given.rows), "--rounds", str(given.rounds)]
    with tempfile.TemporaryDirectory() as folder:
        ordinary, *shared = (fits(size, Path(folder), words) for size in (0, *given.processes))
    for alone, *every in zip(ordinary, *shared, strict=True):
        equal = len({each["digest"] for each in every}) == 1
        line = f"{alone['model']}: {'equal' if equal else 'NOT EQUAL'} in {every[0]['rounds']} rounds, "
        print(line + f"risk {every[0]['risk']:.5f}, ordinary {alone['risk']:.5f}")
    return None


if __name__ == "__main__":
    main()

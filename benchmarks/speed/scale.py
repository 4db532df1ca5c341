"""What docs/performance.md says of one fit on many machines: exchanges that are counted, and seconds by a model.

``python -m benchmarks.speed.scale``: 64 shards of a few rows in one process, some seconds; then the tables,
and seconds of sums in two processes on loopback.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import torch
import torch.distributed as dist

from usboost import NetworkLearner, Table, TreeLearner, TwoWeakLearnerClassifier, Views, fit_sharded
from usboost.shards.processes import Processes
from usboost.shards.together import Link

SHARDS, ROWS = 64, 40
ROW_SECONDS = 2.8e-6
"""Of one core for a row and a round: 0.42 s of the census' 150,165 rows, 2WL-Newton (docs/performance.md)."""
CORES = 32
"""Of a machine; each is a process with one shard."""
BASE, MESSAGE = 50e-6, 10e-6
"""Seconds of an exchange between machines, and of each message that a process sends in it: assumed."""
COLUMNS, BINS, SUMS, NODES = 100, 255, 3, 8
BATCHES, PARAMETERS = 400, 20_000
"""Of a round's network: batches, and weights."""
OTHERS = 36
"""Exchanges of a round beside those of batches, as `counted` finds them."""


class Counting(Link):
    """A fit of one process, whose exchanges are counted: how many, and of how many numbers of a shard."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.exchanges, self.numbers = Counter[str](), Counter[str]()

    def _count(self, kind: str, values: Sequence[np.ndarray]) -> None:
        self.exchanges[kind] += 1
        self.numbers[kind] += max(value.size for value in values)

    def stack(self, values: Sequence[np.ndarray]) -> np.ndarray:
        self._count("stack", values)
        return super().stack(values)

    def sum(self, values: Sequence[np.ndarray]) -> np.ndarray:
        self._count("sum", values)
        return super().sum(values)

    def gather(self, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        self._count("gather", values)
        return super().gather(values)


def counted(rounds: int) -> Counting:
    """Fit so many rounds to 64 shards of 40 rows; 10 batches a round, trees of 8 leaves."""
    rng = np.random.default_rng(0)

    def rows(shard: int) -> dict[str, Any]:
        x = rng.normal(size=(ROWS, 10)).astype(np.float32)
        table = Table.from_numeric(x)
        return {"X": Views(U=table, S=table), "y": (x[:, 0] > 0).astype(int)}

    learners = {
        "U": NetworkLearner((8,), batch_size=256, batches_per_round=(10, 10), device="cpu"),
        "S": TreeLearner(max_depth=3, min_samples_leaf=5),
    }
    link = Counting(SHARDS)
    with mock.patch("usboost.models.sharded._link", lambda shards: link):
        model = TwoWeakLearnerClassifier(learners, target="newton", n_rounds=rounds, patience=None)
        fit_sharded(model, rows, SHARDS)
    return link


def seconds(rows: float, machines: int, gigabits: float) -> dict[str, float]:
    """Of a round, by what is computed, sent and waited for; ordered sums send twice what they add."""
    processes = machines * CORES
    numbers = BATCHES * PARAMETERS + NODES * COLUMNS * BINS * SUMS
    exchanges = 2 * (BATCHES + OTHERS)
    wire = 2 * 8 * numbers * CORES / (gigabits * 1e9 / 8) if machines > 1 else 0.0
    return {
        "compute": rows * ROW_SECONDS / processes,
        "wire": wire,
        "messages": exchanges * (BASE + MESSAGE * (processes - 1)),
        # sums by pairs of processes: the order is fixed by the shards' numbers, too
        "messages, by pairs": exchanges * (BASE + MESSAGE) * np.log2(processes),
    }


def table() -> pd.DataFrame:
    found = [
        {"rows": f"{rows:.0e}", "machines": machines, "Gbit/s": gigabits, **seconds(rows, machines, gigabits)}
        for rows in (1e7, 1e9, 1e11)
        for machines, gigabits in ((1, 10), (8, 10), (64, 100), (1000, 100))
    ]
    return pd.DataFrame(found)


def sums(shards: Sequence[int], sizes: Sequence[int], times: int, file: Path, rank: int) -> None:
    """Print milliseconds of ordered sums and of `all_reduce` in two processes, by turns."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    torch.set_num_threads(1)
    rows = []
    for count in shards:
        link = Processes(count)
        for size in sizes:
            values = [np.random.default_rng(shard).normal(size=size) for shard in link.shards]
            ways: dict[str, Callable[[], Any]] = {
                "ordered": partial(link.sum, values),
                "all-reduce": partial(_all_reduced, values),
            }
            spent: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(times):
                for name, work in ways.items():
                    dist.barrier()
                    start = time.perf_counter()
                    work()
                    spent[name].append(1e3 * (time.perf_counter() - start))
            found = {f"{name}, {how}": of(each) for name, each in spent.items() for how, of in HOW.items()}
            rows.append({"shards": count, "numbers": size, **found})
        link.close()
    if not rank:
        print(pd.DataFrame(rows).round(2).to_markdown(index=False))


HOW: dict[str, Callable[[list[float]], Any]] = {"least": min, "median": np.median}


def _all_reduced(values: Sequence[np.ndarray]) -> None:
    dist.all_reduce(torch.from_numpy(np.sum(values, axis=0)))


def in_two(work: Callable[..., None], *given: Any) -> None:
    """Do something in two processes, which meet in a file."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        each = [context.Process(target=work, args=(*given, Path(folder) / "meet", rank)) for rank in (0, 1)]
        for process in each:
            process.start()
        for process in each:
            process.join()


if __name__ == "__main__":
    few, more = counted(1), counted(3)
    for kind in more.exchanges:
        exchanges = (more.exchanges[kind] - few.exchanges[kind]) / 2
        numbers = (more.numbers[kind] - few.numbers[kind]) / 2
        print(f"{kind}: {exchanges:g} exchanges a round, {numbers:,.0f} numbers of a shard")
    print(table().round(3).to_markdown(index=False))
    in_two(sums, (2, 8), (5_000, 20_000, 60_000, 200_000), 101)

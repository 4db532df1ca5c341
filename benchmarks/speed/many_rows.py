"""Memory and time of one fit against rows, in one process and in four: docs/many-rows.png, and its figures.

``python -m benchmarks.speed.many_rows FOLDER [--rows N …]`` writes generated census-like rows there by row
groups, fits them with their tables on disk, and prints a line for each fit; ``--command`` fits them by
``usboost fit``, which reads them itself; ``--figure`` draws what FOLDER/fits.jsonl has.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from usboost import NetworkLearner, Table, TreeLearner, TwoWeakLearnerClassifier, Views, fit_sharded
from usboost.boosting.callbacks import Callback
from usboost.boosting.rounds import Round

SHARDS, ROUNDS, GROUP, MILLION = 8, 5, 100_000, 1 << 20
LEVELS = (
    *(9, 52, 47, 17, 3, 7, 24, 15, 5, 10, 3, 6, 8, 6, 6, 50, 38, 9, 8, 9, 3, 4, 43, 43, 43, 5, 3, 3, 3, 2),
    *(8, 8, 9),
)
"""Categories of the census' nominal columns, as it has them, about."""
NUMBERS = 7
VIEWS = {"U": (range(3), range(16)), "S": (range(3, NUMBERS), range(16, len(LEVELS)))}
"""Columns of numbers, and of categories, that each learner reads."""


def group(rng: np.random.Generator, n: int) -> pa.Table:
    """Draw n rows: numbers n0, n1, … of float32, categories c0, c1, … as codes, and a label."""
    numbers = rng.normal(size=(n, NUMBERS)).astype(np.float32)
    numbers[:, 2:4] = np.where(rng.random((n, 2)) < 0.9, 0, np.exp(2 * numbers[:, 2:4]))  # mostly 0, as gains
    codes = [1 + (levels * rng.random(n) ** 2).astype(np.uint8) for levels in LEVELS]
    score = numbers[:, 0] + 0.1 * numbers[:, 4] + (codes[1] % 5 == 2) - (codes[20] > 1) * numbers[:, 5]
    label = (score + rng.logistic(size=n) > 2.5).astype(np.uint8)
    columns = {f"n{j}": column for j, column in enumerate(numbers.T)}
    columns |= {f"c{j}": column for j, column in enumerate(codes)}
    return pa.table(columns | {"label": label})


def written(folder: Path, rows: int) -> Path:
    """Return a Parquet file of so many rows, written group by group unless it is there."""
    path = folder / f"{rows}.parquet"
    if not path.exists():
        size, rng = min(GROUP, rows // SHARDS), np.random.default_rng(0)
        first = group(rng, size)
        with pq.ParquetWriter(path.with_suffix(".part"), first.schema) as writer:
            for start in range(0, rows, size):
                writer.write_table(first if not start else group(rng, size))
        path.with_suffix(".part").rename(path)
    return path


def shard(path: Path, number: int, on_disk: bool) -> dict[str, Any]:
    """Read the rows of a shard: its row groups, one after the other."""
    with pq.ParquetFile(path) as file:
        ends = [file.num_row_groups * k // SHARDS for k in (number, number + 1)]

        def table(numbers: range, categories: range) -> Table:
            names = [*(f"n{j}" for j in numbers), *(f"c{j}" for j in categories)]
            levels = tuple(LEVELS[j] + 1 for j in categories)

            def parts() -> Iterator[Table]:
                for index in range(*ends):
                    read = [column.to_numpy() for column in file.read_row_group(index, names).columns]
                    n = len(numbers)
                    yield Table(np.column_stack(read[:n]), np.column_stack(read[n:]), levels, tuple(names))

            if on_disk:
                return Table.on_disk(parts(), path.parent)
            every = list(parts())
            codes = np.concatenate([each.codes for each in every]).astype(np.int32)
            return Table(np.concatenate([each.numeric for each in every]), codes, levels, tuple(names))

        views = Views({name: table(*columns) for name, columns in VIEWS.items()})
        label = file.read_row_groups(range(*ends), ["label"]).column(0).to_numpy()
    return {"X": views, "y": label}


def status(what: str, pid: int | str = "self") -> int:
    """Return bytes of a process: RssAnon, which no file could give again, VmHWM, …"""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith(what))) * 1024


class Watch(Callback):
    """Records the most anonymous memory of this process, and when rounds end."""

    def __init__(self) -> None:
        self.most, self.ends = 0, [time.process_time()]
        threading.Thread(target=self._look, daemon=True).start()

    def on_round(self, round_: Round) -> bool:
        self.ends.append(time.process_time())
        return False

    def _look(self) -> None:
        while True:
            self.most = max(self.most, status("RssAnon"))
            time.sleep(0.02)


def one(path: Path, on_disk: bool) -> dict[str, float]:
    """Fit in this process, one of several or alone, and measure it."""
    import torch.distributed as dist

    if "MEET" in os.environ:
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        meet = f"file://{os.environ['MEET']}"
        dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=size)
    watch = Watch()
    learners = {"U": NetworkLearner((16,), batch_size=4096, device="cpu"), "S": TreeLearner(max_depth=3)}
    settings: dict[str, Any] = {"n_rounds": ROUNDS, "patience": None, "shrinkage": 0.3, "monitor": "risk_val"}
    model = TwoWeakLearnerClassifier(learners, "newton", callbacks=[watch], **settings)
    fit_sharded(model, lambda number: shard(path, number, on_disk), SHARDS)
    begin, rounds = watch.ends[1] - watch.ends[0], float(np.median(np.diff(watch.ends)[1:]))
    return {"anonymous": watch.most, "resident": status("VmHWM"), "begin": begin, "round": rounds}


def processes(count: int, words: list[Any], **more: str) -> list[subprocess.Popen[bytes]]:
    """Start the ranks of a fit."""
    given = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "WORLD_SIZE": str(count),
        **more,
    }
    call = [sys.executable, "-m", *map(str, words)]
    return [
        subprocess.Popen(call, env={**given, "RANK": str(rank)}, stdout=subprocess.PIPE)
        for rank in range(count)
    ]


def fitted(folder: Path, rows: int, count: int, on_disk: bool) -> dict[str, Any]:
    """Fit in processes of its own: per process the most memory, over all of them CPU seconds."""
    words = ["benchmarks.speed.many_rows", folder, "--one", written(folder, rows)]
    meet = {"MEET": str(folder / f"meet-{time.time_ns()}")} if count > 1 else {}
    started = processes(count, [*words, *([] if on_disk else ["--in-memory"])], **meet)
    measured = [json.loads(process.communicate()[0].splitlines()[-1]) for process in started]
    line: dict[str, Any] = {"rows": rows, "processes": count, "on_disk": on_disk}
    line |= {key: max(each[key] for each in measured) / MILLION for key in ("anonymous", "resident")}
    return line | {key: sum(each[key] for each in measured) / rows * 1e6 for key in ("begin", "round")}


def commanded(folder: Path, rows: int, count: int) -> dict[str, Any]:
    """Fit the same by the command, whose ranks are watched from here."""
    path, out = written(folder, rows), folder / f"model-{time.time_ns()}"
    words: list[Any] = ["usboost", "fit", path, "--label", "label", "--out", out, "--model", "2wl_newton"]
    words += ["--no-refit", f"--shards={SHARDS}", "--rounds=3", "--set", "learners__U__hidden=[16]"]
    words += ["--set", "learners__U__batch_size=4096", "--set", "patience=null"]
    words += [word for j in range(len(LEVELS)) for word in ("--categorical", f"c{j}")]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "LOCAL_WORLD_SIZE": str(count)}
    started = processes(count, words, **meet)
    most, spent, ends = 0, 0.0, list[float]()
    while any(each.poll() is None for each in started):
        with suppress(OSError, StopIteration):  # one has just ended
            most = max(most, *[status("RssAnon", each.pid) for each in started])
            spent = sum([cpu_seconds(each.pid) for each in started])
        if len(list(folder.glob(f"{out.name}.part/*/round-*"))) > len(ends):
            ends.append(spent)
        time.sleep(0.05)
    if any(each.returncode for each in started):
        raise SystemExit("the command has failed")
    line = {"rows": rows, "processes": count, "on_disk": True, "command": True, "anonymous": most / MILLION}
    return line | {"begin": ends[0] / rows * 1e6, "round": float(np.mean(np.diff(ends))) / rows * 1e6}


def cpu_seconds(pid: int) -> float:
    """Return the time of a process so far, its threads and the system's part included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def draw(lines: list[dict[str, Any]], path: Path) -> None:
    """Draw two panels against rows: memory of a process, and CPU time of a row and round."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (memory, seconds) = plt.subplots(1, 2, figsize=(10, 3.6), constrained_layout=True)
    kinds = {
        "tables in memory": (1, False, False),
        "tables on disk": (1, True, False),
        "on disk, 4 processes": (4, True, False),
        "the command, 4 processes": (4, True, True),
    }
    for name, kind in kinds.items():
        own = [x for x in lines if (x["processes"], x["on_disk"], x.get("command", False)) == kind]
        rows, marker = np.array([each["rows"] for each in own]), "s" if kind[2] else "o"
        memory.plot(rows / 1e6, [each["anonymous"] / 1024 for each in own], marker=marker, label=name)
        if kind[0] == 1 or kind[2]:  # processes that wait for each other spend time, too
            seconds.plot(rows, [each["round"] for each in own], marker=marker, label=name)
    memory.set(xlim=(0, None), xlabel="million rows", ylabel="anonymous GB of a process")
    seconds.set(xscale="log", xlabel="rows", ylabel="CPU µs of a row and round")
    for axes in (memory, seconds):
        axes.set_ylim(0, 1.4 * axes.get_ylim()[1])  # the legend is above the lines
        axes.grid(alpha=0.3)
        axes.legend(loc="upper right")
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000, 3_000_000, 10_000_000])
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--in-memory", action="store_true")
    parser.add_argument("--command", action="store_true", help="by usboost fit, which reads the rows")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--figure", type=Path, help="draw what was measured to this file")
    given = parser.parse_args()
    record = given.folder / "fits.jsonl"
    if given.one is not None:
        sys.stdout.write(json.dumps(one(given.one, not given.in_memory)) + "\n")
        return
    if given.figure is not None:
        lines = map(json.loads, record.read_text().splitlines())
        return draw(sorted(lines, key=lambda each: each["rows"]), given.figure)
    given.folder.mkdir(parents=True, exist_ok=True)
    for rows in given.rows:
        if given.command:
            line = commanded(given.folder, rows, given.processes)
        else:
            line = fitted(given.folder, rows, given.processes, not given.in_memory)
        with record.open("a") as file:
            file.write(json.dumps(line) + "\n")
        sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()

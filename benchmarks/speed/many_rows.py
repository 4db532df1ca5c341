"""Memory and time of one fit against rows, in one process and in four: docs/many-rows.png, and its figures.

``python -m benchmarks.speed.many_rows FOLDER [--rows N …]`` writes generated census-like rows there by row
groups, fits them with their tables on disk, and prints a line for each fit; ``--command`` fits them by
``usboost fit``, which reads them itself; ``--figure`` draws what FOLDER/found.jsonl has.
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
from usboost.errors import UsboostError

SHARDS, ROUNDS, GROUP = 8, 5, 100_000
LEVELS = (
    9,
    52,
    47,
    17,
    3,
    7,
    24,
    15,
    5,
    10,
    3,
    6,
    8,
    6,
    6,
    50,
    38,
    9,
    8,
    9,
    3,
    4,
    43,
    43,
    43,
    5,
    3,
    3,
    3,
    2,
    8,
    8,
    9,
)
"""Categories of the census' nominal columns, as it has them, about."""
NUMBERS = 7
VIEWS = {"U": (range(3), range(16)), "S": (range(3, NUMBERS), range(16, len(LEVELS)))}
"""Columns of numbers, and of categories, that each learner reads."""
MILLION = 1 << 20


def group(rng: np.random.Generator, n: int) -> pa.Table:
    """n rows: numbers n0, n1, … of float32, categories c0, c1, … as codes, and a label."""
    numbers = rng.normal(size=(n, NUMBERS)).astype(np.float32)
    numbers[:, 2:4] = np.where(rng.random((n, 2)) < 0.9, 0, np.exp(2 * numbers[:, 2:4]))  # mostly 0, as gains
    codes = [1 + (levels * rng.random(n) ** 2).astype(np.uint8) for levels in LEVELS]
    score = numbers[:, 0] + 0.1 * numbers[:, 4] + (codes[1] % 5 == 2) - (codes[20] > 1) * numbers[:, 5]
    label = (score + rng.logistic(size=n) > 2.5).astype(np.uint8)
    columns = {f"n{j}": column for j, column in enumerate(numbers.T)}
    columns |= {f"c{j}": column for j, column in enumerate(codes)}
    return pa.table(columns | {"label": label})


def written(folder: Path, rows: int) -> Path:
    """A Parquet file of so many rows, written group by group unless it is there."""
    path = folder / f"{rows}.parquet"
    if not path.exists():
        size, rng = min(GROUP, rows // SHARDS), np.random.default_rng(0)
        first = group(rng, size)
        with pq.ParquetWriter(path.with_suffix(".part"), first.schema) as writer:
            for start in range(0, rows, size):
                writer.write_table(first if not start else group(rng, size))
        path.with_suffix(".part").rename(path)
    return path


def shard(path: Path, number: int, on_disk: bool = True) -> dict[str, Any]:
    """The rows of a shard: its row groups, one after the other."""
    with pq.ParquetFile(path) as file:
        ends = [file.num_row_groups * k // SHARDS for k in (number, number + 1)]

        def parts(numbers: range, categories: range) -> Iterator[Table]:
            names = [*(f"n{j}" for j in numbers), *(f"c{j}" for j in categories)]
            for index in range(*ends):
                read = [column.to_numpy() for column in file.read_row_group(index, names).columns]
                values, codes = np.column_stack(read[: len(numbers)]), np.column_stack(read[len(numbers) :])
                yield Table(values, codes, tuple(LEVELS[j] + 1 for j in categories), tuple(names))

        def table(columns: tuple[range, range]) -> Table:
            return Table.on_disk(parts(*columns), path.parent) if on_disk else joined(parts(*columns))

        views = Views({name: table(columns) for name, columns in VIEWS.items()})
        label = file.read_row_groups(range(*ends), ["label"]).column(0).to_numpy()
    return {"X": views, "y": label}


def joined(parts: Iterator[Table]) -> Table:
    """The same in memory."""
    first, *_ = every = list(parts)
    numeric = np.concatenate([each.numeric for each in every])
    codes = np.concatenate([each.codes for each in every]).astype(np.int32)
    return Table(numeric, codes, first.cardinalities, first.names)


class Watch(Callback):
    """The most anonymous memory of this process, which no file could give again, and when rounds end."""

    def __init__(self) -> None:
        self.before, self.most, self.ends = self._anonymous(), 0, [time.process_time()]
        threading.Thread(target=self._look, daemon=True).start()

    def on_round(self, round_: Round) -> bool:
        self.ends.append(time.process_time())
        return False

    def _look(self) -> None:
        while True:
            self.most = max(self.most, self._anonymous())
            time.sleep(0.02)

    @staticmethod
    def _anonymous() -> int:
        return status("RssAnon")


def status(what: str, pid: int | str = "self") -> int:
    """Of a process, in bytes: RssAnon, VmHWM, …"""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith(what))) * 1024


def one(path: Path, on_disk: bool) -> dict[str, float]:
    """Fit in this process, one of several or alone, and say what it took."""
    import torch.distributed as dist

    if "MEET" in os.environ:
        rank, size = int(os.environ["RANK"]), int(os.environ["SIZE"])
        dist.init_process_group(
            "gloo", init_method=f"file://{os.environ['MEET']}", rank=rank, world_size=size
        )
    watch = Watch()
    learners = {"U": NetworkLearner((16,), batch_size=4096, device="cpu"), "S": TreeLearner(max_depth=3)}
    model = TwoWeakLearnerClassifier(
        learners,
        "newton",
        n_rounds=ROUNDS,
        patience=None,
        shrinkage=0.3,
        monitor="risk_val",
        callbacks=[watch],
    )
    fit_sharded(model, lambda number: shard(path, number, on_disk), SHARDS)
    return {
        "before": watch.before,
        "anonymous": watch.most,
        "resident": status("VmHWM"),
        "begin": watch.ends[1] - watch.ends[0],  # with the first round
        "round": float(np.median(np.diff(watch.ends)[1:])),
        "risk": model.history_[-1]["risk_val"],
    }


def fitted(folder: Path, rows: int, processes: int, on_disk: bool = True) -> dict[str, Any]:
    """One fit in processes of its own: per process the most memory, over all of them CPU seconds."""
    path, meet = written(folder, rows), folder / f"meet-{time.time_ns()}"
    given = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "SIZE": str(processes)}
    if processes > 1:
        given["MEET"] = str(meet)
    call = [sys.executable, "-m", "benchmarks.speed.many_rows", str(folder), "--one", str(path)]
    started = [
        subprocess.Popen(
            [*call, *([] if on_disk else ["--in-memory"])],
            env={**os.environ, **given, "RANK": str(rank)},
            stdout=subprocess.PIPE,
        )
        for rank in range(processes)
    ]
    found = [json.loads(process.communicate()[0].splitlines()[-1]) for process in started]
    most = {key: max(each[key] for each in found) / MILLION for key in ("before", "anonymous", "resident")}
    spent = {key: sum(each[key] for each in found) / rows * 1e6 for key in ("begin", "round")}
    return {
        "rows": rows,
        "processes": processes,
        "on_disk": on_disk,
        **most,
        **spent,
        "risk": found[0]["risk"],
    }


def commanded(folder: Path, rows: int, processes: int) -> dict[str, Any]:
    """The same by the command, whose ranks are watched from here."""
    path, out = written(folder, rows), folder / f"model-{time.time_ns()}"
    words = ["fit", path, "--label", "label", "--out", out, "--model", "2wl_newton", "--no-refit"]
    words += [f"--shards={SHARDS}", "--rounds=3", "--set", "learners__U__hidden=[16]"]
    words += ["--set", "learners__U__batch_size=4096", "--set", "patience=null"]
    words += [word for j in range(len(LEVELS)) for word in ("--categorical", f"c{j}")]
    given = {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    given |= {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "usboost", *map(str, words)],
            env={**os.environ, **given, "RANK": str(rank)},
            stdout=subprocess.DEVNULL,
        )
        for rank in range(processes)
    ]
    most, spent, ends = 0, 0.0, list[float]()
    while any(each.poll() is None for each in started):
        with suppress(OSError, StopIteration):  # one has just ended
            most = max(most, *[status("RssAnon", each.pid) for each in started])
            spent = sum([cpu_seconds(each.pid) for each in started])
        if len(list(folder.glob(f"{out.name}.part/*/round-*"))) > len(ends):
            ends.append(spent)
        time.sleep(0.05)
    if any(each.returncode for each in started):
        raise UsboostError("the command has failed")
    line = {"rows": rows, "processes": processes, "on_disk": True, "command": True}
    per_round = float(np.mean(np.diff(ends))) / rows * 1e6
    return {**line, "anonymous": most / MILLION, "begin": ends[0] / rows * 1e6, "round": per_round}


def cpu_seconds(pid: int) -> float:
    """Of a process so far, its threads and the system's part included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    """A port of loopback that nobody has."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """Two panels against rows: memory of a process, and CPU time of a row and round."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (memory, seconds) = plt.subplots(1, 2, figsize=(10, 3.6), constrained_layout=True)
    kinds = {(1, False): "tables in memory", (1, True): "tables on disk", (4, True): "on disk, 4 processes"}
    for (processes, on_disk), name in kinds.items():
        own = [
            each
            for each in found
            if (each["processes"], each["on_disk"]) == (processes, on_disk) and not each.get("command")
        ]
        rows = [each["rows"] for each in own]
        memory.plot(
            [n / 1e6 for n in rows], [each["anonymous"] / 1024 for each in own], marker="o", label=name
        )
        if processes == 1:  # processes that wait for each other spend time, too
            seconds.plot(rows, [each["round"] for each in own], marker="o", label=name)
    own = [each for each in found if each.get("command")]
    memory.plot(
        [each["rows"] / 1e6 for each in own],
        [each["anonymous"] / 1024 for each in own],
        marker="s",
        color="C3",
        label="the command, 4 processes",
    )
    seconds.plot(
        [each["rows"] for each in own],
        [each["round"] for each in own],
        marker="s",
        color="C3",
        label="the command, all 4 processes",
    )
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
    parser.add_argument("--figure", type=Path, help="draw what was found to this file")
    given = parser.parse_args()
    kept = given.folder / "found.jsonl"
    if given.one is not None:
        try:
            sys.stdout.write(json.dumps(one(given.one, not given.in_memory)) + "\n")
        except UsboostError as error:
            sys.exit(f"error: {error}")
        return
    if given.figure is not None:
        lines = map(json.loads, kept.read_text().splitlines())
        draw(sorted(lines, key=lambda each: each["rows"]), given.figure)
        return
    given.folder.mkdir(parents=True, exist_ok=True)
    for rows in given.rows:
        if given.command:
            found = commanded(given.folder, rows, given.processes)
        else:
            found = fitted(given.folder, rows, given.processes, not given.in_memory)
        line = json.dumps(found)
        with kept.open("a") as file:
            file.write(f"{line}\n")
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()

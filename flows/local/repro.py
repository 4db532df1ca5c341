"""`dvc repro` as `make run` has it: packages are imported once, datasets go side by side, progress is shown.

Each stage is DVC's as ever, run by DVC, with its own Prefect flow run and record; `dvc repro` does the same
one stage after the other, each importing for itself.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Annotated

import networkx as nx
import typer
from rich.console import Console

from flows.local import runtime
from flows.local.warm import FLOWS, Warm
from usboost.errors import UsboostError

TAIL = 20
ITEM = "@"  # in the name of a dataset's stage

RUNNING = re.compile(r"^Running stage '([^']+)'")
SKIPPED = re.compile(r"^Stage '([^']+)' (didn't change|is cached)")
ENDED = re.compile(r"^Updating lock file")


@dataclass(frozen=True)
class Plan:
    """The stages of a run.

    Attributes
    ----------
    first : those of no dataset that depend on none, not even on each other.
    parts : those of the datasets, each dataset's in order, the longest chain first.
    last : those that depend on all datasets.
    stale : whether any of them has to run.
    """

    first: list[str]
    parts: list[list[str]]
    last: list[str]
    stale: bool

    @property
    def total(self) -> int:
        return len(self.first) + sum(map(len, self.parts)) + len(self.last)


def plan(targets: Sequence[str]) -> Plan:
    """The stages that these depend on, all by default, and they themselves.

    Raises
    ------
    UsboostError
        If a target is no stage of dvc.yaml.
    """
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        with Repo() as repo:
            graph = repo.index.graph  # from a stage to those that it depends on
            wanted = {stage for target in targets for stage in repo.stage.collect(target)}
            stale = bool(repo.status(targets=list(targets), with_deps=bool(targets)))
    except DvcException as error:
        raise UsboostError(str(error)) from None
    if wanted:
        graph = graph.subgraph(wanted.union(*(nx.descendants(graph, stage) for stage in wanted)))
    ordered = [stage.addressing for stage in nx.topological_sort(graph.reverse())]
    graph = nx.relabel_nodes(graph, {stage: stage.addressing for stage in graph})
    of_datasets = graph.subgraph(name for name in ordered if ITEM in name)
    others = [name for name in ordered if ITEM not in name]
    last = [name for name in others if any(ITEM in needed for needed in nx.descendants(graph, name))]
    parts = [sorted(part, key=ordered.index) for part in nx.weakly_connected_components(of_datasets)]
    first = [name for name in others if name not in last]
    return Plan(first, sorted(parts, key=len, reverse=True), last, stale)


@dataclass
class Progress:
    """Says which stage of how many has run, for how long, and how long is left."""

    total: int
    console: Console = field(default_factory=lambda: Console(highlight=False, markup=False))
    ran: int = 0
    started: float = field(default_factory=time.monotonic)
    running: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._lock, self._done = Lock(), set[str]()
        self._status = self.console.status("")

    def __enter__(self) -> Progress:
        self._status.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._status.stop()

    def begin(self, stage: str) -> None:
        with self._lock:
            self.running[stage] = time.monotonic()
            self._show()

    def skip(self, stage: str) -> None:
        with self._lock:
            self._done.add(stage)

    def end(self, stage: str) -> None:
        with self._lock:
            seconds = time.monotonic() - self.running.pop(stage)
            self._done.add(stage)
            self.ran += 1
            done, digits = len(self._done), len(str(self.total))
            left = (time.monotonic() - self.started) / self.ran * (self.total - done)
            text = f"[{done:>{digits}}/{self.total}] {stage:<34} {seconds:6.1f} s"
            self.console.print(f"{text}   about {_spoken(left)} left" if done < self.total else text)
            self._show()

    def _show(self) -> None:
        self._status.update(f"runs: {', '.join(self.running)}" if self.running else "")


def _spoken(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def repro(names: Sequence[str], progress: Progress, environment: Mapping[str, str], log: Path) -> bool:
    """Have DVC run these stages in this order, with what it prints in a log; whether all succeeded."""
    # each by itself: DVC would take the lock on all that they depend on, which others wait for, too
    command = ["python", "-m", "flows.local.dvc", "--wait-for-lock", "repro", "--single-item", *names]
    stage = ""
    with (
        log.open("w") as kept,
        subprocess.Popen(
            command, env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            kept.write(line)
            kept.flush()
            if found := RUNNING.match(line):
                stage = found[1]
                progress.begin(stage)
            elif found := SKIPPED.match(line):
                progress.skip(found[1])
            elif ENDED.match(line) and stage:
                progress.end(stage)
                stage = ""
        return process.wait() == 0


def make(targets: Sequence[str], jobs: int) -> None:
    """Bring the targets, by default all stages, up to date; a failed dataset does not stop the others.

    Raises
    ------
    UsboostError
        If a stage fails; the message has its last lines, and names the log.
    """
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // jobs)))
    planned = plan(targets)
    if not planned.stale:
        print(f"all {planned.total} stages are up to date")
        return
    logs = runtime.home() / "repro"
    logs.mkdir(parents=True, exist_ok=True)
    warm, pool = Warm(FLOWS), ThreadPoolExecutor(jobs)
    try:
        with runtime.server_ahead(), Progress(planned.total) as progress:
            stages = warm.shim(environment)

            def go(part: list[str]) -> Path | None:
                """Run these stages; the log if one fails."""
                log = logs / f"{part[0]}.log"
                return None if repro(part, progress, stages, log) else log

            chains = [planned.first[k::jobs] for k in range(jobs)]  # in any order: they depend on none
            failed = list(pool.map(go, filter(None, chains)))
            if not any(failed):
                failed = list(pool.map(go, planned.parts))
            if planned.last and not any(failed):
                failed = [go(planned.last)]
    finally:
        pool.shutdown(cancel_futures=True)
        warm.end()
    if log := next(filter(None, failed), None):
        said = [line for line in log.read_text().splitlines() if line.strip()]
        raise UsboostError("\n".join([f"a stage failed; the whole log is {log}", *said[-TAIL:]]))


def main(
    targets: Annotated[list[str] | None, typer.Argument(help="stages; by default all")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="datasets that go side by side")] = 2,
) -> None:
    """Bring stages up to date as `dvc repro` does, faster, and show how far it is."""
    runtime.exit_on_error(lambda: make(targets or [], jobs))


if __name__ == "__main__":
    typer.run(main)

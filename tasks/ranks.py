"""One fit in many processes, which torchrun starts on this machine: its ranks; their rounds go to MLflow."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks import tracking
from tasks.pages import flow_page as page
from tasks.serving.promotion import log_bundle
from usboost.boosting.checkpoint import Checkpoint
from usboost.errors import UsboostError
from usboost.multimodal.fit import bundle as bundles

POLL_SECONDS = 0.1
STOP_SECONDS = 10.0


@dataclass(frozen=True)
class Ranks:
    """Where the processes of one fit run.

    Attributes
    ----------
    each : processes of a machine
    nodes, node : machines, and the number of this one, from 0
    meet : ``host:port`` of machine 0, where all meet; of one machine nothing
    """

    each: int
    nodes: int = 1
    node: int = 0
    meet: str = ""

    def command(self, program: Sequence[str]) -> list[str]:
        """What starts this machine's ranks.

        Raises
        ------
        UsboostError
            If several machines have no place to meet, or this one is none of them.
        """
        words = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={self.each}"]
        if self.nodes == 1:
            return [*words, "--standalone", *program]
        host, _, port = self.meet.rpartition(":")
        if not host or not port.isdigit():
            raise UsboostError(
                f"meet is host:port of machine 0, where all {self.nodes} meet, not {self.meet!r}"
            )
        if not 0 <= self.node < self.nodes:
            raise UsboostError(f"node is the number of this machine, 0 to {self.nodes - 1}, not {self.node}")
        where = [f"--nnodes={self.nodes}", f"--node-rank={self.node}"]
        return [*words, *where, f"--master-addr={host}", f"--master-port={port}", *program]


@task(cache_policy=NO_CACHE, task_run_name="ranks-of-node-{ranks.node}")
def fit_in_ranks(program: Sequence[str], out: Path, ranks: Ranks, told: Mapping[str, object]) -> str:
    """Run this machine's ranks to their end; on machine 0 an MLflow run shows the fit, and has its model.

    Parameters
    ----------
    program : what every rank runs, as `python` takes it; its rank 0 saves a model in `out`, and until then
        keeps its rounds in the folder of that name with ``.part``
    told : parameters of the MLflow run

    Returns
    -------
    The run's id; nothing of another machine than 0.

    Raises
    ------
    UsboostError
        With the sentence in which the fit has ended.
    """
    command = ranks.command(program)
    if ranks.node:
        _run(command, None)
        return ""
    tags = {**tracking.lineage({}), "kind": "boosting"}
    with tracking.tracked_run("usboost-sharded", out.name, tags) as run_id:
        tracking.log_parameters(run_id, {**told, "ranks": ranks.each * ranks.nodes, "machines": ranks.nodes})
        logger = tracking.MLflowCallback(run_id)
        _run(command, _Rounds(out.with_name(f"{out.name}.part"), logger))
        logger.on_fit_end()
        card = bundles.load(out).card
        log_bundle(run_id, out, card, out.name, {"model": card.model, "task": card.task})
    return run_id


class _Rounds:
    """The rounds of a fit in other processes, told to MLflow as they come to lie in a folder."""

    def __init__(self, part: Path, logger: tracking.MLflowCallback) -> None:
        self._part, self._logger, self._began = part, logger, time.time()
        self._kept: Checkpoint | None = None
        self._next = 1

    def look(self) -> None:
        """Tell what is new."""
        with suppress(UsboostError, OSError):  # the folder goes when the fit has ended
            if self._kept is None:
                # that of this fit, and not of another one that was killed; a refit comes after it
                files = [(file.stat().st_mtime, file) for file in self._part.glob("*/round-*.safetensors")]
                new = sorted(file for written, file in files if written >= self._began)
                self._kept = Checkpoint(new[0].parent) if new else None
            while self._kept and (round_ := self._kept.round_at(self._next)):
                self._logger.on_round(round_)
                self._next += 1


def _run(command: Sequence[str], rounds: _Rounds | None) -> None:
    """Run a command, whose lines this flow run's page shows; end all of its processes if this one ends."""
    given = {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", **os.environ}
    with tempfile.NamedTemporaryFile() as log, Path(log.name).open() as lines:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=given, start_new_session=True
        )
        try:
            _watch(process, lines, rounds)
        finally:
            _end(process)


def _watch(process: subprocess.Popen[bytes], log: IO[str], rounds: _Rounds | None) -> None:
    lines: list[str] = []
    while True:
        over = process.poll() is not None
        if rounds is not None:
            rounds.look()
        for line in log:
            lines.append(line.strip())
            page.say(lines[-1])
        if over:
            break
        time.sleep(POLL_SECONDS)
    if process.returncode:
        said = [line.partition("error: ")[2] for line in lines if line.startswith("error: ")]
        raise UsboostError(said[0] if said else f"the ranks ended with {process.returncode}: {lines[-1:]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    for stop in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, stop)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
            return

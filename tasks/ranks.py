"""One fit in many processes, which torchrun starts on this machine: its ranks; their rounds go to MLflow."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from tasks import flow_page as page
from tasks import mlflow_log, mlflow_runs
from tasks.registered_models import log_bundle
from usboost.boosting.checkpoint import Checkpoint
from usboost.boosting.rounds import Round
from usboost.errors import UsboostError
from usboost.fit import bundle as bundles
from usboost.fit.card import Card

POLL_SECONDS, STOP_SECONDS = 0.02, 10.0


def torchrun(program: Sequence[str], ranks: int, nodes: int = 1, node: int = 0, meet: str = "") -> list[str]:
    """Return the command that starts this machine's ranks, each of which runs `program` as `python` takes it.

    Raises `UsboostError` if several machines have no place to meet, or this one is none of them.

    Parameters
    ----------
    ranks : processes of a machine
    nodes, node : machines, and the number of this one, from 0
    meet : ``host:port`` of machine 0, where all meet; of one machine nothing
    """
    words = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}"]
    if nodes == 1:
        return [*words, "--standalone", *program]
    host, _, port = meet.rpartition(":")
    if not host or not port.isdigit():
        raise UsboostError(f"meet is host:port of machine 0, where all {nodes} meet, not {meet!r}")
    if not 0 <= node < nodes:
        raise UsboostError(f"node is the number of this machine, 0 to {nodes - 1}, not {node}")
    where = [f"--nnodes={nodes}", f"--node-rank={node}", f"--master-addr={host}", f"--master-port={port}"]
    return [*words, *where, *program]


@task(cache_policy=NO_CACHE, task_run_name="ranks-of-node-{node}")
def fit_in_ranks(command: Sequence[str], out: Path, node: int, parameters: Mapping[str, object]) -> str:
    """Run this machine's ranks to their end; on machine 0 an MLflow run shows the fit, and has its model.

    Returns the run's id; nothing of another machine than 0.

    Raises `UsboostError` with the sentence in which the fit has ended.

    Parameters
    ----------
    command : see `torchrun`; rank 0 saves a model in `out`, and until then keeps its rounds in the folder of
        that name with ``.part``
    node : number of this machine
    parameters : parameters of the MLflow run
    """
    if node:
        _run(command)
        return ""
    tags = {**mlflow_runs.lineage({}), "kind": "boosting"}
    with mlflow_runs.tracked_run("usboost-sharded", out.name, tags) as run_id:
        mlflow_log.log_parameters(run_id, parameters)
        rounds = _RoundsOnDisk(out.with_name(f"{out.name}.part"), mlflow_log.MLflowCallback(run_id))
        _run(command, rounds.log)
        card = bundles.load(out).card
        rounds.log_rest(card)
        log_bundle(run_id, out, card, out.name, {"model": card.model, "task": card.task})
    print(f"saved {out}; its rounds and scores are those of the MLflow run {run_id}")
    return run_id


class _RoundsOnDisk:
    """The rounds of a fit in other processes, as they come to lie in a folder; it goes when the fit ends."""

    def __init__(self, part: Path, logger: mlflow_log.MLflowCallback) -> None:
        self._part, self._logger, self._began = part, logger, time.time()
        self._checkpoint: Checkpoint | None = None
        self._last = 0

    def log(self) -> None:
        """Log the rounds that have ended since."""
        while round_ := self._next():
            self._logger.on_round(round_)
            self._last = round_.index

    def _next(self) -> Round | None:
        with suppress(UsboostError, OSError, ValueError):  # there is no round yet; the folder may go
            if self._checkpoint is None:
                # that of this fit, and not of another one that was killed; a refit comes after it
                files = [(file.stat().st_mtime, file) for file in self._part.glob("*/round-*.safetensors")]
                self._checkpoint = Checkpoint(min(each for each in files if each[0] >= self._began)[1].parent)
            return self._checkpoint.round_at(self._last + 1)
        return None

    def log_rest(self, card: Card) -> None:
        """Log what the saved model's card has of rounds that were too quick to be read."""
        history: dict[str, Any] = card.history
        for at, index in enumerate(history.get("round", [])):
            if index > self._last:
                metrics = {name: history[name][at] for name in history.keys() - {"round", "member"}}
                self._logger.on_round(Round(int(index), None, metrics, {}))
        self._logger.on_fit_end()


def _run(command: Sequence[str], meanwhile: Callable[[], None] = lambda: None) -> None:
    """Run a command, whose lines this flow run's page shows; end all of its processes if this one ends."""
    given = {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", **os.environ}
    lines: list[str] = []
    with tempfile.NamedTemporaryFile() as log, Path(log.name).open() as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=given, start_new_session=True
        )
        try:
            over = False
            while not over:
                time.sleep(POLL_SECONDS)
                over = process.poll() is not None
                meanwhile()
                for line in output:
                    lines.append(line.strip())
                    page.log(lines[-1])
        finally:
            for stop in (signal.SIGTERM, signal.SIGKILL):
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, stop)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(STOP_SECONDS)
                    break
    if process.returncode:
        said = [line.partition("error: ")[2] for line in lines if line.startswith("error: ")]
        raise UsboostError(said[0] if said else f"the ranks ended with {process.returncode}: {lines[-1:]}")

"""SIGKILL real training processes at random moments, and compare what they end with.

From the repository's root: ``python -m benchmarks.robustness.kill [--kills N] [--ranks N] [--seed S]``. A
process that has everything imported forks a child for each attempt, which fits with a checkpoint and writes
the finished model; the parent kills it after a random time and starts the same fit again, until it
ends. Every finished fit is compared, byte for byte, with one that was never interrupted.

With ``--ranks`` the fit is one on shards in 1 to 3 processes, of which one is killed in a random round. It
is resumed in 1 to 3 processes, and compared with a fit in one process that was never interrupted.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import torch.distributed as dist
import typer

from usboost.boosting.callbacks import Callback
from usboost.data.table import Table
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.learners.networks.learner import NetworkLearner
from usboost.learners.tree_learner import TreeLearner
from usboost.models.methods.two_branch import TwoBranchNetworkClassifier
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier
from usboost.models.persistence import save
from usboost.models.sharded import fit_sharded

KILLS_A_FIT = 5
SHARDS, ROUNDS, MOST_RANKS = 8, 12, 3
Started = list[BaseProcess]
TOLD = 3
"""The exit status of a rank that ends with a sentence."""


def data(n: int = 600) -> tuple[Views, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    tables = {}
    for name in ("U", "S"):
        numeric = (rng.normal(size=(n, 6)) + 0.6 * y[:, None]).astype(np.float32)
        tables[name] = Table(numeric, rng.integers(0, 5, (n, 2)).astype(np.int32), (5, 5))
    return Views(tables), y


def models() -> dict[str, Any]:
    learners = {"U": NetworkLearner((20, 10), batch_size=32, device="cpu"), "S": TreeLearner()}
    warm = {**learners, "U": NetworkLearner((20, 10), batch_size=32, start="warm", device="cpu")}
    return {
        "2wl": TwoWeakLearnerClassifier(learners, n_rounds=25, patience=None),
        "2wl2o, warm": TwoWeakLearnerClassifier(warm, "second_order", n_rounds=25, patience=None),
        "two branches": TwoBranchNetworkClassifier(
            dnn1=(8,), dnn2=(8,), dnn3=(8,), n_epochs=10, batch_size=64, patience=None, device="cpu"
        ),
    }


class Traced(Callback):
    """Appends every new round to a file, as a logger does: none may be there twice."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_resume(self, rounds: Any) -> bool:
        logged = len(self.path.read_text().splitlines()) if self.path.exists() else 0
        for round_ in rounds[logged:]:
            self.on_round(round_)
        return False

    def on_round(self, round_: Any) -> bool:
        line = json.dumps({"round": round_.index, **round_.metrics}, sort_keys=True)
        with self.path.open("a") as file:
            file.write(line + "\n")
        return False


def start(work: Callable[[], None]) -> BaseProcess:
    """Start a forked process that does `work`."""
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    return process


def child(work: Callable[[], None], kill_after: float | None) -> bool:
    """Run `work` in a forked process, killed after some seconds; tell if it was."""
    process = start(work)
    process.join(kill_after)
    process.kill()  # which does nothing to one that has ended
    [status] = ended([process])
    if status > 0:
        raise SystemExit("a training process failed by itself")
    return status < 0


def fit(name: str, folder: Path) -> None:
    views, y = data()
    model = models()[name].set_params(checkpoint=folder / "kept", callbacks=[Traced(folder / "trace")])
    save(model.fit(views, y), folder / "model")


def rank(number: int, size: int, meet: Path, folder: Path) -> None:
    """Fit eight shards, as one of `size` processes."""
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=number, world_size=size)
    views, y = data()
    learners = {"U": NetworkLearner((20, 10), batch_size=64, device="cpu"), "S": TreeLearner()}
    trace = Traced(folder / ("trace" if number == 0 else f"trace-{number}"))
    settings: dict[str, Any] = {"n_rounds": ROUNDS, "patience": None, "checkpoint": folder / "kept"}
    model = TwoWeakLearnerClassifier(learners, "newton", callbacks=[trace], **settings)
    try:
        fit_sharded(model, lambda shard: {"X": views[shard::SHARDS], "y": y[shard::SHARDS]}, SHARDS)
    except UsboostError as error:
        print(error, file=sys.stderr)
        sys.exit(TOLD)
    if number == 0:
        save(model, folder / "model")


def ranks(size: int, folder: Path) -> Started:
    meet = folder / f"meet-{time.monotonic_ns()}"
    return [start(partial(rank, number, size, meet, folder)) for number in range(size)]


def ended(started: Started) -> list[int]:
    """Wait for processes; return exit statuses, that of a killed one minus its signal."""
    for process in started:
        process.join()
    return [int(process.exitcode or 0) for process in started]


def digest(folder: Path) -> str:
    found = hashlib.sha256((folder / "trace").read_bytes())
    for path in sorted((folder / "model").rglob("*")):
        if path.is_file():
            found.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return found.hexdigest()


def kill_fits(kills_wanted: int, rng: np.random.Generator, root: Path) -> bool:
    """Kill ordinary fits, and print their ends; True if all ended as if nothing had happened."""
    expected, seconds = {}, {}
    for name in models():
        began = time.monotonic()
        child(partial(fit, name, folder := Path(tempfile.mkdtemp("", "whole-", root))), None)
        expected[name], seconds[name] = digest(folder), time.monotonic() - began
    kills = survived = fits = 0
    while kills < kills_wanted:
        name = list(models())[fits % len(expected)]
        work, times = partial(fit, name, folder := Path(tempfile.mkdtemp("", "fit-", root))), 0
        while times < min(KILLS_A_FIT, kills_wanted - kills):
            if not child(work, rng.uniform(0.05, 0.5) * seconds[name]):
                break
            times += 1
        else:
            child(work, None)
        kills, fits = kills + times, fits + 1
        same = digest(folder) == expected[name]
        survived += times * same
        print(f"{name}: killed {times} times, {'identical' if same else 'DIFFERENT'}")
    print(f"survived {survived} of {kills} kills in {fits} fits")
    return survived == kills


def kill_ranks(kills: int, rng: np.random.Generator, root: Path) -> bool:
    """Kill a rank of each fit, and print how it went on; True if all ended as if nothing had happened."""
    survived, waits, began = 0, [], time.monotonic()
    whole = Path(tempfile.mkdtemp("", "whole-", root))
    assert ended(ranks(1, whole)) == [0]
    expected, a_round = digest(whole), (time.monotonic() - began) / ROUNDS
    for _ in range(kills):
        folder = Path(tempfile.mkdtemp("", "ranks-", root))
        size, again = rng.integers(1, MOST_RANKS + 1, 2).tolist()
        victim, wanted = int(rng.integers(size)), int(rng.integers(1, ROUNDS - 2))
        seconds, told = killed(ranks(size, folder), victim, wanted, rng.uniform(0, a_round), folder / "kept")
        waits += [seconds] if size > 1 else []
        kept = len(list((folder / "kept").glob("round-*")))
        # rounds that any rank was told of are to be there
        finished = max(len(trace.read_text().splitlines()) for trace in folder.glob("trace*"))
        went_on = ended(ranks(again, folder)) == [0] * again
        same = told and kept >= finished and went_on and digest(folder) == expected
        survived += same
        said = f"rank {victim} of {size} killed after round {kept}, {finished} finished; resumed on {again}"
        print(f"{said}: {'identical' if same else 'DIFFERENT'}")
    print(f"survived {survived} of {kills} killed ranks")
    if waits:
        print(f"the other ranks ended {min(waits):.1f} to {max(waits):.1f} s after it")
    return survived == kills


def killed(started: Started, victim: int, wanted: int, later: float, kept: Path) -> tuple[float, bool]:
    """Kill a rank after round `wanted`; return the others' seconds, and True if each ends in a sentence."""
    while not (kept / f"round-{wanted:06d}.safetensors").exists():
        time.sleep(0.002)
    time.sleep(later)
    started[victim].kill()
    began, statuses = time.monotonic(), ended(started)
    return time.monotonic() - began, all(s == TOLD for i, s in enumerate(statuses) if i != victim)


def main(kills: int = 20, ranks: int = 20, seed: int = 0, folder: Path | None = None) -> None:
    """Kill ordinary fits so many times, and a rank of so many fits on shards."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    root, rng = folder or Path(tempfile.mkdtemp()), np.random.default_rng(seed)
    good = not kills or kill_fits(kills, rng, root)
    raise SystemExit(0 if (not ranks or kill_ranks(ranks, rng, root)) and good else 1)


if __name__ == "__main__":
    typer.run(main)

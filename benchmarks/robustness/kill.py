"""SIGKILL real training processes at random moments, and compare what they end with.

From the repository's root: ``python -m benchmarks.robustness.kill [--kills N] [--seed S]``. A process that
has everything imported forks a child for each attempt, which fits with a checkpoint and writes the
finished model; the parent kills it after a random time and starts the same fit again, until it
ends. Every finished fit is compared, byte for byte, with one that was never interrupted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from usboost.boosting.callbacks import Callback
from usboost.data.table import Table
from usboost.data.views import Views
from usboost.learners.networks.learner import NetworkLearner
from usboost.learners.trees.learner import TreeLearner
from usboost.models.boosted.two_weak_learner import TwoWeakLearnerClassifier
from usboost.models.networks.two_branch import TwoBranchNetworkClassifier
from usboost.models.persistence import save

KILLS_A_FIT = 5


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


def child(work: Callable[[], None], kill_after: float | None) -> bool:
    """Run `work` in a forked process, killed after some seconds; whether it was."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            os._exit(1)
    if kill_after is not None:
        deadline = time.monotonic() + kill_after
        while time.monotonic() < deadline:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return False
            time.sleep(0.002)
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit("a training process failed by itself")
    return os.WIFSIGNALED(status)


def fit(name: str, folder: Path) -> None:
    views, y = data()
    model = models()[name].set_params(checkpoint=folder / "kept", callbacks=[Traced(folder / "trace")])
    save(model.fit(views, y), folder / "model")


def digest(folder: Path) -> str:
    found = hashlib.sha256((folder / "trace").read_bytes())
    for path in sorted((folder / "model").rglob("*")):
        if path.is_file():
            found.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return found.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    root = arguments.folder or Path(tempfile.mkdtemp())
    rng = np.random.default_rng(arguments.seed)
    expected, seconds = {}, {}
    for i, name in enumerate(models()):
        folder = root / f"whole-{i}"
        folder.mkdir()
        start = time.monotonic()
        child(partial(fit, name, folder), None)
        expected[name], seconds[name] = digest(folder), time.monotonic() - start
    kills = survived = fits = 0
    while kills < arguments.kills:
        name = list(models())[fits % len(expected)]
        folder = root / f"fit-{fits}"
        folder.mkdir()
        work, here = partial(fit, name, folder), 0
        while here < min(KILLS_A_FIT, arguments.kills - kills):
            if not child(work, rng.uniform(0.05, 0.5) * seconds[name]):
                break
            here += 1
        else:
            child(work, None)
        kills, fits = kills + here, fits + 1
        same = digest(folder) == expected[name]
        survived += here * same
        print(f"{name}: killed {here} times, {'identical' if same else 'DIFFERENT'}")
    print(f"survived {survived} of {kills} kills in {fits} fits")
    raise SystemExit(0 if survived == kills else 1)


if __name__ == "__main__":
    main()

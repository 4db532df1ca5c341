"""Fits on eight shards that are uneven: one has no rows, and some lack a class. Run as a rank by `ranks`."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from tests.warm import Warm
from usboost import Callback, RidgeBaseline, Table, TreeLearner, UsboostError, Views, fit_sharded
from usboost.boosting.rounds import Round, digest_of
from usboost.learners.networks.learner import NetworkLearner
from usboost.models.baselines.linear import LinearBaseline
from usboost.models.methods.boosted_network import BoostedNetworkClassifier
from usboost.models.methods.two_weak_learner import TwoWeakLearnerClassifier, TwoWeakLearnerRegressor

MEET = 20
"""Seconds in which ranks come to a fit."""

CUTS = (0, 150, 151, 151, 400, 600, 700, 800, 803)
Rows = Callable[[int], dict[str, Any]]


def data(n_classes: int) -> tuple[Views, np.ndarray]:
    """Views of numbers and categories, and labels that both tell of; sorted, so that shards lack classes."""
    g, n = np.random.default_rng(n_classes), CUTS[-1]
    u, s = (g.normal(size=(n, p)).astype(np.float32) for p in (4, 3))
    codes = g.integers(1, 5, size=(n, 2)).astype(np.int32)
    codes[:150, 0] = 5  # a category that one shard alone has
    sums = np.stack([u[:, 0] + s[:, 0] * k + 2 * (codes[:, 0] == k + 1) for k in range(n_classes)], axis=1)
    y = np.array(["a", "bb", "ccc", "d", "e", "f", "g"])[(sums + g.normal(size=sums.shape)).argmax(axis=1)]
    order = np.argsort(y, kind="stable")
    views = Views(U=Table(u, codes[:, 1:], (5,)), S=Table(s, codes, (6, 5)))
    return views[order], y[order]


def parts(views: Views, y: np.ndarray, cuts: Sequence[int] = CUTS, **more: np.ndarray) -> Rows:
    """The rows of each shard."""

    def rows(shard: int) -> dict[str, Any]:
        here = slice(cuts[shard], cuts[shard + 1])
        return {"X": views[here], "y": y[here], **{name: each[here] for name, each in more.items()}}

    return rows


class Digests(Callback):
    """Of every round of a fit."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def on_round(self, round_: Round) -> bool:
        self.found.append(digest_of(round_))
        return False


def learners(**tree: Any) -> dict[str, Any]:
    network = NetworkLearner((6,), batch_size=64, epochs=2, device="cpu")
    return {"U": network, "S": TreeLearner(min_samples_leaf=5, **tree)}


def boosted(**changes: Any) -> TwoWeakLearnerClassifier:
    return TwoWeakLearnerClassifier(**{"learners": learners(), "n_rounds": 2, **changes})


def both() -> dict[str, Any]:
    return {name: each.set_params(reads=("U", "S")) for name, each in learners(max_leaves=5).items()}


LOGISTIC: dict[str, Any] = {"target": "newton", "loss": "cross_entropy"}
START = LinearBaseline(penalties=(0.1, 0.01))

MODELS: dict[str, Callable[[], Any]] = {
    "2wl": boosted,
    "2wl2o": lambda: boosted(target="second_order", n_inner=2),
    "2wl_newton": lambda: boosted(target="newton"),
    "2wl_logistic": lambda: boosted(
        **LOGISTIC, step_fraction=0.3, learners=learners(max_leaves=5, max_depth=4, max_bin=16)
    ),
    "one tree for all outputs": lambda: boosted(
        sequential=True, learners=learners(engine="histogram", feature_fraction=0.5)
    ),
    "crossed": lambda: boosted(
        **LOGISTIC, step_settings={"limit": 2.0}, step_fraction="wide", learners=both()
    ),
    "linear_trees": lambda: boosted(
        **LOGISTIC, start=START, optional=("U",), learners={"S": TreeLearner(2, rows_per_leaf=20)}
    ),
    "bnn": lambda: BoostedNetworkClassifier(learner=learners()["U"], n_rounds=2, validation_fraction=0.2),
    "squared": lambda: TwoWeakLearnerRegressor(learners(), n_rounds=2),
    "huber": lambda: TwoWeakLearnerRegressor(learners(), n_rounds=2, loss="huber"),
    "trees from a ridge": lambda: TwoWeakLearnerRegressor(
        {"S": TreeLearner(min_samples_leaf=5)}, start=RidgeBaseline(), optional=("U",), n_rounds=2
    ),
    "absolute": lambda: TwoWeakLearnerRegressor(learners(), n_rounds=2, loss="absolute"),
    "quantile": lambda: TwoWeakLearnerRegressor(learners(), n_rounds=2, loss="quantile", quantile=0.8),
}

REGRESSIONS = {name for name, made in MODELS.items() if isinstance(made(), TwoWeakLearnerRegressor)}


def fitted(name: str, n_classes: int, shards: Sequence[int] = CUTS) -> list[str]:
    """Digests of a model's rounds."""
    views, y = data(n_classes)
    watched, model, more = Digests(), MODELS[name](), {}
    if name in ("2wl_newton", "linear_trees", "trees from a ridge", "huber", "quantile"):
        more["sample_weight"] = np.random.default_rng(0).integers(1, 4, len(y)) / 2
    if name in REGRESSIONS:
        y = views["U"].numeric[:, 0] * 3 + views["S"].numeric[:, 0] * (y == "a")
    rows = parts(Views(x=views["S"]) if name == "bnn" else views, y, shards, **more)
    fit_sharded(model.set_params(callbacks=[watched]), rows, len(shards) - 1)
    return watched.found


def fits(*names: str) -> Iterator[str]:
    """A line for each model and number of classes."""
    for name in names:
        for n_classes in (2, 3) if name in REGRESSIONS else (2, 3, 7):
            yield f"{n_classes} {name} {fitted(name, n_classes)}"


class Stops(Callback):
    """Ends this process hard after some rounds."""

    def __init__(self, after: int, how: Callable[[], None]) -> None:
        self.after, self.how = after, how

    def on_round(self, round_: Round) -> bool:
        if round_.index == self.after:
            self.how()
        return False


def checkpointed(folder: str, after: str = "0", signal_: str = "9") -> Iterator[str]:
    """A fit with a checkpoint, of which rank 1 gets a signal after some rounds."""
    rank = int(os.environ.get("RANK", "0"))
    watched, views_y = Digests(), data(2)
    stops = [Stops(int(after), lambda: os.kill(os.getpid(), int(signal_)))] if rank == 1 else []
    fit_sharded(boosted(n_rounds=6, checkpoint=folder, callbacks=[watched, *stops]), parts(*views_y))
    yield str(watched.found)


def mistaken(mistake: str) -> Iterator[str]:
    """A fit to which rank 1 comes with something else, or does not come."""
    views, y = data(2)
    own = os.environ["RANK"] == "1"
    if own and mistake == "gone":
        os._exit(0)
    if own and mistake == "label":
        y = np.where(np.arange(len(y)) == 700, np.nan, 1.0)
    n_shards = 9 if own and mistake == "shards" else 8
    slow = Stops(1, lambda: time.sleep(1.5 * MEET if own and mistake == "none, but it is slow" else 0))
    fit_sharded(boosted(callbacks=[slow]), parts(views, y), n_shards)
    yield "fitted"


CASES: dict[str, Callable[..., Iterator[str]]] = {
    "fits": fits,
    "checkpointed": checkpointed,
    "mistaken": mistaken,
}


def ranks(size: int, folder: Path, *case: str, warm: Warm | None = None) -> list[subprocess.Popen[str]]:
    """Start a case in so many processes, which meet in a file of the folder; `warm` ones import little."""
    environment = {**os.environ, "SIZE": str(size), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    environment["MEET"] = str(folder / f"meet-{size}-{len(list(folder.iterdir()))}")
    return [
        subprocess.Popen(
            ["python" if warm else sys.executable, "-m", "tests.shards.cases", *case],
            env={**(warm.shim(environment) if warm else environment), "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]


def outcome(processes: Sequence[subprocess.Popen[str]], seconds: float = 200) -> list[str]:
    """What each process has printed: the last line of its error where it failed."""
    found = []
    for process in processes:
        out, error = process.communicate(timeout=seconds)
        found.append(out if process.returncode == 0 else (error.strip().splitlines() or [""])[-1])
    return found


def main() -> None:
    import torch.distributed as dist

    dist.init_process_group(
        "gloo",
        init_method=f"file://{os.environ['MEET']}",
        timeout=timedelta(seconds=MEET),
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["SIZE"]),
    )
    try:
        for line in CASES[sys.argv[1]](*sys.argv[2:]):
            sys.stdout.write(f"{line}\n")
    except UsboostError as error:
        sys.exit(f"\n{error}")


if __name__ == "__main__":
    main()

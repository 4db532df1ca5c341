"""Rounds: what each adds to the ensemble and reports; the stages of models in files."""

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.files.arrays import Arrays, read_arrays, write_arrays
from usboost.learners.base import FittedLearner, kind_of, read_learner
from usboost.shards.collective import world


@dataclass(frozen=True)
class Stage:
    """The addition of one round to the ensemble: per view a fitted learner and its step."""

    learners: dict[str, FittedLearner]
    steps: dict[str, float]


@dataclass(frozen=True)
class Round:
    """A round as callbacks see it.

    Attributes
    ----------
    index : int, from 1
    stage : Stage, or None where a network is trained whole
    metrics : dict of floats; always "risk_train", with validation data also "risk_val", "f1_val"
        and "accuracy_val"; what the method adds, by default steps as "step_<view>" and
        fit errors as "fit_error_<view>"
    seconds : dict of the round's parts, and their sum as "total"; on several shards also of what all parts
        together were: "fit", "wait" for other processes, and "sum" of what came of them
    rows : training rows of each process of a fit on several shards; else nothing
    """

    index: int
    stage: Any
    metrics: dict[str, float]
    seconds: dict[str, float]
    rows: tuple[int, ...] = ()


@dataclass
class BoostedSamples:
    """The running predictions on one data set: a round then costs one learner, not the ensemble.

    `weights` say how many rows each sample stands for: positive float64 (n,), or None for 1.
    """

    views: Views
    y: np.ndarray
    f: np.ndarray
    weights: np.ndarray | None = None
    prepared: dict[str, Any] = field(default_factory=dict)

    def counts(self, rows: Any = slice(None)) -> np.ndarray | None:
        """Return the argument `counts` of a loss, of some rows."""
        return None if self.weights is None else self.weights[rows]


class Clock:
    """Seconds spent in a round's named parts; a part that runs twice adds up."""

    def __init__(self) -> None:
        self._start, self._before = time.perf_counter(), world().seconds()
        self._spent: dict[str, float] = {}

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._spent[part] = self._spent.get(part, 0.0) + time.perf_counter() - start

    def seconds(self) -> dict[str, float]:
        """Return them by part, and their sum with all between as "total"; on several shards see `Round`."""
        total = time.perf_counter() - self._start
        shared = {part: spent - self._before[part] for part, spent in world().seconds().items()}
        if shared:
            shared["fit"] = total - sum(shared.values())
        return {**self._spent, **shared, "total": total}


def digest_of(round_: Round) -> str:
    """Digest a round's weak learners, steps and metrics; its seconds do not count."""
    arrays, document = describe_stage(round_.stage)
    digest = hashlib.sha256(json.dumps([document, round_.metrics], sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


STAGES_PER_SHARD = 200


def describe_stage(stage: Stage, prefix: str = "") -> tuple[Arrays, dict[str, Any]]:
    """Return a stage's arrays, called ``<prefix><learner's name>/<array>``, and its JSON by learner's name.

    Raises `UsboostError` if a learner has no file form.
    """
    arrays: Arrays = {}
    document: dict[str, Any] = {}
    for name, learner in stage.learners.items():
        own, meta = learner.to_arrays()
        arrays |= {f"{prefix}{name}/{key}": array for key, array in own.items()}
        document[name] = {"kind": kind_of(learner), "step": stage.steps[name], "meta": meta}
    return arrays, document


def stage_of(arrays: Arrays, document: Mapping[str, Any]) -> Stage:
    """Return the stage that `describe_stage` described, its learners checked.

    Raises `UsboostError` if a kind is not registered, or a learner holds what it cannot. Raises `KeyError`,
    `TypeError`, `ValueError` if the description is not one.
    """
    learners, steps = {}, {}
    for name, entry in document.items():
        start = f"{name}/"
        own = {key.removeprefix(start): array for key, array in arrays.items() if key.startswith(start)}
        learners[name] = read_learner(entry["kind"], own, entry["meta"])
        steps[name] = float(entry["step"])
    return Stage(learners, steps)


def write_stages(stages: Sequence[Stage], folder: Path, start: int = 0) -> list[dict[str, Any]]:
    """Write stages as shards; return what `read_stages` needs besides them, as JSON."""
    described: list[dict[str, Any]] = []
    shard: Arrays = {}
    for index, stage in enumerate(stages, start):
        file = f"arrays-{index // STAGES_PER_SHARD:05d}.safetensors"
        arrays, document = describe_stage(stage, f"{index}/")
        shard |= arrays
        described.append({"file": file, "learners": document})
        if index + 1 == start + len(stages) or (index + 1) % STAGES_PER_SHARD == 0:
            write_arrays(shard, folder / file)
            shard = {}
    return described


def read_stages(described: list[dict[str, Any]], folder: Path) -> Iterator[Stage]:
    """Return the stages that `write_stages` wrote, in order."""
    loaded, by_stage = "", dict[str, Arrays]()
    for index, entry in enumerate(described):
        if entry["file"] != loaded:
            loaded, by_stage = entry["file"], dict[str, Arrays]()
            for key, array in read_arrays(folder / Path(loaded).name).items():
                if key.count("/") < 2:
                    raise UsboostError(f"an array is called {key!r}, which is no part of a weak learner")
                number, rest = key.split("/", 1)
                by_stage.setdefault(number, {})[rest] = array
        yield stage_of(by_stage[str(index)], entry["learners"])


class StagewiseModel:
    """A model whose fitted part is ``stages_``; a subclass has what is declared here."""

    stages_: list[Stage]
    _loss: ClassVar[Any]  # (): its loss
    _learner_names: ClassVar[Any]  # (index): the learners that the stage of a round, from 1, may have

    @property
    def n_estimators_(self) -> int:
        """Rounds kept."""
        return len(self.stages_)

    def _n_outputs(self) -> int:
        """Return D, the number of coordinates of f."""
        return int(self._loss().n_outputs)

    def _columns_of(self, name: str) -> int | None:
        """Return how many columns the learner called `name` reads, where that is known."""
        return None

    def _write(self, folder: Path) -> dict[str, Any]:
        return {"stages": write_stages(self.stages_, folder)}

    def _read(self, document: Mapping[str, Any], folder: Path) -> None:
        self.stages_ = list(read_stages(document["stages"], folder))
        if not self.stages_ and getattr(self, "start_", None) is None:
            raise UsboostError("it has no stages")
        n_outputs = self._n_outputs()
        for index, stage in enumerate(self.stages_, start=1):
            wanted = self._learner_names(index)
            if not stage.learners or not set(stage.learners) <= wanted:
                raise UsboostError(f"stage {index} fits {sorted(stage.learners)}, not {sorted(wanted)}")
            for name, learner in stage.learners.items():
                learner.check(n_outputs, self._columns_of(name))
                if not np.isfinite(stage.steps[name]):
                    raise UsboostError(f"the step of stage {index} is {stage.steps[name]}")

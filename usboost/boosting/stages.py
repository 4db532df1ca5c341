"""Stages to files and back, in shards, so that every weak learner can be read alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from usboost.boosting.rounds import Stage
from usboost.errors import UsboostError
from usboost.files.arrays import Arrays, read_arrays, write_arrays
from usboost.learners.base import kind_of, read_learner

STAGES_PER_SHARD = 200


def describe_stage(stage: Stage, prefix: str = "") -> tuple[Arrays, dict[str, Any]]:
    """A stage's arrays, called ``<prefix><learner's name>/<array>``, and its JSON by learner's name.

    Raises
    ------
    UsboostError
        If a learner has no file form.
    """
    arrays: Arrays = {}
    document: dict[str, Any] = {}
    for name, learner in stage.learners.items():
        own, meta = learner.to_arrays()
        arrays |= {f"{prefix}{name}/{key}": array for key, array in own.items()}
        document[name] = {"kind": kind_of(learner), "step": stage.steps[name], "meta": meta}
    return arrays, document


def stage_of(arrays: Arrays, document: Mapping[str, Any], prefix: str = "") -> Stage:
    """The stage that `describe_stage` described, its learners checked.

    Raises
    ------
    UsboostError
        If a kind is not registered, or a learner holds what it cannot.
    KeyError, TypeError, ValueError
        If the description is not one.
    """
    learners, steps = {}, {}
    for name, entry in document.items():
        start = f"{prefix}{name}/"
        own = {key.removeprefix(start): array for key, array in arrays.items() if key.startswith(start)}
        learners[name] = read_learner(entry["kind"], own, entry["meta"])
        steps[name] = float(entry["step"])
    return Stage(learners, steps)


def write_stages(stages: Sequence[Stage], folder: Path, start: int = 0) -> list[dict[str, Any]]:
    """Write stages as shards; what `read_stages` needs besides them, as JSON."""
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


def read_stages(described: list[dict[str, Any]], folder: Path, start: int = 0) -> Iterator[Stage]:
    """The stages that `write_stages` wrote, in order."""
    loaded, by_stage = "", {}
    for index, entry in enumerate(described, start):
        if entry["file"] != loaded:
            loaded, by_stage = entry["file"], _by_stage(read_arrays(folder / Path(entry["file"]).name))
        yield stage_of(by_stage[str(index)], entry["learners"])


def _by_stage(arrays: Arrays) -> dict[str, Arrays]:
    grouped: dict[str, Arrays] = {}
    for key, array in arrays.items():
        if key.count("/") < 2:
            raise UsboostError(f"an array is called {key!r}, which is no part of a weak learner")
        index, rest = key.split("/", 1)
        grouped.setdefault(index, {})[rest] = array
    return grouped

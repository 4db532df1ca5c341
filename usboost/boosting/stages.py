"""Stages to files and back, in shards, so that every weak learner can be read alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from usboost.boosting.rounds import Stage
from usboost.errors import UsboostError
from usboost.learners.classifiers import FittedClassifiers
from usboost.learners.networks.learner import FittedNetwork
from usboost.learners.trees.learner import FittedTrees

STAGES_PER_SHARD = 200


def write_stages(stages: list[Stage], folder: Path, start: int = 0) -> list[dict[str, Any]]:
    """Write stages as shards; what `read_stages` needs besides them, as JSON."""
    described: list[dict[str, Any]] = []
    shard: Arrays = {}
    for index, stage in enumerate(stages, start):
        name = f"arrays-{index // STAGES_PER_SHARD:05d}.safetensors"
        entry: dict[str, Any] = {"file": name, "learners": {}}
        for view, learner in stage.learners.items():
            arrays, meta = learner.to_arrays()
            shard |= {f"{index}/{view}/{key}": value for key, value in arrays.items()}
            step = stage.steps[view]
            entry["learners"][view] = {"step": step, "kind": learner.kind, "meta": meta}
        described.append(entry)
        if index + 1 == start + len(stages) or (index + 1) % STAGES_PER_SHARD == 0:
            _write_arrays(shard, folder / name)
            shard = {}
    return described


def read_stages(described: list[dict[str, Any]], folder: Path, start: int = 0) -> Iterator[Stage]:
    """The stages that `write_stages` wrote, in order."""
    loaded, by_owner = "", {}
    for index, entry in enumerate(described, start):
        if entry["file"] != loaded:
            loaded, by_owner = entry["file"], _group(_read_arrays(folder / Path(entry["file"]).name))
        learners, steps = {}, {}
        for view, kept in entry["learners"].items():
            if kept["kind"] not in _LEARNERS:
                raise UsboostError(
                    f"{folder / 'model.json'} names an unknown kind of learner, {kept['kind']!r}"
                )
            arrays = by_owner[f"{index}/{view}"]
            learners[view] = _LEARNERS[kept["kind"]].from_arrays(arrays, kept["meta"])
            steps[view] = float(kept["step"])
        yield Stage(learners, steps)


def _group(arrays: Arrays) -> dict[str, Arrays]:
    grouped: dict[str, Arrays] = {}
    for key, array in arrays.items():
        if key.count("/") < 2:
            raise UsboostError(f"an array is called {key!r}, which is no part of a weak learner")
        index, view, name = key.split("/", 2)
        grouped.setdefault(f"{index}/{view}", {})[name] = array
    return grouped


_LEARNERS: dict[str, Any] = {cls.kind: cls for cls in (FittedClassifiers, FittedNetwork, FittedTrees)}


def _write_arrays(arrays: Arrays, path: Path) -> None:
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)


def _read_arrays(path: Path) -> Arrays:
    try:
        return load_file(path)
    # numpy refuses some headers that safetensors lets pass
    except (OSError, SafetensorError, ValueError, TypeError, KeyError) as error:
        raise UsboostError(f"{path} cannot be read as safetensors: {error}") from error


Arrays = dict[str, np.ndarray]

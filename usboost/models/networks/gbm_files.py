"""A GBM's trees in files."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import numpy as np

from usboost.errors import UsboostError
from usboost.files import replacing
from usboost.files.arrays import Arrays, read_arrays, read_json, write_arrays
from usboost.learners.trees.fitted import FittedTrees
from usboost.learners.trees.tree import Tree
from usboost.models.networks.boosted_features import GradientBoostedTrees
from usboost.models.persistence import check_digests, digests


def save_gbm(gbm: GradientBoostedTrees, folder: Path) -> None:
    """Write a GBM's trees; `load_gbm` reads them."""
    with replacing(folder) as partial:
        arrays, meta = FittedTrees(tuple(gbm.trees)).to_arrays()
        document = {
            **meta,
            "initial": gbm.initial.tolist(),
            "learning_rate": gbm.learning_rate,
            "n_classes": gbm.n_classes,
        }
        write_arrays(_concatenated(arrays, meta["trees"]), partial / "trees.safetensors")
        document["files"] = digests(partial)
        (partial / "gbm.json").write_text(json.dumps(document))


def load_gbm(folder: Path, n_classes: int | None = None) -> GradientBoostedTrees:
    """Read a GBM that `save_gbm` wrote, of `n_classes` classes (1: a regression) where that is known.

    Raises `UsboostError` if a file is missing, cut short or changed, or holds what is no GBM.
    """
    document = read_json(folder / "gbm.json")
    try:
        check_digests(document, folder)
        gbm = GradientBoostedTrees(
            _split_trees(read_arrays(folder / "trees.safetensors")),
            np.asarray(document["initial"], dtype=np.float64),
            float(document["learning_rate"]),
            int(document["n_classes"]),
        )
        _check(gbm)
        if n_classes not in (None, gbm.n_classes):
            raise UsboostError(f"its GBM has {gbm.n_classes} classes, not {n_classes}")
        return gbm
    except UsboostError as error:
        where = str(folder)
        raise (error if where in str(error) else UsboostError(f"{folder}: {error}")) from None
    except (KeyError, IndexError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise UsboostError(f"{folder} is not a GBM that usboost wrote: {error!r}") from error


def _concatenated(arrays: Arrays, n_trees: int) -> Arrays:
    """Thousands of trees in one array per field, with where each begins."""
    out: Arrays = {}
    for name in (field.name for field in fields(Tree)):
        parts = [arrays[f"{i}.{name}"] for i in range(n_trees)]
        out[name] = np.concatenate(parts)
        out[f"{name}.start"] = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    return out


def _split_trees(arrays: Arrays) -> list[Tree]:
    names = [field.name for field in fields(Tree)]
    for name in names:
        starts = arrays[f"{name}.start"]
        if starts.ndim != 1 or starts.dtype != np.int64 or len(starts) != len(arrays["value.start"]):
            raise UsboostError(f"where each tree's {name} starts is not one number for each tree")
        if (
            not len(starts)
            or starts[0] != 0
            or starts[-1] != len(arrays[name])
            or (np.diff(starts) < 0).any()
        ):
            raise UsboostError(f"the trees' {name} is not cut where they start")
    parts = {name: np.split(arrays[name], arrays[f"{name}.start"][1:-1]) for name in names}
    return [Tree(**{name: parts[name][i] for name in names}) for i in range(len(parts[names[0]]))]


def _check(gbm: GradientBoostedTrees) -> None:
    """A GBM has whole stages of trees with one value a leaf."""
    per_stage = 1 if gbm.n_classes == 2 else gbm.n_classes
    if gbm.initial.shape != (per_stage,) or gbm.n_classes < 1 or len(gbm.trees) % per_stage:
        raise UsboostError(f"a GBM of {gbm.n_classes} classes has {len(gbm.trees)} trees")
    if not (np.isfinite(gbm.initial).all() and np.isfinite(gbm.learning_rate)):
        raise UsboostError("a GBM holds a number that is not finite")
    for tree in gbm.trees:
        tree.check()
        if tree.value.shape[1] != 1:
            raise UsboostError("a GBM's tree has more than one value a leaf")

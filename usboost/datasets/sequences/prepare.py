"""Sequences and plain tables in the prepared form: a frame is a view, so all flows read them alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from usboost.data.frames import frame_name
from usboost.datasets.files.sampling import stratified_parts, stream
from usboost.datasets.prepared.store import LABEL, Prepared, describe
from usboost.datasets.sequences.read import SequenceSplit
from usboost.errors import UsboostError

HELD_OUT = 0.15  # of the training sequences, to watch the accuracy on; nothing is chosen by it


def prepare(
    split: SequenceSplit, *, dataset: str, profile: str, seed: int, sources: Mapping[str, str]
) -> Prepared:
    """Make a dataset of sequences of equal length, (n, T, d): the views frame_001..frame_T of d numbers.

    The published test part is the test split; a part of the training sequences, stratified and
    seeded, is the validation split.

    Raises
    ------
    UsboostError
        If lengths differ.
    """
    if isinstance(split.X_train, list) or isinstance(split.X_test, list):
        raise UsboostError(f"{dataset}: sequences of unequal length have no prepared form; use the estimator")
    classes = np.unique(split.y_train)
    fitted, held = stratified_parts(split.y_train, (1 - HELD_OUT, HELD_OUT), stream(seed, 0))
    parts = {
        "train": (split.X_train[fitted], split.y_train[fitted]),
        "val": (split.X_train[held], split.y_train[held]),
        "test": (split.X_test, split.y_test),
    }
    n_frames, n_features = split.X_train.shape[1:]
    views = {frame_name(t): [f"t{t:03d}_x{j}" for j in range(n_features)] for t in range(1, n_frames + 1)}
    sequences = {"frames": n_frames, "features": n_features}
    about = {"dataset": dataset, "profile": profile, "seed": seed, "sources": sources, "sequences": sequences}
    return _prepared(parts, views, classes, "its frame", about)


def prepare_table(
    x: np.ndarray, y: np.ndarray, *, dataset: str, profile: str, seed: int, folds: int
) -> Prepared:
    """Make a small plain table that is scored by repeated stratified k-fold: one split, one view "x"."""
    about = {"dataset": dataset, "profile": profile, "seed": seed, "sources": {}, "folds": folds}
    views = {"x": [f"x{j}" for j in range(x.shape[1])]}
    return _prepared({"train": (x, y)}, views, np.unique(y), "the only view", about)


def _prepared(
    parts: Mapping[str, tuple[Any, np.ndarray]],
    views: dict[str, list[str]],
    classes: np.ndarray,
    why: str,
    about: Mapping[str, Any],
) -> Prepared:
    """The numbers and labels of each split, (n, ...) and (n,), as a dataset of float32 columns."""
    frames = {}
    for split, (x, y) in parts.items():
        names = [name for columns in views.values() for name in columns]
        frames[split] = pd.DataFrame(x.reshape(len(x), -1).astype(np.float32), columns=names)
        frames[split][LABEL] = np.searchsorted(classes, y).astype(np.int16)
    columns: dict[str, dict[str, object]] = {
        name: {"view": view, "kind": "continuous", "why": why} for view, of in views.items() for name in of
    }
    columns[LABEL] = {"view": None, "kind": "label", "why": "what is predicted"}
    called = [str(name) for name in classes]
    return Prepared(frames, views, called, describe(frames, views, called, columns=columns, **about))

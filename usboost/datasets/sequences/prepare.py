"""Sequences and plain tables in the prepared form: a frame is a view, so all flows read them alike."""

from __future__ import annotations

from collections.abc import Mapping

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
    names = [name for columns in views.values() for name in columns]
    frames = {}
    for name, (x, y) in parts.items():
        frame = pd.DataFrame(x.reshape(len(x), -1).astype(np.float32), columns=names)
        frame[LABEL] = np.searchsorted(classes, y).astype(np.int16)
        frames[name] = frame
    columns: dict[str, dict[str, object]] = {
        name: {"view": view, "kind": "continuous", "why": "its frame"}
        for view, columns in views.items()
        for name in columns
    }
    columns[LABEL] = {"view": None, "kind": "label", "why": "what is predicted"}
    card = describe(
        frames,
        views,
        [str(name) for name in classes],
        dataset=dataset,
        profile=profile,
        seed=seed,
        columns=columns,
        sources=sources,
        sequences={"frames": n_frames, "features": n_features},
    )
    return Prepared(frames, views, [str(name) for name in classes], card)


def prepare_table(
    x: np.ndarray, y: np.ndarray, *, dataset: str, profile: str, seed: int, folds: int
) -> Prepared:
    """Make a small plain table that is scored by repeated stratified k-fold: one split, one view "x"."""
    classes = np.unique(y)
    names = [f"x{j}" for j in range(x.shape[1])]
    frame = pd.DataFrame(x.astype(np.float32), columns=names)
    frame[LABEL] = np.searchsorted(classes, y).astype(np.int16)
    columns: dict[str, dict[str, object]] = {
        name: {"view": "x", "kind": "continuous", "why": "the only view"} for name in names
    }
    columns[LABEL] = {"view": None, "kind": "label", "why": "what is predicted"}
    card = describe(
        {"train": frame},
        {"x": names},
        [str(name) for name in classes],
        dataset=dataset,
        profile=profile,
        seed=seed,
        columns=columns,
        sources={},
        folds=folds,
    )
    return Prepared({"train": frame}, {"x": names}, [str(name) for name in classes], card)

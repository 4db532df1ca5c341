"""Check a table quickly as it is fitted: this costs next to nothing, since the fit has read the images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from usboost.check import check_table
from usboost.datasets.store import LABEL, Prepared
from usboost.errors import warn
from usboost.learners.networks.backbones import Backbone, embedded
from usboost.learners.networks.embeddings import cache_folder
from usboost.learners.networks.train import pick_device
from usboost.shards.collective import world
from usboost.table.prepared import ROW
from usboost.table.source import FrameRows
from usboost.table.spec import TableSpec
from usboost.table.user_table import UserTable, read_columns

MOST = 3  # findings that are said beside a fit


def embeddings_of(table: UserTable, backbone: Backbone) -> list[np.ndarray]:
    """Return what a frozen backbone makes of the images of each view, float32 (n, d)."""
    return [embedded(view, backbone, pick_device("auto")).numeric for view in table.images.values()]


def warn_of_prepared(prepared: Prepared) -> None:
    """Warn of what a quick check of the columns of a prepared user's table finds."""
    frame = pd.concat(prepared.splits.values()).sort_values(ROW).drop(columns=ROW)
    spec = TableSpec(LABEL, task="classification" if prepared.classes else "regression")
    for each in beside_fit(read_columns(FrameRows(frame), spec)):
        warn(each)


def beside_fit(table: UserTable, model: Any = None) -> list[str]:
    """Return the findings of a quick check in a sentence each; of images by a fitted model's embeddings.

    `model`: None, or one that has embedded the images; those that are kept nowhere are not computed again.
    """
    if world().count > 1:
        return []
    parts = [] if model is None else model.get_params(deep=True).values()
    frozen = [each for each in parts if isinstance(each, Backbone) and each.is_frozen]
    kept = [each for each in frozen if cache_folder(each.cache) is not None]
    embeddings = embeddings_of(table, kept[0]) if kept and table.images else None
    return [str(each) for each in check_table(table, embeddings, quick=True)][:MOST]

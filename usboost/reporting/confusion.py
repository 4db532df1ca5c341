"""A confusion matrix as a page shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from usboost.evaluation.metrics import confusion


def confusion_rows(labels: np.ndarray, predicted: np.ndarray, classes: Sequence[str]) -> list[dict[str, Any]]:
    """A row for each true class: its name, code and cells, each a count and the share of that class.

    Parameters
    ----------
    labels, predicted : codes, int64 of shape (n,).
    """
    counts = confusion(labels, predicted, len(classes))
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return [
        {
            "name": name,
            "code": code,
            "cells": [
                {"count": int(count), "share": f"{share:.4f}", "percent": f"{share:.1%}"}
                for count, share in zip(counts[code], shares[code], strict=True)
            ],
        }
        for code, name in enumerate(classes)
    ]

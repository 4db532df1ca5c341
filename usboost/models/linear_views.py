"""What the linear baselines share: how they read views, and their coefficients in files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from usboost.data.table import Table
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.evaluation.weighted import column_moments
from usboost.files.arrays import read_arrays, write_arrays
from usboost.learners.networks.backbones import Backbone
from usboost.models.estimator import ViewsEstimator
from usboost.models.reading import Reading, Wanted

NAME = "all"
WEIGHTS = "linear.safetensors"
_FEATURE = re.compile(r"__(embedding|component)_\d+$")  # of a picture


class MatrixOnViews(ViewsEstimator):
    """Reads everything as one matrix: numbers standardised, categories one-hot, pictures on one scale.

    A subclass says in `components` how many principal components of pictures it reads; None: all features.
    """

    views: Sequence[str]
    backbone: Backbone | None
    device: str

    reading_: Reading

    components: ClassVar[int | None] = None
    holds: ClassVar[Mapping[str, Any]] = {"backbone": ("Backbone",)}

    def _learn(self, views: Views, weights: np.ndarray | None) -> np.ndarray:
        """Learn from the training rows how they are read and scaled; their matrix, float32 (n, p)."""
        self.reading_ = self._reading()
        table = self.reading_.fit(views, weights)[NAME]
        self.mean_, self.scale_ = _centre_and_scale(table, weights)
        return self._matrix(table)

    def _rows(self, views: Views) -> np.ndarray:
        """The matrix of any rows, float32 (n, p)."""
        return self._matrix(self.reading_(views)[NAME])

    def _reading(self) -> Reading:
        wanted = {NAME: Wanted(tuple(self.views), self.components, filled=True)}
        return Reading(wanted, self.backbone, self.device, qualified=True)

    def _matrix(self, table: Table) -> np.ndarray:
        """float32 (n, p): numbers, then each category's indicators."""
        parts = [(table.numeric - self.mean_) * self.scale_]
        for codes, count in zip(table.codes.T, table.cardinalities, strict=True):
            parts.append(np.eye(count, dtype=np.float32)[codes])
        return np.concatenate(parts, axis=1)

    def _reads(self, n_columns: int) -> Sequence[str]:
        return self.views


class LinearOnViews(MatrixOnViews):
    """x ↦ x W + b on everything: numbers standardised, categories one-hot, pictures as centred features."""

    coefficients_: np.ndarray
    intercepts_: np.ndarray

    @property
    def n_estimators_(self) -> int:
        """One regression."""
        self._check_fitted()
        return 1

    def _n_outputs(self) -> int:
        """Columns of the coefficients."""
        raise AttributeError("_n_outputs is defined by each model")

    def _linear(self, views: Views) -> np.ndarray:
        """x W + b, float64 (n, D)."""
        self._check_fitted()
        x = self._rows(views)
        if x.shape[1] != len(self.coefficients_):
            raise UsboostError(f"the rows have {x.shape[1]} columns, not {len(self.coefficients_)}")
        return (x @ self.coefficients_ + self.intercepts_).astype(np.float64)

    def _write(self, folder: Path) -> dict[str, Any]:
        names = ("coefficients", "intercepts", "mean", "scale")
        write_arrays({name: getattr(self, f"{name}_") for name in names}, folder / WEIGHTS)
        return {"linear_reading": self.reading_.write(folder)}

    def _read(self, document: Mapping[str, Any], folder: Path) -> None:
        arrays, n_outputs = read_arrays(folder / WEIGHTS), self._n_outputs()
        p, n = len(arrays["coefficients"]), len(arrays["mean"])
        shapes = {"coefficients": (p, n_outputs), "intercepts": (n_outputs,), "mean": (n,), "scale": (n,)}
        for name, shape in shapes.items():
            array = arrays[name]
            if array.shape != shape or array.dtype != np.float32 or not np.isfinite(array).all() or n > p:
                raise UsboostError(f"its {name} are not those of a linear model of {n_outputs} outputs")
            setattr(self, f"{name}_", array)
        self.reading_ = self._reading()
        self.reading_.read(document.get("linear_reading"), folder)


def _centre_and_scale(table: Table, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Means and factors of the numeric columns, float32 (p,): numbers each on their own scale, features of
    pictures, hundreds that belong together, on their common one."""
    mean, variance = column_moments(table.numeric, weights)
    of = np.array([_FEATURE.sub("", name) for name in table.names])
    for view in {each for each, name in zip(of, table.names[: len(mean)]) if _FEATURE.search(name)}:
        rows = of[: len(mean)] == view
        variance[rows] = variance[rows].mean()
    scale = np.divide(1, np.sqrt(variance), out=np.zeros_like(variance), where=variance > 0)
    return mean.astype(np.float32), scale.astype(np.float32)

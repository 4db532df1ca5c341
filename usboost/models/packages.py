"""Other packages' models with a file form, as members of an ensemble: CatBoost, TabPFN, TabICL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from usboost.boosting.callbacks import Callback, tell
from usboost.boosting.context import FitContext
from usboost.boosting.rounds import Clock, Round
from usboost.data.related import Related
from usboost.data.views import Views
from usboost.errors import Unsuited, UsboostError
from usboost.files.arrays import read_arrays, write_arrays
from usboost.learners.networks.backbones import Backbone
from usboost.models.estimator import as_views
from usboost.models.package_list import PACKAGES, Package, imported
from usboost.models.scikit import ScikitBaseline, ScikitBaselineRegressor, _Scikit

TREES, ARRAYS = "catboost.cbm", "package.safetensors"

KNOWN = ("catboost", "tabpfn", "tabicl")
"""Packages that a file may name. CatBoost's models have a file form of their own; the others learn from
their training rows when they predict, so these are their file."""


def installed() -> list[str]:
    """Those of `KNOWN` that are."""
    return [name for name in KNOWN if find_spec(name) is not None]


class _Stages:
    """Shows CatBoost's iterations to callbacks as rounds."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._callbacks, self._clock = callbacks, Clock()

    def after_iteration(self, info: Any) -> bool:
        """Whether it is to go on."""
        losses: list[float] = next(iter(info.metrics.get("validation", {}).values()), [])
        metrics = {"risk_val": float(losses[-1])} if losses else {}
        stop = tell(self._callbacks, Round(info.iteration, None, metrics, self._clock.seconds()))
        self._clock = Clock()
        return not stop


class _Package(_Scikit):
    """What the classifier and the regressor share."""

    package: str
    n_trees: int

    learns_from_held = False  # an ensemble judges it by these rows

    @property
    def stops_early(self) -> bool:  # type: ignore[override]
        return PACKAGES[self.package].stops_early

    @property
    def n_rounds(self) -> int:  # type: ignore[override]
        """Trees at most, under the name that callbacks know; 1 of a model without."""
        return self.n_trees if self.stops_early else 1

    def _known(self) -> Package | None:
        return PACKAGES.get(self.package)

    def _task(self) -> str:
        return "classification" if isinstance(self, PackageClassifier) else "regression"

    def _made(self) -> Any:
        """The package's estimator."""
        if self.package not in KNOWN:
            raise UsboostError(f"unknown package {self.package!r}; choose among {', '.join(KNOWN)}")
        if find_spec(self.package) is None:
            raise UsboostError(
                f"the model needs {self.package}, which is not installed; `pip install {self.package}`"
            )
        package = PACKAGES[self.package]
        settings = package.settings(torch.get_num_threads(), self.random_state)
        if package.stops_early:
            settings |= {"iterations": self.n_trees}
        return imported(package.classes[self._task()])(**settings)

    def _ready(self, y: np.ndarray, related: Related | None) -> Any:
        return self._made()

    def _fit(self, views: Views, y: np.ndarray, context: FitContext) -> None:
        try:
            super()._fit(views, y, context)
        except UsboostError:
            raise
        except Exception as error:  # a package's own errors: no weights to be had, no memory, any other
            said = str(error).splitlines() or [type(error).__name__]
            raise Unsuited(f"{self.package}: {said[0]}") from error
        if self.stops_early:
            self.best_round_ = int(self.estimator_.tree_count_)

    def _learnt(self, x: np.ndarray, y: np.ndarray, rows: int) -> None:
        package, n_classes = PACKAGES[self.package], len(getattr(self, "classes_", ()))
        most = package.rows if torch.cuda.is_available() else package.rows_on_cpu
        for what, count, limit in (
            ("rows", rows, most),
            ("columns", x.shape[1], package.columns),
            ("classes", n_classes, package.n_classes),
        ):
            if limit is not None and count > limit:
                raise Unsuited(f"{self.package} takes up to {limit:,} {what} here, not {count:,}")
        self.rows_ = None if self.stops_early else (np.asarray(x, dtype=np.float32), y)

    def _hooks(self, callbacks: Sequence[Callback]) -> dict[str, Any]:
        return {"callbacks": [_Stages(callbacks)]} if self.stops_early else {}

    def _write(self, folder: Path) -> dict[str, Any]:
        arrays = {"mean": self.mean_, "scale": self.scale_}
        if self.rows_ is None:
            self.estimator_.save_model(str(folder / TREES))
        else:
            arrays |= {"x": self.rows_[0], "y": self.rows_[1]}
        write_arrays(arrays, folder / ARRAYS)
        return {"reading": self.reading_.write(folder), "own_categories": self.own_categories_}

    def _read(self, document: Mapping[str, Any], folder: Path) -> None:
        arrays = read_arrays(folder / ARRAYS)
        self.mean_, self.scale_ = arrays["mean"], arrays["scale"]
        self.reading_ = self._reading()
        self.reading_.read(document.get("reading"), folder)
        self.own_categories_ = document.get("own_categories") is True  # earlier files have indicators
        self.estimator_, self.rows_ = self._made(), None
        if self.stops_early:
            self.estimator_.load_model(str(folder / TREES))
            return
        x, y = self.rows_ = arrays["x"], arrays["y"]
        right = x.ndim == 2 and y.shape == (len(x),) and np.isfinite(x).all() and np.isfinite(y).all()
        if not right or (self._task() == "classification" and y.dtype != np.int64):
            raise UsboostError("its training rows are none that it can learn from")
        self.estimator_.fit(x, y)


class PackageClassifier(_Package, ScikitBaseline):
    """A classifier of another package: numbers standardised, categories one-hot, pictures embedded.

    CatBoost is given the categories themselves.

    Parameters
    ----------
    package : of `KNOWN`
    views : names of the views it reads
    n_trees : CatBoost's iterations at most
    validation_fraction, random_state, callbacks : as everywhere
    backbone, device : what embeds pictures (always frozen here), and where

    Attributes
    ----------
    classes_ ; estimator_ : fitted, of the classes' positions

    Raises
    ------
    Unsuited
        By ``fit``, of more rows, columns or classes than the package is made for, and where it fails.
    """

    def __init__(
        self,
        package: str = "catboost",
        views: Sequence[str] = ("U", "S"),
        n_trees: int = 2000,
        validation_fraction: float = 0.0,
        backbone: Backbone | None = None,
        device: str = "auto",
        random_state: int = 0,
        callbacks: Sequence[Callback] | None = None,
    ) -> None:
        self.package = package
        self.views = views
        self.n_trees = n_trees
        self.validation_fraction = validation_fraction
        self.backbone = backbone
        self.device = device
        self.random_state = random_state
        self.callbacks = callbacks

    def predict_proba(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """Class probabilities, float64 (n, M), columns as in ``classes_``."""
        self._check_fitted()
        found = np.asarray(self.estimator_.predict_proba(self._rows(as_views(X))), dtype=np.float64)
        if found.shape[1] != len(self.classes_):
            raise UsboostError(f"{self.package} knows {found.shape[1]} classes, not {len(self.classes_)}")
        return found / found.sum(axis=1, keepdims=True)


class PackageRegressor(_Package, ScikitBaselineRegressor):
    """A regressor of another package; see `PackageClassifier`.

    Parameters
    ----------
    As of `PackageClassifier`; it is fitted to centred and scaled targets.

    Attributes
    ----------
    estimator_ ; target_centre_, target_scale_ : of the training targets
    """

    def __init__(
        self,
        package: str = "catboost",
        views: Sequence[str] = ("U", "S"),
        n_trees: int = 2000,
        validation_fraction: float = 0.0,
        backbone: Backbone | None = None,
        device: str = "auto",
        random_state: int = 0,
        callbacks: Sequence[Callback] | None = None,
    ) -> None:
        self.package = package
        self.views = views
        self.n_trees = n_trees
        self.validation_fraction = validation_fraction
        self.backbone = backbone
        self.device = device
        self.random_state = random_state
        self.callbacks = callbacks

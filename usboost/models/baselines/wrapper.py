"""The wrapper of others' estimators: how it reads views, what is chosen and told, and its file."""

# Annotations are not postponed: a class takes its fields, and their types, from those of other modules, too.

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from usboost.boosting.callbacks import Callback, tell, watched
from usboost.boosting.context import FitContext
from usboost.boosting.rounds import Clock, Round
from usboost.data.table import Table
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.evaluation.weighted import column_moments
from usboost.learners.indicators import with_indicators
from usboost.learners.networks.images.backbones import Backbone
from usboost.learners.search_space import Space
from usboost.learners.trees.tree import Tree
from usboost.models.base import ViewsClassifier, ViewsRegressor
from usboost.models.baselines.package import Package, Rows
from usboost.models.estimator import ViewsEstimator, as_views
from usboost.models.inputs import InputReader, InputSpec

NAME = "all"
"""What a baseline reads, as a learner's name."""

_FEATURE = re.compile(r"__(embedding|component)_\d+$")  # of an image

Names = Sequence[str]


@dataclass(eq=False, repr=False, kw_only=True)
class Wrapper(ViewsEstimator):
    """Another's method on views: reads them, fits as its entry of `PACKAGES` says, and has its file."""

    validation_fraction: float = 0.1
    backbone: Backbone | None = None
    device: str = "auto"
    random_state: int = 0
    callbacks: Sequence[Callback] | None = None

    holds: ClassVar[Mapping[str, Any]] = {"backbone": ("Backbone",)}

    @property
    def _entry(self) -> Package:
        """Its entry of the table."""
        raise AttributeError("_entry is named by each model")

    @property
    def space(self) -> Space:
        """What may be chosen of it."""
        return self._entry.space

    @property
    def n_rounds(self) -> int:
        """Values that are tried, or the package's own rounds at most, under the name that callbacks know."""
        if self._entry.chosen:
            return len(getattr(self, self._entry.chosen))
        return int(getattr(self, "n_trees", 1)) if self._entry.stages else 1

    @property
    def tells_stages(self) -> bool:
        """Whether callbacks are told of the package's own rounds, and not of the fit as one."""
        return self._entry.stages and hasattr(self, "n_trees")

    @property
    def n_outputs(self) -> int:
        """M classes, or 1 of a regression."""
        return len(getattr(self, "classes_", ())) or 1

    @property
    def n_estimators_(self) -> int:
        """Trees or stages kept; 1 of a model without."""
        self._check_fitted()
        return self._entry.size(self)

    def _fit(self, views: Views, y: np.ndarray, context: FitContext) -> None:
        package, watch = self._entry, context.watch()
        choices = self._choices(context.validation is not None)
        rows = self._given(views, y, context)
        best, kept, clock = np.inf, dict[str, Any](), Clock()
        with watched(self, watch.callbacks):
            for index, choice in enumerate(choices, start=1):
                found, metrics = package.fit(self, rows, choice, watch.callbacks)
                self.__dict__.update(found)
                if package.scored and rows.held is not None:
                    metrics["risk_val"] = package.risk(self, rows)
                if index == 1 or metrics["risk_val"] < best:
                    best, kept = metrics.get("risk_val", np.inf), {"best_round_": index, **found}
                if self.tells_stages:
                    break
                stop = tell(watch.callbacks, Round(index, None, metrics, clock.seconds()))
                clock = Clock()
                if stop or (package.patience and index == kept["best_round_"] + package.patience):
                    break
        self.__dict__.update(kept)
        self.history_ = watch.history

    def _choices(self, held: bool) -> Sequence[Any]:
        """The values to be tried of the parameter that is chosen on validation rows, if there are any."""
        package = self._entry
        if not package.chosen:
            return (None,)
        choices: Sequence[Any] = getattr(self, package.chosen)
        if not choices:
            raise UsboostError(f"{package.chosen} is empty; give one or more")
        return choices if held else (choices[len(choices) // 2 if package.middle else 0],)

    def _given(self, views: Views, y: np.ndarray, context: FitContext) -> Rows:
        """Learn from the training rows how they are read and scaled; what the package is given."""
        weights, reads = context.weights, self._entry.reads
        self.reading_ = self._reading()
        table = self.reading_.fit(views, weights)[NAME]
        if reads == "table":
            self.columns_ = {"+".join(self.views): table.names}
        else:
            told = getattr(self, "estimator", None)  # XGBoost's may have been told to take no categories
            takes = told is None or told.get_params().get("enable_categorical", True) is not False
            self.own_categories_ = reads == "frame" and takes
            self.mean_, self.scale_ = _centre_and_scale(table, weights)
        x = self._columns_of(table)
        held = context.validation and (self._rows(context.validation[0]), context.validation[1])
        categories = range(len(self.mean_), x.shape[1]) if reads == "frame" and self.own_categories_ else ()
        return Rows(x, y, weights, held, context.held_weights, context.apart, tuple(categories))

    def _rows(self, views: Views) -> Any:
        """Any rows, as the package reads them."""
        return self._columns_of(self.reading_(views)[NAME])

    def _columns_of(self, table: Table) -> Any:
        """The table as it is; or float32 (n, p): numbers, then each category's indicators; or a frame whose
        columns of categories are of pandas' own type."""
        if self._entry.reads == "table":
            return table
        numbers = (table.numeric - self.mean_) * self.scale_
        if not self.own_categories_:
            return with_indicators(numbers, table.codes, table.cardinalities, sparse=self._entry.takes_sparse)
        from pandas import Categorical, DataFrame

        frame = DataFrame(numbers, columns=range(numbers.shape[1]))
        for codes, k in zip(table.codes.T, table.cardinalities, strict=True):
            frame[frame.shape[1]] = Categorical.from_codes(codes, categories=range(k))
        return frame

    def _outputs(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """Probabilities, or standardised numbers (n, 1)."""
        self._check_fitted()
        return self._entry.predict(self, self._rows(as_views(X)))

    def _unfitted(self, rows: Rows | None = None) -> Any:
        """The estimator, to be fitted to rows, or to be read from a file."""
        raise AttributeError("_unfitted is defined by models of scikit-learn's interface")

    def _reading(self) -> InputReader:
        if not self.views:
            raise UsboostError("views names no view; give one or more")
        components = getattr(self, "components", self._entry.components)
        several = len(self.views) > 1 or self._entry.reads != "table"
        wanted = {NAME: InputSpec(tuple(self.views), components, filled=True)}
        return InputReader(wanted, self.backbone, self.device, qualified=several)

    def _reads(self, n_columns: int) -> Names:
        return self.views

    def _trees(self) -> Iterator[tuple[str, Tree, float]]:
        return (("+".join(self.views), tree, 1.0) for tree in self._entry.trees(self))

    def _write(self, folder: Path) -> dict[str, Any]:
        return {**self._entry.write(self, folder), self._entry.reading: self.reading_.write(folder)}

    def _read(self, document: Mapping[str, Any], folder: Path) -> None:
        self.reading_ = self._reading()
        self.reading_.read(document.get(self._entry.reading), folder)
        self._entry.read(self, folder, document)


class Classifier(Wrapper, ViewsClassifier):
    """Of classes."""

    def predict_proba(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """Class probabilities, float64 (n, M), columns as in ``classes_``."""
        found = self._outputs(X)
        return found if self._entry.sums_to_one else found / found.sum(axis=1, keepdims=True)


class Regressor(Wrapper, ViewsRegressor):
    """Of numbers."""

    def _predict(self, views: Views) -> np.ndarray:
        return self._outputs(views)[:, 0]


def _centre_and_scale(table: Table, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Means and factors of the numeric columns, float32 (p,): numbers each on their own scale, features of
    images, hundreds that belong together, on their common one."""
    mean, variance = column_moments(table.numeric, weights)
    of = np.array([_FEATURE.sub("", name) for name in table.names])
    for view in {each for each, name in zip(of, table.names[: len(mean)]) if _FEATURE.search(name)}:
        rows = of[: len(mean)] == view
        variance[rows] = variance[rows].mean()
    scale = np.divide(1, np.sqrt(variance), out=np.zeros_like(variance), where=variance > 0)
    return mean.astype(np.float32), scale.astype(np.float32)

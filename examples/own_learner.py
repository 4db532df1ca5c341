"""A learner of your own, registered and checked: the mean target in each cell of a map.

It draws some places as centres, and gives a place the mean of those that have the same nearest centre.
"""

from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator

from usboost import Table, TreeLearner, TwoWeakLearnerClassifier, UsboostError, Views
from usboost.learners.base import LEARNERS, check_outputs
from usboost.testing import check_learner


@dataclass(frozen=True)
class FittedCells:
    centres: np.ndarray  # (k, p)
    values: np.ndarray  # (k, D), float32
    kind = "cells"

    def predict(self, prepared):
        return self.values[cdist(prepared, self.centres).argmin(axis=1)]

    def to_arrays(self):  # for files: arrays, and whatever JSON can hold
        return {"centres": self.centres, "values": self.values}, {}

    @classmethod
    def from_arrays(cls, arrays, meta):
        return cls(arrays["centres"], arrays["values"])

    def check(self, n_outputs=None, n_columns=None):  # before anything from a file is used
        if not all(each.ndim == 2 and np.isfinite(each).all() for each in (self.centres, self.values)):
            raise UsboostError("centres and values are no matrices of finite numbers")
        check_outputs(self.values.shape[1], n_outputs)


@dataclass
class CellsTrainer:
    n_cells: int
    places: np.ndarray

    def fit(self, target, *, seed, start):  # once a round
        centres = np.random.default_rng(seed).choice(self.places, self.n_cells, replace=False)
        cells = np.eye(self.n_cells)[cdist(self.places, centres).argmin(axis=1)]  # one-hot, (n, k)
        weights = np.ones(len(cells)) if target.fit_weights is None else target.fit_weights
        weights = np.broadcast_to(weights.reshape(len(cells), -1), target.values.shape)
        sums, held = cells.T @ (weights * target.values), cells.T @ weights
        return FittedCells(centres, (sums / np.maximum(held, 1e-12)).astype(np.float32))


@LEARNERS.register
@dataclass
class CellsLearner(BaseEstimator):
    n_cells: int = 20
    kind, fitted = "cells", FittedCells

    def prepare(self, view):  # once a fit
        return view.numeric

    def trainer(self, prepared, n_outputs):
        return CellsTrainer(self.n_cells, prepared)


check_learner(CellsLearner())  # equal seeds, files, damaged files, kill and resume
print("it does what usboost asks of a learner")
rng = np.random.default_rng(0)
place, house = rng.uniform(-1, 1, (1500, 2)), rng.normal(size=(1500, 3))
dear = np.sin(6 * np.hypot(*place.T)) + 0.5 * house[:, 0] > 0
views = Views(place=Table.from_numeric(place), house=Table.from_numeric(house))
for name, learner in ("trees", TreeLearner()), ("cells", CellsLearner()):
    model = TwoWeakLearnerClassifier({"place": learner, "house": TreeLearner()}, n_rounds=40)
    model.fit(views[:1000], dear[:1000])
    print(f"accuracy with {name} of places: {model.score(views[1000:], dear[1000:]):.3f}")

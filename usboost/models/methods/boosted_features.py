"""Boosted feature vectors: the leaf values a sample falls into, tree by tree (US §3.1); GBMs in files."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from usboost.data.table import CodedTable, Table
from usboost.errors import UsboostError
from usboost.evaluation.folds import Related, inner_folds
from usboost.evaluation.statistics import mean
from usboost.files import replacing
from usboost.files.arrays import Arrays, read_arrays, read_json, write_arrays
from usboost.files.onnx_graph import TableNodes, Value, joined
from usboost.learners.forest import FittedTrees, Forest
from usboost.learners.search_space import Integer, Real, Space
from usboost.learners.tree import Tree
from usboost.learners.tree_learner import HISTOGRAMS, quiet_lightgbm
from usboost.learners.tree_nodes import tree_sum
from usboost.models.persistence import check_digests, digests
from usboost.process import OwnSettings


@dataclass(frozen=True)
class GradientBoostedTrees:
    """A fitted GBM as plain trees: what BFVs are read from, whatever engine grew it.

    Attributes
    ----------
    trees : list of N·T trees, stage by stage, classes inside; T = 1 for two classes or a regression, else M
    initial : float64 (T,) raw score before the first stage
    learning_rate : raw score = initial + learning_rate · Σ_stages leaf value
    n_classes : M; 1 for a regression
    """

    trees: list[Tree]
    initial: np.ndarray
    learning_rate: float
    n_classes: int

    def __repr__(self) -> str:
        return f"GradientBoostedTrees({self.n_stages} stages, {self.n_classes} classes)"

    @property
    def n_stages(self) -> int:
        """Return N."""
        return len(self.trees) // self.trees_per_stage

    @property
    def trees_per_stage(self) -> int:
        return len(self.initial)

    @property
    def n_features(self) -> int:
        """Return the length of a BFV: N·M, or N for two classes."""
        return len(self.trees)

    def features(self, table: Table, rows: slice = slice(None)) -> np.ndarray:
        """Return BFV(x) of the rows, float32 (n, N·T), columns by stage and then class."""
        return self._forest.leaf_values(table[rows].matrix())

    def coded(self, table: Table) -> CodedTable:
        """Return BFV(x) of the rows, as leaf numbers in memory."""
        codes = self._forest.leaf_numbers(table.matrix())
        return CodedTable.of_codes(codes, [tree.value[:, 0] for tree in self.trees])

    @cached_property
    def _forest(self) -> Forest:
        return Forest(self.trees)

    def raw_score(self, table: Table) -> np.ndarray:
        """Return initial + learning_rate · Σ BFV per class: float64 (n, T)."""
        matrix = table.matrix()
        classes = [self.trees[k :: self.trees_per_stage] for k in range(self.trees_per_stage)]
        sums = [Forest(trees).weighted_sum(matrix, np.ones(len(trees))) for trees in classes]
        return self.initial + self.learning_rate * np.concatenate(sums, axis=1)

    def staged_raw_score(self, table: Table) -> Iterator[np.ndarray]:
        """Yield the raw score after each stage, float64 (n, T); one array, that the next stage changes."""
        matrix = table.matrix()
        raw = np.repeat(self.initial[None, :], len(matrix), axis=0)
        for start in range(0, len(self.trees), self.trees_per_stage):
            stage = self.trees[start : start + self.trees_per_stage]
            raw += self.learning_rate * np.concatenate([tree.predict(matrix) for tree in stage], axis=1)
            yield raw

    def probabilities(self, table: Table) -> np.ndarray:
        """Predict class probabilities by the GBM alone, float64 (n, M)."""
        raw = self.raw_score(table)
        if self.n_classes == 2:
            positive = expit(raw[:, 0])
            return np.column_stack([1 - positive, positive])
        return softmax(raw, axis=1)

    def to_onnx(self, table: TableNodes) -> Value:
        """Return in the table's graph the probabilities, float64 (n, M), or raw scores (n, 1)."""
        places = [k % self.trees_per_stage for k in range(len(self.trees))]
        raw = tree_sum(table, self.trees, [self.learning_rate] * len(places), places) + self.initial[None]
        if self.n_classes == 1:
            return raw
        scores: Value = joined([raw * 0.0, raw]) if self.n_classes == 2 else raw
        return scores.Softmax(axis=1)


def initial_score(y: np.ndarray, n_classes: int, weights: np.ndarray | None = None) -> np.ndarray:
    """Return the raw score before the first stage, float64 (T,).

    Log-odds of class 1, or every class's log share; for a regression the mean; by any `weights` (n,).
    """
    if n_classes == 1:
        return np.array([mean(y, weights)])
    totals = np.bincount(y, weights, n_classes)
    shares = np.where(totals > 0, totals, 1) / (len(y) if weights is None else weights.sum())
    return np.array([np.log(shares[1] / shares[0])]) if n_classes == 2 else np.log(shares)


def lightgbm_parameters(n_classes: int) -> dict[str, Any]:
    """Return LightGBM's parameters for equal trees from equal seeds; `n_classes` is 1 for a regression."""
    return {
        "objective": {1: "regression", 2: "binary"}.get(n_classes, "multiclass"),
        "num_class": 1 if n_classes == 2 else n_classes,
        "boost_from_average": False,  # the initial score stays apart from the first tree
        "deterministic": True,
        "force_col_wise": True,
        "histogram_pool_size": HISTOGRAMS,
        "verbose": -1,
    }


def grow_lightgbm(
    own: dict[str, Any],
    initial: np.ndarray,
    n_classes: int,
    n_rounds: int,
    rows: tuple[Table, np.ndarray, np.ndarray | None],
    val: tuple[Table, np.ndarray, np.ndarray | None] | None = None,
    callbacks: Sequence[Any] = (),
) -> Any:
    """Train LightGBM's booster on rows, a table, y and weights, from an initial score.

    Parameters
    ----------
    own : parameters besides `lightgbm_parameters`
    val : validation rows
    """
    # all cores where a tree takes long enough; below, threads that spin only cost
    threads = {"num_threads": 0 if len(rows[1]) > 50_000 else 1}
    parameters = lightgbm_parameters(n_classes) | threads | own

    def dataset(table: Table, y: np.ndarray, weights: np.ndarray | None, reference: Any = None) -> Any:
        return quiet_lightgbm().Dataset(
            table.matrix(),
            label=y,
            weight=weights,
            init_score=np.repeat(initial, len(y)),  # LightGBM reads them class by class
            params=parameters,
            categorical_feature=list(table.categorical),
            reference=reference,
        )

    train = dataset(*rows)
    valid = [] if val is None else [dataset(*val, train)]
    return quiet_lightgbm().train(parameters, train, n_rounds, valid_sets=valid, callbacks=list(callbacks))


@dataclass(eq=False, repr=False)
class BoostedFeatures(OwnSettings, BaseEstimator):
    """Fits a GBM on a table and gives its boosted feature vectors.

    Parameters
    ----------
    n_trees : N, the GBM's stages ("BFV trees")
    max_depth : int
    learning_rate : float
    min_samples_leaf : int
    engine : {"lightgbm", "sklearn"}
        "sklearn" is the paper's `GradientBoostingClassifier`, categories taken as ordinals.
    num_threads : LightGBM's; 0 chooses by the number of rows
    random_state : int

    Attributes
    ----------
    gbm_ : GradientBoostedTrees

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from usboost import BoostedFeatures, Table, Views
    >>> X, y = load_iris(return_X_y=True)
    >>> views = Views(U=Table.from_numeric(X[:, :2]), S=Table.from_numeric(X[:, 2:]))
    >>> features = BoostedFeatures(n_trees=4).fit(views["S"], y)
    >>> features.transform(views["S"]).shape  # a leaf value of each of 4 stages for each of 3 classes
    (150, 12)
    """

    space: ClassVar[Space] = {
        "n_trees": Integer(50, 1000, log=True),
        "max_depth": Integer(1, 8),
        "learning_rate": Real(0.01, 0.3, log=True),
        "min_samples_leaf": Integer(1, 200, log=True),
    }

    n_trees: int = 500
    max_depth: int = 3
    learning_rate: float = 0.1
    min_samples_leaf: int = 20
    engine: str = "lightgbm"
    num_threads: int = 0
    random_state: int = 0

    def fit(
        self, table: Table, y: np.ndarray, weights: np.ndarray | None = None, n_classes: int | None = None
    ) -> "BoostedFeatures":
        """Fit the GBM to a table of n rows and y of shape (n,): codes 0..M−1, or float targets.

        `weights`, positive (n,), count as the engine takes them; `min_samples_leaf` counts rows. `n_classes`
        is M where these rows may lack the last class.
        """
        if self.engine not in ("lightgbm", "sklearn"):
            raise UsboostError(f"unknown GBM engine {self.engine!r}; choose 'lightgbm' or 'sklearn'")
        n_classes = n_classes or (1 if y.dtype.kind == "f" else int(y.max()) + 1)
        initial = initial_score(y, n_classes, weights)
        if self.engine == "lightgbm":
            own = {
                "learning_rate": self.learning_rate,
                "max_depth": self.max_depth,
                "num_leaves": 2**self.max_depth,
                "min_data_in_leaf": self.min_samples_leaf,
                "seed": self.random_state,
                **({"num_threads": self.num_threads} if self.num_threads else {}),
            }
            booster = grow_lightgbm(own, initial, n_classes, self.n_trees, (table, y, weights))
            grown = booster.dump_model()["tree_info"]
            trees = [Tree.from_lightgbm(tree, scale=1 / self.learning_rate) for tree in grown]
            # LightGBM stops when nothing is left to split; the stages it leaves out add nothing
            trees += [Tree.constant(0.0)] * (self.n_trees * len(initial) - len(trees))
        else:
            from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor

            if n_classes > 1 and len(np.unique(y)) < n_classes:
                raise UsboostError("scikit-learn's GBM needs rows of every class; choose engine 'lightgbm'")
            gbm = (GradientBoostingRegressor if n_classes == 1 else GradientBoostingClassifier)(
                n_estimators=self.n_trees,
                max_depth=self.max_depth,
                learning_rate=self.learning_rate,
                min_samples_leaf=self.min_samples_leaf,
                random_state=self.random_state,
            ).fit(np.ascontiguousarray(table.matrix()), y, sample_weight=weights)
            if n_classes > 2:
                initial -= initial.mean()  # scikit-learn starts from centred log shares
            trees = [Tree.from_sklearn(tree.tree_) for stage in gbm.estimators_ for tree in stage]
        self.gbm_ = GradientBoostedTrees(trees, initial, self.learning_rate, n_classes)
        return self

    def transform(self, table: Table) -> np.ndarray:
        """Return BFV(x), float32 (n, N·M), or (n, N) for two classes."""
        check_is_fitted(self, "gbm_")
        return self.gbm_.features(table)

    def out_of_fold(
        self,
        table: Table,
        y: np.ndarray,
        n_folds: int = 5,
        weights: np.ndarray | None = None,
        related: Related | None = None,
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield row numbers and BFVs, fold by fold, each from a GBM that never saw those rows.

        In-sample leaf values (the paper's) are optimistic: the network is then trained on features
        that are better than those it meets later. Columns mean different trees in each fold, so
        what the folds share is each column's place in the sequence of stages. Of related rows the folds are
        whole groups, or stretches of time.
        """
        if related is None:
            folds = inner_folds(y, n_folds, self.random_state)
        else:
            part = related.parts(n_folds, y, self.random_state)
            folds = [(np.flatnonzero(part != k), np.flatnonzero(part == k)) for k in range(part.max() + 1)]
        codes = y if y.dtype.kind in "iu" else np.zeros(len(y))
        whole = sum(len(unseen) for _, unseen in folds) == len(y)
        for seen, unseen in folds:
            if not whole or len(np.unique(codes[seen])) < len(np.unique(codes)):
                raise UsboostError(
                    "a class is in one part of the rows only, so features out of fold do not know of it; "
                    "choose features in sample, or leave the groups or times out"
                )
            own = None if weights is None else weights[seen]
            fitted = BoostedFeatures(**self.get_params()).fit(table[seen], y[seen], own)
            yield unseen, fitted.transform(table[unseen])


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
        joined: Arrays = {}  # thousands of trees in one array per field, with where each begins
        for name in (field.name for field in fields(Tree)):
            parts = [arrays[f"{i}.{name}"] for i in range(meta["trees"])]
            joined[name] = np.concatenate(parts)
            joined[f"{name}.start"] = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        write_arrays(joined, partial / "trees.safetensors")
        document["files"] = digests(partial)
        (partial / "gbm.json").write_text(json.dumps(document))


def load_gbm(folder: Path, n_classes: int | None = None) -> GradientBoostedTrees:
    """Read a GBM that `save_gbm` wrote, of `n_classes` classes (1: a regression) where that is known.

    Raises `UsboostError` if a file is missing, cut short or changed, or holds what is no GBM.
    """
    document = read_json(folder / "gbm.json")
    try:
        check_digests(document, folder)
        arrays, names = read_arrays(folder / "trees.safetensors"), [field.name for field in fields(Tree)]
        for name in names:
            starts = arrays[f"{name}.start"]
            if starts.ndim != 1 or starts.dtype != np.int64 or len(starts) != len(arrays["value.start"]):
                raise UsboostError(f"where each tree's {name} starts is not one number for each tree")
            ends = starts[:1].tolist() == [0] and starts[-1] == len(arrays[name])
            if not ends or (np.diff(starts) < 0).any():
                raise UsboostError(f"the trees' {name} is not cut where they start")
        parts = {name: np.split(arrays[name], arrays[f"{name}.start"][1:-1]) for name in names}
        gbm = GradientBoostedTrees(
            [Tree(**{name: parts[name][i] for name in names}) for i in range(len(parts[names[0]]))],
            np.asarray(document["initial"], dtype=np.float64),
            float(document["learning_rate"]),
            int(document["n_classes"]),
        )
        per_stage = 1 if gbm.n_classes == 2 else gbm.n_classes
        if gbm.initial.shape != (per_stage,) or gbm.n_classes < 1 or len(gbm.trees) % per_stage:
            raise UsboostError(f"a GBM of {gbm.n_classes} classes has {len(gbm.trees)} trees")
        if not (np.isfinite(gbm.initial).all() and np.isfinite(gbm.learning_rate)):
            raise UsboostError("a GBM holds a number that is not finite")
        for tree in gbm.trees:
            tree.check()
            if tree.value.shape[1] != 1:
                raise UsboostError("a GBM's tree has more than one value a leaf")
        if n_classes not in (None, gbm.n_classes):
            raise UsboostError(f"its GBM has {gbm.n_classes} classes, not {n_classes}")
        return gbm
    except UsboostError as error:
        raise (error if str(folder) in str(error) else UsboostError(f"{folder}: {error}")) from None
    except (KeyError, IndexError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise UsboostError(f"{folder} is not a GBM that usboost wrote: {error!r}") from error

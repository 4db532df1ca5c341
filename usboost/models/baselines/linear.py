"""Logistic and ridge regression on views; boosting may start from them."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.sparse import csr_array, eye_array
from scipy.special import log_softmax, softmax

from usboost.boosting.callbacks import Callback
from usboost.boosting.context import FitContext
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.evaluation.folds import Related
from usboost.evaluation.statistics import mean
from usboost.files.arrays import read_arrays, write_arrays
from usboost.files.onnx_graph import TableNodes, Value
from usboost.learners.spectrum import GRID, Matrix, Spectrum
from usboost.models.baselines.wrapper import Classifier, FitResult, FitRows, Names, Package, Regressor
from usboost.models.estimator import as_views
from usboost.shards.collective import world

WEIGHTS = "linear.safetensors"
FOLDS = 5
"""Parts of rows that are left out in turn."""

RANK = 1e-10
"""Directions whose variance is below this share of the greatest are left out."""

FEW_VECTORS = 6
"""So many, or fewer, are multiplied by rows as rows themselves; more are quicker as columns."""


class Multinomial:
    """Fits of the same rows at several penalties, or of parts of them.

    In the coordinates of the rows' principal axes, each divided by the root of an upper bound of the risk's
    curvature along it (λ/2 + penalty; Böhning 1992), the risk is rounder, and L-BFGS needs
    fewer iterations: 30 to 100 on embeddings of 4,000 images, by penalty. Sparse rows, of very many
    categories, keep their own axes, which are nearly the principal ones: no two levels are in one row.

    Parameters
    ----------
    x : float32 (n, p), dense or sparse
    counts : float64 (n,), positive, how many rows each stands for; None for 1
    """

    axes: Any  # float32 (p, k), dense or sparse
    rotated: "_Dense | _Centred"  # float32 (n, k)

    def __init__(self, x: Matrix, counts: np.ndarray | None = None) -> None:
        self.counts = counts
        own_total = float(x.shape[0]) if counts is None else counts.sum()
        total = world().sum(own_total)
        if isinstance(x, csr_array):
            share = np.full(x.shape[0], 1 / total) if counts is None else counts / total
            mean = world().sum(share @ x.astype(np.float64))
            self.variances = world().sum(share @ x.astype(np.float64).power(2)) - mean**2
            self.mean = mean.astype(np.float32)
            self.axes = eye_array(x.shape[1], dtype=np.float32, format="csr")
            self.rotated = _Centred(x, self.mean)
            return
        if not own_total:
            mean = np.zeros(x.shape[1])
        else:
            mean = x.mean(axis=0, dtype=np.float64) if counts is None else counts @ x / own_total
        mean = world().mean(mean, own_total)
        self.mean = mean.astype(np.float32)
        centred = own = x - self.mean
        if counts is not None:
            own = centred * np.sqrt(counts)[:, None].astype(np.float32)
        wide = x.shape[1] > len(x) and world().count == 1
        gram = world().sum((own @ own.T if wide else own.T @ own).astype(np.float64))
        values, vectors = np.linalg.eigh(gram)
        large = values > max(values[-1], 0) * RANK
        values, axes = values[large], vectors[:, large].astype(np.float32)
        if wide:
            axes = own.T @ (axes / np.sqrt(values).astype(np.float32))
        self.axes, self.rotated = axes, _Dense(torch.from_numpy(centred) @ torch.from_numpy(axes))
        self.variances = values / total

    def fit(
        self,
        codes: np.ndarray,
        n_classes: int,
        penalty: float,
        rows: np.ndarray | None = None,
        max_iter: int = 200,
        tolerance: float = 1e-4,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Find the minimiser of the mean log-loss + penalty/2 · ‖coefficients‖², intercepts free.

        Parameters
        ----------
        codes : int (n,), classes 0..M−1
        rows : bool (n,), those that count; all by default
        tolerance : greatest slope, in those coordinates, at which the search ends

        Returns
        -------
        float32 (p, M) and (M,); a class without a row has no coefficients, and the intercept of half a row.
        """
        n, k = self.rotated.shape
        counts = np.ones(n) if self.counts is None else self.counts
        if rows is not None:
            counts = counts * rows
        total = world().sum(counts.sum())
        totals = world().sum(np.array([counts[codes == c].sum() for c in range(n_classes)]))
        shares = np.maximum(totals, 0.5) / total
        seen = np.flatnonzero(totals)
        position = np.searchsorted(seen, codes)
        taking_part = np.flatnonzero(counts)
        scale = 1 / np.sqrt(self.variances / 2 + penalty)
        own = (scale**2 * penalty)[:, None]
        scaled = scale.astype(np.float32)[:, None]
        rotated = self.rotated if rows is None else self.rotated[taking_part]
        share = None if self.counts is None else counts[taking_part] / total
        taken = world().sum(len(taking_part))
        hits = np.arange(len(taking_part)), position[taking_part]

        def risk(packed: np.ndarray) -> tuple[float, np.ndarray]:
            c = packed.reshape(k + 1, len(seen))
            logits = rotated.scores(scaled * c[:-1].astype(np.float32)).astype(np.float64) + c[-1]
            logs = log_softmax(logits, axis=1)
            error = np.exp(logs)
            error[hits] -= 1
            if share is None:
                error /= taken
            else:
                error *= share[:, None]
            # the gradient, and the risk after it: what is a sum over rows is summed at once
            sums = np.zeros(c.size + 1)
            gradient = sums[:-1].reshape(c.shape)
            gradient[:-1] = scaled * rotated.sums(error.astype(np.float32))
            gradient[-1] = error.sum(axis=0)
            if len(error):
                sums[-1] = logs[hits].mean() * (len(error) / taken) if share is None else share @ logs[hits]
            sums = world().sum(sums)
            gradient = sums[:-1].reshape(c.shape)
            gradient[:-1] += own * c[:-1]
            value = -sums[-1] + 0.5 * float((own * c[:-1] ** 2).sum())
            return float(value), gradient.ravel()

        start = np.zeros((k + 1, len(seen)))
        start[-1] = np.log(shares[seen])
        solution = minimize(
            risk,
            start.ravel(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": max_iter, "gtol": tolerance, "ftol": 1e-3 * tolerance},
        )
        c = solution.x.reshape(k + 1, len(seen))
        coefficients = np.zeros((len(self.mean), n_classes), dtype=np.float32)
        intercepts = np.log(shares).astype(np.float32)
        coefficients[:, seen] = self.axes @ (scaled * c[:-1].astype(np.float32))
        intercepts[seen] = c[-1] - self.mean @ coefficients[:, seen]
        return coefficients, intercepts


class _Dense:
    """Rows (n, k), multiplied by torch: by a few vectors in half of numpy's time, if these are its rows."""

    def __init__(self, rows: torch.Tensor) -> None:
        self.rows, self.shape = rows, tuple(rows.shape)

    def __getitem__(self, some: np.ndarray) -> "_Dense":
        return _Dense(self.rows[torch.from_numpy(some)])

    def scores(self, vectors: np.ndarray) -> np.ndarray:
        """Return the rows @ vectors, float32 (n, M), of vectors float32 (k, M)."""
        if vectors.shape[1] > FEW_VECTORS:
            return (self.rows @ torch.tensor(vectors)).numpy()
        return (torch.tensor(vectors.T.copy()) @ self.rows.T).numpy().T

    def sums(self, weights: np.ndarray) -> np.ndarray:
        """Return the sums of the rows by the weights (n, M), float32 (k, M)."""
        return (torch.tensor(weights.T) @ self.rows).numpy().T


class _Centred:
    """Sparse rows (n, p) less a mean (p,), known by its products: as numbers it would fill memory."""

    def __init__(self, rows: csr_array, mean: np.ndarray) -> None:
        self.rows, self.mean, self.shape = rows, mean, rows.shape

    def __getitem__(self, some: np.ndarray) -> "_Centred":
        return _Centred(self.rows[some], self.mean)

    def scores(self, vectors: np.ndarray) -> np.ndarray:
        return np.asarray(self.rows @ vectors - self.mean @ vectors)

    def sums(self, weights: np.ndarray) -> np.ndarray:
        return np.asarray(self.rows.T @ weights - self.mean[:, None] * weights.sum(axis=0))


class Linear(Package):
    """x ↦ x W + b, float32 (p, D) and (D,)."""

    takes_sparse = True
    sums_to_one = True

    def scores(self, model: Any, x: np.ndarray) -> np.ndarray:
        """Return x W + b, float64 (n, D)."""
        if x.shape[1] != len(model.coefficients_):
            raise UsboostError(f"the rows have {x.shape[1]} columns, not {len(model.coefficients_)}")
        return np.asarray(x @ model.coefficients_ + model.intercepts_, dtype=np.float64)

    def to_onnx(self, model: Any, table: TableNodes) -> Value:
        return table.linear(np.asarray(model.coefficients_, float), np.asarray(model.intercepts_, float))

    def write(self, model: Any, folder: Path) -> dict[str, Any]:
        names = ("coefficients", "intercepts", "mean", "scale")
        write_arrays({name: getattr(model, f"{name}_") for name in names}, folder / WEIGHTS)
        return {}

    def read(self, model: Any, folder: Path, document: Mapping[str, Any]) -> None:
        arrays, n_outputs = read_arrays(folder / WEIGHTS), model.n_outputs
        p, n = len(arrays["coefficients"]), len(arrays["mean"])
        shapes = {"coefficients": (p, n_outputs), "intercepts": (n_outputs,), "mean": (n,), "scale": (n,)}
        for name, shape in shapes.items():
            array = arrays[name]
            if array.shape != shape or array.dtype != np.float32 or not np.isfinite(array).all() or n > p:
                raise UsboostError(f"its {name} are not those of a linear model of {n_outputs} outputs")
            setattr(model, f"{name}_", array)
        model.own_categories_ = False


class Logistic(Linear):
    """Multinomial logistic regression by `Multinomial`, at each penalty in turn."""

    def fit(self, model: Any, rows: FitRows, choice: Any, callbacks: Sequence[Callback]) -> FitResult:
        if "factors" not in rows.shared:
            rows.shared["factors"] = Multinomial(rows.x, rows.weights)
        fitted = rows.shared["factors"].fit(rows.y, model.n_outputs, choice, max_iter=model.max_iter)
        names = ("coefficients_", "intercepts_")
        return {**dict(zip(names, fitted)), "penalty_": choice}, {"penalty": choice}

    def predict(self, model: Any, x: np.ndarray) -> np.ndarray:
        scores = self.scores(model, x)
        return np.asarray(softmax(scores - scores.mean(axis=1, keepdims=True), axis=1))

    def to_onnx(self, model: Any, table: TableNodes) -> Value:
        return super().to_onnx(model, table).Softmax(axis=1)

    def risk(self, model: Any, rows: FitRows) -> float:
        x, y = rows.val or (rows.x, rows.y)
        p = softmax(self.scores(model, x), axis=1)
        return -mean(np.log(p[np.arange(len(p)), y] + 1e-12), rows.val_weights)


def _left_out(
    x: Any,
    y: np.ndarray,
    weights: np.ndarray | None,
    penalties: np.ndarray,
    seen: np.ndarray,
    unseen: np.ndarray,
) -> np.ndarray:
    """Predict some rows by ridge regressions of others, one for each penalty, float64 (n, A)."""
    spectrum = Spectrum(x[seen], counts=None if weights is None else weights[seen])
    coefficients, intercepts = spectrum.path(y[seen], penalties * spectrum.scale)
    return np.asarray(x[unseen] @ coefficients + intercepts)


class Ridge(Linear):
    """Ridge regression, its penalty by the error of rows left out: one each, or as they are related."""

    def fit(self, model: Any, rows: FitRows, choice: Any, callbacks: Sequence[Callback]) -> FitResult:
        penalties = GRID if model.penalties is None else np.asarray(model.penalties, dtype=np.float64)
        if not penalties.size or not (penalties > 0).all():
            raise UsboostError(f"penalties are one or more positive numbers, not {model.penalties}")
        spectrum, risk = Spectrum(rows.x, counts=rows.weights), None
        if rows.apart is not None:
            parts = rows.apart.folds(FOLDS, rows.y, model.random_state)
            losses, counts = [], []
            for seen, unseen in parts:
                predicted = _left_out(rows.x, rows.y, rows.weights, penalties, seen, unseen)
                losses.append(np.square(predicted - rows.y[unseen][:, None]))
                counts.append(np.ones(len(unseen)) if rows.weights is None else rows.weights[unseen])
            risks = np.average(np.concatenate(losses), axis=0, weights=np.concatenate(counts))
            penalties, risk = penalties[[risks.argmin()]], float(risks.min())
        solved = spectrum.solve(rows.y[:, None], penalties * spectrum.scale)
        if risk is None:
            risk = mean(np.square(solved.left_out[:, 0] - rows.y), rows.weights)
        penalty = solved.alpha / spectrum.scale
        return {
            "coefficients_": solved.coefficients.astype(np.float32),
            "intercepts_": solved.intercept.astype(np.float32),
            "penalty_": penalty,
        }, {"penalty": penalty, "risk_train": risk}

    predict = Linear.scores


@dataclass(eq=False, repr=False)
class LinearBaseline(Classifier):
    """Multinomial logistic regression with an L2 penalty, on one or more views.

    Numbers are standardised, categories one-hot, images centred features of a frozen network, on one scale.

    Parameters
    ----------
    views : names of the views that it reads
    penalties : of mean log-loss + penalty/2 · ‖coefficients‖² (1/(nC) in scikit-learn), each tried; the one
        of the lowest validation log-loss is kept, without validation rows the one in the middle
    max_iter : of each fit
    validation_fraction, random_state, callbacks, backbone, device : as of `LightGBMBaseline`

    Attributes
    ----------
    classes_
    coefficients_ : float32 (p, M); intercepts_ : float32 (M,); penalty_ : the one kept
    history_ : list of dicts, one for each penalty: "penalty", and "risk_val", the validation log-loss in nats
    best_round_ : the position of the penalty kept, from 1; n_estimators_ : 1
    """

    views: Names = ("U", "S")
    penalties: Sequence[float] = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003)
    max_iter: int = 200

    _entry: ClassVar[Linear] = Logistic(
        components=None, chosen="penalties", middle=True, patience=2, scored=True, reading="linear_reading"
    )

    def fit_codes(self, views: Views, codes: np.ndarray, n_classes: int, context: FitContext) -> None:
        """Fit to classes 0..M−1 of a model that starts from this one, with its samples and weights."""
        self.classes_, self.n_features_in_ = np.arange(n_classes), len(views.names)
        self._fit(views, codes, replace(context, callbacks=(), checkpoint=None))

    def out_of_fold(
        self,
        X: Views | Mapping[str, Any],
        codes: np.ndarray,
        weights: np.ndarray | None = None,
        related: Related | None = None,
        folds: int = FOLDS,
    ) -> np.ndarray:
        """Return the centred scores that each training row gets from a fit to the other folds' rows.

        Parameters
        ----------
        X, codes : the n rows that this model was fitted to, and their classes' positions 0..M−1
        weights : float64 (n,), positive, of the rows, each in one fold whatever its weight; None for 1
        related : how the rows are related: the folds are then of whole groups, or stretches of time, each
            scored by a fit to those before and after it; None: drawn by chance

        Returns
        -------
        float64 (n, M), each row's sum 0; a class that a fit did not see counts as half a row of it would.
        """
        x, n_classes = self._rows(as_views(X)), len(self.classes_)
        fits, scores = Multinomial(x, weights), np.empty((len(codes), n_classes))
        if related is not None:
            turn = related.parts(folds, codes, self.random_state)
        else:
            turn = _turns(codes, n_classes, folds, world().seed(self.random_state))
        for fold in range(int(world().highest(turn.max(initial=0))) + 1):
            seen = turn != fold
            coefficients, intercepts = fits.fit(codes, n_classes, self.penalty_, seen, self.max_iter)
            scores[~seen] = x[~seen] @ coefficients + intercepts
        return scores - scores.mean(axis=1, keepdims=True)

    def losses(self, scores: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return the log-loss of each row, in nats, float64 (n,), by scores as `out_of_fold` gives them."""
        return -log_softmax(scores, axis=1)[np.arange(len(codes)), codes]

    def scores(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """Return the scores of each class, float64 (n, M), each row's sum 0."""
        scores = self._entry.scores(self, self._rows(as_views(X)))
        return np.asarray(scores - scores.mean(axis=1, keepdims=True))

    def decision_function(self, X: Views | Mapping[str, Any]) -> np.ndarray:
        """Return the scores, float64 (n, M), or (n,) with the margin of class 1 when M = 2."""
        scores: np.ndarray = self.scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores


@dataclass(eq=False, repr=False)
class RidgeBaseline(Regressor):
    """Linear regression with an L2 penalty, on one or more views.

    Numbers are standardised, categories one-hot, images the centred features of a frozen backbone, all on
    one scale. One eigendecomposition gives the exact leave-one-out error of every penalty, so that no
    samples need be set aside. Of related rows a penalty's error is that of `Related.folds`: of whole groups
    left out, or of later rows.

    Parameters
    ----------
    views : names of the views that it reads
    penalties : of Σ_i (y_i − x_i w − b)² + α ‖w‖², tried in units of the columns' mean eigenvalue; the one of
        the least leave-one-out error is kept. By default 10⁻⁴ to 10⁵, two a decade, and infinity
    validation_fraction : share of the training samples that are set aside and only scored
    random_state, callbacks, backbone, device : as of `LightGBMBaseline`

    Attributes
    ----------
    target_centre_, target_scale_ : mean and standard deviation of the training targets
    coefficients_ : float32 (p, 1); intercepts_ : float32 (1,), of standardised targets
    penalty_ : the one kept, in the units of `penalties`
    history_ : one dict: "penalty", "risk_train", the leave-one-out mean squared error of standardised
        targets (of related rows, that of the rows left out), and with validation data "risk_val"
    best_round_, n_estimators_ : 1

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from usboost import RidgeBaseline, Table, Views
    >>> X, y = load_diabetes(return_X_y=True)
    >>> views = Views(U=Table.from_numeric(X[:, :5]), S=Table.from_numeric(X[:, 5:]))
    >>> RidgeBaseline(views=("U", "S")).fit(views, y).score(views, y) > 0.3
    True
    """

    views: Names = ("U", "S")
    penalties: Sequence[float] | None = None
    _: KW_ONLY
    validation_fraction: float = 0.0

    _entry: ClassVar[Linear] = Ridge(components=None, scored=True, reading="linear_reading")

    def out_of_fold(
        self, views: Views, y: np.ndarray, weights: np.ndarray | None = None, related: Related | None = None
    ) -> np.ndarray:
        """Return what each training row gets from the fit to all others, float64 (n, 1), standardised.

        Parameters
        ----------
        views, y, weights : the n rows that this model was fitted to, their standardised targets and weights;
            a row is left out as a whole, whatever its weight
        related : how the rows are related: then what a row gets is from a fit without its part of whole
            groups, or its stretch of time
        """
        x, penalty = self._rows(views), np.array([self.penalty_])
        if related is None or np.isinf(self.penalty_):
            spectrum = Spectrum(x, counts=weights)
            return spectrum.solve(y[:, None], penalty * spectrum.scale).left_out
        part, predicted = related.parts(FOLDS, y, self.random_state), np.empty((len(y), 1))
        for k in range(int(part.max()) + 1):
            predicted[part == k] = _left_out(x, y, weights, penalty, part != k, part == k)
        return predicted

    def losses(self, scores: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the squared error of each row, float64 (n,), by scores as `out_of_fold` gives them."""
        return np.square(scores[:, 0] - y)

    def scores(self, views: Views) -> np.ndarray:
        """Return standardised predictions, float64 (n, 1)."""
        return np.asarray(self._entry.scores(self, self._rows(views)))


def _turns(codes: np.ndarray, n_classes: int, folds: int, seed: int) -> np.ndarray:
    """Draw the fold of each row, int64 (n,): stratified, also by rare classes, whatever their order."""
    turn, rank = np.empty((2, len(codes)), dtype=np.int64)
    order = np.random.default_rng(seed).permutation(len(codes))
    rank[order] = np.arange(len(codes))
    for k in range(n_classes):
        rows = order[codes[order] == k]
        turn[rows] = (np.arange(len(rows)) + rank[rows[:1]].sum()) % folds
    return turn

"""Logistic and ridge regression on one matrix, and what boosting that starts from them asks."""

# Annotations are not postponed, as in `wrapper`.

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from scipy.special import log_softmax, softmax

from usboost.boosting.callbacks import Callback
from usboost.boosting.context import FitContext
from usboost.data.row_groups import Related
from usboost.data.views import Views
from usboost.errors import UsboostError
from usboost.evaluation.weighted import mean
from usboost.files.arrays import read_arrays, write_arrays
from usboost.learners.spectrum import GRID, Spectrum
from usboost.models.baselines.multinomial import Multinomial
from usboost.models.baselines.package import Package, Rows
from usboost.models.baselines.wrapper import Classifier, Names, Regressor
from usboost.models.estimator import as_views
from usboost.shards.here import here

WEIGHTS = "linear.safetensors"
FOLDS = 5
"""Parts of rows that are left out in turn."""


class Linear(Package):
    """x ↦ x W + b, float32 (p, D) and (D,)."""

    takes_sparse = True
    sums_to_one = True

    def scores(self, model: Any, x: np.ndarray) -> np.ndarray:
        """x W + b, float64 (n, D)."""
        if x.shape[1] != len(model.coefficients_):
            raise UsboostError(f"the rows have {x.shape[1]} columns, not {len(model.coefficients_)}")
        return np.asarray(x @ model.coefficients_ + model.intercepts_, dtype=np.float64)

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

    def fit(
        self, model: Any, rows: Rows, choice: Any, callbacks: Sequence[Callback]
    ) -> tuple[dict[str, Any], dict[str, float]]:
        if "factors" not in rows.shared:
            rows.shared["factors"] = Multinomial(rows.x, rows.weights)
        fits: Multinomial = rows.shared["factors"]
        found = fits.fit(rows.y, model.n_outputs, choice, max_iter=model.max_iter)
        names = ("coefficients_", "intercepts_")
        return {**dict(zip(names, found)), "penalty_": choice}, {"penalty": choice}

    def predict(self, model: Any, x: np.ndarray) -> np.ndarray:
        scores = self.scores(model, x)
        return np.asarray(softmax(scores - scores.mean(axis=1, keepdims=True), axis=1))

    def risk(self, model: Any, rows: Rows) -> float:
        x, y = rows.held or (rows.x, rows.y)
        p = softmax(self.scores(model, x), axis=1)
        return -mean(np.log(p[np.arange(len(p)), y] + 1e-12), rows.held_weights)


class Ridge(Linear):
    """Ridge regression, its penalty by the error of rows left out: one each, or as they are related."""

    def fit(
        self, model: Any, rows: Rows, choice: Any, callbacks: Sequence[Callback]
    ) -> tuple[dict[str, Any], dict[str, float]]:
        penalties = GRID if model.penalties is None else np.asarray(model.penalties, dtype=np.float64)
        if not penalties.size or not (penalties > 0).all():
            raise UsboostError(f"penalties are one or more positive numbers, not {model.penalties}")
        spectrum, risk = Spectrum(rows.x, counts=rows.weights), None
        if rows.apart is not None:
            parts = rows.apart.folds(FOLDS, rows.y, model.random_state)
            risks = _risks_apart(rows.x, rows.y, penalties, rows.weights, parts)
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

    def predict(self, model: Any, x: np.ndarray) -> np.ndarray:
        return self.scores(model, x)


def _risks_apart(
    x: np.ndarray,
    y: np.ndarray,
    penalties: np.ndarray,
    weights: np.ndarray | None,
    parts: Iterable[tuple[np.ndarray, np.ndarray]],
) -> np.ndarray:
    """The mean squared error of each penalty on the parts, (rows to fit to, rows left out), float64 (A,)."""
    losses, counts = [], []
    for seen, held in parts:
        spectrum = Spectrum(x[seen], counts=None if weights is None else weights[seen])
        coefficients, intercepts = spectrum.path(y[seen], penalties * spectrum.scale)
        losses.append(np.square(x[held] @ coefficients + intercepts - y[held][:, None]))
        counts.append(np.ones(len(held)) if weights is None else weights[held])
    return np.average(np.concatenate(losses), axis=0, weights=np.concatenate(counts))


class LogisticStart:
    """What a boosting model that starts from a fitted logistic regression asks of it."""

    def fit_codes(self: Any, views: Views, codes: np.ndarray, n_classes: int, context: FitContext) -> None:
        """Fit to classes 0..M−1 of a model that holds this one, with its validation samples and weights."""
        self.classes_, self.n_features_in_ = np.arange(n_classes), len(views.names)
        self._fit(views, codes, replace(context, callbacks=(), checkpoint=None))

    def out_of_fold(
        self: Any,
        X: Views | Mapping[str, Any],
        codes: np.ndarray,
        weights: np.ndarray | None = None,
        related: Related | None = None,
        folds: int = FOLDS,
    ) -> np.ndarray:
        """The centred scores that each training row gets from a fit to the other folds' rows.

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
            turn = _turns(codes, n_classes, folds, here().seed(self.random_state))
        for fold in range(int(here().highest(turn.max(initial=0))) + 1):
            seen = turn != fold
            coefficients, intercepts = fits.fit(codes, n_classes, self.penalty_, seen, self.max_iter)
            scores[~seen] = x[~seen] @ coefficients + intercepts
        return scores - scores.mean(axis=1, keepdims=True)

    def losses(self, scores: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """The log-loss of each row, in nats, float64 (n,), by scores as `out_of_fold` gives them."""
        losses: np.ndarray = -log_softmax(scores, axis=1)[np.arange(len(codes)), codes]
        return losses

    def scores(self: Any, X: Views | Mapping[str, Any]) -> np.ndarray:
        """The scores of each class, float64 (n, M), each row's sum 0."""
        scores = self._entry.scores(self, self._rows(as_views(X)))
        return np.asarray(scores - scores.mean(axis=1, keepdims=True))

    def decision_function(self: Any, X: Views | Mapping[str, Any]) -> np.ndarray:
        """The scores, float64 (n, M), or (n,) with the margin of class 1 when M = 2."""
        scores: np.ndarray = self.scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores


class RidgeStart:
    """What a boosting model that starts from a fitted ridge regression asks of it."""

    def out_of_fold(
        self: Any,
        views: Views,
        y: np.ndarray,
        weights: np.ndarray | None = None,
        related: Related | None = None,
    ) -> np.ndarray:
        """What each training row gets from the fit to all others, float64 (n, 1), standardised.

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
        part, found = related.parts(FOLDS, y, self.random_state), np.empty((len(y), 1))
        for k in range(int(part.max()) + 1):
            seen = part != k
            spectrum = Spectrum(x[seen], counts=None if weights is None else weights[seen])
            coefficients, intercept = spectrum.path(y[seen], penalty * spectrum.scale)
            found[~seen] = x[~seen] @ coefficients + intercept
        return found

    def losses(self, scores: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The squared error of each row, float64 (n,), by scores as `out_of_fold` gives them."""
        return np.square(scores[:, 0] - y)

    def scores(self: Any, views: Views) -> np.ndarray:
        """Standardised predictions, float64 (n, 1)."""
        return np.asarray(self._entry.scores(self, self._rows(views)))


LOGISTIC = Logistic(
    components=None, chosen="penalties", middle=True, patience=2, scored=True, reading="linear_reading"
)
RIDGE = Ridge(components=None, scored=True, reading="linear_reading")
"""Entries of the table. They stand here so that boosting from a linear start does not rest on all of it."""


@dataclass(eq=False, repr=False)
class LinearBaseline(LogisticStart, Classifier):
    """Multinomial logistic regression with an L2 penalty, on one or more views.

    Numbers are standardised, categories one-hot, images the centred features of a frozen backbone, all on
    one scale.

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

    _entry: ClassVar[Package] = LOGISTIC


@dataclass(eq=False, repr=False)
class RidgeBaseline(RidgeStart, Regressor):
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

    _entry: ClassVar[Package] = RIDGE


def _turns(codes: np.ndarray, n_classes: int, folds: int, seed: int) -> np.ndarray:
    """The fold of each row, int64 (n,): stratified, also by rare classes, in any order of the classes."""
    turn, rank = np.empty((2, len(codes)), dtype=np.int64)
    order = np.random.default_rng(seed).permutation(len(codes))
    rank[order] = np.arange(len(codes))
    for k in range(n_classes):
        rows = order[codes[order] == k]
        turn[rows] = (np.arange(len(rows)) + rank[rows[:1]].sum()) % folds
    return turn

"""A quick model of a table's rows: what a grouping is worth to it, and which labels it does not believe."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.metrics import balanced_accuracy_score, r2_score
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from usboost.errors import UsboostError, silenced
from usboost.evaluation.folds import Related, Split, inner_folds

FOLDS, ROWS = 5, 4000  # limits of the quick model; of more rows, a sample of groups is drawn to compare folds
WORSE, ERRORS = 0.03, 3.3  # least difference of folds that matters: in losses of a constant, standard errors
MOST = 50  # labels that are said to look wrong
_TREES, _TURN = 60, 20  # trees; rows of a group that are drawn before others of it are
_SHARE = 0.005  # of exchanged labels, which needs no word
_EXACT, MOST_COLUMNS = 1e-6, 50  # of a label's variance, that a formula leaves to rounding; columns of it


@dataclass(frozen=True)
class Flattery:
    """Scores of the quick model ("accuracy" or "R²") by random folds, and with groups together.

    `low`, `high`: a 95 % interval of their difference, by groups drawn anew; `worse`: how much more the loss
    is with groups together (of numbers at most 1 a row, in losses of a constant); 0 where that may be chance.
    """

    score: str
    random: float
    together: float
    low: float
    high: float
    worse: float

    def __str__(self) -> str:
        both = f"{self.score} {self.random:.3f}; with these rows together {self.together:.3f}"
        return f"a quick model by random folds: {both} (less by {self.low:.3f} to {self.high:.3f})"


def out_of_fold(x: np.ndarray, y: np.ndarray, splits: list[Split]) -> np.ndarray:
    """Predict each row by a fit to the other folds, float64 (n, M), of numbers (n, 1); NaN in no fold."""
    # the squared error of 0 and 1 is Gini's impurity
    true = y[:, None] if y.dtype.kind == "f" else np.eye(int(y.max()) + 1)[y]
    out, width = np.full(true.shape, np.nan), true.shape[1]
    trees = ExtraTreesRegressor(_TREES, max_features=1.0 if width == 1 else "sqrt", random_state=0)
    for train, test in splits:
        trees.set_params(n_jobs=-1).fit(x[train], true[train].squeeze())
        out[test] = trees.set_params(n_jobs=1).predict(x[test]).reshape(-1, width)  # sums in one order
    return out


def flattery(
    x: np.ndarray,
    y: np.ndarray,
    codes: np.ndarray,
    by_random: dict[bytes, np.ndarray],
    known: np.ndarray | None = None,
    errors: float = ERRORS,
) -> Flattery | None:
    """Score the quick model by both kinds of folds; None where groups cannot be held out.

    `y`: class codes int64, or numbers float64, (n,); `codes`: of the groups, int64 (n,); `by_random`: keeps
    what random folds predict of a set of rows, for other groups of these; `known`: codes of groups that
    random folds, too, keep together; `errors`: how many standard errors `worse` has to be.
    """
    is_number, rng = y.dtype.kind == "f", np.random.default_rng(0)
    order, rows = rng.permutation(int(codes.max()) + 1)[codes], rng.permutation(len(codes))
    # some rows of each of many groups, rather than all of a few
    turns = pd.Series(rows).groupby(codes[rows]).cumcount().to_numpy() // _TURN
    rows = np.sort(rows[np.lexsort((order[rows], turns))[:ROWS]])
    x, y, codes = x[rows], y[rows], codes[rows]
    try:
        apart = (None if known is None else known[rows]), codes
        folds = [inner_folds(y, FOLDS, 0, Related.of(each, None, len(y))) for each in apart]
    except UsboostError:
        return None
    if (key := rows.tobytes() + (b"" if known is None else known.tobytes())) not in by_random:
        by_random[key] = out_of_fold(x, y, folds[0])
    predicted = np.stack([by_random[key], out_of_fold(x, y, folds[1])])
    judged = ~np.isnan(predicted[:, :, 0]).any(axis=0)
    predicted, y, codes = predicted[:, judged], y[judged], codes[judged]
    true = y[:, None] if is_number else np.eye(predicted.shape[2])[y]
    losses = ((predicted - true) ** 2).sum(axis=2) / max(true.var(axis=0).sum(), 1e-12)
    scores = 1 - losses if is_number else predicted.argmax(axis=2) == y
    # means over rows, and how they differ between groups
    bounded = np.minimum(losses, 1.0) if is_number else losses  # or a few far rows hide what all others say
    more = np.stack([bounded[1] - bounded[0], 1.0 * scores[0] - scores[1]], axis=1)
    worse = float(more[:, 0].mean())
    sums, sizes = pd.DataFrame(more).groupby(codes).sum().to_numpy(), np.unique(codes, return_counts=True)[1]
    drawn = rng.integers(len(sums), size=(999, len(sums)))
    low, high = np.quantile(sums[drawn, 1].sum(axis=1) / sizes[drawn].sum(axis=1), [0.025, 0.975]).tolist()
    error = np.std(sums[:, 0] - worse * sizes, ddof=1) * len(sums) ** 0.5 / len(y)
    # a walk loses a lot in few stretches, and something in all, which ten do by chance once in a thousand
    in_all = len(sums) >= 10 and sums[:, 0].min() > 0
    by_chance = low <= 0 or not (in_all or worse >= errors * max(error, 1e-9))
    name, (random, together) = "R²" if is_number else "accuracy", scores.mean(axis=1).tolist()
    return Flattery(name, random, together, low, high, 0.0 if by_chance else worse)


def tells(values: np.ndarray, y: np.ndarray) -> float:
    """Return how well one number of each row, float64 (n,), predicts the label: 0 not at all, 1 wholly.

    By a tree of 32 leaves, out of fold: R² of ranks; or the accuracy, as if classes were equally frequent and
    beyond chance, in all classes if each has ten rows, or in one of 20 against the others. NaN is a value.
    """
    x, folds = np.asarray(values, dtype=np.float64)[:, None], KFold(FOLDS, shuffle=True, random_state=0)
    if y.dtype.kind == "f":
        ranks, number = pd.Series(y).rank().to_numpy(), DecisionTreeRegressor(max_leaf_nodes=32)
        return float(r2_score(ranks, cross_val_predict(number, x, ranks, cv=folds)))
    tree = DecisionTreeClassifier(max_leaf_nodes=32, class_weight="balanced", random_state=0)
    counts = np.bincount(y)
    every = [y] if counts[counts > 0].min() >= 10 else []
    every += [y == code for code in np.flatnonzero((counts >= 20) & (len(y) - counts >= 10))]
    with silenced("y_pred contains classes"):
        predicted = [cross_val_predict(tree, x, each, cv=folds) for each in every]
        scores = [float(balanced_accuracy_score(*both, adjusted=True)) for both in zip(every, predicted)]
    return max(scores, default=0.0)


def formula(numbers: pd.DataFrame, y: np.ndarray) -> tuple[str, list[str]]:
    """Return how a label, float64 (n,), follows from numbers, and of which columns: few, or none.

    By least squares it is their weighted sum or, by logarithms, a product of their powers.
    """
    numbers = numbers.dropna(axis=1, thresh=int(0.95 * len(y)))
    rows = np.random.default_rng(0).permutation(np.flatnonzero(numbers.notna().all(axis=1)))[:ROWS]
    for how, change in (("a weighted sum", np.asarray), ("a product of powers", np.log)):
        with np.errstate(all="ignore"), silenced("Precision loss"):
            z, t = (stats.zscore(change(each[rows]), axis=0) for each in (numbers.to_numpy(), y))
        needed = np.flatnonzero(np.isfinite(z).all(axis=0))
        enough = len(needed) <= min(len(rows) / 2, 500) and np.isfinite(t).all()
        if not enough or (weights := _exact_sum(z[:, needed], t)) is None:
            continue
        needed, weights = needed[order := np.argsort(abs(weights))], weights[order]  # least first
        strong = needed[abs(weights) > _EXACT**0.5]
        needed = needed if _exact_sum(z[:, strong], t) is None else strong
        for k in needed if len(needed) <= MOST_COLUMNS else ():
            fewer = needed[needed != k]
            needed = needed if _exact_sum(z[:, fewer], t) is None else fewer
        if len(needed) <= min(len(rows) / 10, MOST_COLUMNS):  # or it may be by chance
            return how, [*numbers.columns[np.sort(needed)]]
    return "", []


def _exact_sum(z: np.ndarray, t: np.ndarray) -> np.ndarray | None:
    """Return the weights of the columns of z (n, p) whose sum is t (n,), all standardised; None of none."""
    weights = np.linalg.lstsq(z.T @ z / len(t), z.T @ t / len(t), rcond=1e-9)[0]
    rest, own = abs(t - z @ weights), abs(t - np.median(t))
    most, all_but_few = (np.quantile(each, 0.9) for each in (rest, own))  # a few may have all the variance
    is_exact = rest @ rest <= _EXACT * len(t) and most <= 2 * _EXACT**0.5 * all_but_few
    return weights if is_exact else None


def wrong_labels(predicted: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return rows whose label looks wrong, the likeliest first; none where chance leaves as many.

    A margin is the probability of a label less that of the likeliest other class; its rank, among those that
    labels exchanged at random would have. Of exchanged labels, ranks are uniform. Of others they follow the
    binormal ROC curve through their lower quartile, and up to a rank `reach` fewer than `_SHARE` of the
    others are expected. As many labels are named as an exact test at 1 in 100 finds more than both; those of
    classes that are badly told have no say. `predicted`: out of fold, float64 (n, M), NaN in no fold.
    """
    rows, is_own = np.flatnonzero(~np.isnan(predicted[:, 0])), np.eye(predicted.shape[1], dtype=bool)[y]
    predicted, is_own, y = predicted[rows], is_own[rows], y[rows]
    second, first = np.sort(predicted, axis=1)[:, -2:].T[..., None]
    margins = predicted - np.where(predicted == first, second, first)
    own, others = margins[is_own], np.sort(margins[~is_own])
    sides = np.searchsorted(others, own, "left") + np.searchsorted(others, own, "right")
    ranks = (sides + 1) / 2 / (len(others) + 1)
    # half of exchanged labels have ranks below 1/2
    is_told = pd.Series(ranks <= 0.5).groupby(y).transform("mean").to_numpy() <= 0.25
    rows, ranks = rows[order := np.lexsort((own, ~is_told))[: is_told.sum()]], np.sort(ranks[is_told])
    reach, n = np.arange(51) / 100, len(order)
    apart = stats.norm.ppf(np.quantile(ranks, 0.25) if n else 0.5) - stats.norm.ppf(0.25)
    hard = stats.norm.cdf(stats.norm.ppf(reach) - apart)
    last = np.flatnonzero(hard <= _SHARE * reach)[-1]
    observed = int((ranks <= reach[last]).sum())
    is_chance = stats.binom.sf(observed - 1, n, _SHARE * reach[last] + hard[last]) > 0.01
    return rows[: 0 if is_chance else min(MOST, round((observed - n * hard[last]) / reach[last]))]

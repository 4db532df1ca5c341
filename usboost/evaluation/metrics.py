"""The metrics: scores of predicted classes, probabilities and numbers.

In all of them y is int (n,), classes 0..M−1, or float (n,); probabilities are float (n, M), predicted numbers
float (n,) in the units of y; weight is float (n,), positive, and 1 by default.
"""

import numpy as np

from usboost.errors import UsboostError
from usboost.evaluation.statistics import mean
from usboost.shards.collective import world

SMALLEST = 1e-12
"""A probability counts as no less in a log-loss."""


def confusion(
    y: np.ndarray, predicted: np.ndarray, n_classes: int, weight: np.ndarray | None = None
) -> np.ndarray:
    """Count rows, or sum their weights, by true class (row) and predicted class (column): (M, M)."""
    counts = np.bincount(y * n_classes + predicted, weight, n_classes**2)
    return np.asarray(world().sum(counts)).reshape(n_classes, n_classes)


def f1(y: np.ndarray, predicted: np.ndarray, n_classes: int, weight: np.ndarray | None = None) -> float:
    """Return F1 of class 1 for two classes, macro-averaged for more (the paper does not specify it).

    A class that is neither present nor predicted counts 0, as in scikit-learn.
    """
    each = per_class(confusion(y, predicted, n_classes, weight))["f1"]
    return float(each[1] if n_classes == 2 else each.mean())


def accuracy(y: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None = None) -> float:
    return mean(y == predicted, weight)


def row_losses(y: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Return how badly each row is predicted, float64 (n,): log-loss in nats, or of numbers squared error."""
    if predicted.ndim == 1:
        return np.square(y - predicted)
    return np.asarray(-np.log(np.maximum(predicted[np.arange(len(y)), y], SMALLEST)))


def best_threshold(y: np.ndarray, probability: np.ndarray, weight: np.ndarray | None = None) -> float:
    """Return the threshold t at which "class 1 where its probability ≥ t" has the highest F1 on these rows.

    It is halfway between two neighbouring probabilities of class 1, (n,); the highest such t of equals.
    """
    order = np.argsort(-probability, kind="stable")
    own = np.ones(len(y)) if weight is None else weight[order]
    ranked, hits = probability[order], np.cumsum(own * y[order])
    scores = 2 * hits / (np.cumsum(own) + hits[-1])
    # a cut lies between two different probabilities, or after the last
    cuts = np.append(np.flatnonzero(ranked[1:] < ranked[:-1]), len(y) - 1)
    best = cuts[scores[cuts].argmax()]
    below = ranked[best + 1] if best + 1 < len(y) else 0.0
    return float((ranked[best] + below) / 2)


def auc(positive: np.ndarray, score: np.ndarray, weight: np.ndarray | None = None) -> float:
    """Return the share of pairs, one positive and one not, in which the positive scores higher; ties half.

    Some of `positive`, bool (n,), are true and some not. A pair counts by the product of its two weights.
    """
    _, place = np.unique(score, return_inverse=True)
    own = np.ones(len(score)) if weight is None else weight
    right, wrong = (np.bincount(place, own * each) for each in (positive, ~positive))
    return float(right @ (np.cumsum(wrong) - wrong / 2) / (right.sum() * wrong.sum()))


def average_precision(positive: np.ndarray, score: np.ndarray, weight: np.ndarray | None = None) -> float:
    """Return the area under precision over recall (PR-AUC), Σ (recall_k − recall_{k−1}) · precision_k.

    NaN where none is positive; equal scores are one threshold.
    """
    order = np.argsort(-score, kind="stable")
    own = np.ones(len(score)) if weight is None else weight[order]
    ranked, above, hits = score[order], np.cumsum(own), np.cumsum(own * positive[order])
    if not len(hits) or not hits[-1]:
        return float("nan")
    cuts = np.append(np.flatnonzero(ranked[1:] < ranked[:-1]), len(score) - 1)
    return float((np.diff(hits[cuts], prepend=0) * hits[cuts] / above[cuts]).sum() / hits[-1])


def per_class(counts: np.ndarray) -> dict[str, np.ndarray]:
    """Return precision, recall and F1 of each class, float64 (M,), and its rows, "support".

    `counts` are `confusion`'s. Where nothing of a class was predicted, or there is none, its precision or
    recall is NaN, and F1 is 0, as in `f1`.
    """
    right, true, predicted = np.diag(counts).astype(float), counts.sum(axis=1), counts.sum(axis=0)

    def share(whole: np.ndarray, none: float) -> np.ndarray:
        return np.divide(right, whole, out=np.full(len(right), none), where=whole > 0)

    rates = {"precision": share(predicted, np.nan), "recall": share(true, np.nan)}
    return {**rates, "f1": 2 * share(true + predicted, 0.0), "support": true}


def score_answers(y: np.ndarray, answers: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    """Return scores of two classes besides `score`'s, of answers, 0 and 1, and probabilities of class 1.

    Keys are "pr_auc"; "balanced_accuracy", the mean of both recalls; "answer_f1" and "answer_accuracy", of
    the answers. NaN where a class is missing.
    """
    counts = confusion(y, answers, 2)
    return {
        "pr_auc": average_precision(y == 1, scores),
        "balanced_accuracy": float(per_class(counts)["recall"].mean()),
        "answer_f1": f1(y, answers, 2),
        "answer_accuracy": accuracy(y, answers),
    }


def score(y: np.ndarray, probabilities: np.ndarray, weight: np.ndarray | None = None) -> dict[str, float]:
    """Return F1, accuracy, log-loss (nats) and AUC of class probabilities.

    Written out in NumPy: a bootstrap scores hundreds of draws, and scikit-learn's checks of its arguments
    take several times as long as the scores.

    Keys are "f1", "accuracy", "log_loss" and "auc", one-vs-rest macro for more than two classes, NaN where
    the rows hold fewer classes than the model. Raises `UsboostError` if a probability is not finite.
    """
    n_classes = probabilities.shape[1]
    if not np.isfinite(probabilities).all():
        raise UsboostError("a probability is not finite; fit with a smaller learning rate or shrinkage")
    predicted = probabilities.argmax(axis=1)
    clipped = np.clip(probabilities.astype(np.float64), SMALLEST, None)
    clipped /= clipped.sum(axis=1, keepdims=True)
    if len(np.unique(y)) < n_classes:
        area = float("nan")
    else:
        # ranked as they are: what is clipped or divided has other ties
        classes = [1] if n_classes == 2 else range(n_classes)
        area = float(np.mean([auc(y == k, probabilities[:, k], weight) for k in classes]))
    return {
        "f1": f1(y, predicted, n_classes, weight),
        "accuracy": accuracy(y, predicted, weight),
        "log_loss": -mean(np.log(clipped[np.arange(len(y)), y]), weight),
        "auc": area,
    }


def rmse(y: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None = None) -> float:
    """Return the root of the mean squared error, in the units of y, (n,)."""
    return float(np.sqrt(mean(np.square(y - predicted), weight)))


def mae(y: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None = None) -> float:
    """Return the mean absolute error, in the units of y, (n,)."""
    return mean(np.abs(y - predicted), weight)


def r2(y: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None = None) -> float:
    """Return 1 − Σ(y − ŷ)² / Σ(y − ȳ)²: the share of the variance of y, (n,), that is explained.

    NaN where all of y are equal, or there is only one: then nothing is to be explained.
    """
    own = 1.0 if weight is None else weight
    total = float((own * np.square(y - mean(y, weight))).sum())
    missed = float((own * np.square(y - predicted)).sum())
    return 1.0 - missed / total if np.ptp(y) > 0 and total > 0 else float("nan")


def score_regression(
    y: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None = None
) -> dict[str, float]:
    """Return RMSE, MAE and R² of predictions: "rmse", "mae" and "r2", NaN where it has no meaning.

    Raises `UsboostError` if a prediction is not finite.
    """
    if not np.isfinite(predicted).all():
        raise UsboostError("a prediction is not finite; fit with a smaller learning rate or shrinkage")
    return {each.__name__: each(y, predicted, weight) for each in (rmse, mae, r2)}


def extra_metrics(
    y: np.ndarray, probabilities: np.ndarray, weight: np.ndarray | None = None
) -> dict[str, float]:
    """Return further scores of class probabilities, `ranking.EXTRA_METRICS`, as scikit-learn defines them.

    "precision" and "recall" are those of class 1 of two, the mean over the classes of more, and "pr_auc"
    likewise; where nothing is predicted, or there is nothing, they are 0. "balanced_accuracy" is the mean
    recall of the classes that are there, "brier" the mean of Σ_k (p_k − y_k)², half of it for two classes.
    "pr_auc" is NaN where a class is missing.
    """
    n_classes = probabilities.shape[1]
    p = probabilities.astype(np.float64)
    counts = confusion(y, p.argmax(axis=1), n_classes, weight)
    parts = {name: np.nan_to_num(each) for name, each in per_class(counts).items()}
    support = parts.pop("support")
    present = support > 0
    classes = [1] if n_classes == 2 else range(n_classes)
    whole, true, guessed = (each.astype(float) for each in (counts, counts.sum(axis=1), counts.sum(axis=0)))
    shared = np.trace(whole) * whole.sum() - true @ guessed
    spread = (whole.sum() ** 2 - guessed @ guessed) * (whole.sum() ** 2 - true @ true)
    squares = np.square(p - np.eye(n_classes)[y]).sum(axis=1) / (2 if n_classes == 2 else 1)
    averaged = {f"{name}_macro": float(each.mean()) for name, each in parts.items()}
    weighted = {f"{name}_weighted": float(np.average(each, weights=support)) for name, each in parts.items()}
    shown = {
        name: float(parts[name][1]) if n_classes == 2 else averaged[f"{name}_macro"]
        for name in ("precision", "recall")
    }
    return {
        "balanced_accuracy": float(parts["recall"][present].mean()),
        "pr_auc": float(np.mean([average_precision(y == k, p[:, k], weight) for k in classes])),
        **shown,
        **averaged,
        **weighted,
        "mcc": float(shared / np.sqrt(spread)) if spread > 0 else 0.0,
        "brier": mean(squares, weight),
    }


def extra_regression_metrics(
    y: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None = None
) -> dict[str, float]:
    """Return further scores of predictions, `ranking.EXTRA_REGRESSION_METRICS`, as scikit-learn defines them.

    "mse" is in squared units; "mape" is a share of |y|, huge where some y is 0; "explained_variance" is NaN
    where all of y are equal.
    """
    from sklearn import metrics  # a bootstrap, which cannot wait for its checks, has none of these

    variance = metrics.explained_variance_score(y, predicted, sample_weight=weight)
    return {
        "mse": mean(np.square(y - predicted), weight),
        "median_ae": float(metrics.median_absolute_error(y, predicted, sample_weight=weight)),
        "mape": float(metrics.mean_absolute_percentage_error(y, predicted, sample_weight=weight)),
        "max_error": float(metrics.max_error(y, predicted)),
        "explained_variance": float(variance) if np.ptp(y) > 0 else float("nan"),
    }

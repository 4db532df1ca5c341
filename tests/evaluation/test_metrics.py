"""Scores against brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    accuracy_score,
    f1_score,
    log_loss,
    mean_absolute_error,
    precision_recall_fscore_support,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)

from tests.conftest import refuses
from usboost.boosting.callbacks import improves
from usboost.evaluation.intervals import intervals
from usboost.evaluation.metrics import best_threshold, confusion, f1, per_class, score, score_regression
from usboost.evaluation.ranking import LOWER_IS_BETTER, REGRESSION_METRICS, best, check_metric
from usboost.evaluation.task import TASKS

rows = st.lists(st.tuples(st.integers(0, 1), st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.7, 1.0])), min_size=1)


def f1_at(y: np.ndarray, p: np.ndarray, threshold: float) -> float:
    return f1(y, (p >= threshold).astype(int), 2)


@given(rows.filter(lambda rows: any(label for label, _ in rows)))
def test_no_other_threshold_has_a_higher_f1(rows: list[tuple[int, float]]) -> None:
    y, p = np.array([label for label, _ in rows]), np.array([value for _, value in rows])
    found = f1_at(y, p, best_threshold(y, p))
    assert found == max(f1_at(y, p, threshold) for threshold in [0.0, *p, 1.1])


def test_a_threshold_lies_between_two_probabilities() -> None:
    y, p = np.array([0, 0, 1, 1]), np.array([0.1, 0.2, 0.4, 0.9])
    assert np.isclose(best_threshold(y, p), 0.3)


@settings(max_examples=50)
@given(st.sampled_from([2, 3, 5]), st.integers(0, 10_000), st.sampled_from([1, 8]), st.sampled_from("fd"))
def test_scores_are_scikit_learns(n_classes: int, seed: int, levels: int, kind: str) -> None:
    """With many equal probabilities (few levels), zeros among them, and with none."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.append(np.arange(n_classes), rng.integers(0, n_classes, 20)))
    raw = rng.random((len(y), n_classes)).round(levels) + (np.arange(n_classes) == 0) * 1e-3
    p = (raw / raw.sum(axis=1, keepdims=True)).astype(kind)
    found = score(y, p)
    labels, asked = np.arange(n_classes), range(n_classes) if n_classes > 2 else [1]
    exact = np.clip(p.astype(np.float64), 1e-12, None)
    exact /= exact.sum(axis=1, keepdims=True)
    average = "binary" if n_classes == 2 else "macro"
    expected = {
        "f1": f1_score(y, p.argmax(axis=1), labels=labels, average=average, zero_division=0),
        "accuracy": accuracy_score(y, p.argmax(axis=1)),
        "log_loss": log_loss(y, exact, labels=labels),
        # by the probabilities as they are: of float32 that are divided again, equal ones may differ
        "auc": np.mean([roc_auc_score(y == k, p[:, k]) for k in asked]),
    }
    assert found == pytest.approx(expected, rel=1e-12)


def test_a_class_that_is_missing_leaves_no_auc_and_a_number_that_is_none_no_score() -> None:
    p = np.full((2, 3), 1 / 3)
    assert np.isnan(score(np.array([0, 1]), p)["auc"])
    p[0, 0] = np.nan
    refuses("not finite", score, np.array([0, 1]), p)


@given(
    st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3)), min_size=2).filter(
        lambda rows: np.ptp([y for y, _ in rows]) > 1e-3
    )
)
def test_scores_of_a_regression_are_scikit_learns(rows: list[tuple[float, float]]) -> None:
    y, predicted = np.array(rows).T
    found = score_regression(y, predicted)
    assert tuple(found) == REGRESSION_METRICS
    assert np.isclose(found["rmse"], root_mean_squared_error(y, predicted))
    assert np.isclose(found["mae"], mean_absolute_error(y, predicted))
    assert np.isclose(found["r2"], r2_score(y, predicted))


def test_equal_targets_have_no_r2_and_predictions_are_finite() -> None:
    assert np.isnan(score_regression(np.ones(3), np.arange(3.0))["r2"])
    refuses("a prediction is not finite", score_regression, np.ones(2), np.array([1.0, np.nan]))


def test_a_score_is_of_a_task_and_better_higher_or_lower() -> None:
    assert check_metric("mae", REGRESSION_METRICS) == "mae"
    refuses(r"'f1'.* rmse, mae, r2", check_metric, "f1", REGRESSION_METRICS)
    assert {name for name in REGRESSION_METRICS if name in LOWER_IS_BETTER} == {"rmse", "mae"}
    assert best([("a", {"rmse": 2.0}), ("b", {"rmse": 1.0}), ("c", {"rmse": None})], "rmse") == "b"
    assert improves({"rmse_val": 1.0}, {"rmse_val": 2.0}, "rmse_val")
    assert not improves({"r2_val": 0.1}, {"r2_val": 0.2}, "r2_val")


def test_intervals_of_a_regression_hold_the_true_score_as_often_as_they_say() -> None:
    """The RMSE of errors of deviation 1 is 1; of 40 intervals of 95 % about two miss it."""
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(40):
        y = rng.normal(size=300)
        value, low, high = intervals(y + rng.normal(size=300), y, draws=200)["rmse"]
        assert low < value < high
        hits += low <= 1 <= high
    assert 32 <= hits <= 40


def test_precision_and_recall_are_scikit_learns():
    rng = np.random.default_rng(0)
    for n_classes in (2, 4):
        y, answers = rng.integers(0, n_classes, (2, 90))
        y[y == 3] = 2  # one class that no row has
        found = per_class(confusion(y, answers, n_classes))
        expected = precision_recall_fscore_support(y, answers, labels=range(n_classes), zero_division=0)
        for name, values in zip(("precision", "recall", "f1", "support"), expected, strict=True):
            assert np.nan_to_num(found[name]) == pytest.approx(values)
        assert np.isnan(found["recall"]).sum() == (n_classes == 4)


def test_a_gain_is_the_score_of_which_more_is_better() -> None:
    rng = np.random.default_rng(0)
    y, p = rng.integers(0, 3, 50), rng.dirichlet(np.ones(3), 50)
    task = TASKS["classification"]
    assert task.answers(p).tolist() == p.argmax(axis=1).tolist()
    found = task.gain("f1", p)(y, task.answers(p))
    assert found == pytest.approx(f1_score(y, p.argmax(axis=1), average="macro"))
    numbers, predicted = rng.normal(size=50), rng.normal(size=50)
    task = TASKS["regression"]
    scores = task.score(numbers, predicted)
    for metric in task.metrics:
        gain = task.gain(metric, predicted)(numbers, task.answers(predicted))
        assert gain == pytest.approx(scores[metric] * (-1 if metric in LOWER_IS_BETTER else 1))
    assert task.gain("mae", predicted)(numbers, predicted) == -mean_absolute_error(numbers, predicted)
    assert task.gain("r2", predicted)(numbers, predicted) == pytest.approx(r2_score(numbers, predicted))


def test_no_constant_is_better_than_the_one_that_is_told() -> None:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 3, 40)
    assert TASKS["classification"].constant(y)[1:] == ("accuracy", max((y == k).mean() for k in range(3)))
    numbers = rng.normal(5, 2, 40)
    words, metric, value = TASKS["regression"].constant(numbers)
    tried = [np.sqrt(np.mean((numbers - c) ** 2)) for c in np.linspace(0, 10, 2001)]
    assert (words, metric) == ("these rows’ mean", "rmse") and value <= min(tried) < value + 1e-4

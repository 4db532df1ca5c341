"""Scores against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, log_loss, roc_auc_score

from usboost.errors import UsboostError
from usboost.evaluation.metrics import best_threshold, f1, score

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


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1))
def test_f1_is_scikit_learns(rows: list[tuple[int, int]]) -> None:
    y, predicted = np.array(rows).T
    expected = f1_score(y, predicted, labels=[0, 1, 2], average="macro", zero_division=0)
    assert np.isclose(f1(y, predicted, 3), expected)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1))
def test_f1_of_two_classes_is_that_of_class_1(rows: list[tuple[int, int]]) -> None:
    y, predicted = np.array(rows).T
    assert np.isclose(f1(y, predicted, 2), f1_score(y, predicted, zero_division=0))


@settings(max_examples=50)
@given(st.sampled_from([2, 3, 5]), st.integers(0, 10_000), st.sampled_from([1, 8]), st.sampled_from("fd"))
def test_scores_are_scikit_learns(n_classes: int, seed: int, levels: int, kind: str) -> None:
    """With many equal probabilities (few levels), zeros among them, and with none."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.append(np.arange(n_classes), rng.integers(0, n_classes, 20)))
    raw = rng.random((len(y), n_classes)).round(levels) + (np.arange(n_classes) == 0) * 1e-3
    p = (raw / raw.sum(axis=1, keepdims=True)).astype(kind)
    found = score(y, p)
    labels, area = np.arange(n_classes), {"multi_class": "ovr"} if n_classes > 2 else {}
    exact = np.clip(p.astype(np.float64), 1e-12, None)
    exact /= exact.sum(axis=1, keepdims=True)
    average = "binary" if n_classes == 2 else "macro"
    expected = {
        "f1": f1_score(y, p.argmax(axis=1), labels=labels, average=average, zero_division=0),
        "accuracy": accuracy_score(y, p.argmax(axis=1)),
        "log_loss": log_loss(y, exact, labels=labels),
        "auc": roc_auc_score(y, exact if n_classes > 2 else exact[:, 1], labels=labels, **area),
    }
    assert found == pytest.approx(expected, rel=1e-12)


def test_a_class_that_is_missing_leaves_no_auc_and_a_number_that_is_none_no_score() -> None:
    p = np.full((2, 3), 1 / 3)
    assert np.isnan(score(np.array([0, 1]), p)["auc"])
    p[0, 0] = np.nan
    with pytest.raises(UsboostError, match="not finite"):
        score(np.array([0, 1]), p)
